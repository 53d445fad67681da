// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls that are left to a child: those of reading open files, memory, and one
//! socket. Any other ends it at once, in the kernel, with SIGSYS.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

const SOCKET: i32 = 0;
/// The descriptor of `/dev/null` that last words are written to.
const LAST_WORDS: i32 = 2;

type FilterError = seccompiler::BackendError;

/// Calls that are harmless with any arguments.
const ANY: [i64; 18] = [
    libc::SYS_pread64,
    libc::SYS_fstat,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_sigaltstack,
    libc::SYS_getrandom,
    libc::SYS_sched_yield,
    // abort() needs these; what they return is no secret.
    libc::SYS_getpid,
    libc::SYS_gettid,
];

/// An argument of a call that must have the given value.
fn argument(
    index: u8,
    bytes: SeccompCmpArgLen,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, FilterError> {
    SeccompCondition::new(index, bytes, compare, value)
}

/// A rule: all conditions at once.
fn rule(conditions: Vec<SeccompCondition>) -> Result<Vec<SeccompRule>, FilterError> {
    Ok(vec![SeccompRule::new(conditions)?])
}

/// Calls that are harmless with some arguments alone, of the process `pid`.
fn with_arguments(pid: u32) -> Result<[(i64, Vec<SeccompRule>); 8], FilterError> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{Eq, Gt, MaskedEq};
    let socket = || argument(0, Dword, Eq, SOCKET as u64);
    let no_code = || argument(2, Qword, MaskedEq(libc::PROT_EXEC as u64), 0);
    let bits = libc::MAP_ANONYMOUS as u64;
    let anonymous = argument(3, Dword, MaskedEq(bits), bits)?;
    let last_words = argument(0, Dword, Eq, LAST_WORDS as u64)?;
    // The three that it began with stay what they are.
    let later = argument(0, Dword, Gt, LAST_WORDS as u64)?;
    // Builds for tests look whether what they close is open.
    let is_open = argument(1, Dword, Eq, libc::F_GETFD as u64)?;
    // Another handle of a file: not of the socket.
    let copy = argument(1, Dword, Eq, libc::F_DUPFD_CLOEXEC as u64)?;
    let copies = SeccompRule::new(vec![later.clone(), copy])?;
    // To abort, so that the parent sees an abort.
    let own = argument(0, Dword, Eq, pid.into())?;
    let abort = argument(2, Dword, Eq, libc::SIGABRT as u64)?;
    Ok([
        (libc::SYS_recvmsg, rule(vec![socket()?])?),
        (libc::SYS_sendmsg, rule(vec![socket()?])?),
        (libc::SYS_mmap, rule(vec![no_code()?, anonymous])?),
        (libc::SYS_mprotect, rule(vec![no_code()?])?),
        (libc::SYS_close, rule(vec![later])?),
        (libc::SYS_write, rule(vec![last_words])?),
        (
            libc::SYS_fcntl,
            [rule(vec![is_open])?, vec![copies]].concat(),
        ),
        (libc::SYS_tgkill, rule(vec![own, abort])?),
    ])
}

/// The filter for the process `pid`.
pub(crate) fn program(pid: u32) -> Result<BpfProgram, FilterError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ANY.map(|call| (call, Vec::new())).into();
    rules.extend(with_arguments(pid)?);
    SeccompFilter::new(
        rules,
        SeccompAction::KillProcess,
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?
    .try_into()
}
