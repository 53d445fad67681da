// SPDX-License-Identifier: GPL-2.0-only
//! Who a task is, and in whose pid namespace; the current one above all.
//!
//! A process is identified by its `struct pid`, never by a number: numbers come
//! back. `pid->numbers[level]` holds the number and the namespace of each level
//! from the initial namespace (0) down to the task's own (`pid->level`), see
//! `include/linux/pid.h`; whether a task lives in the subtree of a namespace is
//! one comparison.

use super::{cgroup::Cgroup, helpers};
use core::{
    ptr::NonNull,
    sync::atomic::{compiler_fence, Ordering::SeqCst}, //
};
use kernel::{
    bindings,
    pid_namespace::PidNamespace,
    prelude::*,
    sync::{aref::ARef, rcu},
    types::Opaque, //
};

/// A `struct pid`: a process or a thread, in all its namespaces.
#[repr(transparent)]
pub(crate) struct Pid(Opaque<bindings::pid>);

impl Pid {
    /// # Safety
    ///
    /// `pid` must stay valid for `'a`.
    pub(super) unsafe fn from_ptr<'a>(pid: NonNull<bindings::pid>) -> &'a Pid {
        // SAFETY: `Pid` is a transparent wrapper, and the caller promises the rest.
        unsafe { pid.cast().as_ref() }
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::pid {
        self.0.get()
    }

    fn level(&self) -> usize {
        // SAFETY: The pid is valid; its level is fixed.
        unsafe { (*self.as_ptr()).level as usize }
    }

    /// Number and namespace at `level`, when the pid reaches that deep.
    #[inline(always)]
    pub(super) fn at(&self, level: usize) -> Option<(u32, *mut bindings::pid_namespace)> {
        if level > self.level() {
            return None;
        }
        // SAFETY: `numbers` has `level + 1` elements, which are fixed before the pid
        // can be found.
        let upid = unsafe { &*(*self.as_ptr()).numbers.as_ptr().add(level) };
        Some((upid.nr as u32, upid.ns))
    }

    /// The number in the initial namespace.
    pub(crate) fn number(&self) -> u32 {
        self.at(0).map_or(0, |(number, _)| number)
    }

    /// The number in the pid's own namespace.
    pub(crate) fn own_number(&self) -> u32 {
        self.at(self.level()).map_or(0, |(number, _)| number)
    }

    /// The id of the pid's own namespace, which is never reused, and its inode number.
    #[inline]
    pub(crate) fn home(&self) -> Option<(u64, u32)> {
        let (_, ns) = self.at(self.level())?;
        // SAFETY: A pid holds its namespace; both numbers are fixed.
        (!ns.is_null()).then(|| unsafe { (super::helpers::pidns_id(ns), (*ns).ns.inum) })
    }

    /// The pid's own namespace.
    fn namespace(&self) -> Option<Namespace> {
        let level = self.level();
        let (_, ns) = self.at(level)?;
        if ns.is_null() {
            return None;
        }
        // SAFETY: A pid holds its namespace, so it is valid here.
        let ns = unsafe { PidNamespace::from_ptr(ns) };
        Some(Namespace {
            ns: ns.into(),
            level,
        })
    }
}

/// A counted reference of a process.
///
/// # Invariants
///
/// Owns one reference.
pub(crate) struct Process(NonNull<bindings::pid>);

// SAFETY: References of pids are counted atomically and belong to no task.
unsafe impl Send for Process {}
// SAFETY: `Pid`'s methods read fixed fields only.
unsafe impl Sync for Process {}

impl Process {
    /// The living process that the current task's namespace calls `number`.
    pub(crate) fn find(number: u32) -> Result<Process> {
        let number = i32::try_from(number).map_err(|_| ESRCH)?;
        // SAFETY: `find_get_pid` has no preconditions and gives a reference or NULL.
        let pid = NonNull::new(unsafe { bindings::find_get_pid(number) }).ok_or(ESRCH)?;
        // INVARIANT: The reference is ours.
        let process = Process(pid);
        let guard = rcu::read_lock();
        // SAFETY: The pid is held and RCU is locked, as `pid_task` requires.
        let task = unsafe { bindings::pid_task(pid.as_ptr(), bindings::pid_type_PIDTYPE_TGID) };
        drop(guard);
        if task.is_null() {
            return Err(ESRCH);
        }
        Ok(process)
    }

