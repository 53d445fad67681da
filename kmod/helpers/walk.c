// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loops over user memory. Nothing may be called while it is open, and Rust has no
 * way to open it. The structs are those of kmod/sys/user_walk.rs.
 */

#include <linux/uaccess.h>

struct nsprobe_step {
	u64 slot;
	u64 rip;
	u64 rbp_slot;
	u64 rbp;
	u64 word;
};

struct nsprobe_range {
	u64 start;
	u64 bytes;
	u64 base;
	u64 object;
};

struct nsprobe_rule {
	u64 key;
	u64 rule;
};

struct nsprobe_walk {
	struct nsprobe_range last;
	const struct nsprobe_range *ranges;
	const struct nsprobe_rule *rules;
	const struct nsprobe_step *kept;
	const struct nsprobe_step *kept_end;
	struct nsprobe_step *steps;
	u64 *words;
	u64 method;
	u64 top;
	u64 top_method;
	u64 rip;
	u64 rsp;
	u64 rbp;
	u64 key;
	u64 rule;
	u64 missed;
	u32 range_count;
	u32 room;
	u32 taken;
	bool needs_rbp;
	bool has_read_rbp;
};

enum nsprobe_walk_stop {
	NSPROBE_WALK_OTHER,
	NSPROBE_WALK_MEETS,
	NSPROBE_WALK_ENDED,
	NSPROBE_WALK_LIMIT,
	NSPROBE_WALK_FAULT,
	/* The caller is in another range than the frame before. */
	NSPROBE_WALK_RANGE,
};

#define NSPROBE_BY_RBP (1ull << 48)
#define NSPROBE_SAVES (1ull << 49)
#define NSPROBE_SAVES_BELOW (1ull << 50)
#define NSPROBE_GOLDEN 0x9e3779b97f4a7c15ull
/* As RULE_BITS has it. */
#define NSPROBE_RULE_SHIFT (64 - 11)

u32 nsprobe_matching(const struct nsprobe_step *step, u32 count)
{
	u32 i;
	u64 word;

	if (!user_access_begin((void __user *)0, 0))
		return 0;
	for (i = 0; i < count; i++, step++) {
		unsafe_get_user(word, (const u64 __user *)step->slot, out);
		if (word != step->rip)
			break;
		if (!step->rbp_slot)
			continue;
		unsafe_get_user(word, (const u64 __user *)step->rbp_slot, out);
		if (word != step->rbp)
			break;
	}
out:
	user_access_end();
	return i;
}

/* No speculation goes beyond user memory, where access_ok() would need a fence. */
static __always_inline const u64 __user *nsprobe_user(u64 address)
{
	return mask_user_address((const void __user *)address);
}

/* Whether the walk knows the code that holds an address; it is the last range then. */
static bool nsprobe_find_range(struct nsprobe_walk *walk, u64 address)
{
	const struct nsprobe_range *range = walk->ranges;
	u32 left;

	for (left = walk->range_count; left; left--, range++) {
		if (address - range->start < range->bytes) {
			walk->last = *range;
			return true;
		}
	}
	return false;
}

/* A return address that may be a trampoline begins a page; zero is none. */
static __always_inline bool nsprobe_is_plain(u64 rip)
{
	return rip & (PAGE_SIZE - 1);
}

/* Where the next kept step is, which a step may be; nowhere if there is none. */
static __always_inline u64 nsprobe_next_slot(const struct nsprobe_walk *walk)
{
	return walk->kept < walk->kept_end ? walk->kept->slot : U64_MAX;
}

/* Whether a step leads to the same registers as a kept one, which is the next one then. */
static __always_inline bool nsprobe_is_kept(struct nsprobe_walk *walk,
					    const struct nsprobe_step *step, u64 *next_slot)
{
	const struct nsprobe_step *kept = walk->kept;
	const u64 slot = step->slot;

	if (walk->kept_end[-1].slot < slot)
		kept = walk->kept_end;
	while (kept < walk->kept_end && kept->slot < slot)
		kept++;
	walk->kept = kept;
	*next_slot = nsprobe_next_slot(walk);
	return *next_slot == slot && kept->rip == step->rip && kept->rbp == step->rbp &&
	       kept->word == step->word;
}

