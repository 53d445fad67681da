// SPDX-License-Identifier: GPL-2.0-only
//! Walks over the current task's stack in C, while user memory is open (`helpers/walk.c`): by frame
//! pointers, or by kept rules, as long as both know the code.

use super::{
    helpers,
    scratch::Words,
    user_mem::NoFaults, //
};
use core::{
    ptr,
    sync::atomic::{AtomicU64, Ordering::Relaxed}, //
};
use zerocopy_derive::FromZeros;

/// What a step from a frame to its caller has read, and the word of the frame that it led to.
#[derive(Default, FromZeros)]
#[repr(C)]
pub(crate) struct Step {
    /// Where the return address is.
    pub(crate) slot: AtomicU64,
    /// The return address.
    pub(crate) rip: AtomicU64,
    /// Where the caller's `rbp` is saved, or zero if it is still in the register.
    pub(crate) rbp_slot: AtomicU64,
    /// The caller's `rbp`.
    pub(crate) rbp: AtomicU64,
    /// The frame's word.
    pub(crate) word: AtomicU64,
}

impl Step {
    /// Copies `other` into this one.
    pub(crate) fn set(&self, other: &Step) {
        let pairs = [
            (&self.slot, &other.slot),
            (&self.rip, &other.rip),
            (&self.rbp_slot, &other.rbp_slot),
            (&self.rbp, &other.rbp),
            (&self.word, &other.word),
        ];
        for (to, from) in pairs {
            to.store(from.load(Relaxed), Relaxed);
        }
    }
}

/// A mapping of code: the addresses from `start` for `bytes`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct KeptRange {
    pub(crate) start: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// What to add to an address, and to the method, to get a frame's word.
    pub(crate) base: AtomicU64,
    pub(crate) object: AtomicU64,
}

/// A kept rule.
#[derive(Default)]
#[repr(C)]
pub(crate) struct KeptRule {
    /// The word of a frame there; zero for an empty entry.
    pub(crate) key: AtomicU64,
    /// A [`SimpleRule`](crate::common::unwind::SimpleRule).
    pub(crate) rule: AtomicU64,
}

/// Rules that are kept: a power of two.
pub(crate) const RULES: usize = 1 << 11;

/// Where the rule with a key is kept, as walks in C look for it.
#[inline(always)]
pub(crate) fn rule_index(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize & RULE_MASK
}

const RULE_MASK: usize = RULES - 1;

/// What a walk knows, and where it writes its steps.
#[derive(Clone, Copy)]
pub(crate) struct WalkRoom<'a> {
    pub(crate) ranges: &'a [KeptRange],
    /// `None`: it follows frame pointers.
    pub(crate) rules: Option<&'a [KeptRule; RULES]>,
    /// It stops where a step is one of these, by rising slot.
    pub(crate) kept: &'a [Step],
    pub(crate) steps: &'a [Step],
    /// Most steps.
    pub(crate) most: usize,
    /// The method of their frames, in its place in a word.
    pub(crate) method: u64,
    /// The return address that is on top of the stack, if not zero, and its method.
    pub(crate) top: (u64, u64),
}

/// Where a walk is.
#[derive(Clone, Copy)]
pub(crate) struct WalkPlace {
    /// In the instruction that the frame executes.
    pub(crate) inside: u64,
    pub(crate) rsp: u64,
    pub(crate) rbp: u64,
    /// Whether `rbp` has been read from the stack, and whether some step needed it before that.
    pub(crate) has_read_rbp: bool,
    pub(crate) needs_rbp: bool,
}

/// Why a walk has stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkStop {
    /// It does not know the next step, or that comes to code that it does not know.
    Unknown,
    /// The last step is a kept one.
    Meets,
    /// The next frame is not above the last one; by this rule, if it follows rules.
    NotAbove { rule: u64 },
    /// There is room for no more.
    Full,
    /// Memory could not be read.
    Fault,
}

