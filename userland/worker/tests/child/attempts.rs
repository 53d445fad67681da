// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must not be possible in the sandbox, each tried by its bare system call.

use std::process::ExitCode;

const POSSIBLE: u8 = 0;
const REFUSED: u8 = 1;
const NO_SANDBOX: u8 = 2;

/// Enters the sandbox and makes an attempt.
pub(crate) fn run(what: &str) -> ExitCode {
    let Some((_, attempt)) = ATTEMPTS.iter().find(|(name, _)| *name == what) else {
        return ExitCode::from(NO_SANDBOX);
    };
    if let Err(why) = nsprobe_worker::enter(None) {
        eprintln!("{why}");
        return ExitCode::from(NO_SANDBOX);
    }
    match attempt() {
        -1 => ExitCode::from(REFUSED),
        _ => ExitCode::from(POSSIBLE),
    }
}

type Attempt = fn() -> i64;

macro_rules! call {
    ($($argument:expr),+) => {
        // SAFETY: the arguments are constants, or addresses of constants that end in NUL
        // and live as long as the program; no call here writes to memory of ours.
        unsafe { libc::syscall($($argument),+) }
    };
}

const PASSWD: *const libc::c_char = c"/etc/passwd".as_ptr();
const PAGE: usize = 4096;

const ATTEMPTS: &[(&str, Attempt)] = &[
    // The one that must be possible: else all others prove nothing.
    ("nothing", || 0),
    ("memory", || i64::from(vec![0u8; 64 << 20].len() as u32)),
    ("open", || call!(libc::SYS_open, PASSWD, libc::O_RDONLY)),
    ("openat", || {
        call!(libc::SYS_openat, libc::AT_FDCWD, PASSWD, libc::O_RDONLY)
    }),
    ("openat2", || call!(libc::SYS_openat2, -100, PASSWD, 0, 0)),
    ("stat", || {
        call!(libc::SYS_statx, libc::AT_FDCWD, PASSWD, 0, 0, 0)
    }),
    ("readlink", || call!(libc::SYS_readlink, PASSWD, 0, 0)),
    ("socket", || {
        call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0)
    }),
    ("connect", || call!(libc::SYS_connect, 0, 0, 0)),
    ("ptrace", || {
        call!(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0)
    }),
    ("process_vm_readv", || {
        call!(libc::SYS_process_vm_readv, 1, 0, 0, 0, 0, 0)
    }),
    ("execve", || call!(libc::SYS_execve, PASSWD, 0, 0)),
    ("fork", || call!(libc::SYS_fork)),
    ("clone3", || call!(libc::SYS_clone3, 0, 0)),
    ("mmap_exec", || {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        call!(
            libc::SYS_mmap,
            0,
            PAGE,
            libc::PROT_READ | libc::PROT_EXEC,
            flags,
            -1,
            0
        )
    }),
    ("mmap_file", || {
        call!(
            libc::SYS_mmap,
            0,
            PAGE,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            0,
            0
        )
    }),
    ("mprotect_exec", || {
        call!(
            libc::SYS_mprotect,
            0,
            PAGE,
            libc::PROT_READ | libc::PROT_EXEC
        )
    }),
    ("kill", || call!(libc::SYS_kill, 1, libc::SIGTERM)),
    ("abort_another", || {
        call!(libc::SYS_tgkill, 1, 1, libc::SIGABRT)
    }),
    ("prctl", || {
        call!(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 1, 0, 0, 0)
    }),
    ("setuid", || call!(libc::SYS_setuid, 0)),
    ("unshare", || call!(libc::SYS_unshare, libc::CLONE_NEWUSER)),
    ("bpf", || call!(libc::SYS_bpf, 0, 0, 0)),
    ("perf_event_open", || {
        call!(libc::SYS_perf_event_open, 0, 0, -1, -1, 0)
    }),
    ("io_uring", || call!(libc::SYS_io_uring_setup, 1, 0)),
    ("memfd", || call!(libc::SYS_memfd_create, PASSWD, 0)),
    ("ioctl", || call!(libc::SYS_ioctl, 1, libc::TIOCSTI, PASSWD)),
    ("dup", || call!(libc::SYS_dup, 0)),
    ("write_socket", || call!(libc::SYS_write, 0, PASSWD, 4)),
    ("close_socket", || call!(libc::SYS_close, 0)),
    ("prlimit", || call!(libc::SYS_prlimit64, 0, 9, 0, 0)),
    ("chroot", || call!(libc::SYS_chroot, PASSWD)),
    ("mount", || call!(libc::SYS_mount, PASSWD, PASSWD, 0, 0, 0)),
    ("pidfd_getfd", || call!(libc::SYS_pidfd_getfd, 0, 0, 0)),
];
