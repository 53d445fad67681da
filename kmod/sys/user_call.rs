// SPDX-License-Identifier: GPL-2.0-only
//! The system call that the current task is in.

use super::{helpers, regs::Regs};
use crate::common::wait::{FileKind, WaitKind};
use kernel::bindings;

/// The system call of a task, if any.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserCall {
    /// None: the task came into the kernel by an exception or an interrupt.
    None,
    /// One of a 64-bit program.
    Number(u32),
    /// One of a 32-bit program, whose calls have other numbers.
    Of32Bit,
}

impl UserCall {
    /// That of the current task, which is in the kernel and has come there with `regs`.
    pub(crate) fn of_current(regs: &Regs<'_>) -> Self {
        // SAFETY: No preconditions.
        let is_32bit = unsafe { helpers::nsprobe_is_32bit_call() };
        match (is_32bit, regs.entry_word()) {
            (_, ..0) => UserCall::None,
            (true, _) => UserCall::Of32Bit,
            (false, number) => UserCall::Number(number as u32),
        }
    }

    /// Its x86-64 number.
    pub(crate) fn number(self) -> Option<u32> {
        match self {
            UserCall::Number(number) => Some(number),
            UserCall::None | UserCall::Of32Bit => None,
        }
    }

    /// What the current task waited for in it, after it has left its CPU in `state`; `argument` is
    /// the call's first.
    pub(crate) fn wait_kind(self, state: u32, argument: u64) -> WaitKind {
        match WaitKind::of(state, self.number(), argument, || {
            file_kind(argument as u32)
        }) {
            // It is in a call, though of another numbering.
            WaitKind::Page if self == UserCall::Of32Bit => WaitKind::Other,
            kind => kind,
        }
    }
}

/// What a file descriptor of the current task refers to now. In an interrupt or under RCU.
fn file_kind(fd: u32) -> FileKind {
    // SAFETY: Interrupts are off, or RCU is locked.
    match unsafe { helpers::nsprobe_fd_mode(fd) } & bindings::S_IFMT {
        bindings::S_IFREG | bindings::S_IFDIR | bindings::S_IFBLK => FileKind::File,
        bindings::S_IFIFO => FileKind::Pipe,
        bindings::S_IFSOCK => FileKind::Socket,
        _ => FileKind::Other,
    }
}
