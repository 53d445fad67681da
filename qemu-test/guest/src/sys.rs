// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that the tests make in ways no library offers: wrong sizes,
//! wild pointers, hostile mappings. The only file here that is not safe Rust.
#![expect(unsafe_code, reason = "tests call the kernel wrongly on purpose")]

use nix::libc;
use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, ControlMessageOwned, MsgFlags};
use std::ffi::{c_void, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromBytes, IntoBytes};

/// What a system call returned, as a result.
fn result(returned: i64) -> io::Result<i64> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(returned)
    }
}

/// An ioctl whose argument is a struct.
pub(crate) fn ioctl<T: FromBytes + IntoBytes>(
    fd: &impl AsRawFd,
    command: u32,
    argument: &mut T,
) -> io::Result<i64> {
    // SAFETY: The kernel reads and writes `size` bytes of the struct, as its
    // first field says; callers with a larger `size` use `ioctl_bytes`.
    result(i64::from(unsafe {
        libc::ioctl(fd.as_raw_fd(), command as libc::c_ulong as _, argument)
    }))
}

/// An ioctl whose argument is some memory, which may be more than the struct.
pub(crate) fn ioctl_bytes(
    fd: &impl AsRawFd,
    command: u32,
    argument: &mut [u64],
) -> io::Result<i64> {
    // SAFETY: The slice is longer than any struct whose `size` a test puts in
    // front; the kernel never writes more than `size` bytes.
    result(i64::from(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            command as libc::c_ulong as _,
            argument.as_mut_ptr(),
        )
    }))
}

/// An ioctl with any command and any argument, pointer or not.
pub(crate) fn ioctl_wild(fd: &impl AsRawFd, command: u64, argument: u64) -> io::Result<i64> {
    // SAFETY: Not safe by itself: the kernel may write where `argument` points
    // to. Callers pass addresses of memory that is not used, or unmapped ones.
    result(i64::from(unsafe {
        libc::ioctl(fd.as_raw_fd(), command as _, argument)
    }))
}

/// A mapping of a file; ends with the value.
pub(crate) struct Mapping {
    at: *mut c_void,
    bytes: usize,
}

// SAFETY: The address is only used by atomic loads and stores.
unsafe impl Send for Mapping {}
// SAFETY: As above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `mmap` with these very arguments.
    pub(crate) fn new(
        fd: &impl AsRawFd,
        offset: u64,
        bytes: usize,
        protection: i32,
        flags: i32,
    ) -> io::Result<Mapping> {
        // SAFETY: The kernel chooses the address, so nothing else is replaced.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                flags,
                fd.as_raw_fd(),
                offset as i64,
            )
        };
        if at == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Mapping { at, bytes })
        }
    }

    /// Memory of its own.
    pub(crate) fn anonymous(bytes: usize, protection: i32) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Mapping::new(&-1, 0, bytes, protection, flags)
    }

    /// Where it lies.
    pub(crate) fn address(&self) -> u64 {
        self.at as u64
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The word at a byte offset, which another side may write meanwhile.
    pub(crate) fn word(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes);
        // SAFETY: In bounds and aligned, as just checked.
        let word = unsafe { &*self.at.byte_add(offset).cast::<AtomicU64>() };
        word.load(Ordering::Acquire)
    }

    /// Writes the word at a byte offset.
    pub(crate) fn set_word(&self, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes);
        // SAFETY: In bounds and aligned, as just checked.
        let word = unsafe { &*self.at.byte_add(offset).cast::<AtomicU64>() };
        word.store(value, Ordering::Release);
    }

    /// `read` of at most `bytes` to its beginning.
    pub(crate) fn read_from(&self, fd: &impl AsRawFd, bytes: usize) -> io::Result<i64> {
        assert!(bytes <= self.bytes);
        // SAFETY: Within the mapping, of which no reference outlives a call.
        result(unsafe { libc::read(fd.as_raw_fd(), self.at, bytes) } as i64)
    }

    /// `mprotect` of the whole of it.
    pub(crate) fn protect(&self, protection: i32) -> io::Result<i64> {
        // SAFETY: Only the kernel's answer counts; a mapping that became
        // writable is never written by safe code except through `set_word`.
        result(i64::from(unsafe {
            libc::mprotect(self.at, self.bytes, protection)
        }))
    }

    /// `mremap` to another size; gives back the mapping as it is now.
    pub(crate) fn resize(self, bytes: usize) -> Result<Mapping, (Mapping, io::Error)> {
        // SAFETY: The value owns the mapping and is consumed.
        let at = unsafe { libc::mremap(self.at, self.bytes, bytes, libc::MREMAP_MAYMOVE) };
        if at == libc::MAP_FAILED {
            return Err((self, io::Error::last_os_error()));
        }
        std::mem::forget(self);
        Ok(Mapping { at, bytes })
    }

    /// Unmaps one page in the middle.
    pub(crate) fn punch(&self, offset: usize, bytes: usize) -> io::Result<i64> {
        assert!(offset + bytes <= self.bytes);
        // SAFETY: Within the mapping; the caller does not read there afterwards.
        result(i64::from(unsafe {
            libc::munmap(self.at.byte_add(offset), bytes)
        }))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: The value owns the mapping and nothing refers to it any more.
        unsafe { libc::munmap(self.at, self.bytes) };
    }
}

