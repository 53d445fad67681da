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
    /// A [`SimpleRule`](crate::stack::mapping_cache::SimpleRule).
    pub(crate) rule: AtomicU64,
}

/// Bits of an index of the kept rules.
pub(crate) const RULE_BITS: u32 = 11;
/// Rules that are kept.
pub(crate) const RULES: usize = 1 << RULE_BITS;

/// Where a walk finds what it knows.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) ranges: &'a [KeptRange],
    /// `None`: it follows frame pointers.
    pub(crate) rules: Option<&'a [KeptRule; RULES]>,
}

/// Where a walk is.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The range of code that the last frame is in, as a [`KeptRange`] has it.
    pub(crate) range: [u64; 4],
    pub(crate) rip: u64,
    pub(crate) rsp: u64,
    pub(crate) rbp: u64,
    /// Whether `rbp` has been read from the stack, and whether some step needed it before that.
    pub(crate) has_read_rbp: bool,
    pub(crate) needs_rbp: bool,
}

/// What a walk takes its steps for.
pub(crate) struct Steps<'a> {
    /// Where they go.
    pub(crate) room: &'a [Step],
    /// Most of them.
    pub(crate) most: usize,
    /// It stops where a step is one of these, by rising slot.
    pub(crate) kept: &'a [Step],
    /// The method of their frames, in its place in a word.
    pub(crate) method: u64,
    /// The return address that is on top of the stack, if not zero, and its method.
    pub(crate) top: (u64, u64),
}

/// Why a walk has stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
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

/// The input and output of `helpers/walk.c`.
#[repr(C)]
pub(super) struct Walk {
    last: [u64; 4],
    ranges: *const KeptRange,
    rules: *const KeptRule,
    kept: *const Step,
    kept_end: *const Step,
    steps: *const Step,
    words: *mut u64,
    method: u64,
    top: u64,
    top_method: u64,
    rip: u64,
    rsp: u64,
    rbp: u64,
    key: u64,
    rule: u64,
    missed: u64,
    range_count: u32,
    room: u32,
    taken: u32,
    needs_rbp: bool,
    has_read_rbp: bool,
}

impl NoFaults {
    /// The number of leading steps whose words in memory are unchanged. Their slots are addresses
    /// that were read before.
    pub(crate) fn matching(&self, steps: &[Step]) -> usize {
        // SAFETY: There are that many steps, of the layout that `nsprobe_matching` knows;
        // their addresses are the user's, as they were checked when they were first read.
        unsafe { helpers::nsprobe_matching(steps.as_ptr(), steps.len() as u32) as usize }
    }

    /// Walks on from `place`, where `key` is that of the rule of the next step. Appends the frames to
    /// `words`; returns how many there are, how many kept steps it has passed, and why it has stopped.
    /// The caller alone uses what is known, and the steps.
    #[inline(always)]
    pub(crate) fn follow<const N: usize>(
        &self,
        place: &mut Place,
        key: u64,
        known: Known<'_>,
        steps: &Steps<'_>,
        words: &mut Words<N>,
    ) -> (usize, usize, Stop) {
        let room = words.room();
        let most = steps.most.min(steps.room.len()).min(room.len());
        let mut walk = Walk {
            last: place.range,
            ranges: known.ranges.as_ptr(),
            rules: known.rules.map_or(ptr::null(), |rules| rules.as_ptr()),
            kept: steps.kept.as_ptr(),
            kept_end: steps.kept.as_ptr_range().end,
            steps: steps.room.as_ptr(),
            words: room.as_mut_ptr().cast(),
            method: steps.method,
            top: steps.top.0,
            top_method: steps.top.1,
            rip: place.rip,
            rsp: place.rsp,
            rbp: place.rbp,
            key,
            rule: 0,
            missed: 0,
            range_count: known.ranges.len() as u32,
            room: most as u32,
            taken: 0,
            needs_rbp: place.needs_rbp,
            has_read_rbp: place.has_read_rbp,
        };
        // SAFETY: There are as many ranges as it says, and as many rules as the shift has indexes;
        // there is room for as many steps, whose fields may be written through a shared reference,
        // and words. User addresses are masked, and a page that is not there is an error, as page
        // faults are off.
        let why = unsafe {
            match known.rules {
                Some(_) => helpers::nsprobe_follow_rules(&mut walk),
                None => helpers::nsprobe_follow_frame_pointers(&mut walk),
            }
        };
        let taken = (walk.taken as usize).min(most);
        // SAFETY: It has written as many words as it has taken steps.
        unsafe { words.written(taken) };
        *place = Place {
            range: walk.last,
            rip: walk.rip,
            rsp: walk.rsp,
            rbp: walk.rbp,
            has_read_rbp: walk.has_read_rbp,
            needs_rbp: walk.needs_rbp,
        };
        let stop = match why {
            1 => Stop::Meets,
            2 => Stop::NotAbove { rule: walk.rule },
            3 => Stop::Full,
            4 => {
                self.miss(walk.missed);
                Stop::Fault
            }
            _ => Stop::Unknown,
        };
        let passed = (walk.kept as usize).wrapping_sub(steps.kept.as_ptr() as usize);
        (taken, passed / size_of::<Step>(), stop)
    }
}
