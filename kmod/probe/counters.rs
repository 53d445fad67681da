// SPDX-License-Identifier: GPL-2.0-only
//! A probe's hits by outcome, on each CPU.

use crate::sys::memory;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use kernel::prelude::*;

macro_rules! counters {
    ($($name:ident,)*) => {
        /// The counters of one probe on one CPU, in whole cache lines, so that CPUs share none.
        #[repr(align(64))]
        #[derive(Default)]
        struct OnCpu {
            $($name: AtomicU64,)*
        }

        /// The values of a probe's counters.
        #[derive(Clone, Copy, Default)]
        pub(crate) struct Counts {
            $(pub(crate) $name: u64,)*
        }

        impl OnCpu {
            /// Loads the outcomes before the hits: a hit in between makes the sum too small for a
            /// moment, never too large.
            fn load(&self) -> Counts {
                $(let $name = self.$name.load(Relaxed);)*
                Counts { $($name,)* }
            }
        }

        impl Counts {
            fn plus(self, other: Self) -> Self {
                Counts { $($name: self.$name.wrapping_add(other.$name),)* }
            }
        }
    };
}

counters! {
    recorded,
    aggregated,
    filtered,
    rejected,
    undecided,
    lost_full,
    turned_away,
    stacks_cut,
    written,
    write_failed,
    write_withheld,
    skipped,
    limited,
    off,
    too_deep,
    frozen,
    missed,
    in_kernel,
    idle,
    kernel_threads,
    by_clock,
    eligible,
    passed,
    hits,
}

/// The outcome of a hit; each hit has exactly one.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// Its record is in the ring.
    Recorded,
    /// Counted, in a table, or as the beginning of a span.
    Aggregated,
    /// The filter excludes its task.
    Filtered,
    /// The program's condition did not hold.
    Rejected,
    /// The ring had no room.
    LostFull,
    /// The table had no row left.
    TurnedAway,
    /// Skipped by `every`.
    Skipped,
    /// Over the rate limit.
    Limited,
    /// The probe was turned off.
    Off,
    /// The rings are frozen.
    Frozen,
    /// A sample of a task that cannot be read.
    Missed,
}

/// The counters of one probe.
pub(crate) struct Counters {
    on: KVVec<OnCpu>,
    /// Address spaces in which the kernel could not set the breakpoint, when it last tried.
    pub(crate) failed_in: AtomicU32,
    /// Calls that were forgotten for those that begin at this probe.
    pub(crate) evicted: AtomicU64,
}

impl Counters {
    /// All counters at zero.
    pub(crate) fn new() -> Result<Self> {
        Ok(Counters {
            on: memory::made_for_each_cpu(|| Ok(OnCpu::default()))?,
            failed_in: AtomicU32::new(0),
            evicted: AtomicU64::new(0),
        })
    }

    /// The values on one CPU, or `None` if there is no such CPU.
    pub(crate) fn on_cpu(&self, cpu: u32) -> Option<Counts> {
        self.on.get(cpu as usize).map(OnCpu::load)
    }

    /// The sums over all CPUs.
    pub(crate) fn total(&self) -> Counts {
        self.on
            .iter()
            .fold(Counts::default(), |sum, on| sum.plus(on.load()))
    }

    /// The counters of a CPU.
    pub(crate) fn here(&self, cpu: u32) -> Option<Here<'_>> {
        let on = self.on.get(cpu as usize)?;
        Some(Here { cpu, on })
    }
}

/// The counters of the CPU that took a hit. The task may move to another CPU meanwhile: the hit
/// stays with this one.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    pub(crate) cpu: u32,
    on: &'a OnCpu,
}

impl Here<'_> {
    /// Counts a hit; returns the number of hits including it.
    pub(crate) fn begin(&self) -> u64 {
        self.on.hits.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Counts the outcome of a hit.
    pub(crate) fn end(&self, end: End) {
        let counter = match end {
            End::Recorded => &self.on.recorded,
            End::Aggregated => &self.on.aggregated,
            End::Filtered => &self.on.filtered,
            End::Rejected => &self.on.rejected,
            End::LostFull => &self.on.lost_full,
            End::TurnedAway => &self.on.turned_away,
            End::Skipped => &self.on.skipped,
            End::Limited => &self.on.limited,
            End::Off => &self.on.off,
            End::Frozen => &self.on.frozen,
            End::Missed => &self.on.missed,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Counts a hit that may be delivered; returns their number including it.
    pub(crate) fn eligible(&self) -> u64 {
        self.on.eligible.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Counts a pass that is no hit, as it ends no call; returns their number including it.
    pub(crate) fn passed(&self) -> u64 {
        self.on.passed.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Counts a sample that was taken in the kernel.
    pub(crate) fn in_kernel(&self) {
        self.on.in_kernel.fetch_add(1, Relaxed);
    }

    /// Counts a sample of an idle CPU.
    pub(crate) fn idle(&self) {
        self.on.idle.fetch_add(1, Relaxed);
    }

    /// Counts a sample of a kernel thread.
    pub(crate) fn kernel_thread(&self) {
        self.on.kernel_threads.fetch_add(1, Relaxed);
    }

    /// Counts a sample taken by the CPU clock.
    pub(crate) fn by_clock(&self) {
        self.on.by_clock.fetch_add(1, Relaxed);
    }

    /// Counts a call that the kernel does not follow to its return.
    pub(crate) fn too_deep(&self) {
        self.on.too_deep.fetch_add(1, Relaxed);
    }

    /// Counts a rejected hit whose condition needed a value that was missing.
    pub(crate) fn undecided(&self) {
        self.on.undecided.fetch_add(1, Relaxed);
    }

    /// Counts a hit's writes by outcome.
    pub(crate) fn writes(&self, made: u32, failed: u32, withheld: u32) {
        self.on.written.fetch_add(made.into(), Relaxed);
        self.on.write_failed.fetch_add(failed.into(), Relaxed);
        self.on.write_withheld.fetch_add(withheld.into(), Relaxed);
    }

    /// Counts a recorded hit with a truncated stack.
    pub(crate) fn stack_cut(&self) {
        self.on.stacks_cut.fetch_add(1, Relaxed);
    }
}
