// SPDX-License-Identifier: GPL-2.0-only
//! The system call that the current task is in.

use super::{helpers, rcu_slot::Reading, regs::Regs};
use crate::common::wait::{FileKind, SystemCall};
use kernel::bindings;

/// The call of the current task, which has come into the kernel with `regs`.
pub(crate) fn of_current(regs: &Regs<'_>) -> SystemCall {
    // SAFETY: No preconditions.
    let is_32bit = unsafe { helpers::nsprobe_is_32bit_call() };
    match (is_32bit, regs.entry_word()) {
        (_, ..0) => SystemCall::None,
        (true, _) => SystemCall::Of32Bit,
        (false, number) => SystemCall::Number(number as u32),
    }
}

/// What a file descriptor of the current task refers to now. Any context.
pub(crate) fn file_kind(fd: u32, _reading: Reading<'_>) -> FileKind {
    // SAFETY: RCU is locked, which `_reading` proves.
    match unsafe { helpers::nsprobe_fd_mode(fd) } & bindings::S_IFMT {
        bindings::S_IFREG | bindings::S_IFDIR | bindings::S_IFBLK => FileKind::File,
        bindings::S_IFIFO => FileKind::Pipe,
        bindings::S_IFSOCK => FileKind::Socket,
        _ => FileKind::Other,
    }
}
