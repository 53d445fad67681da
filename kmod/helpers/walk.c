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
	const struct nsprobe_range *ranges;
	const struct nsprobe_range *ranges_end;
	const struct nsprobe_rule *rules;
	const struct nsprobe_step *kept;
	const struct nsprobe_step *kept_end;
	struct nsprobe_step *steps;
	u64 *words;
	u64 method;
	u64 top;
	u64 top_method;
	u64 inside;
	u64 rsp;
	u64 rbp;
	u64 rule;
	u64 missed;
	u32 rule_mask;
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
	NSPROBE_WALK_GOES_ON,
};

#define NSPROBE_BY_RBP (1ull << 48)
#define NSPROBE_SAVES (1ull << 49)
#define NSPROBE_SAVES_BELOW (1ull << 50)
#define NSPROBE_GOLDEN 0x9e3779b97f4a7c15ull

/*
 * Whether the words that a step has read are unchanged; of a pair `rbp` is right below the return
 * address.
 */
static __always_inline bool nsprobe_is_unchanged(const struct nsprobe_step *step, bool is_pair)
{
	const u64 __user *slot = (const u64 __user *)step->slot;
	u64 word;

	unsafe_get_user(word, slot, out);
	if (word != step->rip)
		return false;
	if (!is_pair && !step->rbp_slot)
		return true;
	unsafe_get_user(word, is_pair ? slot - 1 : (const u64 __user *)step->rbp_slot, out);
	return word == step->rbp;
out:
	return false;
}

/* The step after the leading ones that are unchanged. */
static __always_inline const struct nsprobe_step *
nsprobe_behind_unchanged(const struct nsprobe_step *step, const struct nsprobe_step *end,
			 bool are_pairs)
{
	while (step + 4 <= end && nsprobe_is_unchanged(step, are_pairs) &&
	       nsprobe_is_unchanged(step + 1, are_pairs) &&
	       nsprobe_is_unchanged(step + 2, are_pairs) &&
	       nsprobe_is_unchanged(step + 3, are_pairs))
		step += 4;
	while (step < end && nsprobe_is_unchanged(step, are_pairs))
		step++;
	return step;
}

/*
 * How many leading steps are unchanged. Of a walk by frame pointers, all but the first are pairs.
 */
u32 nsprobe_matching(const struct nsprobe_step *steps, u32 count, bool by_frame_pointers)
{
	const struct nsprobe_step *step = steps, *end = steps + count;

	if (!user_access_begin((void __user *)0, 0))
		return 0;
	if (!by_frame_pointers)
		step = nsprobe_behind_unchanged(step, end, false);
	else if (count && nsprobe_is_unchanged(step, false))
		step = nsprobe_behind_unchanged(step + 1, end, true);
	user_access_end();
	return step - steps;
}

/* No speculation goes beyond user memory, where access_ok() would need a fence. */
static __always_inline const u64 __user *nsprobe_user(u64 address)
{
	return mask_user_address((const void __user *)address);
}

/* The range that holds an address, if it is known. */
static const struct nsprobe_range *nsprobe_find_range(const struct nsprobe_walk *walk, u64 address)
{
	const struct nsprobe_range *range = walk->ranges;

	for (; range < walk->ranges_end; range++)
		if (address - range->start < range->bytes)
			return range;
	return NULL;
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
	while (walk->kept_end - kept > 8 && kept[8].slot < slot)
		kept += 8;
	while (kept < walk->kept_end && kept->slot < slot)
		kept++;
	walk->kept = kept;
	*next_slot = nsprobe_next_slot(walk);
	return *next_slot == slot && kept->rip == step->rip && kept->rbp == step->rbp &&
	       kept->word == step->word;
}

/* A walk within a range of code. */
struct nsprobe_track {
	struct nsprobe_step *step;
	const struct nsprobe_step *end;
	u64 *words;
	/* Of return addresses, which are behind their calls. */
	u64 start;
	u64 bytes;
	u64 place;
	u64 next_slot;
};