/// `finit_module`.
pub(crate) fn load_module(file: &impl AsRawFd, parameters: &str) -> io::Result<i64> {
    let parameters = CString::new(parameters).expect("parameters hold no NUL");
    // SAFETY: A descriptor and a NUL-terminated string that outlives the call.
    result(unsafe {
        libc::syscall(
            libc::SYS_finit_module,
            file.as_raw_fd(),
            parameters.as_ptr(),
            0,
        )
    })
}

/// `delete_module`, without waiting.
pub(crate) fn unload_module(name: &str) -> io::Result<i64> {
    let name = CString::new(name).expect("a name holds no NUL");
    // SAFETY: A NUL-terminated string that outlives the call.
    result(unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) })
}

/// What a forked child does.
pub(crate) enum Forked {
    /// This is the child.
    Child,
    /// This is the parent, with the child's id.
    Parent(i32),
}

/// `fork`. Tests have one thread when they call it.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: The process has one thread, so the child's memory is consistent.
    match result(i64::from(unsafe { libc::fork() }))? {
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent(child as i32)),
    }
}

/// Ends a forked child without running what belongs to its parent.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: Does not return and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Waits for a child; the raw status.
pub(crate) fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: Writes one integer.
    unsafe { libc::waitpid(child, &mut status, 0) };
    status
}

/// A second descriptor of the same open file.
pub(crate) fn duplicate(fd: &impl AsRawFd) -> OwnedFd {
    // SAFETY: The new descriptor has no owner yet.
    unsafe {
        let new = libc::dup(fd.as_raw_fd());
        assert!(new >= 0);
        OwnedFd::from_raw_fd(new)
    }
}

/// Sends a descriptor over a socket.
pub(crate) fn send_descriptor(socket: &impl AsRawFd, fd: &impl AsRawFd) {
    let fds = [fd.as_raw_fd()];
    let message = [ControlMessage::ScmRights(&fds)];
    let data = [io::IoSlice::new(b"x")];
    let none = MsgFlags::empty();
    sendmsg::<()>(socket.as_raw_fd(), &data, &message, none, None).expect("a connected socket");
}

