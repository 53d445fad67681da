// SPDX-License-Identifier: GPL-2.0-only
//! A task that need not be the current one.
//!
//! A `task_struct` is freed by RCU, and so is what is read of it here; so all of this runs in an
//! RCU section, which [`AnyTask`] borrows. What the task itself may change meanwhile is read once
//! (`READ_ONCE`): the value was true at some moment of the call.

use super::{
    cgroup::Cgroup,
    helpers,
    rcu_slot::Reading,
    task::{Current, Namespace, Pid, Who}, //
};
use crate::common::task::{
    TaskLevel,
    NAMESPACES,
    NAMESPACE_PID_CHILDREN,
    NAMESPACE_USER, //
};
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{
    bindings,
    sync::rcu, //
};

extern "C" {
    /// `include/linux/sched/cputime.h`; takes a raw lock of the task's with interrupts off.
    #[expect(improper_ctypes, reason = "the struct goes by pointer only")]
    fn task_cputime_adjusted(task: *mut bindings::task_struct, user: *mut u64, system: *mut u64);
}

/// How the namespaces of a task may be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// It is the current one, or it does not run yet: no other task changes them.
    Own,
    /// Waits for other readers of them. Task context.
    Wait,
    /// Gives up if another task reads them at this moment. Any context but NMI.
    Try,
}

/// A task's namespaces.
#[derive(Default)]
pub(crate) struct Namespaces {
    /// Inode numbers by `NAMESPACE_*`.
    pub(crate) inums: [u32; NAMESPACES],
    /// Whether it has none any more.
    pub(crate) is_bare: bool,
}

/// The container of a task, as CPU times are counted.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Home {
    /// Id of the control group.
    pub(crate) cgroup: u64,
    /// Id of the pid namespace, which is never reused; zero if the task has been reaped.
    pub(crate) pidns_id: u64,
    /// Inode number of the pid namespace.
    pub(crate) pidns_inum: u32,
}

impl Home {
    /// A hash of both ids.
    #[inline]
    pub(crate) fn hash(&self) -> u32 {
        let mixed = self.cgroup.rotate_left(32) ^ self.pidns_id;
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }
}

/// A task.
///
/// # Invariants
///
/// The task is valid during `'a`, in which RCU is locked.
#[derive(Clone, Copy)]
pub(crate) struct AnyTask<'a> {
    task: NonNull<bindings::task_struct>,
    _reading: PhantomData<&'a ()>,
}

/// `READ_ONCE()` of a field of the task's.
macro_rules! once {
    ($task:expr, $($field:tt)+) => {
        // SAFETY: By the invariant of `AnyTask` the task is valid; a number or pointer is
        // read at once, also while another CPU writes it.
        unsafe { (&raw const (*$task.task.as_ptr()).$($field)+).read_volatile() }
    };
}

impl<'a> AnyTask<'a> {
    /// # Safety
    ///
    /// `task` must be valid, or become free by RCU, which is locked during `'a`.
    pub(super) unsafe fn from_ptr(
        task: NonNull<bindings::task_struct>,
        _reading: Reading<'a>,
    ) -> Self {
        // INVARIANT: By the contract of this function.
        AnyTask {
            task,
            _reading: PhantomData,
        }
    }

    /// The current task.
    pub(crate) fn current(_reading: Reading<'a>) -> Self {
        // INVARIANT: The current task stays as long as it runs this code.
        AnyTask {
            task: Current::get().as_non_null(),
            _reading: PhantomData,
        }
    }

