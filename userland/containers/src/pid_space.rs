// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pid namespaces, by the ids that the kernel gives once (`include/uapi/linux/nsfs.h`).

use crate::{Process, Result, TargetError};
use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::fstat;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// `FILEID_NSFS` of `include/linux/exportfs.h`.
const FILEID_NSFS: i32 = 0xf1;

/// A pid namespace: two are the same when their ids are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PidSpace {
    /// The id, which no other namespace ever gets.
    pub id: u64,
    /// The inode number, which the kernel gives again.
    pub inum: u32,
}

/// `struct file_handle` of `include/linux/fs.h` with a `struct nsfs_file_handle`.
#[repr(C)]
struct NamespaceHandle {
    bytes: u32,
    kind: i32,
    id: u64,
    /// Zero with `inum`: of the id alone.
    namespace_type: u32,
    inum: u32,
}

impl PidSpace {
    /// That of a file below `/proc/PID/ns`.
    pub(crate) fn of(file: &impl AsFd) -> nix::Result<PidSpace> {
        let inum = fstat(file)?.st_ino as u32;
        let mut id = 0;
        // SAFETY: NS_GET_ID writes 64 bits, for which there is room.
        #[expect(unsafe_code, reason = "no crate has NS_GET_ID")]
        let got = unsafe { ns_get_id(file.as_fd().as_raw_fd(), &mut id) };
        match got {
            Ok(_) => Ok(PidSpace { id, inum }),
            // Before 6.18 namespaces have no ids; the module does not load there.
            Err(Errno::ENOTTY) => Ok(PidSpace {
                id: inum.into(),
                inum,
            }),
            Err(errno) => Err(errno),
        }
    }

    /// The first process of the namespace that has an id; none if it has ended, and on kernels before
    /// 6.18.
    pub fn first_process(id: u64) -> Result<Option<Process>> {
        let unreadable = |source: io::Error| TargetError::StateUnreadable {
            path: format!("pid namespace {id}").into(),
            source,
        };
        let first = opened(id).and_then(|file| Ok(first_of(&file)?));
        let pid = match first.map_err(|error| (error.raw_os_error(), error)) {
            Ok(pid) => pid,
            Err((Some(libc::ESTALE | libc::ESRCH), _)) => return Ok(None),
            Err((_, error)) => return Err(unreadable(error)),
        };
        // Its number may be another's by now.
        let first = Process::open(pid).ok();
        Ok(first.filter(|first| first.pid_namespace().is_ok_and(|space| space.id == id)))
    }
}

/// The file of a namespace.
fn opened(id: u64) -> io::Result<OwnedFd> {
    let nsfs = File::open("/proc/self/ns/pid")?;
    let mut handle = NamespaceHandle {
        bytes: 16,
        kind: FILEID_NSFS,
        id,
        namespace_type: 0,
        inum: 0,
    };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let handle: *mut NamespaceHandle = &mut handle;
    // SAFETY: The handle has as many bytes as it says, and lives until the call is over.
    #[expect(unsafe_code, reason = "no crate has open_by_handle_at")]
    let fd = unsafe { libc::open_by_handle_at(nsfs.as_raw_fd(), handle.cast(), flags) };
    match fd {
        0.. => {
            // SAFETY: The kernel has just given us this descriptor.
            #[expect(unsafe_code, reason = "a descriptor of our own")]
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number that the first process of a pid namespace has in ours.
fn first_of(file: &OwnedFd) -> nix::Result<u32> {
    // SAFETY: NS_GET_PID_FROM_PIDNS takes a number, and writes nothing.
    #[expect(unsafe_code, reason = "no crate has NS_GET_PID_FROM_PIDNS")]
    let pid = unsafe { ns_get_pid(file.as_raw_fd(), 1) }?;
    u32::try_from(pid).map_err(|_| Errno::ESRCH)
}

nix::ioctl_read!(
    /// NS_GET_ID of linux/nsfs.h: the id of a namespace, from 6.18 on.
    ns_get_id,
    0xb7,
    13,
    u64
);

nix::ioctl_write_int_bad!(
    /// NS_GET_PID_FROM_PIDNS of linux/nsfs.h: our number of a process of that namespace.
    ns_get_pid,
    nix::request_code_read!(0xb7, 6, size_of::<i32>())
);