/// Waits for a descriptor on a socket.
pub(crate) fn receive_descriptor(socket: &impl AsRawFd) -> OwnedFd {
    let mut byte = [0];
    let mut data = [io::IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(RawFd);
    let none = MsgFlags::empty();
    let got = recvmsg::<()>(socket.as_raw_fd(), &mut data, Some(&mut space), none);
    let got = got.expect("a connected socket");
    let received = got
        .cmsgs()
        .expect("room for it")
        .find_map(|message| match message {
            ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
            _ => None,
        });
    adopt(received.expect("a descriptor was sent"))
}

/// Takes over a descriptor that the kernel made.
pub(crate) fn adopt(fd: RawFd) -> OwnedFd {
    assert!(fd >= 0);
    // SAFETY: The kernel has just made it for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The command runs with a system call that fails with an error of choice.
pub(crate) fn with_failing_call(command: &mut Command, number: i64, errno: i32) {
    let filter = [
        // Load the number; if it is the one, fail; else allow.
        instruction(0x20, 0, 0, 0),
        instruction(0x15, 0, 1, number as u32),
        instruction(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        instruction(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let mut filter = filter;
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: The program lies on this stack during the call.
        result(i64::from(unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program)
        }))
        .map(drop)
    };
    // SAFETY: The closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(install) };
}

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// The command runs as another user, without any capability.
pub(crate) fn as_user(command: &mut Command, id: u32) {
    // std drops root's groups along with its id.
    command.uid(id).gid(id);
}

/// The command runs without some capabilities, which exec does not bring back.
pub(crate) fn without_capabilities(command: &mut Command, capabilities: &'static [u32]) {
    let drop_them = move || {
        for &capability in capabilities {
            // SAFETY: A system call without pointers.
            let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
            result(dropped.into())?;
        }
        Ok(())
    };
    // SAFETY: The closure makes system calls and allocates nothing.
    unsafe { command.pre_exec(drop_them) };
}

/// A process that has mapped its program and runs no instruction of it; ended with the value.
pub(crate) struct Unborn(Child);

impl Unborn {
    pub(crate) fn of(command: &mut Command) -> io::Result<Unborn> {
        // SAFETY: The closure makes one system call without pointers.
        let stop_at_exec = || result(unsafe { libc::ptrace(libc::PTRACE_TRACEME) }).map(drop);
        // SAFETY: As the closure says; it allocates nothing.
        unsafe { command.pre_exec(stop_at_exec) };
        let nothing = Stdio::null;
        command.stdin(nothing()).stdout(nothing()).stderr(nothing());
        let process = Unborn(command.spawn()?);
        let stopped = wait(process.pid() as i32);
        if !libc::WIFSTOPPED(stopped) {
            return Err(io::Error::other(format!("ended with {stopped:#x}")));
        }
        Ok(process)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Unborn {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number of the mount on top at a place, which no other one ever gets.
pub(crate) fn mount_id(place: &std::path::Path) -> io::Result<u64> {
    const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
    let place = CString::new(place.as_os_str().as_encoded_bytes())?;
    let flags = libc::AT_NO_AUTOMOUNT | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: A statx of zeroes is one; the kernel reads a string that ends with NUL, and
    // writes the struct.
    let (done, found) = unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        let mask = STATX_MNT_ID_UNIQUE;
        let done = libc::statx(libc::AT_FDCWD, place.as_ptr(), flags, mask, &mut found);
        (done, found)
    };
    result(i64::from(done))?;
    Ok(found.stx_mnt_id)
}

/// The process becomes another user.
pub(crate) fn become_user(id: u32) -> io::Result<()> {
    // SAFETY: System calls without pointers (the list of groups is empty).
    result(i64::from(unsafe {
        libc::setgroups(0, std::ptr::null());
        libc::setresgid(id, id, id);
        libc::setresuid(id, id, id)
    }))
    .map(drop)
}

/// The process becomes root of a new user namespace.
pub(crate) fn become_root_of_user_namespace() -> io::Result<()> {
    // SAFETY: A system call without pointers.
    result(i64::from(unsafe { libc::unshare(libc::CLONE_NEWUSER) }))?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", "0 0 1")?;
    std::fs::write("/proc/self/gid_map", "0 0 1")
}

/// The process leads a group of its own.
pub(crate) fn in_own_group(command: &mut Command) {
    command.process_group(0);
}

/// Puts the process to the CPUs of a mask.
pub(crate) fn run_on(cpus: u64) {
    // SAFETY: The kernel reads eight bytes.
    let done = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of::<u64>(), &cpus) };
    assert!(done >= 0, "{}", io::Error::last_os_error());
}

/// `bpf`, with the words of its attributes.
pub(crate) fn bpf(command: i32, attributes: &[u64]) -> io::Result<i64> {
    // SAFETY: The kernel reads the given number of bytes, and reads and writes what they point
    // to: callers put addresses of memory there that is kept meanwhile.
    result(unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_ptr(),
            size_of_val(attributes),
        )
    })
}

