// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own stack of the current task.

use super::scratch::Words;
use crate::common::record::KERNEL_WORDS_MAX;
use core::{
    ffi::{c_char, c_int, c_uint, c_ulong},
    sync::atomic::{AtomicU64, Ordering::Relaxed}, //
};

extern "C" {
    /// `include/linux/stacktrace.h`: writes the return addresses of the current task's kernel
    /// stack, innermost first; returns their number.
    fn stack_trace_save(store: *mut c_ulong, size: c_uint, skip: c_uint) -> c_uint;
    /// `include/linux/kallsyms.h`: writes `name+offset/size`, at most `KSYM_SYMBOL_LEN` bytes;
    /// returns their number. Any context.
    fn sprint_symbol(buffer: *mut c_char, address: c_ulong) -> c_int;
}

/// Room for `KSYM_SYMBOL_LEN`.
const SYMBOL_BYTES: usize = 1024;

/// Where the stack of a hit begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// Here.
    Here,
    /// Where the current interrupt came upon the task.
    Interrupted(u64),
    /// Where the task has called the scheduler, which has just given it a CPU.
    Scheduler,
}

/// Appends its addresses, innermost first. Any context; for the scheduler's an interrupt.
pub(crate) fn append<const N: usize>(words: &mut Words<N>, from: From) {
    let mut all = [0u64; KERNEL_WORDS_MAX];
    // SAFETY: There is room for that many; an unsigned long is a u64 on the machines that
    // this is for.
    let count = unsafe { stack_trace_save(all.as_mut_ptr().cast(), KERNEL_WORDS_MAX as c_uint, 0) };
    let taken = all.get(..count as usize).unwrap_or(&[]);
    let of_task = match from {
        From::Here => Some(taken),
        From::Interrupted(ip) => {
            let first = taken.iter().position(|address| *address == ip);
            first.and_then(|first| taken.get(first..))
        }
        From::Scheduler => callers_of_scheduler(taken),
    };
    // Without room for all of it, none is appended.
    let _ = match (of_task, from) {
        (Some(of_task), _) => words.extend(of_task),
        (None, From::Interrupted(ip)) => words.push(ip),
        (None, From::Here | From::Scheduler) => false,
    };
}

/// Where tasks go on in `__schedule()` and in `schedule()`, once such a place was seen. Each is
/// called in one place, or few, of which the last one seen is kept.
static IN_SCHEDULER: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The part of a stack that lies outside of the scheduler; `None` if it is not in there.
fn callers_of_scheduler(taken: &[u64]) -> Option<&[u64]> {
    let [inner, outer] = &IN_SCHEDULER;
    let is_known = |address: &u64| *address == inner.load(Relaxed);
    let place = match taken.iter().position(is_known) {
        Some(place) => place,
        None => {
            let place = taken.iter().position(|at| is_in(*at, b"__schedule+"))?;
            inner.store(*taken.get(place)?, Relaxed);
            place
        }
    };
    let (first, rest) = taken.get(place.wrapping_add(1)..)?.split_first()?;
    if *first != outer.load(Relaxed) {
        if !is_in(*first, b"schedule+") {
            return taken.get(place.wrapping_add(1)..);
        }
        outer.store(*first, Relaxed);
    }
    Some(rest)
}

/// Whether an address is in the function of this name, which a `+` follows. Slow.
#[cold]
#[inline(never)]
fn is_in(address: u64, name: &[u8]) -> bool {
    let mut buffer = [0u8; SYMBOL_BYTES];
    // SAFETY: There is room for what is written.
    unsafe { sprint_symbol(buffer.as_mut_ptr().cast(), address as c_ulong) };
    buffer.starts_with(name)
}