    /// The current task's process.
    pub(crate) fn current() -> Option<Process> {
        // SAFETY: `current` is valid.
        unsafe { Self::of(kernel::current!().as_ptr()) }
    }

    /// The process of `task`; `None` for none.
    ///
    /// # Safety
    ///
    /// `task` must be NULL or valid.
    pub(super) unsafe fn of(task: *mut bindings::task_struct) -> Option<Process> {
        if task.is_null() {
            return None;
        }
        // SAFETY: The task is valid; `get_task_pid` gives a reference or NULL.
        let pid = unsafe { bindings::get_task_pid(task, bindings::pid_type_PIDTYPE_TGID) };
        // INVARIANT: The reference is ours.
        NonNull::new(pid).map(Process)
    }

    /// The process as a pid.
    pub(crate) fn pid(&self) -> &Pid {
        // SAFETY: By the invariant the pid is valid as long as `self`.
        unsafe { Pid::from_ptr(self.0) }
    }

    /// The pid namespace that the process lives in.
    pub(crate) fn namespace(&self) -> Option<Namespace> {
        self.pid().namespace()
    }

    /// Whether `pid` is this process.
    pub(crate) fn is(&self, pid: &Pid) -> bool {
        core::ptr::eq(self.0.as_ptr(), pid.as_ptr())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: By the invariant the reference is ours to give back.
        unsafe { bindings::put_pid(self.0.as_ptr()) };
    }
}

/// A pid namespace and its level.
#[derive(Clone)]
pub(crate) struct Namespace {
    ns: ARef<PidNamespace>,
    level: usize,
}

impl Namespace {
    /// The number of `pid` in this namespace; `None` if `pid` lives outside of its subtree.
    pub(crate) fn number_of(&self, pid: &Pid) -> Option<u32> {
        match pid.at(self.level) {
            Some((number, ns)) if core::ptr::eq(ns, self.ns.as_ptr()) => Some(number),
            _ => None,
        }
    }

    /// How many namespaces it is below the initial one.
    pub(super) fn level(&self) -> usize {
        self.level
    }

    /// Whether it is the initial namespace.
    pub(crate) fn is_initial(&self) -> bool {
        self.level == 0
    }

    /// Whether `pid` lives in this very namespace, not below it.
    pub(crate) fn is_own_of(&self, pid: &Pid) -> bool {
        pid.level() == self.level && self.number_of(pid).is_some()
    }

    /// The id of the namespace right below this one that `pid` is in; its own id for a pid that
    /// lives in this one or outside of it.
    #[inline]
    pub(crate) fn id_below(&self, pid: &Pid) -> u64 {
        let below = pid.at(self.level.wrapping_add(1));
        let ns = below.or_else(|| pid.at(pid.level())).map(|(_, ns)| ns);
        match ns.filter(|ns| !ns.is_null()) {
            // SAFETY: A pid holds its namespaces; the id is fixed.
            Some(ns) => unsafe { super::helpers::pidns_id(ns) },
            None => 0,
        }
    }

    /// Inode number.
    pub(crate) fn inum(&self) -> u32 {
        // SAFETY: The namespace is held; its inode number is fixed.
        unsafe { (*self.ns.as_ptr()).ns.inum }
    }

    /// The id, which is never reused.
    pub(crate) fn id(&self) -> u64 {
        // SAFETY: The namespace is held; its id is fixed.
        unsafe { super::helpers::pidns_id(self.ns.as_ptr()) }
    }

