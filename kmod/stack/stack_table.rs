// SPDX-License-Identifier: GPL-2.0-only
//! Stacks that records name by id: each is kept once, as long as the session lives.
//!
//! All memory is allocated at once. A stack is found by its hash and its frames. A new one takes
//! the next words of the arena, is written there, and is then added to the index by one
//! compare-and-exchange. No task waits, and nothing ever moves or is freed: an id, which is the
//! place in the arena, stays valid.
//!
//! A container may take [`SHARE`] times the words that it leaves to others, so that there is room
//! for the next one, however many stacks it makes.

use crate::{
    common::{
        abi::{self, STACK_TABLE_WORDS},
        table::hash_of_pairs, //
    },
    sys::{self, memory::zeroed},
};
use core::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed}, //
};
use kernel::prelude::*;

/// Places of the index: a power of two, and more than there can be stacks of four frames.
const PLACES: usize = STACK_TABLE_WORDS / 4;
const PLACE_BITS: u32 = PLACES.ilog2();
/// Places that are searched before the index counts as full.
const WAYS: usize = 8;
/// Words that a container may take for each that is left.
const SHARE: u32 = 3;
/// Counters of words, each of a container, or by chance of several.
const COUNTERS: usize = 256;
const COUNTER_SHIFT: u32 = u64::BITS - COUNTERS.ilog2();
/// Bits of a stack's first word that hold the number of words that follow.
const LENGTH_BITS: u32 = 16;

pub(crate) struct StackTable {
    seed: u64,
    /// Ids, or zero in free places.
    index: KVVec<AtomicU32>,
    /// Each stack is a word with its hash and length, and then its frames.
    arena: KVVec<AtomicU64>,
    /// Words in use. The first word is never used, so that no id is zero.
    used: AtomicU32,
    /// Words by container.
    taken: [AtomicU32; COUNTERS],
    /// The container of the first stack for which there was no room, or zero.
    full_of: AtomicU64,
}

impl StackTable {
    /// Makes an empty table.
    pub(crate) fn new() -> Result<Self> {
        Ok(StackTable {
            seed: sys::random(),
            index: zeroed(PLACES)?,
            arena: zeroed(STACK_TABLE_WORDS)?,
            used: AtomicU32::new(1),
            taken: [const { AtomicU32::new(0) }; COUNTERS],
            full_of: AtomicU64::new(0),
        })
    }

    /// The id of the stack with these frames, which are fewer than 2^16 words; `container` pays for
    /// a new one. `None` if there is no room for it. Runs in handlers.
    pub(crate) fn id_of(&self, frames: &[u64], container: impl Fn() -> u64) -> Option<u32> {
        let hash = hash_of_pairs(self.seed, frames);
        let head = hash >> LENGTH_BITS << LENGTH_BITS | frames.len() as u64;
        let first = (hash >> (u64::BITS - PLACE_BITS)) as usize;
        let mut own = None;
        for way in 0..WAYS {
            let place = self.index.get(first.wrapping_add(way) % PLACES)?;
            let mut id = place.load(Acquire);
            if id == 0 {
                let new = match own {
                    Some(new) => new,
                    None => self.write(head, frames, container())?,
                };
                own = Some(new);
                match place.compare_exchange(0, new, AcqRel, Acquire) {
                    Ok(_) => return Some(new),
                    // Another task was faster, maybe with the same stack.
                    Err(theirs) => id = theirs,
                }
            }
            if self.is(id, head, frames) {
                return Some(id);
            }
        }
        None
    }

    #[inline(always)]
    fn is(&self, id: u32, head: u64, frames: &[u64]) -> bool {
        let start = id as usize;
        let kept = start
            .checked_add(1)
            .and_then(|first| self.arena.get(start..first.checked_add(frames.len())?));
        let Some((kept_head, kept)) = kept.and_then(|kept| kept.split_first()) else {
            return false;
        };
        kept_head.load(Relaxed) == head
            && kept
                .iter()
                .zip(frames)
                .all(|(kept, frame)| kept.load(Relaxed) == *frame)
    }

    /// Writes a stack to newly reserved words.
    #[cold]
    fn write(&self, head: u64, frames: &[u64], container: u64) -> Option<u32> {
        let words = u32::try_from(frames.len()).ok()?.checked_add(1)?;
        // Which containers share a counter must not be known to them.
        let counter = (container.wrapping_mul(self.seed | 1) >> COUNTER_SHIFT) as usize;
        let taken = self.taken.get(counter)?;
        let own = taken.load(Relaxed).saturating_add(words);
        let take = |used: u32| {
            let end = used.checked_add(words)?;
            let left = (STACK_TABLE_WORDS as u32).checked_sub(end)?;
            (own <= left.saturating_mul(SHARE)).then_some(end)
        };
        let Ok(start) = self.used.fetch_update(Relaxed, Relaxed, take) else {
            let _ = self
                .full_of
                .compare_exchange(0, container, Relaxed, Relaxed);
            return None;
        };
        taken.fetch_add(words, Relaxed);
        let (first, room) = self.arena.get(start as usize..)?.split_first()?;
        first.store(head, Relaxed);
        for (to, word) in room.iter().zip(frames) {
            to.store(*word, Relaxed);
        }
        Some(start)
    }

    /// The frames of a stack; `None` if the id is invalid.
    pub(crate) fn frames(&self, id: u32) -> Option<impl ExactSizeIterator<Item = u64> + '_> {
        let start = id as usize;
        let used = self.used.load(Acquire) as usize;
        if start == 0 || start >= used || !self.is_known(id) {
            return None;
        }
        let words = self.arena.get(start..used)?;
        let (head, rest) = words.split_first()?;
        let length = head.load(Relaxed) as usize & ((1 << LENGTH_BITS) - 1);
        let frames = rest.get(..length)?;
        Some(frames.iter().map(|word| word.load(Relaxed)))
    }

    /// Whether the index has this id; a stack in the index is complete.
    fn is_known(&self, id: u32) -> bool {
        let Some(head) = self.arena.get(id as usize) else {
            return false;
        };
        let first = (head.load(Relaxed) >> (u64::BITS - PLACE_BITS)) as usize;
        (0..WAYS).any(|way| {
            let place = self.index.get(first.wrapping_add(way) % PLACES);
            place.is_some_and(|place| place.load(Acquire) == id)
        })
    }

    /// Fills in the words in use, and the container of the first stack for which there was no room.
    pub(crate) fn report_use(&self, stack: &mut abi::Stack) {
        stack.used = self.used.load(Relaxed);
        stack.full_pidns = self.full_of.load(Relaxed);
    }
}
