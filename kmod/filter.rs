// SPDX-License-Identifier: GPL-2.0-only
//! Who is traced.
//!
//! The filter is asked twice: for an address space, whether it carries the
//! breakpoint at all, and for each hit, because an address space may be shared
//! and a child inherits its parent's breakpoints. Both answers come from one
//! question about a process. Runs in handlers: no locks, no sleeping.

use crate::sys::task::{Current, Mm, Namespace, Pid, Process};
use kernel::prelude::*;

/// What a session traces. Conditions are joined by "and".
pub(crate) struct Filter {
    /// Only these processes; all when empty.
    pub(crate) processes: KVec<Process>,
    /// Only tasks in this pid namespace or below it.
    pub(crate) namespace: Option<Namespace>,
    /// Whether the opener's own process counts.
    pub(crate) include_self: bool,
}

/// The numbers by which a record names the current task.
pub(crate) struct Ids {
    /// Process, as the opener's namespace numbers it.
    pub(crate) pid: u32,
    /// Thread, as the opener's namespace numbers it.
    pub(crate) tid: u32,
    /// Process, as its own namespace numbers it.
    pub(crate) ns_pid: u32,
    /// Thread, as its own namespace numbers it.
    pub(crate) ns_tid: u32,
    /// Inode number of its own pid namespace.
    pub(crate) pidns_inum: u32,
}

/// Who opened the session: the point of view of its numbers, and the process
/// that is not traced by default.
pub(crate) struct Opener {
    process: Process,
    namespace: Namespace,
}

impl Opener {
    /// The current task's process.
    pub(crate) fn current() -> Result<Self> {
        let process = Process::current().ok_or(ESRCH)?;
        let namespace = process.namespace().ok_or(ESRCH)?;
        Ok(Opener { process, namespace })
    }

    /// Whether `process` is traced under `filter` (or under none).
    fn traces(&self, filter: Option<&Filter>, process: &Pid) -> bool {
        let include_self = filter.is_some_and(|filter| filter.include_self);
        if !include_self && self.process.is(process) {
            return false;
        }
        self.namespace.number_of(process).is_some()
            && filter.is_none_or(|filter| filter.admits(process))
    }

    /// Whether processes with this address space carry breakpoints.
    pub(crate) fn traces_mm(&self, filter: Option<&Filter>, mm: &Mm) -> bool {
        mm.with_owner(|process| self.traces(filter, process))
            .unwrap_or(false)
    }

    /// The current task's numbers, when it is traced.
    pub(crate) fn admit(&self, filter: Option<&Filter>, current: &Current) -> Option<Ids> {
        let (process, thread) = (current.process()?, current.thread()?);
        if !self.traces(filter, process) {
            return None;
        }
        let (ns_pid, pidns_inum) = process.own_number();
        let (ns_tid, _) = thread.own_number();
        Some(Ids {
            pid: self.namespace.number_of(process)?,
            tid: self.namespace.number_of(thread)?,
            ns_pid,
            ns_tid,
            pidns_inum,
        })
    }
}

impl Filter {
    fn admits(&self, process: &Pid) -> bool {
        let listed =
            self.processes.is_empty() || self.processes.iter().any(|wanted| wanted.is(process));
        let inside = match &self.namespace {
            Some(namespace) => namespace.number_of(process).is_some(),
            None => true,
        };
        listed && inside
    }
}
