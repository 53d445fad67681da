// SPDX-License-Identifier: GPL-2.0-only
//! The events of tasks by kind and outcome, on each CPU.

use crate::{
    common::abi::{TaskCount, TASK_KINDS},
    sys::memory, //
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kernel::prelude::*;

/// The outcome of an event; each event has exactly one.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// Its record is in a ring.
    Recorded,
    /// The filter excludes all of its tasks.
    Filtered,
    /// The ring had no room, or is frozen.
    Lost,
}

#[derive(Default)]
struct OfKind {
    seen: AtomicU64,
    recorded: AtomicU64,
    filtered: AtomicU64,
    lost: AtomicU64,
}

/// In whole cache lines, so that CPUs share none.
#[repr(align(64))]
#[derive(Default)]
struct OnCpu([OfKind; TASK_KINDS]);

impl OfKind {
    /// Loaded in this order, so that the sum is at most too small for a moment.
    fn load(&self) -> TaskCount {
        let recorded = self.recorded.load(Relaxed);
        let filtered = self.filtered.load(Relaxed);
        let lost = self.lost.load(Relaxed);
        TaskCount {
            seen: self.seen.load(Relaxed),
            recorded,
            filtered,
            lost,
        }
    }
}

/// Adds `other` to `sum`.
fn add(sum: &mut TaskCount, other: TaskCount) {
    sum.seen = sum.seen.wrapping_add(other.seen);
    sum.recorded = sum.recorded.wrapping_add(other.recorded);
    sum.filtered = sum.filtered.wrapping_add(other.filtered);
    sum.lost = sum.lost.wrapping_add(other.lost);
}

/// The event counters of a session.
pub(crate) struct TaskCounts(KVVec<OnCpu>);

impl TaskCounts {
    /// All counters at zero.
    pub(crate) fn new() -> Result<Self> {
        Ok(TaskCounts(memory::made_for_each_cpu(|| {
            Ok(OnCpu::default())
        })?))
    }

    /// Counts an event of `kind` (`TASK_KIND_*`). Any context but NMI.
    #[inline]
    pub(crate) fn count(&self, cpu: u32, kind: usize, end: End) {
        let Some(of) = self.0.get(cpu as usize).and_then(|on| on.0.get(kind)) else {
            return;
        };
        of.seen.fetch_add(1, Relaxed);
        let counter = match end {
            End::Recorded => &of.recorded,
            End::Filtered => &of.filtered,
            End::Lost => &of.lost,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// The counters of one CPU, or the sums over all; `None` if there is no such CPU.
    pub(crate) fn load(&self, cpu: Option<u32>) -> Option<[TaskCount; TASK_KINDS]> {
        let chosen = match cpu {
            Some(cpu) => self.0.get(cpu as usize..)?.get(..1)?,
            None => &self.0,
        };
        let mut sums = [TaskCount::default(); TASK_KINDS];
        for on in chosen {
            for (sum, of) in sums.iter_mut().zip(&on.0) {
                add(sum, of.load());
            }
        }
        Some(sums)
    }
}
