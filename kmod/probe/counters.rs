// SPDX-License-Identifier: GPL-2.0-only
//! A probe's hits by outcome, on each CPU.

use crate::{
    common::abi,
    sys::{memory, task::Current}, //
};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use kernel::prelude::*;

macro_rules! on_cpu {
    (
        outcomes { $($outcome:ident: $item:ident,)* }
        others { $($other:ident,)* }
    ) => {
        /// The counters of one probe on one CPU, in whole cache lines, so that CPUs share none.
        #[repr(align(64))]
        #[derive(Default)]
        struct OnCpu {
            hits: AtomicU64,
            $($outcome: AtomicU64,)*
            $($other: AtomicU64,)*
            eligible: AtomicU64,
            passed: AtomicU64,
        }

        /// The outcome of a hit; each hit has exactly one.
        #[derive(Clone, Copy)]
        pub(crate) enum Outcome {
            $($item,)*
        }

        impl OnCpu {
            fn of(&self, outcome: Outcome) -> &AtomicU64 {
                match outcome {
                    $(Outcome::$item => &self.$outcome,)*
                }
            }

            /// Adds the counters to `sum`. Loads the outcomes before the hits: a hit in between
            /// makes the sum of outcomes too small for a moment, never too large.
            fn add_to(&self, sum: &mut abi::Counters) {
                $(sum.$outcome = sum.$outcome.wrapping_add(self.$outcome.load(Relaxed));)*
                $(sum.$other = sum.$other.wrapping_add(self.$other.load(Relaxed));)*
                sum.hits = sum.hits.wrapping_add(self.hits.load(Relaxed));
            }
        }
    };
}
crate::probe_counters!(on_cpu);

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

    /// Adds the counters of one CPU to `sum`; false if there is no such CPU.
    pub(crate) fn add_of_cpu(&self, cpu: u32, sum: &mut abi::Counters) -> bool {
        let on = self.on.get(cpu as usize);
        on.map(|on| on.add_to(sum)).is_some()
    }

    /// Adds the counters of all CPUs, and those that no CPU has, to `sum`.
    pub(crate) fn add_all(&self, sum: &mut abi::Counters) {
        for on in &self.on {
            on.add_to(sum);
        }
        sum.processes_failed = self.failed_in.load(Relaxed).into();
        sum.evicted = self.evicted.load(Relaxed);
    }

    /// The counters of the CPU that runs this, which stays that one.
    pub(crate) fn here_now(&self) -> Option<Here<'_>> {
        self.here(Current::get().cpu_hint())
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
    pub(crate) fn count(&self, outcome: Outcome) {
        self.on.of(outcome).fetch_add(1, Relaxed);
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

    /// Counts a wait that was too short, and its time.
    #[inline]
    pub(crate) fn below(&self, took_ns: u64) {
        self.count(Outcome::Below);
        self.on.below_ns.fetch_add(took_ns, Relaxed);
    }

    /// Counts waits that go on when their probe is detached.
    pub(crate) fn unfinished(&self, waits: u64) {
        self.on.of(Outcome::Unfinished).fetch_add(waits, Relaxed);
    }

    /// Counts a hit that is handled later, until [`resume`](Self::resume).
    pub(crate) fn postpone(&self) {
        self.count(Outcome::Unfinished);
    }

    /// Takes back `postpone`, before the hit is handled: for a moment it counts as nothing, but never
    /// as two.
    pub(crate) fn resume(&self) {
        self.on.of(Outcome::Unfinished).fetch_sub(1, Relaxed);
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
