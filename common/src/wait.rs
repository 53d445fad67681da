// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Waits off the CPU: what a task waits for, by the system call that it is in.

numbered! {
    /// What a task waited for.
    pub enum WaitKind {
        /// A CPU: it could run all the time.
        Cpu = 0,
        /// A futex: a lock, a condition variable, a thread's end.
        Lock = 1,
        /// A socket.
        Socket = 2,
        /// A pipe or FIFO.
        Pipe = 3,
        /// A file or disk.
        File = 4,
        /// One of several files: `epoll_wait(2)`, `poll(2)`, `select(2)`.
        Poll = 5,
        /// A time: `nanosleep(2)`.
        Sleep = 6,
        /// A child: `wait4(2)`, `vfork(2)`.
        Child = 7,
        /// A page of memory.
        Page = 8,
        /// Its tracer, a signal that lets it go on, or the freezer.
        Stopped = 9,
        /// Something else: the system call says more.
        Other = 10,
    }
}

/// The system call that a task is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemCall {
    /// None: the task came into the kernel by an exception or an interrupt.
    None,
    /// One of a 64-bit program, by its x86-64 number.
    Number(u32),
    /// One of a 32-bit program, whose calls have other numbers.
    Of32Bit,
}

impl SystemCall {
    /// Its x86-64 number.
    pub fn number(self) -> Option<u32> {
        match self {
            SystemCall::Number(number) => Some(number),
            SystemCall::None | SystemCall::Of32Bit => None,
        }
    }
}

/// What a file descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file, a directory or a block device.
    File,
    /// A pipe or FIFO.
    Pipe,
    /// A socket.
    Socket,
    /// None of these, or nothing.
    Other,
}

/// `TASK_STOPPED` and `TASK_TRACED` of the tracepoint `sched_switch`, and `TASK_FROZEN`
/// (include/linux/sched.h).
const STATES_STOPPED: u32 = 0x4 | 0x8 | 0x8000;
/// `TASK_RTLOCK_WAIT`: a lock of the kernel's, where those sleep.
const STATE_KERNEL_LOCK: u32 = 0x1000;
/// `CLONE_VFORK` of `clone(2)`.
const CLONE_VFORK: u64 = 0x4000;

impl WaitKind {
    /// What a task waits for that left its CPU in `state` (`TASK_*`; zero: it could run) in `call`
    /// with this first argument. `file` looks up what the descriptor in that argument refers to.
    pub fn of(
        state: u32,
        call: SystemCall,
        argument: u64,
        file: impl FnOnce() -> FileKind,
    ) -> WaitKind {
        if state == 0 {
            return WaitKind::Cpu;
        }
        if state & STATES_STOPPED != 0 {
            return WaitKind::Stopped;
        }
        if state & STATE_KERNEL_LOCK != 0 {
            return WaitKind::Other;
        }
        let call = match call {
            SystemCall::None => return WaitKind::Page,
            SystemCall::Of32Bit => return WaitKind::Other,
            SystemCall::Number(call) => call,
        };
        // arch/x86/entry/syscalls/syscall_64.tbl.
        match call {
            // futex, futex_waitv, futex_wait.
            202 | 449 | 455 => WaitKind::Lock,
            // accept, accept4, connect, sendto, recvfrom, sendmsg, recvmsg, recvmmsg, sendmmsg.
            43 | 288 | 42 | 44..=47 | 299 | 307 => WaitKind::Socket,
            // poll, select, epoll_wait, pselect6, ppoll, epoll_pwait, epoll_pwait2.
            7 | 23 | 232 | 270 | 271 | 281 | 441 => WaitKind::Poll,
            // nanosleep, clock_nanosleep.
            35 | 230 => WaitKind::Sleep,
            // wait4, waitid, vfork.
            61 | 247 | 58 => WaitKind::Child,
            56 if argument & CLONE_VFORK != 0 => WaitKind::Child,
            _ if takes_file(call) => match file() {
                FileKind::File => WaitKind::File,
                FileKind::Pipe => WaitKind::Pipe,
                FileKind::Socket => WaitKind::Socket,
                FileKind::Other => WaitKind::Other,
            },
            _ if takes_path(call) => WaitKind::File,
            _ => WaitKind::Other,
        }
    }
}

/// Whether the first argument of a call is the descriptor that it may wait for.
pub fn takes_file(call: u32) -> bool {
    matches!(
        call,
        // read, write, close, lseek, ioctl, pread64, pwrite64, readv, writev, sendfile.
        0 | 1 | 3 | 8 | 16..=20 | 40
        // fcntl, flock, fsync, fdatasync, ftruncate, getdents, getdents64, fadvise64.
        | 72..=75 | 77 | 78 | 217 | 221
        // splice, tee, sync_file_range, vmsplice, fallocate, preadv, pwritev, syncfs.
        | 275..=278 | 285 | 295 | 296 | 306
        // copy_file_range, preadv2, pwritev2.
        | 326..=328
        // accept, accept4, connect, and those that send and receive.
        | 42..=47 | 288 | 299 | 307
        // epoll_wait, epoll_pwait, epoll_pwait2, io_uring_enter.
        | 232 | 281 | 441 | 426
    )
}

/// Whether a call waits for a file system, by a path or for all of it.
fn takes_path(call: u32) -> bool {
    matches!(
        call,
        // open, stat, lstat, access, execve, truncate, rename to readlink.
        2 | 4 | 6 | 21 | 59 | 76 | 82..=89
        // sync, msync, openat to faccessat, execveat, statx, openat2.
        | 162 | 26 | 257..=269 | 322 | 332 | 437
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_for_what_its_call_says() {
        use SystemCall::{None, Number, Of32Bit};
        let none = FileKind::Other;
        for (state, call, argument, file, kind) in [
            (0, Number(202), 0, none, WaitKind::Cpu),
            (0, None, 0, none, WaitKind::Cpu),
            (1, Number(202), 0, none, WaitKind::Lock),
            (2, None, 0, none, WaitKind::Page),
            (1, Number(0), 3, FileKind::Socket, WaitKind::Socket),
            (1, Number(0), 3, FileKind::Pipe, WaitKind::Pipe),
            (2, Number(0), 3, FileKind::File, WaitKind::File),
            (1, Number(0), 3, none, WaitKind::Other),
            (1, Number(232), 3, none, WaitKind::Poll),
            (1, Number(230), 0, none, WaitKind::Sleep),
            (1, Number(61), 0, none, WaitKind::Child),
            (2, Number(56), 0x4111, none, WaitKind::Child),
            (2, Number(56), 0x111, none, WaitKind::Other),
            (2, Number(257), 0, none, WaitKind::File),
            (4, Number(202), 0, none, WaitKind::Stopped),
            (8, Number(101), 0, none, WaitKind::Stopped),
            (0x8000, Number(35), 0, none, WaitKind::Stopped),
            (0x1000, None, 0, none, WaitKind::Other),
            (1, Number(9999), 0, none, WaitKind::Other),
            (1, Of32Bit, 0, none, WaitKind::Other),
            (0, Of32Bit, 0, none, WaitKind::Cpu),
        ] {
            let found = WaitKind::of(state, call, argument, || file);
            assert_eq!(found, kind, "{call:?} in {state:#x}");
        }
    }
}
