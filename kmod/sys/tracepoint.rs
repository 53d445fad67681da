// SPDX-License-Identifier: GPL-2.0-only
//! Tracepoints of the kernel, which modules find by name.
//!
//! A probe of a tracepoint runs in the task that passes it, inside a read section
//! that [`Registration`]'s end waits for. The tracepoints here are passed with
//! interrupts on and preemption possible; still, hooks must not sleep.

use super::{
    helpers,
    memory::GFP_REQUEST,
    task::{Current, Mm}, //
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

/// A hook for forks.
pub(crate) trait ForkHook: Send + Sync + 'static {
    /// `child` is a new process or thread that has not run yet; `parent` runs this
    /// code. May not sleep or panic.
    fn forked(&self, parent: &Current, child: &Current);
}

/// What runs when an address space ends: its last process exits, or executes another program.
pub(crate) trait SpaceHook: Send + Sync + 'static {
    /// No task runs in `space` any more. May not sleep or panic.
    fn ended(&self, space: &Mm);
}

/// A hook that is called at a tracepoint until this is dropped, which sleeps.
///
/// # Invariants
///
/// `call` is registered with `point`, with the address of `hook`.
pub(crate) struct Listener<H> {
    point: NonNull<bindings::tracepoint>,
    call: *mut c_void,
    hook: KBox<H>,
}

// SAFETY: The kernel's own tracepoints and our functions stay; the hook is `Send`.
unsafe impl<H: Send> Send for Listener<H> {}
// SAFETY: Nothing is reached through a shared reference.
unsafe impl<H: Sync> Sync for Listener<H> {}

impl<H: ForkHook> Listener<H> {
    /// Calls `hook` at every fork of the machine.
    pub(crate) fn of_forks(hook: H) -> Result<Self> {
        // SAFETY: `forked` takes what the tracepoint gives (`tracepoint.c` lets the compiler check
        // that), and an `H` as its data.
        unsafe { Self::new(c"sched_process_fork", forked::<H> as *mut c_void, hook) }
    }
}

impl<H: SpaceHook> Listener<H> {
    /// Calls `hook` when address spaces end.
    pub(crate) fn of_spaces(hook: H) -> Result<Self> {
        // SAFETY: `space_ended` takes what the tracepoint gives (`tracepoint.c` lets the compiler
        // check that), and an `H` as its data.
        unsafe { Self::new(c"exit_mmap", space_ended::<H> as *mut c_void, hook) }
    }
}

impl<H> Listener<H> {
    /// # Safety
    ///
    /// `call` is what the tracepoint of this name calls, with an `H` as its data.
    unsafe fn new(name: &CStr, call: *mut c_void, hook: H) -> Result<Self> {
        let hook = KBox::new(hook, GFP_REQUEST)?;
        let point = find(name).ok_or(ENOENT)?;
        let data = core::ptr::from_ref(&*hook).cast_mut().cast();
        // SAFETY: The tracepoint is one of the kernel's own, the caller promises that `call`
        // fits, and the hook stays until it is unregistered and its last call is over.
        to_result(unsafe { bindings::tracepoint_probe_register(point.as_ptr(), call, data) })?;
        // INVARIANT: It is registered.
        Ok(Listener { point, call, hook })
    }
}

impl<H> Drop for Listener<H> {
    fn drop(&mut self) {
        let data = core::ptr::from_ref(&*self.hook).cast_mut().cast();
        // SAFETY: By the invariant this very probe is registered. We are in task context
        // and in no probe of a tracepoint; afterwards no call is under way, so that the
        // hook may go.
        unsafe {
            bindings::tracepoint_probe_unregister(self.point.as_ptr(), self.call, data);
            helpers::nsprobe_tracepoints_sync();
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

/// # Safety
///
/// As for `forked`.
unsafe extern "C" fn space_ended<H: SpaceHook>(hook: *mut c_void, mm: *mut bindings::mm_struct) {
    // SAFETY: The hook lives until the probe is unregistered and its calls are over; the
    // address space is freed after the tracepoint.
    unsafe {
        if let Some(mm) = NonNull::new(mm) {
            let hook = &*hook.cast::<H>();
            hook.ended(&Mm::from_ptr(mm));
        }
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
/// `search` is a [`Search`] without other users; `point` is a tracepoint.
unsafe extern "C" fn look_at(point: *mut bindings::tracepoint, search: *mut c_void) {
    // SAFETY: By this function's contract; a tracepoint's name is a string for ever.
    let (search, name) = unsafe {
        let name = (*point).name;
        (&mut *search.cast::<Search<'_>>(), CStr::from_char_ptr(name))
    };
    if name == search.name {
        search.found = NonNull::new(point);
    }
}