static __always_inline struct nsprobe_track nsprobe_track_in(const struct nsprobe_walk *walk,
							     const struct nsprobe_range *range,
							     u64 method)
{
	return (struct nsprobe_track){
		.step = walk->steps + walk->taken,
		.end = walk->steps + walk->room,
		.words = walk->words + walk->taken,
		.start = range->start + 1,
		.bytes = range->bytes,
		.place = range->base + method,
		.next_slot = nsprobe_next_slot(walk),
	};
}

/* Takes a step, unless the walk stops in front of it. */
static __always_inline u32 nsprobe_take(struct nsprobe_walk *walk, struct nsprobe_track *track,
					u64 slot, u64 rip, u64 rbp_slot, u64 rbp)
{
	struct nsprobe_step *step = track->step;

	if (unlikely(!nsprobe_is_plain(rip)))
		return NSPROBE_WALK_OTHER;
	if (unlikely(rip - track->start >= track->bytes))
		return NSPROBE_WALK_RANGE;
	if (unlikely(step == track->end))
		return NSPROBE_WALK_LIMIT;
	step->slot = slot;
	step->rip = rip;
	step->rbp_slot = rbp_slot;
	step->rbp = rbp;
	step->word = *track->words++ = rip + track->place;
	track->step++;
	if (unlikely(slot >= track->next_slot) && nsprobe_is_kept(walk, step, &track->next_slot))
		return NSPROBE_WALK_MEETS;
	return NSPROBE_WALK_GOES_ON;
}

static __always_inline bool nsprobe_is_taken(u32 why)
{
	return why == NSPROBE_WALK_GOES_ON || why == NSPROBE_WALK_MEETS;
}

/* Follows frame pointers within a range; `caller` is the first one outside. */
static __always_inline u32 nsprobe_frame_pointers_in_range(struct nsprobe_walk *walk,
							   const struct nsprobe_range *range,
							   u64 *caller)
{
	struct nsprobe_track track = nsprobe_track_in(walk, range, walk->method);
	u64 rsp = walk->rsp, rbp = walk->rbp;
	u32 why;

	if (!user_access_begin((void __user *)0, 0))
		return NSPROBE_WALK_OTHER;
	for (;;) {
		const u64 __user *at = nsprobe_user(rbp);
		u64 saved, rip;

		if (unlikely(rbp & 7 || rbp < rsp)) {
			why = NSPROBE_WALK_ENDED;
			break;
		}
		unsafe_get_user(saved, at, fault);
		unsafe_get_user(rip, at + 1, fault);
		why = nsprobe_take(walk, &track, rbp + 8, rip, rbp, saved);
		if (unlikely(!nsprobe_is_taken(why))) {
			*caller = rip - 1;
			break;
		}
		rsp = rbp + 16;
		rbp = saved;
		if (unlikely(why == NSPROBE_WALK_MEETS))
			break;
	}
out:
	user_access_end();
	walk->rsp = rsp;
	walk->rbp = rbp;
	walk->missed = rbp;
	walk->taken = track.step - walk->steps;
	return why;
fault:
	why = NSPROBE_WALK_FAULT;
	goto out;
}

/* The step from a function's entry, where the return address is on top of the stack. */
static __always_inline u32 nsprobe_step_from_entry(struct nsprobe_walk *walk,
						   const struct nsprobe_range *range)
{
	struct nsprobe_track track = nsprobe_track_in(walk, range, walk->top_method);
	u32 why = nsprobe_take(walk, &track, walk->rsp, walk->top, 0, walk->rbp);

	if (nsprobe_is_taken(why)) {
		walk->rsp += 8;
		walk->taken = 1;
	}
	return why;
}

