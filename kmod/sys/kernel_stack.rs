// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own stack of the current task.

use super::scratch::Words;
use crate::common::record::KERNEL_WORDS_MAX;
use core::{
    ffi::{c_char, c_int, c_uint, c_ulong},
    sync::atomic::{AtomicU64, Ordering::Relaxed}, //
};
use kernel::bindings;

extern "C" {
    /// `include/linux/stacktrace.h`: writes the return addresses of the current task's kernel
    /// stack, innermost first; returns their number.
    fn stack_trace_save(store: *mut c_ulong, size: c_uint, skip: c_uint) -> c_uint;
    /// `include/linux/kallsyms.h`: writes `name+0xoffset/0xsize` and a NUL, at most
    /// `KSYM_SYMBOL_LEN` bytes; returns their number.
    fn sprint_symbol(buffer: *mut c_char, address: c_ulong) -> c_int;
}

/// Room for `KSYM_SYMBOL_LEN`.
const SYMBOL_BYTES: usize = 1024;

/// Where the stack of a hit begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Innermost {
    /// Here.
    Here,
    /// Where the current interrupt came upon the task.
    Interrupted(u64),
    /// Where the task has called the scheduler, which has just given it a CPU.
    CallerOfScheduler,
}

/// Appends its addresses, innermost first. Any context; for callers of the scheduler an interrupt.
pub(crate) fn append<const N: usize>(words: &mut Words<N>, innermost: Innermost) {
    let mut all = [0u64; KERNEL_WORDS_MAX];
    // SAFETY: There is room for that many; an unsigned long is a u64 on the machines that
    // this is for.
    let count = unsafe { stack_trace_save(all.as_mut_ptr().cast(), KERNEL_WORDS_MAX as c_uint, 0) };
    let taken = all.get(..count as usize).unwrap_or(&[]);
    let of_task = match innermost {
        Innermost::Here => Some(taken),
        Innermost::Interrupted(ip) => {
            let first = taken.iter().position(|address| *address == ip);
            first.and_then(|first| taken.get(first..))
        }
        Innermost::CallerOfScheduler => callers_of_scheduler(taken),
    };
    // Without room for all of it, none is appended.
    let _ = match (of_task, innermost) {
        (Some(of_task), _) => words.extend(of_task),
        (None, Innermost::Interrupted(ip)) => words.push(ip),
        (None, Innermost::Here | Innermost::CallerOfScheduler) => false,
    };
}

/// Where `schedule()` ends; zero as long as that is not known.
static SCHEDULE_END: AtomicU64 = AtomicU64::new(0);
/// Where `__schedule()` goes on with a task: what `schedule()` has called last.
static IN_SCHEDULER: AtomicU64 = AtomicU64::new(0);

fn start_of_schedule() -> u64 {
    bindings::schedule as *const () as u64
}

/// Finds out where the scheduler is, for [`Innermost::CallerOfScheduler`]. Task context.
pub(crate) fn find_scheduler() {
    let start = start_of_schedule();
    let mut buffer = [0u8; SYMBOL_BYTES];
    // SAFETY: There is room for what is written.
    unsafe { sprint_symbol(buffer.as_mut_ptr().cast(), start as c_ulong) };
    // Behind the slash and `0x`.
    let digits = buffer.iter().skip_while(|byte| **byte != b'/').skip(3);
    let digits = digits.map_while(|byte| char::from(*byte).to_digit(16));
    let bytes = digits.fold(0u64, |value, digit| value << 4 | u64::from(digit));
    SCHEDULE_END.store(start.wrapping_add(bytes), Relaxed);
}

/// The part of a stack that lies outside of the scheduler; `None` if it is not in there. A task that
/// was preempted has not come by way of `schedule()`.
fn callers_of_scheduler(taken: &[u64]) -> Option<&[u64]> {
    let schedule = start_of_schedule()..SCHEDULE_END.load(Relaxed);
    let innermost = match taken.iter().position(|at| schedule.contains(at)) {
        Some(place) => {
            if let Some(callee) = place.checked_sub(1).and_then(|inner| taken.get(inner)) {
                IN_SCHEDULER.store(*callee, Relaxed);
            }
            place
        }
        None => {
            let inside = IN_SCHEDULER.load(Relaxed);
            taken.iter().position(|at| *at == inside)?
        }
    };
    taken.get(innermost.wrapping_add(1)..)
}
