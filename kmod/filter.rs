// SPDX-License-Identifier: GPL-2.0-only
//! Which tasks a session traces.
//!
//! The filter is asked twice: for an address space, whether it carries the breakpoint at all, and
//! for each hit, because an address space may be shared and a child inherits its parent's
//! breakpoints. Runs in handlers: no locks but those of RCU, no sleeping.

use crate::sys::{
    cgroup::Cgroup,
    file_ref::HeldFile,
    namespace_set::NamespaceSet,
    pid_set::{Kind, PidSet},
    task::{Current, Mm, Namespace, Pid, Process, Who},
    thread::Thread, //
};
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    seq_print, //
};

/// The conditions for a task to be traced; all of them must hold.
///
/// An address space is judged by what does not change while it lives, and by its owner's control
/// group at that moment; names and users are judged at the hit.
pub(crate) struct Filter {
    /// Only these processes or threads.
    pub(crate) tasks: Tasks,
    /// Also the tasks that these fork from now on.
    pub(crate) followed: Option<Followed>,
    /// Only tasks in one of these pid namespaces or below it; in any, when empty.
    pub(crate) namespaces: NamespaceSet,
    /// Only tasks in this control group or below it.
    pub(crate) cgroup: Option<Cgroup>,
    /// Only tasks with this effective user id, in the initial user namespace.
    pub(crate) uid: Option<u32>,
    /// Only threads with this name, NUL-padded.
    pub(crate) comm: Option<[u8; 16]>,
    /// No samples of tasks that run this program.
    pub(crate) excluded_program: Option<HeldFile>,
    /// Whether the session owner's own process may be traced.
    pub(crate) include_self: bool,
    /// What can be decided without a lookup; see [`Filter::ready`].
    pub(crate) fast: FastFilter,
}

/// A decision that takes a few instructions.
#[derive(Clone, Copy)]
pub(crate) enum FastFilter {
    /// The task is looked up in the filter.
    NeedsLookup,
    /// Every task passes.
    Anybody,
    /// A task passes if this is the address of its process's `struct pid`.
    Only(usize),
    /// A task passes if its process lives in one of the filter's pid namespaces or below it. All are of
    /// this level, and the session owner sees them and lives in none.
    Inside(usize),
}

/// The tasks that a filter lists.
pub(crate) enum Tasks {
    /// Every task.
    All,
    /// These processes.
    Processes(KVec<Process>),
    /// These threads.
    Threads(KVec<Thread>),
}

/// The tasks that listed tasks have forked since.
pub(crate) struct Followed {
    processes: PidSet,
    threads: PidSet,
}

impl Followed {
    /// Makes empty sets.
    pub(crate) fn new() -> Result<Self> {
        Ok(Followed {
            processes: PidSet::new(Kind::Process)?,
            threads: PidSet::new(Kind::Thread)?,
        })
    }

    /// Forks that found no room in the sets: their tasks are filtered.
    pub(crate) fn missed(&self) -> u64 {
        let missed = self.processes.missed();
        missed.saturating_add(self.threads.missed())
    }
}

/// The pids and tids that a record carries for the current task.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ids {
    /// Process id in the session owner's pid namespace.
    pub(crate) pid: u32,
    /// Thread id in the session owner's pid namespace.
    pub(crate) tid: u32,
    /// Process id in the task's own pid namespace.
    pub(crate) ns_pid: u32,
    /// Thread id in the task's own pid namespace.
    pub(crate) ns_tid: u32,
    /// Id of the task's own pid namespace.
    pub(crate) pidns_id: u64,
    /// Inode number of that namespace.
    pub(crate) pidns_inum: u32,
}

/// The process that opened the session: records number tasks in its pid namespace, and by default
/// it is not traced.
pub(crate) struct SessionOwner {
    process: Process,
    namespace: Namespace,
}

impl SessionOwner {
    /// The current task's process.
    pub(crate) fn current() -> Result<Self> {
        let process = Process::current().ok_or(ESRCH)?;
        let namespace = process.namespace().ok_or(ESRCH)?;
        Ok(SessionOwner { process, namespace })
    }