/// What a walk has done.
pub(crate) struct WalkResult {
    /// Frames that it has appended.
    pub(crate) taken: usize,
    /// Kept steps that it has passed.
    pub(crate) passed: usize,
    pub(crate) stop: WalkStop,
}

/// The input and output of `helpers/walk.c`.
#[repr(C)]
pub(super) struct UserWalk {
    ranges: *const KeptRange,
    ranges_end: *const KeptRange,
    rules: *const KeptRule,
    kept: *const Step,
    kept_end: *const Step,
    steps: *const Step,
    words: *mut u64,
    method: u64,
    top: u64,
    top_method: u64,
    inside: u64,
    rsp: u64,
    rbp: u64,
    rule: u64,
    missed: u64,
    rule_mask: u32,
    room: u32,
    taken: u32,
    needs_rbp: bool,
    has_read_rbp: bool,
}

impl NoFaults {
    /// The number of leading steps whose words in memory are unchanged. Their slots are addresses
    /// that were read before; of a walk by frame pointers, all but the first have read `rbp` right
    /// below the return address.
    #[inline(always)]
    pub(crate) fn matching(&self, steps: &[Step], by_frame_pointers: bool) -> usize {
        let count = steps.len() as u32;
        // SAFETY: There are that many steps, of the layout that `nsprobe_matching` knows;
        // their addresses are the user's, as they were checked when they were first read.
        unsafe { helpers::nsprobe_matching(steps.as_ptr(), count, by_frame_pointers) as usize }
    }

    /// Walks on from `place`, and appends the frames to `words`. The caller alone uses what is in
    /// `room`.
    #[inline(always)]
    pub(crate) fn follow<const N: usize>(
        &self,
        place: &mut WalkPlace,
        room: &WalkRoom<'_>,
        words: &mut Words<N>,
    ) -> WalkResult {
        let to = words.room();
        let most = room.most.min(room.steps.len()).min(to.len());
        let ranges = room.ranges.as_ptr_range();
        let kept = room.kept.as_ptr_range();
        let mut walk = UserWalk {
            ranges: ranges.start,
            ranges_end: ranges.end,
            rules: room.rules.map_or(ptr::null(), |rules| rules.as_ptr()),
            kept: kept.start,
            kept_end: kept.end,
            steps: room.steps.as_ptr(),
            words: to.as_mut_ptr().cast(),
            method: room.method,
            top: room.top.0,
            top_method: room.top.1,
            inside: place.inside,
            rsp: place.rsp,
            rbp: place.rbp,
            rule: 0,
            missed: 0,
            rule_mask: RULE_MASK as u32,
            room: most as u32,
            taken: 0,
            needs_rbp: place.needs_rbp,
            has_read_rbp: place.has_read_rbp,
        };
        // SAFETY: The ranges and the kept steps are where it says, and there are as many rules as the
        // mask has indexes; there is room for as many steps, whose fields may be written through a
        // shared reference, and words. User addresses are masked, and a page that is not there is an
        // error, as page faults are off.
        let why = unsafe {
            match room.rules {
                Some(_) => helpers::nsprobe_follow_rules(&mut walk),
                None => helpers::nsprobe_follow_frame_pointers(&mut walk),
            }
        };
        let taken = (walk.taken as usize).min(most);
        // SAFETY: It has written as many words as it has taken steps.
        unsafe { words.written(taken) };
        *place = WalkPlace {
            inside: walk.inside,
            rsp: walk.rsp,
            rbp: walk.rbp,
            has_read_rbp: walk.has_read_rbp,
            needs_rbp: walk.needs_rbp,
        };
        let passed = (walk.kept as usize).wrapping_sub(kept.start as usize);
        WalkResult {
            taken,
            passed: passed / size_of::<Step>(),
            stop: match why {
                1 => WalkStop::Meets,
                2 => WalkStop::NotAbove { rule: walk.rule },
                3 => WalkStop::Full,
                4 => {
                    self.miss(walk.missed);
                    WalkStop::Fault
                }
                _ => WalkStop::Unknown,
            },
        }
    }
}
