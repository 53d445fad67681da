// SPDX-License-Identifier: GPL-2.0-only
//! The address spaces in which a request could not set a breakpoint.
//!
//! The uprobe core goes through the address spaces that map a file, ends at the first one in which
//! it cannot set the breakpoint, and does not say which. So the filter of a pass notes which one it
//! let in last; the next pass leaves that one out. A process fails by a semaphore that it has
//! spoiled, say, or as its control group has no memory left.

use crate::sys::{
    memory,
    task::{Current, Mm}, //
};
use core::sync::atomic::{
    AtomicBool,
    AtomicU32,
    AtomicU64,
    AtomicUsize,
    Ordering::Relaxed, //
};
use kernel::{prelude::*, sync::Arc};

/// Most address spaces that a request leaves out. Each costs a pass, and a grace period.
const FAILED_MAX: usize = 256;

/// Where a request could not set a breakpoint. One task at a time changes it, between passes; tasks
/// that map a file meanwhile read it.
pub(super) struct FailedSpaces {
    /// The task whose pass it is.
    passing: AtomicUsize,
    /// Whether there were passes since the last grace period.
    has_passed: AtomicBool,
    /// The number of the address space that the pass let in last, or zero.
    last: AtomicU64,
    /// Address spaces of the hook that the pass skipped.
    skipped: AtomicU32,
    numbers: KVVec<AtomicU64>,
    count: AtomicUsize,
}

impl FailedSpaces {
    /// Without address spaces.
    pub(super) fn new() -> Result<Arc<Self>> {
        let failed = FailedSpaces {
            passing: AtomicUsize::new(0),
            has_passed: AtomicBool::new(false),
            last: AtomicU64::new(0),
            skipped: AtomicU32::new(0),
            numbers: memory::made(FAILED_MAX, |_| Ok(AtomicU64::new(0)))?,
            count: AtomicUsize::new(0),
        };
        Ok(Arc::new(failed, memory::GFP_REQUEST)?)
    }

    /// Forgets the address spaces of the previous request.
    pub(super) fn clear(&self) {
        self.count.store(0, Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// The current task begins a pass.
    pub(super) fn begin_pass(&self) {
        self.passing.store(Current::get().address(), Relaxed);
        self.last.store(0, Relaxed);
        self.skipped.store(0, Relaxed);
        self.has_passed.store(true, Relaxed);
    }

    /// Says whether there were passes since this was asked.
    pub(super) fn end_passes(&self) -> bool {
        self.has_passed.swap(false, Relaxed)
    }

    /// Whether a pass lets in an address space that its hook wants.
    pub(super) fn lets_in(&self, space: &Mm) -> bool {
        let number = space.number();
        let failed = self.numbers.get(..self.count.load(Relaxed)).unwrap_or(&[]);
        let has_failed = failed.iter().any(|failed| failed.load(Relaxed) == number);
        // Other tasks ask as they map the file.
        if self.passing.load(Relaxed) == Current::get().address() {
            match has_failed {
                true => {
                    self.skipped.fetch_add(1, Relaxed);
                }
                false => self.last.store(number, Relaxed),
            }
        }
        !has_failed
    }

    /// The address space at which the pass ended; `None` if none was to blame.
    pub(super) fn last(&self) -> Option<u64> {
        match self.last.load(Relaxed) {
            0 => None,
            number => Some(number),
        }
    }

    /// Leaves an address space out from now on; says whether there was room.
    pub(super) fn leave_out(&self, number: u64) -> bool {
        let count = self.count.load(Relaxed);
        let Some(room) = self.numbers.get(count) else {
            return false;
        };
        room.store(number, Relaxed);
        self.count.store(count.wrapping_add(1), Relaxed);
        true
    }

    /// How many address spaces of the hook the pass skipped.
    pub(super) fn skipped(&self) -> u32 {
        self.skipped.load(Relaxed)
    }
}