    /// Its process id in the initial pid namespace.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid().number()
    }

    /// Whether `process` is the one that opened the session.
    pub(crate) fn is(&self, process: &Pid) -> bool {
        self.process.is(process)
    }

    /// Whether it sees all processes, and lives in none of these namespaces.
    fn is_outside(&self, namespaces: &NamespaceSet) -> bool {
        self.namespace.is_initial() && !namespaces.has(self.process.pid())
    }

    /// Whether `process` may be traced, regardless of the tasks that the filter lists.
    #[inline(always)]
    fn sees(&self, filter: Option<&Filter>, process: &Pid) -> bool {
        let include_self = filter.is_some_and(|filter| filter.include_self);
        (include_self || !self.process.is(process)) && self.namespace.number_of(process).is_some()
    }

    /// Whether processes with this address space carry breakpoints.
    pub(crate) fn traces_mm(&self, filter: Option<&Filter>, mm: &Mm) -> bool {
        let cgroup = filter.and_then(|filter| filter.cgroup.as_ref());
        mm.with_owner(cgroup, |process, is_in| {
            is_in
                && self.sees(filter, process)
                && filter.is_none_or(|filter| filter.may_admit(process))
        })
        .unwrap_or(false)
    }

    /// Whether a task is traced, if that is decided in a few instructions without a call.
    #[inline(always)]
    pub(crate) fn admits_fast(&self, filter: Option<&Filter>, task: &impl Who) -> Option<bool> {
        let process = task.process()?;
        if let Some(filter) = filter {
            match filter.fast {
                FastFilter::Only(address) if address != core::ptr::from_ref(process) as usize => {
                    return Some(false)
                }
                FastFilter::Only(_) | FastFilter::Anybody => {}
                FastFilter::Inside(_) | FastFilter::NeedsLookup => return None,
            }
        }
        Some(self.sees(filter, process))
    }

    /// Whether a task is traced, if its pid namespaces alone decide that.
    #[inline(always)]
    pub(crate) fn admits_inside(&self, filter: Option<&Filter>, task: &impl Who) -> Option<bool> {
        let filter = filter?;
        match filter.fast {
            FastFilter::Inside(level) => Some(filter.namespaces.has_at(level, task.process()?)),
            _ => None,
        }
    }

    /// Whether a task is traced.
    pub(crate) fn admits(&self, filter: Option<&Filter>, task: &impl Who) -> bool {
        if let Some(admits) = self.admits_fast(filter, task) {
            return admits;
        }
        task.process().is_some_and(|process| {
            filter.is_none_or(|filter| filter.admits(task, process)) && self.sees(filter, process)
        })
    }

    /// Whether a task that is not traced may be later, or another thread of its process is: by the
    /// conditions that do not judge an address space.
    #[cold]
    pub(crate) fn may_admit(&self, filter: Option<&Filter>, task: &impl Who) -> bool {
        task.process().is_some_and(|process| {
            self.sees(filter, process)
                && filter.is_none_or(|filter| {
                    let cgroup = filter.cgroup.as_ref();
                    filter.may_admit(process) && cgroup.is_none_or(|cgroup| task.is_in(cgroup))
                })
        })
    }

    /// Whether this namespace sees a task, traced or not.
    pub(crate) fn has_in_view(&self, task: &impl Who) -> bool {
        self.namespace.is_initial()
            || task
                .process()
                .is_some_and(|process| self.namespace.number_of(process).is_some())
    }

    /// The task's pid; zero if this namespace does not see the task.
    pub(crate) fn pid_of(&self, task: &impl Who) -> u32 {
        task.process()
            .and_then(|process| self.namespace.number_of(process))
            .unwrap_or(0)
    }

    /// The task's tid; zero if this namespace does not see the task.
    pub(crate) fn tid(&self, task: &impl Who) -> u32 {
        task.thread()
            .and_then(|thread| self.namespace.number_of(thread))
            .unwrap_or(0)
    }

    /// The tid that a task had before it executed another program; `old` is that tid in the initial
    /// namespace. Zero if it is unknown, as its pid is gone.
    pub(crate) fn old_tid(&self, task: &impl Who, old: u32) -> u32 {
        match task.thread() {
            _ if self.namespace.is_initial() => old,
            Some(thread) if thread.number() == old => self.tid(task),
            _ => 0,
        }
    }

    /// The container that pays for what a task uses of the session's tables: the id of the pid
    /// namespace below ours that it is in, or of ours. A container within one does not count apart.
    #[inline]
    pub(crate) fn container(&self, task: &impl Who) -> u64 {
        task.process()
            .map_or(0, |process| self.namespace.id_below(process))
    }

    /// Its pid namespace, the first that its records describe.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The ids of the current task; zero where this namespace does not see it.
    #[inline(always)]
    pub(crate) fn ids(&self, current: &Current) -> Ids {
        let (Some(process), Some(thread)) = (current.process(), current.thread()) else {
            return Ids::default();
        };
        let (ns_pid, ns_tid) = (process.own_number(), thread.own_number());
        let (pidns_id, pidns_inum) = process.home().unwrap_or_default();
        if self.namespace.is_own_of(process) {
            return Ids {
                pid: ns_pid,
                tid: ns_tid,
                ns_pid,
                ns_tid,
                pidns_id,
                pidns_inum,
            };
        }
        Ids {
            pid: self.namespace.number_of(process).unwrap_or(0),
            tid: self.namespace.number_of(thread).unwrap_or(0),
            ns_pid,
            ns_tid,
            pidns_id,
            pidns_inum,
        }
    }
}