    /// Passes each pid namespace that `pid` is in to `each`, from this one to its own; returns
    /// false if `pid` lives outside of this one.
    pub(super) fn each_level_of(&self, pid: &Pid, mut each: impl FnMut(Level)) -> bool {
        if self.number_of(pid).is_none() {
            return false;
        }
        for index in self.level..=pid.level() {
            if let Some((_, ns)) = pid.at(index) {
                each(Level { index, ns });
            }
        }
        true
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::pid_namespace {
        self.ns.as_ptr()
    }
}

/// One of the namespaces that a pid is in, valid as long as the pid.
pub(super) struct Level {
    index: usize,
    ns: *mut bindings::pid_namespace,
}

impl Level {
    /// The id, which is never reused.
    pub(super) fn id(&self) -> u64 {
        // SAFETY: The pid that this is of holds its namespaces; the id is fixed.
        unsafe { super::helpers::pidns_id(self.ns) }
    }

    /// Inode number.
    pub(super) fn inum(&self) -> u32 {
        // SAFETY: The pid that this is of holds its namespaces; the number is fixed.
        unsafe { (*self.ns).ns.inum }
    }

    /// The number of `pid` in it, or zero.
    pub(super) fn number_of(&self, pid: &Pid) -> u32 {
        match pid.at(self.index) {
            Some((number, ns)) if core::ptr::eq(ns, self.ns) => number,
            _ => 0,
        }
    }
}

/// The properties of a task that filters check.
pub(crate) trait Who {
    /// The thread. `None` once it is reaped.
    fn thread(&self) -> Option<&Pid>;
    /// The process.
    fn process(&self) -> Option<&Pid>;
    /// Effective user id, in the initial user namespace.
    fn euid(&self) -> u32;
    /// The thread's name, NUL-padded. A concurrent change may give a mix of both names.
    fn comm(&self) -> [u8; 16];
    /// Whether it is in `cgroup` or one below, now.
    fn is_in(&self, cgroup: &Cgroup) -> bool;
}

/// The current task, as long as it runs this code; or one that does not run as long
/// as that.
pub(crate) struct Current {
    task: *mut bindings::task_struct,
}

impl Current {
    /// The current task. The kernel crate's `current!` is a call, which every hit would pay
    /// for; this is `get_current` of `arch/x86/include/asm/current.h`.
    #[inline(always)]
    pub(crate) fn get() -> Self {
        extern "C" {
            /// The per-CPU variable; never read by its address.
            static const_current_task: usize;
        }
        let task: *mut bindings::task_struct;
        // SAFETY: A read of the per-CPU variable in which the kernel keeps the running
        // task; whatever CPU this runs on, and when, the value is the task itself.
        unsafe {
            core::arch::asm!(
                "mov {task}, qword ptr gs:[rip + {variable}]",
                task = lateout(reg) task,
                variable = sym const_current_task,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        Current { task }
    }

    /// # Safety
    ///
    /// `task` must be the current one, or a new one that does not run while the value
    /// lives.
    pub(super) unsafe fn from_ptr(task: *mut bindings::task_struct) -> Self {
        Current { task }
    }

    /// `pagefault_disable()` with 1, `pagefault_enable()` with -1.
    ///
    /// # Safety
    ///
    /// This must be the current task, which takes back what it adds in the same context.
    #[inline(always)]
    pub(super) unsafe fn add_to_disabled_page_faults(&self, by: i32) {
        compiler_fence(SeqCst);
        // SAFETY: The task alone uses its count; an interrupt leaves it as it was.
        unsafe {
            let count = &raw mut (*self.task).pagefault_disabled;
            *count = (*count).wrapping_add(by);
        }
        compiler_fence(SeqCst);
    }

    /// Its address, for comparison.
    pub(super) fn address(&self) -> usize {
        self.task.addr()
    }

    pub(super) fn as_non_null(&self) -> NonNull<bindings::task_struct> {
        // SAFETY: There is always a current task.
        unsafe { NonNull::new_unchecked(self.task) }
    }

    /// The number of its address space, which is never reused; zero for none.
    #[inline(always)]
    pub(crate) fn space(&self) -> u64 {
        self.mm().map_or(0, |mm| {
            // SAFETY: The task keeps its address space, as `mm` says.
            unsafe { Mm::from_ptr(mm) }.number()
        })
    }

    /// Its address space, which the current task keeps while it runs this code.
    #[inline(always)]
    pub(super) fn mm(&self) -> Option<NonNull<bindings::mm_struct>> {
        // SAFETY: The task is the current one, or a new one that does not run.
        NonNull::new(unsafe { (*self.task).mm })
    }

    /// Whether it is in `cgroup` or one below, now.
    pub(crate) fn is_in(&self, cgroup: &Cgroup) -> bool {
        let _guard = rcu::read_lock();
        // SAFETY: The task is valid, the group held, and RCU is locked.
        unsafe { helpers::nsprobe_task_in_cgroup(self.task, cgroup.as_ptr()) }
    }

    /// Its effective user id, in the initial user namespace. Of the current task only.
    pub(crate) fn euid(&self) -> u32 {
        // SAFETY: A task's own credentials are valid while it runs this code, and their
        // ids are fixed.
        unsafe { (*(*self.task).cred).euid.val }
    }

    /// Its effective group id, in the initial user namespace. Of the current task only.
    pub(crate) fn egid(&self) -> u32 {
        // SAFETY: A task's own credentials are valid while it runs this code, and their
        // ids are fixed.
        unsafe { (*(*self.task).cred).egid.val }
    }

    /// The CPU that it runs on, or ran on a moment ago: a hint for sharding.
    pub(crate) fn cpu_hint(&self) -> u32 {
        // SAFETY: The task is valid; its CPU is a plain number (`task_cpu` of
        // `include/linux/sched.h`).
        unsafe { (*self.task).thread_info.cpu }
    }

    /// The thread. `None` while it is being reaped.
    pub(crate) fn thread(&self) -> Option<&Pid> {
        // SAFETY: `thread_pid` of the running task changes only when the task itself
        // execs (`exchange_tids`) or is released, neither of which can happen while
        // it runs this code; the task holds the pid.
        unsafe { NonNull::new((*self.task).thread_pid).map(|pid| Pid::from_ptr(pid)) }
    }

    /// The process.
    pub(crate) fn process(&self) -> Option<&Pid> {
        // SAFETY: As for `thread`; `signal` lives at least as long as the task.
        unsafe { process_of(self.task).map(|pid| Pid::from_ptr(pid)) }
    }

    /// The thread's name, NUL-padded. A concurrent change may give a mix of both names.
    pub(crate) fn comm(&self) -> [u8; 16] {
        // SAFETY: The task is valid and `comm` is 16 bytes, whatever they hold; a
        // racing `prctl(PR_SET_NAME)` mixes bytes, as it does for every tracer.
        let mut comm: [u8; 16] =
            unsafe { (&raw const (*self.task).comm).cast::<[u8; 16]>().read() };
        if let Some(last) = comm.last_mut() {
            *last = 0;
        }
        comm
    }
}

impl Who for Current {
    fn thread(&self) -> Option<&Pid> {
        Current::thread(self)
    }

    fn process(&self) -> Option<&Pid> {
        Current::process(self)
    }

    fn euid(&self) -> u32 {
        Current::euid(self)
    }

    fn comm(&self) -> [u8; 16] {
        Current::comm(self)
    }

    fn is_in(&self, cgroup: &Cgroup) -> bool {
        Current::is_in(self, cgroup)
    }
}

/// # Safety
///
/// `task` must be valid.
pub(super) unsafe fn process_of(
    task: *mut bindings::task_struct,
) -> Option<NonNull<bindings::pid>> {
    // SAFETY: The caller keeps the task valid, and the task its `signal`.
    unsafe {
        let signal = NonNull::new((*task).signal)?;
        let pids = &raw const (*signal.as_ptr()).pids;
        let process = &raw const (*pids)[bindings::pid_type_PIDTYPE_TGID as usize];
        // Once: of another task it becomes NULL when that is reaped.
        NonNull::new(process.read_volatile())
    }
}

/// An address space, as the filter of a uprobe consumer gets it.
pub(crate) struct Mm(NonNull<bindings::mm_struct>);

impl Mm {
    /// # Safety
    ///
    /// `mm` must stay valid while the value lives.
    pub(super) unsafe fn from_ptr(mm: NonNull<bindings::mm_struct>) -> Self {
        Mm(mm)
    }

    /// Whether it is that of a 64-bit program.
    pub(crate) fn is_64bit(&self) -> bool {
        // SAFETY: The mm is valid.
        unsafe { helpers::nsprobe_is_64bit_mm(self.0.as_ptr()) }
    }

    /// The number of the address space, which is never reused.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        // SAFETY: The mm is valid; the number is fixed.
        unsafe { (*self.0.as_ptr()).__bindgen_anon_1.context.ctx_id }
    }

    /// Passes the owning process to `look`, and whether it is in `cgroup` if there is one. `None`
    /// if the mm has no owner (its process is exiting).
    pub(crate) fn with_owner<R>(
        &self,
        cgroup: Option<&Cgroup>,
        look: impl FnOnce(&Pid, bool) -> R,
    ) -> Option<R> {
        let _guard = rcu::read_lock();
        // SAFETY: The mm is valid, and RCU, which `nsprobe_mm_owner` requires, is locked:
        // the owner's task and its pid stay valid until the guard is dropped.
        unsafe {
            let owner = NonNull::new(helpers::nsprobe_mm_owner(self.0.as_ptr()))?;
            let pid = process_of(owner.as_ptr())?;
            let is_in = cgroup.is_none_or(|cgroup| {
                helpers::nsprobe_task_in_cgroup(owner.as_ptr(), cgroup.as_ptr())
            });
            Some(look(Pid::from_ptr(pid), is_in))
        }
    }
}

/// Whether the current task has been killed: its result will not be used.
pub(crate) fn is_killed() -> bool {
    // SAFETY: The current task is valid; the two loads need no lock.
    unsafe { helpers::nsprobe_is_killed(kernel::current!().as_ptr()) }
}

/// Whether the current task has `capability` in the initial user namespace.
pub(crate) fn is_capable(capability: u32) -> bool {
    // SAFETY: `capable` has no preconditions.
    unsafe { bindings::capable(capability as i32) }
}

/// `CAP_PERFMON` of `include/uapi/linux/capability.h`.
pub(crate) const CAP_PERFMON: u32 = bindings::CAP_PERFMON;
/// `CAP_SYS_PTRACE`.
pub(crate) const CAP_SYS_PTRACE: u32 = bindings::CAP_SYS_PTRACE;
/// `CAP_SYSLOG`.
pub(crate) const CAP_SYSLOG: u32 = bindings::CAP_SYSLOG;
/// `CAP_SYS_ADMIN`.
pub(crate) const CAP_SYS_ADMIN: u32 = bindings::CAP_SYS_ADMIN;

/// The restrictions of a lockdown that are checked.
#[derive(Clone, Copy)]
pub(crate) enum Lockdown {
    /// Tracing (`LOCKDOWN_PERF`).
    Tracing,
    /// Writing to user memory (`LOCKDOWN_BPF_WRITE_USER`).
    Writing,
}

/// Whether the kernel is locked down against `against`.
pub(crate) fn is_locked_down(against: Lockdown) -> bool {
    let reason = match against {
        Lockdown::Tracing => bindings::lockdown_reason_LOCKDOWN_PERF,
        Lockdown::Writing => bindings::lockdown_reason_LOCKDOWN_BPF_WRITE_USER,
    };
    // SAFETY: `security_locked_down` has no preconditions.
    unsafe { bindings::security_locked_down(reason) != 0 }
}

/// Whether the module's parameter asks for CAP_SYS_ADMIN.
pub(crate) fn module_is_paranoid() -> bool {
    // SAFETY: No preconditions; the parameter is fixed when the module is loaded.
    unsafe { helpers::nsprobe_is_paranoid() }
}

/// `EPERM` unless the current task may modify traced programs, `EACCES` if no task may.
pub(crate) fn may_modify() -> Result {
    // SAFETY: No preconditions; the parameter is fixed when the module is loaded.
    let allows = unsafe { helpers::nsprobe_allows_modify() };
    if !allows || is_locked_down(Lockdown::Writing) {
        Err(EACCES)
    } else if !is_capable(CAP_SYS_ADMIN) {
        Err(EPERM)
    } else {
        Ok(())
    }
}
