// SPDX-License-Identifier: GPL-2.0-only
//! Which rows of a set are used, in one word: searches touch no row that is free.
//!
//! The task that owns a row marks it before it publishes it, and unmarks it before it frees it. So
//! every published row is marked. A row without a mark may still be another task's: its own state
//! decides.

use crate::common::table::WAYS;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bit for each row of a set.
#[derive(Default)]
pub(crate) struct UsedRows(AtomicU64);

impl UsedRows {
    /// The rows that are marked now.
    #[inline(always)]
    pub(crate) fn marked(&self) -> MarkedRows {
        MarkedRows(self.0.load(Relaxed))
    }

    /// Marks a row that this task owns.
    #[inline(always)]
    pub(crate) fn mark(&self, row: usize) {
        self.0.fetch_or(bit(row), Relaxed);
    }

    /// Unmarks a row that this task owns.
    #[inline(always)]
    pub(crate) fn unmark(&self, row: usize) {
        self.0.fetch_and(!bit(row), Relaxed);
    }
}

#[inline(always)]
fn bit(row: usize) -> u64 {
    1u64.wrapping_shl(row as u32)
}

/// The marked rows of a set, by their numbers.
#[derive(Default)]
pub(crate) struct MarkedRows(u64);

impl MarkedRows {
    /// The first row that is not marked; [`WAYS`] if all are.
    #[inline(always)]
    pub(crate) fn first_unmarked(&self) -> usize {
        self.0.trailing_ones() as usize
    }

    /// The number of rows that are not marked.
    #[inline(always)]
    pub(crate) fn unmarked(&self) -> u32 {
        const { assert!(WAYS == 8) };
        // Counting eight bits is less work than counting 64.
        (!self.0 as u8).count_ones()
    }
}

impl Iterator for MarkedRows {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let row = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        Some(row)
    }
}
