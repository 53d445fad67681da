// SPDX-License-Identifier: GPL-2.0-only
//! Calls of the current task whose return a tracer waits for.
//!
//! The uprobe core puts the address of a trampoline in place of the return address of
//! such a call, and notes the real one (`struct return_instance` of
//! `include/linux/uprobes.h`). A stack that is read meanwhile has the trampoline.

use super::task::Current;
use core::ptr::NonNull;
use kernel::bindings;

/// Most of them at one time (`MAX_URETPROBE_DEPTH` of `kernel/events/uprobes.c`).
const DEPTH_MAX: usize = 64;

/// Bytes of a page, in which the trampoline is the first thing (`xol_add_vma`).
const PAGE_BYTES: u64 = 1 << bindings::PAGE_SHIFT;

/// Whether a return address may be the trampoline: it is where a page begins.
#[inline(always)]
pub(crate) fn may_be_trampoline(address: u64) -> bool {
    address % PAGE_BYTES == 0
}

/// Whether the kernel follows no further call of the current task to its return
/// (`prepare_uretprobe` of `kernel/events/uprobes.c`). In an entry's handler.
pub(crate) fn is_full() -> bool {
    let current = Current::get().as_non_null();
    // SAFETY: The current task's own count, which is changed by itself alone, after its
    // handlers.
    unsafe {
        let utask = (*current.as_ptr()).utask;
        !utask.is_null() && (*utask).depth as usize >= DEPTH_MAX
    }
}

/// The real return address of the call whose return address is at user address `slot`, if a tracer
/// waits for that return. Any context of a user task.
#[cold]
pub(crate) fn real_address(slot: u64) -> Option<u64> {
    let mut found = None;
    each(|kept_at, real| {
        if kept_at == slot && found.is_none() {
            found = Some(real);
        }
    });
    found
}

/// Passes each call of the current task whose return a tracer waits for: where its return address
/// is, and its original value. Any context of a user task.
pub(crate) fn each(mut tell: impl FnMut(u64, u64)) {
    let current = kernel::current!();
    // SAFETY: The current task's own list is changed by itself alone. An interrupt may come in the
    // midst of that: each element is taken off before it is freed and complete before it is put on,
    // but where the task ends or executes another program, and there no stack is taken. The timer
    // that also looks at them (`ri_timer`) touches no field that is read here.
    unsafe {
        let Some(utask) = NonNull::new((*current.as_ptr()).utask) else {
            return;
        };
        let mut next = NonNull::new((*utask.as_ptr()).return_instances);
        for _ in 0..DEPTH_MAX {
            let Some(call) = next else {
                return;
            };
            let call = call.as_ptr();
            tell((*call).stack as u64, (*call).orig_ret_vaddr as u64);
            next = NonNull::new((*call).next);
        }
    }
}
