// SPDX-License-Identifier: GPL-2.0-only
//! A hit, while it is handled.

use crate::{
    common::wait::WaitKind,
    filter::{Ids, SessionOwner},
    probe::{
        counters::Here,
        entry_values::PendingCall,
        goroutine::GoStack, //
    },
    sys::{
        kernel_stack::Innermost,
        task::Current,
        uprobe::Regs, //
    }, //
};

/// A wait that a hit is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) kind: WaitKind,
    /// The system call that the task is in.
    pub(crate) call: Option<u32>,
    /// The file descriptor that the call has as its first argument.
    pub(crate) file: Option<u32>,
    /// How long the task could run.
    pub(crate) for_cpu_ns: u64,
    /// What woke it.
    pub(crate) woken: Woken,
    /// Where it waits, in `futex(2)`.
    pub(crate) lock: Option<u64>,
    /// Who holds that, as [`Context::LockHolder`](crate::common::program::Context::LockHolder).
    pub(crate) holder: u64,
}

/// When and by what a task was woken.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Woken {
    /// CLOCK_MONOTONIC; zero if it was not seen.
    pub(crate) at_ns: u64,
    /// As [`Context::WokenBy`](crate::common::program::Context::WokenBy).
    pub(crate) by: u64,
}

/// What caused a hit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A breakpoint.
    Breakpoint,
    /// A sample of user space.
    User,
    /// A sample of the kernel, interrupted at this instruction pointer.
    Kernel(u64),
    /// A wait.
    Wait(Wait),
    /// It wakes another task.
    Wake,
}

/// A hit of a task that is traced.
pub(crate) struct Hit<'a> {
    pub(crate) regs: &'a Regs<'a>,
    pub(crate) session_owner: &'a SessionOwner,
    pub(crate) current: &'a Current,
    pub(crate) here: Here<'a>,
    pub(crate) sequence: u32,
    /// The time of the hit.
    pub(crate) now_ns: u64,
    /// The address of the reported place.
    pub(crate) address: u64,
    pub(crate) origin: Origin,
    /// For a return: the call that ends here; its time is zero if its entry was not seen. For a
    /// wait: when it began.
    pub(crate) ended: Option<PendingCall>,
    /// For a return in a goroutine whose stack was moved during the call: where it was. What kept
    /// values point at there is not read.
    pub(crate) moved_from: Option<GoStack>,
}

impl Hit<'_> {
    /// Whether the task is in the kernel for another reason than a breakpoint.
    pub(crate) fn is_in_kernel(&self) -> bool {
        matches!(
            self.origin,
            Origin::Kernel(_) | Origin::Wait(_) | Origin::Wake
        )
    }

    /// Where its stack in the kernel begins, if it has one.
    pub(crate) fn kernel_stack(&self) -> Option<Innermost> {
        match self.origin {
            Origin::Breakpoint => Some(Innermost::Here),
            Origin::Kernel(ip) => Some(Innermost::Interrupted(ip)),
            Origin::Wait(_) => Some(Innermost::CallerOfScheduler),
            Origin::User | Origin::Wake => None,
        }
    }

    /// The wait that it is about.
    pub(crate) fn wait(&self) -> Option<Wait> {
        match self.origin {
            Origin::Wait(wait) => Some(wait),
            Origin::Breakpoint | Origin::User | Origin::Kernel(_) | Origin::Wake => None,
        }
    }

    /// The ids of the task.
    #[inline(always)]
    pub(crate) fn ids(&self) -> Ids {
        self.session_owner.ids(self.current)
    }

    /// The container that pays for what the hit uses.
    pub(crate) fn container(&self) -> u64 {
        self.session_owner.container(self.current)
    }

    /// Nanoseconds since the entry of the call that ends here.
    pub(crate) fn elapsed_ns(&self) -> Option<u64> {
        let began_ns = self.ended?.time_ns;
        (began_ns != 0).then(|| self.now_ns.saturating_sub(began_ns))
    }
}
