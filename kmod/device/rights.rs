// SPDX-License-Identifier: GPL-2.0-only
//! The capabilities that a caller needs.

use crate::sys::task::{
    is_capable,
    is_locked_down,
    module_is_paranoid,
    Lockdown,
    CAP_PERFMON,
    CAP_SYS_ADMIN,
    CAP_SYS_PTRACE, //
};
use kernel::prelude::*;

/// `EPERM` unless the current task may trace the whole machine.
pub(super) fn require_capabilities() -> Result {
    let may_trace = || is_capable(CAP_PERFMON) && is_capable(CAP_SYS_PTRACE);
    let may = is_capable(CAP_SYS_ADMIN) || !module_is_paranoid() && may_trace();
    if may && !is_locked_down(Lockdown::Tracing) {
        Ok(())
    } else {
        Err(EPERM)
    }
}