impl Filter {
    /// Computes `fast`.
    pub(crate) fn ready(mut self, session_owner: &SessionOwner) -> Self {
        self.fast = match &self.tasks {
            _ if !self.is_plain() || self.followed.is_some() => FastFilter::NeedsLookup,
            Tasks::All if self.namespaces.is_empty() => FastFilter::Anybody,
            Tasks::All => match self.namespaces.level() {
                Some(level) if session_owner.is_outside(&self.namespaces) => {
                    FastFilter::Inside(level)
                }
                _ => FastFilter::NeedsLookup,
            },
            Tasks::Processes(all) if self.namespaces.is_empty() => match all.as_slice() {
                [one] => FastFilter::Only(core::ptr::from_ref(one.pid()) as usize),
                _ => FastFilter::NeedsLookup,
            },
            Tasks::Processes(_) | Tasks::Threads(_) => FastFilter::NeedsLookup,
        };
        self
    }

    /// Whether a thread of `process` may pass.
    fn may_admit(&self, process: &Pid) -> bool {
        let is_listed = match &self.tasks {
            Tasks::All => true,
            Tasks::Processes(all) => all.iter().any(|wanted| wanted.is(process)),
            Tasks::Threads(all) => all.iter().any(|wanted| wanted.process().is(process)),
        };
        (is_listed || self.follows(process)) && self.is_inside(process)
    }

    /// Whether the list of tasks and the pid namespaces are the only conditions.
    fn is_plain(&self) -> bool {
        self.cgroup.is_none() && self.uid.is_none() && self.comm.is_none()
    }

    /// Whether a task of `process` passes.
    fn admits(&self, task: &impl Who, process: &Pid) -> bool {
        let is_listed = match &self.tasks {
            Tasks::All => true,
            _ => task
                .thread()
                .is_some_and(|thread| self.lists(process, thread)),
        };
        is_listed
            && self.is_inside(process)
            && self.uid.is_none_or(|uid| task.euid() == uid)
            && self
                .comm
                .is_none_or(|comm| is_same_name(&comm, &task.comm()))
            && self.cgroup.as_ref().is_none_or(|cgroup| task.is_in(cgroup))
    }

    /// Whether a thread is listed, or was forked by a listed one.
    fn lists(&self, process: &Pid, thread: &Pid) -> bool {
        match &self.tasks {
            Tasks::All => true,
            Tasks::Processes(all) => {
                all.iter().any(|wanted| wanted.is(process)) || self.follows(process)
            }
            Tasks::Threads(all) => {
                all.iter().any(|wanted| wanted.is(thread))
                    || self.follows(process)
                    || self
                        .followed
                        .as_ref()
                        .is_some_and(|followed| followed.threads.contains(thread))
            }
        }
    }

    /// Whether `process` was forked by a listed task.
    fn follows(&self, process: &Pid) -> bool {
        self.followed
            .as_ref()
            .is_some_and(|followed| followed.processes.contains(process))
    }

    #[inline(always)]
    fn is_inside(&self, process: &Pid) -> bool {
        self.namespaces.is_empty() || self.namespaces.has(process)
    }

    /// Prints the filter's lines of fdinfo.
    pub(crate) fn show(&self, out: &SeqFile) {
        match &self.tasks {
            Tasks::All => (),
            Tasks::Processes(all) => seq_print!(out, "filter-processes:\t{}\n", all.len()),
            Tasks::Threads(all) => seq_print!(out, "filter-threads:\t{}\n", all.len()),
        }
        for namespace in self.namespaces.iter() {
            seq_print!(out, "filter-pidns:\t{}\n", namespace.inum());
        }
        if let Some(cgroup) = &self.cgroup {
            seq_print!(out, "filter-cgroup:\t{}\n", cgroup.id());
        }
        if let Some(uid) = self.uid {
            seq_print!(out, "filter-uid:\t{}\n", uid);
        }
        if let Some(followed) = &self.followed {
            seq_print!(out, "filter-missed:\t{}\n", followed.missed());
        }
    }

    /// Follows a new task if its parent is listed. The child does not run yet.
    pub(crate) fn follow(&self, parent: &impl Who, child: &impl Who) {
        let Some(followed) = &self.followed else {
            return;
        };
        let (Some(process), Some(thread)) = (parent.process(), parent.thread()) else {
            return;
        };
        if !self.lists(process, thread) {
            return;
        }
        let (Some(new_process), Some(new_thread)) = (child.process(), child.thread()) else {
            return;
        };
        if !core::ptr::eq(process, new_process) {
            followed.processes.insert(new_process);
        } else if matches!(self.tasks, Tasks::Threads(_)) && !self.follows(process) {
            followed.threads.insert(new_thread);
        }
    }
}

/// Whether two names are equal up to their NUL.
fn is_same_name(one: &[u8; 16], other: &[u8; 16]) -> bool {
    for (a, b) in one.iter().zip(other) {
        if a != b {
            return false;
        }
        if *a == 0 {
            break;
        }
    }
    true
}
