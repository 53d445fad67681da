// SPDX-License-Identifier: GPL-2.0-only
//! A hit, while it is handled.

use crate::{
    filter::{Ids, SessionOwner},
    probe::{
        counters::Here,
        entry_values::PendingCall, //
    },
    sys::{
        task::Current,
        uprobe::Regs, //
    }, //
};

/// What caused a hit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A breakpoint.
    Breakpoint,
    /// A sample of user space.
    User,
    /// A sample of the kernel, interrupted at this instruction pointer.
    Kernel(u64),
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
    /// For a return: the call that ends here; its time is zero if its entry was not seen.
    pub(crate) ended: Option<PendingCall>,
}

impl Hit<'_> {
    /// The ids of the task.
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