    /// The thread that the current task's pid namespace calls `number`, if it is another one of its
    /// process. Any context.
    pub(crate) fn other_thread(number: u32, reading: Reading<'a>) -> Option<Self> {
        // SAFETY: RCU is locked, which `reading` proves.
        let task = NonNull::new(unsafe { helpers::nsprobe_other_thread(number) })?;
        // SAFETY: It was found under RCU, which is locked during `'a`.
        Some(unsafe { AnyTask::from_ptr(task, reading) })
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::task_struct {
        self.task.as_ptr()
    }

    /// Its address, which differs from that of every other task that exists now.
    pub(crate) fn address(&self) -> usize {
        self.task.as_ptr() as usize
    }

    /// Whether this is the current task.
    pub(crate) fn is_current(&self) -> bool {
        self.task == Current::get().as_non_null()
    }

    /// Whether it is an idle task. Idle tasks have no number.
    pub(crate) fn is_idle(&self) -> bool {
        once!(self, pid) == 0
    }

    /// Its number in the initial pid namespace, which it keeps after it has been reaped.
    pub(crate) fn number(&self) -> u32 {
        once!(self, pid) as u32
    }

    /// Whether it is a kernel thread.
    pub(crate) fn is_kernel(&self) -> bool {
        once!(self, flags) & bindings::PF_KTHREAD != 0
    }

    /// Whether it is the first thread of its process.
    pub(crate) fn is_leader(&self) -> bool {
        once!(self, pid) == once!(self, tgid)
    }

    /// Whether it is exiting: its last event has come or is about to come.
    pub(crate) fn is_ending(&self) -> bool {
        once!(self, flags) & bindings::PF_EXITING != 0
    }

    /// Whether it has exited and waits to be reaped.
    pub(crate) fn is_zombie(&self) -> bool {
        once!(self, exit_state) as u32 & bindings::EXIT_ZOMBIE != 0
    }

    /// Its start time: CLOCK_BOOTTIME.
    pub(crate) fn start_ns(&self) -> u64 {
        once!(self, start_boottime)
    }

    /// How long it has run, up to the last tick or switch.
    pub(crate) fn cpu_ns(&self) -> u64 {
        once!(self, se.sum_exec_runtime)
    }

    /// How long it could run, and waited for a CPU, up to when it got one last.
    pub(crate) fn run_delay_ns(&self) -> u64 {
        once!(self, sched_info.run_delay)
    }

    /// Whether it is a program's thread: no idle task, kernel thread, or worker that the kernel
    /// made of a process's thread.
    #[inline(always)]
    pub(crate) fn is_of_user(&self) -> bool {
        const OTHERS: u32 = bindings::PF_IDLE | bindings::PF_KTHREAD | bindings::PF_USER_WORKER;
        once!(self, flags) & OTHERS == 0
    }

    /// Time in user space, and in the kernel. Not under the run queue's lock.
    pub(crate) fn times(&self) -> (u64, u64) {
        let (mut user, mut system) = (0, 0);
        // SAFETY: The task is valid; the numbers are ours.
        unsafe { task_cputime_adjusted(self.as_ptr(), &mut user, &mut system) };
        (user, system)
    }

    /// Id of its control group.
    pub(crate) fn cgroup_id(&self) -> u64 {
        // SAFETY: The task is valid and RCU is locked, as `task_dfl_cgroup` requires.
        unsafe { helpers::nsprobe_task_cgroup(self.as_ptr()) }
    }

    /// Whether its control group is the one at this address.
    pub(super) fn is_in_cgroup(&self, cgroup: *const bindings::cgroup) -> bool {
        // SAFETY: As for `cgroup_id`; the addresses are only compared.
        let own = unsafe { helpers::nsprobe_task_dfl_cgroup(self.as_ptr()) };
        core::ptr::eq(own, cgroup)
    }

    /// Its priority, in the kernel's numbering.
    pub(crate) fn priority(&self) -> u32 {
        once!(self, prio) as u32
    }

    /// The CPU that it runs on, or ran on last.
    pub(crate) fn cpu(&self) -> u32 {
        once!(self, thread_info.cpu)
    }

    /// Its state, as the tracepoint `sched_switch` reports it.
    pub(crate) fn state(&self) -> u32 {
        state_bits(once!(self, __state), once!(self, exit_state) as u32)
    }

    /// As `state`, for a task that leaves its CPU in the state `left`.
    pub(crate) fn state_left(&self, left: u32) -> u32 {
        state_bits(left, once!(self, exit_state) as u32)
    }

    /// Its exit code for `wait(2)`; that of the process if it exits as a whole.
    pub(crate) fn exit_code(&self) -> u32 {
        let own = once!(self, exit_code) as u32;
        // SAFETY: The task is valid, and keeps its `signal` until it is freed.
        let (flags, group) = unsafe {
            let signal = (*self.as_ptr()).signal;
            (
                (&raw const (*signal).flags).read_volatile(),
                (&raw const (*signal).group_exit_code).read_volatile(),
            )
        };
        match flags & bindings::SIGNAL_GROUP_EXIT {
            0 => own,
            _ => group as u32,
        }
    }

    /// The thread's name, NUL-padded.
    pub(crate) fn comm(&self) -> [u8; 16] {
        // SAFETY: The task is valid during the call.
        unsafe { Current::from_ptr(self.as_ptr()) }.comm()
    }

    /// Its real user id, in the initial user namespace.
    pub(crate) fn uid(&self) -> u32 {
        let cred = once!(self, real_cred);
        // SAFETY: A task's credentials are freed by RCU, which is locked; their ids are
        // fixed.
        unsafe { (*cred).uid.val }
    }

    fn user_namespace(&self) -> u32 {
        let cred = once!(self, real_cred);
        // SAFETY: As for `uid`; credentials hold their namespace, whose number is fixed.
        unsafe { (*(*cred).user_ns).ns.inum }
    }

    /// Inode numbers of its namespaces; zeroes if they cannot be read.
    pub(crate) fn namespaces(&self, how: Look) -> Namespaces {
        self.with_namespaces(how, Self::namespaces_locked)
            .unwrap_or_default()
    }

    /// The id of its mount namespace, of which a newer one has a greater; zero if it has none any
    /// more, or it cannot be read.
    #[inline]
    pub(crate) fn mount_namespace_id(&self, how: Look) -> u64 {
        let id = self.with_namespaces(how, |task| match once!(task, nsproxy) {
            all if all.is_null() => 0,
            // SAFETY: No other task changes the task's namespaces now, so it holds them.
            all => unsafe { helpers::nsprobe_mntns_id(all) },
        });
        id.unwrap_or(0)
    }

    /// Passes the task to `look` while no other task changes its namespaces; `None` if that cannot
    /// be.
    fn with_namespaces<R>(&self, how: Look, look: impl FnOnce(&Self) -> R) -> Option<R> {
        let task = self.as_ptr();
        // SAFETY: The task is valid. A lock that is taken is given back below.
        let is_locked = unsafe {
            match how {
                Look::Own => true,
                Look::Wait => {
                    helpers::nsprobe_task_lock(task);
                    true
                }
                Look::Try => helpers::nsprobe_task_trylock(task),
            }
        };
        if !is_locked {
            return None;
        }
        let found = look(self);
        if how != Look::Own {
            // SAFETY: It was taken above.
            unsafe { helpers::nsprobe_task_unlock(task) };
        }
        Some(found)
    }

    fn namespaces_locked(&self) -> Namespaces {
        let mut inums = [0; NAMESPACES];
        let all = once!(self, nsproxy);
        if all.is_null() {
            return Namespaces {
                inums,
                is_bare: true,
            };
        }
        // SAFETY: No other task changes the task's namespaces now (see `Look`), so it holds them;
        // there is room for the six that the helper writes, and their numbers are fixed.
        unsafe {
            helpers::nsprobe_namespaces(all, inums.as_mut_ptr());
            inums[NAMESPACE_PID_CHILDREN] = (*(*all).pid_ns_for_children).ns.inum;
        }
        inums[NAMESPACE_USER] = self.user_namespace();
        Namespaces {
            inums,
            is_bare: false,
        }
    }

    /// The container that its CPU time belongs to.
    #[inline]
    pub(crate) fn home(&self) -> Home {
        let cgroup = self.cgroup_id();
        match self.thread().and_then(Pid::home) {
            Some((pidns_id, pidns_inum)) => Home {
                cgroup,
                pidns_id,
                pidns_inum,
            },
            None => Home {
                cgroup,
                ..Home::default()
            },
        }
    }

    /// Passes the task's ids in each pid namespace to `each`, from `outer` to its own; returns
    /// false if `outer` does not see it.
    pub(crate) fn levels(&self, outer: &Namespace, mut each: impl FnMut(TaskLevel)) -> bool {
        let (Some(thread), Some(process)) = (self.thread(), self.process()) else {
            return false;
        };
        let parent = self.parent();
        outer.each_level_of(thread, |level| {
            each(TaskLevel {
                id: level.id(),
                inum: level.inum(),
                tid: level.number_of(thread),
                pid: level.number_of(process),
                ppid: parent.map_or(0, |parent| level.number_of(parent)),
            });
        })
    }

    /// The parent of its process.
    pub(crate) fn parent(&self) -> Option<&'a Pid> {
        // It is set for as long as the task has not been reaped (`task_ppid_nr_ns`).
        self.thread()?;
        let parent = NonNull::new(once!(self, real_parent))?;
        // SAFETY: A task's parent is freed by RCU after it has given its children away;
        // RCU is locked.
        unsafe { super::task::process_of(parent.as_ptr()).map(|pid| Pid::from_ptr(pid)) }
    }
}

