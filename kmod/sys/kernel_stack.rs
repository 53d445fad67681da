// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own stack of the current task.

use super::scratch::Words;
use crate::common::record::KERNEL_WORDS_MAX;
use core::ffi::{c_uint, c_ulong};

extern "C" {
    /// `include/linux/stacktrace.h`: writes the return addresses of the current task's kernel
    /// stack, innermost first; returns their number.
    fn stack_trace_save(store: *mut c_ulong, size: c_uint, skip: c_uint) -> c_uint;
}

/// Appends its addresses, innermost first; in an interrupt from `interrupted` on, where the task
/// was. Any context.
pub(crate) fn append<const N: usize>(words: &mut Words<N>, interrupted: Option<u64>) {
    let mut all = [0u64; KERNEL_WORDS_MAX];
    // SAFETY: There is room for that many; an unsigned long is a u64 on the machines that
    // this is for.
    let count = unsafe { stack_trace_save(all.as_mut_ptr().cast(), KERNEL_WORDS_MAX as c_uint, 0) };
    let taken = all.get(..count as usize).unwrap_or(&[]);
    let of_task = match interrupted {
        None => Some(taken),
        Some(ip) => {
            let first = taken.iter().position(|address| *address == ip);
            first.and_then(|first| taken.get(first..))
        }
    };
    // Without room for all of it, none is appended.
    let _ = match (of_task, interrupted) {
        (Some(of_task), _) => words.extend(of_task),
        (None, Some(ip)) => words.push(ip),
        (None, None) => false,
    };
}