u32 nsprobe_follow_frame_pointers(struct nsprobe_walk *walk)
{
	u64 caller = walk->top ? walk->top - 1 : walk->inside;
	const struct nsprobe_range *range = nsprobe_find_range(walk, caller);
	u32 why = NSPROBE_WALK_GOES_ON;

	if (!range)
		return NSPROBE_WALK_OTHER;
	if (walk->top)
		why = nsprobe_step_from_entry(walk, range);
	while (why == NSPROBE_WALK_GOES_ON) {
		why = nsprobe_frame_pointers_in_range(walk, range, &caller);
		if (why == NSPROBE_WALK_RANGE) {
			range = nsprobe_find_range(walk, caller);
			why = range ? NSPROBE_WALK_GOES_ON : NSPROBE_WALK_OTHER;
		}
	}
	if (walk->taken) {
		const struct nsprobe_step *last = &walk->steps[walk->taken - 1];

		walk->inside = last->rip - 1;
		walk->has_read_rbp |= last->rbp_slot != 0;
	}
	return why;
}

/* Follows rules as long as callers are in a range, from the place of a key; as above. */
static __always_inline u32 nsprobe_rules_in_range(struct nsprobe_walk *walk,
						  const struct nsprobe_range *range, u64 *key_at,
						  u64 *caller)
{
	const struct nsprobe_rule *rules = walk->rules;
	const u32 mask = walk->rule_mask;
	struct nsprobe_track track = nsprobe_track_in(walk, range, walk->method);
	u64 rsp = walk->rsp, rbp = walk->rbp, key = *key_at;
	u64 unread = walk->has_read_rbp ? 0 : NSPROBE_BY_RBP, needs = 0, from = 0, rule = 0;
	u32 why;

	if (!user_access_begin((void __user *)0, 0))
		return NSPROBE_WALK_OTHER;
	for (;;) {
		const struct nsprobe_rule *kept = rules + (key * NSPROBE_GOLDEN >> 48 & mask);
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
			unsafe_get_user(saved, at, fault);
			unsafe_get_user(rip, at + 1, fault);
		} else {
			from = frame - 8;
			unsafe_get_user(rip, nsprobe_user(from), fault);
			if (rule & NSPROBE_SAVES) {
				from = rbp_slot = frame + (s16)(rule >> 32);
				unsafe_get_user(saved, nsprobe_user(from), fault);
			} else {
				rbp_slot = 0;
				saved = rbp;
				unread_then = unread;
			}
		}
		why = nsprobe_take(walk, &track, frame - 8, rip, rbp_slot, saved);
		if (unlikely(!nsprobe_is_taken(why))) {
			*caller = rip - 1;
			break;
		}
		needs |= rule & unread;
		unread = unread_then;
		key = rip + track.place - 1;
		rsp = frame;
		rbp = saved;
		if (unlikely(why == NSPROBE_WALK_MEETS))
			break;
	}
out:
	user_access_end();
	*key_at = key;
	walk->rsp = rsp;
	walk->rbp = rbp;
	walk->rule = rule;
	walk->missed = from;
	walk->taken = track.step - walk->steps;
	walk->needs_rbp |= needs != 0;
	walk->has_read_rbp = !unread;
	return why;
fault:
	why = NSPROBE_WALK_FAULT;
	goto out;
}

u32 nsprobe_follow_rules(struct nsprobe_walk *walk)
{
	u64 caller, key;
	const struct nsprobe_range *range = nsprobe_find_range(walk, walk->inside);
	u32 why = NSPROBE_WALK_GOES_ON;

	if (!range)
		return NSPROBE_WALK_OTHER;
	key = walk->inside + range->base + walk->method;
	while (why == NSPROBE_WALK_GOES_ON) {
		why = nsprobe_rules_in_range(walk, range, &key, &caller);
		if (why == NSPROBE_WALK_RANGE) {
			range = nsprobe_find_range(walk, caller);
			why = range ? NSPROBE_WALK_GOES_ON : NSPROBE_WALK_OTHER;
		}
	}
	if (walk->taken)
		walk->inside = walk->steps[walk->taken - 1].rip - 1;
	return why;
}
