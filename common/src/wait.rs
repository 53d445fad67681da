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

numbered! {
    /// What woke a task.
    pub enum Waker {
        /// Unknown, or a task that the session's owner does not see.
        Unknown = 0,
        /// A thread of a program.
        Thread = 1,
        /// Probably this thread: the kernel's network code woke the task while the thread sent.
        Sender = 2,
        /// A thread of the kernel.
        Kernel = 3,
        /// An interrupt: a timer or a device.
        Interrupt = 4,
    }
}

numbered! {
    /// What proves who holds a lock.
    pub enum Proof {
        /// Nothing: the holder is unknown.
        None = 0,
        /// The kernel's own rules for the lock's word.
        Word = 1,
        /// The caller: the word is a holder's if the thread waits in `pthread_mutex_lock(3)`,
        /// `pthread_mutex_timedlock(3)` or `pthread_mutex_clocklock(3)`.
        Caller = 2,
    }
}

/// What is in the two halves of [`Context::WokenBy`](crate::program::Context::WokenBy) and
/// [`Context::LockHolder`](crate::program::Context::LockHolder).
pub fn pair(upper: u32, lower: u32) -> u64 {
    u64::from(upper).wrapping_shl(32) | u64::from(lower)
}

/// A lock as a thread begins to wait for it in `futex(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWords {
    /// The call's operation.
    pub operation: u32,
    /// The value that the call expects.
    pub expected: u32,
    /// What is there.
    pub word: u32,
    /// What is eight bytes after it: the owner in a `pthread_mutex_t` of glibc.
    pub owner: u32,
}

/// `FUTEX_TID_MASK` and `FUTEX_WAITERS` (include/uapi/linux/futex.h).
const TID_MASK: u32 = 0x3fff_ffff;
const WAITERS: u32 = 0x8000_0000;
/// `FUTEX_PRIVATE_FLAG`.
const PRIVATE: u32 = 0x80;
/// The word of a lock of glibc's that is held and waited for.
const CONTENDED: u32 = 2;

impl LockWords {
    /// The number of the thread that holds the lock, as the waiting thread's pid namespace has it,
    /// and what proves that.
    pub fn holder(self) -> (Proof, u32) {
        let none = (Proof::None, 0);
        let found = match self.operation {
            // FUTEX_LOCK_PI and FUTEX_LOCK_PI2.
            6 | 13 | 0x86 | 0x8d => (Proof::Word, self.word & TID_MASK),
            // FUTEX_WAIT of a robust mutex.
            0 if self.word == self.expected && self.word & WAITERS != 0 => {
                (Proof::Word, self.word & TID_MASK)
            }
            0 | PRIVATE if self.word == CONTENDED && self.expected == CONTENDED => {
                (Proof::Caller, self.owner)
            }
            _ => none,
        };
        match found.1 {
            1..=TID_MASK => found,
            _ => none,
        }
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
            // futex_waitv.
            449 => WaitKind::Lock,
            _ if takes_futex(call) => WaitKind::Lock,
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

/// Whether a call waits for a futex, whose address is its first argument.
pub fn takes_futex(call: u32) -> bool {
    // futex, futex_wait.
    matches!(call, 202 | 455)
}

/// Whether a call may send to a socket, which may wake its reader at once.
pub fn may_send(call: u32) -> bool {
    matches!(
        call,
        // write, close, writev, sendfile, connect, accept, sendto, sendmsg, shutdown, splice,
        // sendmmsg, io_uring_enter.
        1 | 3 | 20 | 40 | 42 | 43 | 44 | 46 | 48 | 275 | 288 | 307 | 426
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
    fn a_holder_is_what_the_words_prove() {
        let robust = 77 | WAITERS;
        for (operation, expected, word, owner, holder) in [
            // Normal, and between processes.
            (0x80, 2, 2, 77, (Proof::Caller, 77)),
            (0, 2, 2, 77, (Proof::Caller, 77)),
            // It was unlocked meanwhile, or has no owner.
            (0x80, 2, 0, 77, (Proof::None, 0)),
            (0x80, 2, 2, 0, (Proof::None, 0)),
            (0x80, 2, 2, u32::MAX, (Proof::None, 0)),
            (0x86, 0, robust, 5, (Proof::Word, 77)),
            (0x86, 0, 0, 5, (Proof::None, 0)),
            (0, robust, robust, 5, (Proof::Word, 77)),
            (0, robust, 77, 5, (Proof::None, 0)),
            // A condition variable, a thread's end, a lock of Rust's.
            (0x189, 0, 0, 77, (Proof::None, 0)),
            (0x109, 77, 77, 77, (Proof::None, 0)),
            (0x89, 2, 2, 77, (Proof::None, 0)),
        ] {
            let words = LockWords {
                operation,
                expected,
                word,
                owner,
            };
            assert_eq!(words.holder(), holder, "{words:x?}");
        }
    }

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
