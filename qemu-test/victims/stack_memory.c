// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// Calls `on_other_memory` from frames that lie in memory of other kinds than stacks usually do.
//
// Lines of stdin: "N KIND", N calls from frames in memory of that kind (see `kinds`). Prints
// "ready PID" first and "called N" (in all) after each line. Ends when a call has changed
// what is mapped.
#define _GNU_SOURCE
#include <err.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define HUGE_PAGE (2ul << 20)
#define CHAIN 5
/* Where nothing else is, below all that is mapped later. */
#define STACK 0x10000000ul
#define BOTH (PROT_READ | PROT_WRITE)

long enter(unsigned long frame, unsigned long stack);
extern char behind_call[];

/* Goes to another frame pointer and a stack below it for the time of the call. */
__asm__(".text\n.globl on_other_memory\n.type on_other_memory, @function\n"
	"on_other_memory:\npush %rbx\nmov $1, %eax\npop %rbx\nret\n"
	".size on_other_memory, . - on_other_memory\n"
	".globl enter\n.type enter, @function\nenter:\n"
	"push %rbp\npush %rbx\nmov %rsp, %rbx\nmov %rsi, %rsp\nmov %rdi, %rbp\n"
	"call on_other_memory\nbehind_call:\n"
	"mov %rbx, %rsp\npop %rbx\npop %rbp\nret\n"
	".size enter, . - enter\n");

static char *map(size_t bytes, int flags)
{
	char *at = mmap(NULL, bytes, BOTH, flags | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		err(1, "mmap");
	return at;
}

/* A chain of frames, that begins at the end of which, with no caller, is the last. */
static char *chain(char *place)
{
	unsigned long(*frames)[2] = (void *)place;

	for (int i = 0; i < CHAIN; i++) {
		frames[i][0] = i + 1 < CHAIN ? (unsigned long)frames[i + 1] : 0;
		frames[i][1] = (unsigned long)behind_call;
	}
	return place;
}

static char *huge(void)
{
	return map(HUGE_PAGE, MAP_PRIVATE | MAP_HUGETLB);
}

static char *huge_page(void)
{
	return chain(huge() + HUGE_PAGE / 2);
}

/* The first touch would take the page. */
static char *huge_page_untouched(void)
{
	return huge();
}

static char *transparent_huge_page(void)
{
	char *all = map(2 * HUGE_PAGE, MAP_PRIVATE);
	char *at = (char *)(((unsigned long)all + HUGE_PAGE - 1) & -HUGE_PAGE);

	madvise(at, HUGE_PAGE, MADV_HUGEPAGE);
	memset(at, 1, HUGE_PAGE);
	/* Memory may be in pieces for a moment. */
	for (int tries = 0; madvise(at, HUGE_PAGE, MADV_COLLAPSE) != 0; tries++) {
		if (tries == 2000)
			err(1, "MADV_COLLAPSE");
		usleep(10000);
	}
	return chain(at + HUGE_PAGE / 2);
}

/* Pages that are all the same, so that the kernel keeps one of them. */
static char *merged(void)
{
	char *at = map(8 * PAGE, MAP_PRIVATE);

	madvise(at, 8 * PAGE, MADV_NOHUGEPAGE);
	chain(at);
	for (int page = 1; page < 8; page++)
		memcpy(at + page * PAGE, at, PAGE);
	if (madvise(at, 8 * PAGE, MADV_MERGEABLE) != 0)
		err(1, "MADV_MERGEABLE");
	return at;
}

static char *shared(void)
{
	return chain(map(PAGE, MAP_SHARED));
}

static char *shared_untouched(void)
{
	return map(PAGE, MAP_SHARED);
}

/* Memory below which there is room, that grows when it is touched there. */
static char *growing(void)
{
	char *room = map(1024 * PAGE, MAP_PRIVATE);

	munmap(room, 1024 * PAGE);
	room = mmap(room + 1000 * PAGE, 4 * PAGE, BOTH,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
	if (room == MAP_FAILED)
		err(1, "mmap");
	return room;
}

static char *top_of_growing(void)
{
	return chain(growing());
}

static char *below_growing(void)
{
	return growing() - 2 * PAGE;
}

static const struct kind {
	const char *name;
	char *(*make)(void);
} kinds[] = {
	{ "huge", huge_page },
	{ "huge-untouched", huge_page_untouched },
	{ "transparent-huge", transparent_huge_page },
	{ "merged", merged },
	{ "shared", shared },
	{ "shared-untouched", shared_untouched },
	{ "growing", top_of_growing },
	{ "below-growing", below_growing },
};

static char *made[sizeof(kinds) / sizeof(kinds[0])];

/* Bits: the page is mapped, and it is in memory. */
static int state(char *at)
{
	unsigned char is_there = 0;

	if (mincore((char *)((unsigned long)at & -PAGE), PAGE, &is_there) != 0)
		return 0;
	return 1 | (is_there & 1) << 1;
}

int main(void)
{
	long called = 0, count;
	char name[32];

	if (mmap((void *)STACK, PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		 0) != (void *)STACK)
		err(1, "mmap");
	setlinebuf(stdout);
	printf("ready %d\n", getpid());
	while (scanf("%ld %31s", &count, name) == 2) {
		unsigned long kind = 0;

		while (kind < sizeof(made) / sizeof(made[0]) && strcmp(kinds[kind].name, name))
			kind++;
		if (kind == sizeof(made) / sizeof(made[0]))
			errx(1, "no such kind: %s", name);
		if (!made[kind])
			made[kind] = kinds[kind].make();
		int before = state(made[kind]);

		for (; count > 0; count--)
			called += enter((unsigned long)made[kind], STACK + PAGE);
		if (state(made[kind]) != before)
			errx(1, "%s: %d before, %d behind", name, before, state(made[kind]));
		printf("called %ld\n", called);
	}
	return 0;
}