/* Follows frame pointers within the last range; comes to `caller` where that ends. */
static __always_inline u32 nsprobe_frame_pointers_in_range(struct nsprobe_walk *walk, u64 *caller)
{
	struct nsprobe_step *step = walk->steps + walk->taken;
	const struct nsprobe_step *end = walk->steps + walk->room;
	u64 *words = walk->words + walk->taken;
	/* Of return addresses, which are behind their calls. */
	const u64 start = walk->last.start + 1, bytes = walk->last.bytes;
	const u64 place = walk->last.base + walk->method;
	u64 rsp = walk->rsp, rbp = walk->rbp, next_slot = nsprobe_next_slot(walk);
	u32 why = NSPROBE_WALK_FAULT;

	if (!user_access_begin((void __user *)0, 0))
		return NSPROBE_WALK_OTHER;
	for (;;) {
		const u64 __user *at = nsprobe_user(rbp);
		u64 saved, rip, slot = rbp + 8;

		if (unlikely(rbp & 7 || rbp < rsp)) {
			why = NSPROBE_WALK_ENDED;
			break;
		}
		unsafe_get_user(saved, at, out);
		unsafe_get_user(rip, at + 1, out);
		if (unlikely(!nsprobe_is_plain(rip))) {
			why = NSPROBE_WALK_OTHER;
			break;
		}
		if (unlikely(rip - start >= bytes)) {
			*caller = rip - 1;
			why = NSPROBE_WALK_RANGE;
			break;
		}
		if (unlikely(step == end)) {
			why = NSPROBE_WALK_LIMIT;
			break;
		}
		step->slot = slot;
		step->rip = rip;
		step->rbp_slot = rbp;
		step->rbp = saved;
		rip += place;
		step->word = rip;
		*words++ = rip;
		step++;
		rsp = rbp + 16;
		rbp = saved;
		if (unlikely(slot >= next_slot) && nsprobe_is_kept(walk, step - 1, &next_slot)) {
			why = NSPROBE_WALK_MEETS;
			break;
		}
	}
out:
	user_access_end();
	walk->rsp = rsp;
	walk->rbp = rbp;
	walk->missed = rbp;
	walk->taken = step - walk->steps;
	return why;
}

/* The step from a function's entry, where the return address is on top of the stack. */
static __always_inline u32 nsprobe_step_from_entry(struct nsprobe_walk *walk)
{
	struct nsprobe_step *step = walk->steps;
	const u64 rip = walk->top;
	u64 next_slot = nsprobe_next_slot(walk);

	if (!walk->room || !nsprobe_is_plain(rip) ||
	    (rip - 1 - walk->last.start >= walk->last.bytes && !nsprobe_find_range(walk, rip - 1)))
		return NSPROBE_WALK_OTHER;
	step->slot = walk->rsp;
	step->rip = rip;
	step->rbp_slot = 0;
	step->rbp = walk->rbp;
	step->word = walk->words[0] = rip + walk->last.base + walk->top_method;
	walk->rsp += 8;
	walk->rip = rip;
	walk->taken = 1;
	if (step->slot >= next_slot && nsprobe_is_kept(walk, step, &next_slot))
		return NSPROBE_WALK_MEETS;
	return NSPROBE_WALK_RANGE;
}

u32 nsprobe_follow_frame_pointers(struct nsprobe_walk *walk)
{
	u64 caller;
	u32 why;

	if (walk->top) {
		why = nsprobe_step_from_entry(walk);
		if (why != NSPROBE_WALK_RANGE)
			return why;
	}
	do
		why = nsprobe_frame_pointers_in_range(walk, &caller);
	while (why == NSPROBE_WALK_RANGE && nsprobe_find_range(walk, caller));
	if (walk->taken) {
		walk->rip = walk->steps[walk->taken - 1].rip;
		walk->has_read_rbp |= walk->steps[walk->taken - 1].rbp_slot != 0;
	}
	return why;
}

