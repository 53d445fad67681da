// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Walks as kmod/helpers/walk.c does, over stacks from standard input. All are numbers: the walk
 * (0: by frame pointers, 1: by rules), the memory's address and words, the ranges, rules and kept
 * steps, each after how many there are, where the walk begins, and the word that changes after it.
 * Prints a line for each walk.
 */
#include "../../../kmod/helpers/walk.c"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULES 2048
#define STEPS_MAX 128

u64 memory_start, memory[MEMORY_WORDS];
static struct nsprobe_range ranges[8];
static struct nsprobe_rule rules[RULES];
static struct nsprobe_step kept[STEPS_MAX], steps[STEPS_MAX];
static u64 words[STEPS_MAX];

static u64 number(void)
{
	u64 number;

	if (scanf("%" SCNu64, &number) != 1)
		exit(0);
	return number;
}

static void read_words(void *to, size_t count)
{
	u64 *word = to;

	for (; count; count--)
		*word++ = number();
}

int main(void)
{
	for (;;) {
		struct nsprobe_walk walk = { .ranges = ranges, .rules = rules, .kept = kept,
					     .steps = steps, .words = words,
					     .rule_mask = RULES - 1 };
		u64 by_rules = number(), count, changing;
		u32 why, i;

		memory_start = number();
		read_words(memory, MEMORY_WORDS);
		count = number();
		read_words(ranges, 4 * count);
		walk.ranges_end = ranges + count;
		memset(rules, 0, sizeof(rules));
		for (count = number(); count; count--) {
			u64 key = number();

			rules[key * NSPROBE_GOLDEN >> 48 & (RULES - 1)] =
				(struct nsprobe_rule){ key, number() };
		}
		count = number();
		read_words(kept, 5 * count);
		walk.kept_end = kept + count;
		walk.method = number();
		walk.top = number();
		walk.top_method = number();
		walk.inside = number();
		walk.rsp = number();
		walk.rbp = number();
		walk.room = number();
		walk.has_read_rbp = number();
		changing = number();
		why = by_rules ? nsprobe_follow_rules(&walk) : nsprobe_follow_frame_pointers(&walk);
		memory[changing] ^= 8;
		printf("%u %td %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %d %u", why, walk.kept - kept,
		       walk.inside, walk.rsp, walk.rbp, walk.needs_rbp, walk.has_read_rbp,
		       nsprobe_matching(steps, walk.taken, !by_rules));
		for (i = 0; i < walk.taken; i++)
			printf(" %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, steps[i].slot,
			       steps[i].rip, steps[i].rbp_slot, steps[i].rbp, words[i]);
		putchar('\n');
		fflush(stdout);
	}
}
