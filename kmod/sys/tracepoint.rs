// SPDX-License-Identifier: GPL-2.0-only
//! Tracepoints of the kernel, which modules find by name.
//!
//! A probe of a tracepoint runs in the task that passes it, inside a read section
//! that [`Registration`]'s end waits for. The tracepoints here are passed with
//! interrupts on and preemption possible; still, hooks must not sleep.

use super::{
    memory::GFP_REQUEST,
    shim,
    task::Current, //
};
use core::{
    ffi::{c_void, CStr},
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*, //
};

/// What runs when a task has been forked.
pub(crate) trait ForkHook: Send + Sync + 'static {
    /// `child` is a new process or thread that has not run yet; `parent` runs this
    /// code. May not sleep or panic.
    fn forked(&self, parent: &Current, child: &Current);
}

/// A hook that is called at every fork of the machine, until this is dropped, which
/// sleeps.
///
/// # Invariants
///
/// `forked::<H>` is registered with `point`, with the address of `hook`.
pub(crate) struct Forks<H: ForkHook> {
    point: NonNull<bindings::tracepoint>,
    hook: KBox<H>,
}

// SAFETY: The kernel's own tracepoints stay for ever; the hook is `Send`.
unsafe impl<H: ForkHook> Send for Forks<H> {}
// SAFETY: Nothing is reached through a shared reference.
unsafe impl<H: ForkHook> Sync for Forks<H> {}

impl<H: ForkHook> Forks<H> {
    /// Calls `hook` from now on.
    pub(crate) fn new(hook: H) -> Result<Self> {
        let hook = KBox::new(hook, GFP_REQUEST)?;
        let point = find(c"sched_process_fork").ok_or(ENOENT)?;
        // SAFETY: The tracepoint is one of the kernel's own, its probes take what
        // `forked` takes (`shim.c` lets the compiler check that), and the hook stays
        // until the probe is unregistered and its last call is over.
        to_result(unsafe {
            bindings::tracepoint_probe_register(
                point.as_ptr(),
                forked::<H> as *mut c_void,
                core::ptr::from_ref(&*hook).cast_mut().cast(),
            )
        })?;
        // INVARIANT: It is registered.
        Ok(Forks { point, hook })
    }
}

impl<H: ForkHook> Drop for Forks<H> {
    fn drop(&mut self) {
        // SAFETY: By the invariant this very probe is registered. We are in task context
        // and in no probe of a tracepoint; afterwards no call is under way, so that the
        // hook may go.
        unsafe {
            bindings::tracepoint_probe_unregister(
                self.point.as_ptr(),
                forked::<H> as *mut c_void,
                core::ptr::from_ref(&*self.hook).cast_mut().cast(),
            );
            shim::nsprobe_tracepoints_sync();
        }
    }
}

/// # Safety
///
/// Called by the tracepoint only, with the hook that was registered.
unsafe extern "C" fn forked<H: ForkHook>(
    hook: *mut c_void,
    parent: *mut bindings::task_struct,
    child: *mut bindings::task_struct,
) {
    // SAFETY: The hook lives until the probe is unregistered and its calls are over. The
    // parent is the current task, and the child does not run before this returns.
    unsafe {
        let hook = &*hook.cast::<H>();
        hook.forked(&Current::from_ptr(parent), &Current::from_ptr(child));
    }
}

/// The kernel's own tracepoint of this name.
pub(super) fn find(name: &CStr) -> Option<NonNull<bindings::tracepoint>> {
    let mut search = Search { name, found: None };
    // SAFETY: `look_at` is called with the search, for the duration of this call.
    unsafe {
        bindings::for_each_kernel_tracepoint(Some(look_at), core::ptr::from_mut(&mut search).cast())
    };
    search.found
}

struct Search<'a> {
    name: &'a CStr,
    found: Option<NonNull<bindings::tracepoint>>,
}

/// # Safety
///
/// `search` is a [`Search`] that nobody else uses; `point` is a tracepoint.
unsafe extern "C" fn look_at(point: *mut bindings::tracepoint, search: *mut c_void) {
    // SAFETY: The caller says so; a tracepoint's name is a string for ever.
    let (search, name) = unsafe {
        let name = (*point).name;
        (&mut *search.cast::<Search<'_>>(), CStr::from_char_ptr(name))
    };
    if name == search.name {
        search.found = NonNull::new(point);
    }
}
