// SPDX-License-Identifier: GPL-2.0-only
//! Runs a piece of work in a kernel worker and waits for it.
//!
//! Inserting breakpoints into other processes, or removing them, fails half-way when the task that
//! does it has a fatal signal pending (`get_user_pages` gives up): a reader that is killed would
//! leave breakpoints without a consumer behind, and its target with a trap that no handler answers.
//! A worker has no signals.

use super::helpers;
use core::{ffi::c_int, marker::PhantomData};
use kernel::{
    bindings,
    static_lock_class,
    str::CStrExt as _,
    types::Opaque, //
};

/// A piece of work on the stack of the task that waits for it.
#[repr(C)]
struct Job<'a> {
    work: Opaque<bindings::work_struct>,
    caller: Caller<'a>,
    run: &'a mut (dyn FnMut(&Caller<'_>) + Send),
}

/// The task that waits for a piece of work.
///
/// # Invariants
///
/// The task is valid during `'a`.
pub(crate) struct Caller<'a>(*mut bindings::task_struct, PhantomData<&'a ()>);

impl Caller<'_> {
    /// Whether the caller has been killed: the result of the work will not be used.
    pub(crate) fn is_killed(&self) -> bool {
        // SAFETY: By the invariant the task is valid; the two loads need no lock.
        unsafe { helpers::nsprobe_is_killed(self.0) }
    }
}

/// Runs `run` in a worker and waits until it returns. Task context, sleeps, and no signal
/// interrupts it: `run` may check whether its caller got one.
pub(crate) fn run(run: &mut (dyn FnMut(&Caller<'_>) + Send)) {
    let mut job = Job {
        work: Opaque::uninit(),
        // INVARIANT: The current task waits below until the job is done.
        caller: Caller(kernel::current!().as_ptr(), PhantomData),
        run,
    };
    let work = core::ptr::from_mut(&mut job).cast::<bindings::work_struct>();
    // SAFETY: `work` is the first field of `job`, which stays where it is until
    // `flush_work` has seen the work done; it is queued once. The lock class is
    // static. `WORK_CPU_UNBOUND` lets any CPU take it.
    unsafe {
        bindings::init_work_with_key(
            work,
            Some(run_job),
            true,
            c"nsprobe".as_char_ptr(),
            static_lock_class!().as_ptr(),
        );
        let anywhere = bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int;
        bindings::queue_work_on(anywhere, bindings::system_dfl_wq, work);
        bindings::flush_work(work);
        // Without the option it is an empty inline.
        #[cfg(CONFIG_DEBUG_OBJECTS_WORK)]
        bindings::destroy_work_on_stack(work);
    }
}

/// # Safety
///
/// `work` is the first field of a [`Job`] that its owner waits for.
unsafe extern "C" fn run_job(work: *mut bindings::work_struct) {
    // SAFETY: By this function's contract; the owner does not touch the job until it is done.
    let job = unsafe { &mut *work.cast::<Job<'_>>() };
    (job.run)(&job.caller);
}
