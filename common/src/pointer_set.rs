// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A set of addresses that is searched without a lock, in a bounded number of steps, and gives
//! back the places of entries that were removed.
//!
//! Open addressing with linear probing. An entry lies within [`STEPS_MAX`] places of the one that
//! its address leads to, or is not in the set. One task at a time may change it; any number may
//! search it meanwhile, as an entry never moves.
//!
//! A removed entry leaves a mark that searches pass. A mark in front of a free place ends no
//! search that goes on, so it becomes free, too. [`PointerSet::clean`] goes round from the last
//! place to the first, so that a run of marks vanishes in one round.

use core::{
    ptr::{null_mut, without_provenance_mut},
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// The maximum number of places that a search looks at.
pub const STEPS_MAX: usize = 64;

/// The places of a set. Their number is a power of two, and each is null at first.
pub struct PointerSet<'a, T>(&'a [AtomicPtr<T>]);

impl<'a, T> PointerSet<'a, T> {
    /// A set in these places.
    #[inline(always)]
    pub const fn new(places: &'a [AtomicPtr<T>]) -> Self {
        PointerSet(places)
    }

    /// Marks the place of a removed entry.
    fn removed() -> *mut T {
        without_provenance_mut(1)
    }

    fn place(&self, index: usize) -> Option<&'a AtomicPtr<T>> {
        self.0.get(index & self.0.len().wrapping_sub(1))
    }

    /// The places where an entry may be, in the order of the search.
    #[inline(always)]
    fn search(&self, entry: *mut T) -> impl Iterator<Item = &'a AtomicPtr<T>> + use<'_, 'a, T> {
        let hash = (entry.addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (hash >> 32) as usize;
        (0..STEPS_MAX).filter_map(move |step| self.place(first.wrapping_add(step)))
    }

    /// Whether `entry` is in the set. Any context.
    #[inline(always)]
    pub fn contains(&self, entry: *mut T) -> bool {
        for place in self.search(entry) {
            let there = place.load(Acquire);
            if there == entry {
                return true;
            }
            if there.is_null() {
                break;
            }
        }
        false
    }

    /// Adds an entry, neither null nor the address 1, that is not in the set; returns false if
    /// there is no room for it.
    pub fn insert(&self, entry: *mut T) -> bool {
        let is_free = |there: *mut T| there.is_null() || there == Self::removed();
        let mut places = self.search(entry);
        match places.find(|place| is_free(place.load(Relaxed))) {
            Some(place) => {
                place.store(entry, Release);
                true
            }
            None => false,
        }
    }

    /// Looks at a place, and removes its entry unless `keeps` says that it stays. Returns the
    /// removed entry. Called for one place after another, downwards.
    pub fn clean(&self, index: usize, keeps: impl FnOnce(*mut T) -> bool) -> Option<*mut T> {
        let place = self.place(index)?;
        let there = place.load(Relaxed);
        let is_mark = there == Self::removed();
        if there.is_null() || !is_mark && keeps(there) {
            return None;
        }
        let next = self.place(index.wrapping_add(1))?;
        place.store(
            match next.load(Relaxed).is_null() {
                true => null_mut(),
                false => Self::removed(),
            },
            Release,
        );
        (!is_mark).then_some(there)
    }

    /// The entries.
    pub fn entries(&self) -> impl Iterator<Item = *mut T> + use<'_, 'a, T> {
        let there = self.0.iter().map(|place| place.load(Relaxed));
        there.filter(|entry| !entry.is_null() && *entry != Self::removed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::{collections::HashSet, collections::VecDeque, vec::Vec};

    fn places(count: usize) -> Vec<AtomicPtr<()>> {
        (0..count).map(|_| AtomicPtr::new(null_mut())).collect()
    }

    fn steps(set: &PointerSet<'_, ()>, entry: *mut ()) -> usize {
        let mut search = set.search(entry);
        let end = search.position(|place| {
            let there = place.load(Relaxed);
            there == entry || there.is_null()
        });
        end.map_or(STEPS_MAX, |end| end + 1)
    }

    /// The address of the nth task: freed memory of tasks is soon used again.
    fn task(number: usize) -> *mut () {
        without_provenance_mut(0xffff_8880_0000_0000 | ((number % 40_000) * 128))
    }

    /// As the kernel's set of followed processes is used, with 200 processes alive: marks of
    /// removed entries filled the table, and after 350,000 forks each search went through all of
    /// it.
    #[test]
    fn searches_stay_short_after_ten_million_forks() {
        let (count, looks) = (1 << 16, 8);
        let places = places(count);
        let set = PointerSet::new(&places);
        let (mut alive, mut fifo, mut entries, mut cursor) =
            (HashSet::new(), VecDeque::new(), 0, 0);
        for number in 0..10_000_000 {
            let entry = task(number);
            assert!(set.insert(entry), "no room for {number}");
            entries += 1;
            alive.insert(entry);
            fifo.push_back(entry);
            if fifo.len() > 200 {
                alive.remove(&fifo.pop_front().unwrap());
            }
            for _ in 0..looks {
                cursor -= 1;
                let removed = set.clean(cursor as usize, |entry| alive.contains(&entry));
                entries -= i32::from(removed.is_some());
            }
            assert!(entries < 1 << 14, "{entries} entries after {number}");
            if number % 1_000_000 == 0 {
                assert!(alive.iter().all(|entry| set.contains(*entry)));
            }
        }
        let strangers = (0..10_000).map(|number| without_provenance_mut(0x7000_0000 + number * 64));
        let failing: usize = strangers.map(|entry| steps(&set, entry)).sum();
        assert!(failing < 4 * 10_000, "{failing} steps for 10,000 searches");
        assert!(alive.iter().all(|entry| steps(&set, *entry) <= STEPS_MAX));
        assert_eq!(set.entries().count() as i32, entries);
    }

    #[test]
    fn what_is_alive_is_found_and_what_is_full_refuses() {
        let places = places(128);
        let set = PointerSet::new(&places);
        let entry = |number: usize| without_provenance_mut::<()>((number + 1) * 64);
        let kept: Vec<_> = (0..1000)
            .map(entry)
            .filter(|one| set.insert(*one))
            .collect();
        assert_eq!(kept.len(), 128);
        assert!(kept.iter().all(|one| set.contains(*one)));
        assert!(!set.contains(entry(2000)));
        // Each second one goes; the others are still found after the marks.
        let stays = |one: *mut ()| one.addr() / 64 % 2 == 0;
        let gone = (0..128).rev().filter_map(|index| set.clean(index, stays));
        assert!(gone.count() > 0);
        for one in &kept {
            assert_eq!(set.contains(*one), stays(*one));
        }
        (0..128).rev().for_each(|index| {
            set.clean(index, |_| false);
        });
        // One place of a table without a free one has nothing free after it.
        assert!((0..128)
            .rev()
            .all(|index| set.clean(index, |_| false).is_none()));
    }
}