/// The same for a command that makes a descriptor.
pub(crate) fn bpf_make(command: i32, attributes: &[u64]) -> io::Result<OwnedFd> {
    Ok(adopt(bpf(command, attributes)? as RawFd))
}

/// `perf_event_open` for a process on all CPUs, with the words of the attributes.
pub(crate) fn perf_event(attributes: &[u64], pid: u32) -> io::Result<OwnedFd> {
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    // SAFETY: The kernel reads as many bytes as the attributes say, which callers have, and
    // what they point to, which callers keep meanwhile.
    let fd = result(unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            pid,
            -1,
            -1,
            CLOSE_ON_EXEC,
        )
    })?;
    Ok(adopt(fd as RawFd))
}

/// A file in memory that not even the kernel reads.
pub(crate) fn secret_memory() -> io::Result<OwnedFd> {
    // SAFETY: A system call without pointers.
    let fd = result(unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) })?;
    Ok(adopt(fd as RawFd))
}

/// Sleeps until there is something to read, or a signal.
pub(crate) fn poll_for_ever(fd: RawFd) {
    let mut wanted = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: The kernel reads and writes one struct.
    unsafe { libc::poll(&mut wanted, 1, -1) };
}

/// A page that never comes: a thread that touches it waits, as long as the value lives.
pub(crate) struct NeverThere {
    page: Mapping,
    _faults: OwnedFd,
}

impl NeverThere {
    /// A userfaultfd without a reader.
    pub(crate) fn new() -> NeverThere {
        // Numbers of include/uapi/linux/userfaultfd.h.
        const API: u32 = 0xc018_aa3f;
        const REGISTER: u32 = 0xc020_aa00;
        const MODE_MISSING: u64 = 1;
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        let page = Mapping::anonymous(4096, read_write).expect("there is memory");
        // SAFETY: A system call without pointers.
        let fd = result(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) });
        let faults = adopt(fd.expect("root may") as RawFd);
        let mut place = [page.address(), page.bytes() as u64, MODE_MISSING, 0];
        ioctl_bytes(&faults, API, &mut [0xaa, 0, 0]).expect("the only version");
        ioctl_bytes(&faults, REGISTER, &mut place).expect("nothing is there");
        NeverThere {
            page,
            _faults: faults,
        }
    }

    /// Where it lies.
    pub(crate) fn address(&self) -> u64 {
        self.page.address()
    }
}

/// From now on the thread takes the CPU from any other as soon as it wakes up.
pub(crate) fn run_before_others() {
    set_real_time(0, 1).expect("root may");
}

/// Gives a thread (0: the calling one) a real-time priority; with 0 it has none any more.
pub(crate) fn set_real_time(thread: u32, priority: i32) -> io::Result<()> {
    let wanted = libc::sched_param {
        sched_priority: priority,
    };
    let policy = match priority {
        0 => libc::SCHED_OTHER,
        _ => libc::SCHED_FIFO,
    };
    // SAFETY: The kernel reads the struct.
    let done = unsafe { libc::sched_setscheduler(thread as i32, policy, &wanted) };
    result(done.into()).map(drop)
}

/// The clock of the records.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: The kernel writes the two words.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// From now on a signal arrives at this interval in microseconds (0: no more), whose
/// handler only counts and restarts nothing; how many came so far.
pub(crate) fn interrupt_every(microseconds: i64) -> u64 {
    static CAME: AtomicU64 = AtomicU64::new(0);
    extern "C" fn count(_: i32) {
        CAME.fetch_add(1, Ordering::Relaxed);
    }
    let time = libc::timeval {
        tv_sec: 0,
        tv_usec: microseconds,
    };
    let timer = libc::itimerval {
        it_interval: time,
        it_value: time,
    };
    // SAFETY: The handler touches one atomic; both structs outlive the calls, and a
    // sigaction of zeroes is one without flags.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut())
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
    CAME.load(Ordering::Relaxed)
}