/* Follows rules of code in the last range; comes to `caller` where that ends. */
static __always_inline u32 nsprobe_rules_in_range(struct nsprobe_walk *walk, u64 *caller)
{
	const struct nsprobe_rule *rules = walk->rules;
	struct nsprobe_step *step = walk->steps + walk->taken;
	const struct nsprobe_step *end = walk->steps + walk->room;
	u64 *words = walk->words + walk->taken;
	/* Of return addresses, which are behind their calls. */
	const u64 start = walk->last.start + 1, bytes = walk->last.bytes;
	const u64 place = walk->last.base + walk->method;
	u64 rsp = walk->rsp, rbp = walk->rbp, key = walk->key, next_slot = nsprobe_next_slot(walk);
	u64 unread = walk->has_read_rbp ? 0 : NSPROBE_BY_RBP, needs = 0, from = 0, rule = 0;
	u32 why = NSPROBE_WALK_FAULT;

	if (!user_access_begin((void __user *)0, 0))
		return NSPROBE_WALK_OTHER;
	for (;;) {
		const struct nsprobe_rule *kept = rules + (key * NSPROBE_GOLDEN >> NSPROBE_RULE_SHIFT);
		u64 frame, saved, rip, rbp_slot, unread_then = 0;

		if (unlikely(kept->key != key)) {
			why = NSPROBE_WALK_OTHER;
			break;
		}
		rule = kept->rule;
		frame = (rule & NSPROBE_BY_RBP ? rbp : rsp) + (s32)rule;
		if (unlikely(frame <= rsp || frame & 7)) {
			why = NSPROBE_WALK_ENDED;
			break;
		}
		if (likely(rule & NSPROBE_SAVES_BELOW)) {
			const u64 __user *at;

			from = rbp_slot = frame - 16;
			at = nsprobe_user(from);
			unsafe_get_user(saved, at, out);
			unsafe_get_user(rip, at + 1, out);
		} else {
			from = frame - 8;
			unsafe_get_user(rip, nsprobe_user(from), out);
			if (rule & NSPROBE_SAVES) {
				from = rbp_slot = frame + (s16)(rule >> 32);
				unsafe_get_user(saved, nsprobe_user(from), out);
			} else {
				rbp_slot = 0;
				saved = rbp;
				unread_then = unread;
			}
		}
		if (unlikely(!nsprobe_is_plain(rip))) {
			why = NSPROBE_WALK_OTHER;
			break;
		}
		if (unlikely(rip - start >= bytes)) {
			*caller = rip - 1;
			why = NSPROBE_WALK_RANGE;
			break;
		}
		if (unlikely(step == end)) {
			why = NSPROBE_WALK_LIMIT;
			break;
		}
		needs |= rule & unread;
		unread = unread_then;
		step->slot = frame - 8;
		step->rip = rip;
		step->rbp_slot = rbp_slot;
		step->rbp = saved;
		rip += place;
		step->word = rip;
		*words++ = rip;
		step++;
		key = rip - 1;
		rsp = frame;
		rbp = saved;
		if (unlikely(frame - 8 >= next_slot) &&
		    nsprobe_is_kept(walk, step - 1, &next_slot)) {
			why = NSPROBE_WALK_MEETS;
			break;
		}
	}
out:
	user_access_end();
	walk->rsp = rsp;
	walk->rbp = rbp;
	walk->key = key;
	walk->rule = rule;
	walk->missed = from;
	walk->taken = step - walk->steps;
	walk->needs_rbp |= needs != 0;
	walk->has_read_rbp = !unread;
	return why;
}

u32 nsprobe_follow_rules(struct nsprobe_walk *walk)
{
	u64 caller;
	u32 why;

	do
		why = nsprobe_rules_in_range(walk, &caller);
	while (why == NSPROBE_WALK_RANGE && nsprobe_find_range(walk, caller));
	if (walk->taken)
		walk->rip = walk->steps[walk->taken - 1].rip;
	return why;
}