/// Passes the current task to `look`.
pub(crate) fn with_current<R>(look: impl FnOnce(&AnyTask<'_>) -> R) -> R {
    let guard = rcu::read_lock();
    look(&AnyTask::current(Reading::under_rcu(&guard)))
}

fn state_bits(state: u32, exit_state: u32) -> u32 {
    // SAFETY: Arithmetic on two numbers.
    match unsafe { helpers::nsprobe_task_state_index(state, exit_state) } {
        0 => 0,
        index => 1u32.wrapping_shl(index.wrapping_sub(1)),
    }
}

impl Who for AnyTask<'_> {
    fn thread(&self) -> Option<&Pid> {
        let pid = NonNull::new(once!(self, thread_pid))?;
        // SAFETY: A task's pids are freed by RCU, which is locked during `'a`.
        Some(unsafe { Pid::from_ptr(pid) })
    }

    fn process(&self) -> Option<&Pid> {
        // SAFETY: The task is valid, and its pids as above.
        unsafe { super::task::process_of(self.as_ptr()).map(|pid| Pid::from_ptr(pid)) }
    }

    fn euid(&self) -> u32 {
        let cred = once!(self, real_cred);
        // SAFETY: As for `uid`.
        unsafe { (*cred).euid.val }
    }

    fn comm(&self) -> [u8; 16] {
        AnyTask::comm(self)
    }

    fn is_in(&self, cgroup: &Cgroup) -> bool {
        // SAFETY: The task is valid, the group held, and RCU is locked.
        unsafe { helpers::nsprobe_task_in_cgroup(self.as_ptr(), cgroup.as_ptr()) }
    }
}
