// SPDX-License-Identifier: GPL-2.0-only
//! A file that a process mapped, and the root directory of a process, held after the process has
//! ended.

use super::{eremote, helpers, rcu_slot::Reading, task::Current};
use core::{
    mem::MaybeUninit,
    ptr::{self, NonNull}, //
};
use kernel::{
    bindings,
    cred::Credential,
    error::from_err_ptr,
    fs::{file::FileDescriptorReservation, File, LocalFile},
    prelude::*,
    sync::aref::ARef, //
};

/// A file that was mapped, held by a reference.
pub(crate) struct HeldFile(ARef<File>);

impl HeldFile {
    /// Takes a reference of its own.
    ///
    /// # Safety
    ///
    /// The file must be held by another reference, as the one that is mapped or executed.
    pub(super) unsafe fn take(file: NonNull<bindings::file>) -> Self {
        // SAFETY: The caller says that the count is not zero; `get_file` takes the
        // reference that `ARef` then owns. Such a file has no `fdget_pos` of this thread:
        // neither handlers nor tracepoints are system calls on it.
        HeldFile(unsafe {
            bindings::get_file(file.as_ptr());
            ARef::from_raw(file.cast::<File>())
        })
    }

    /// The file that is open as `fd` in the current process.
    pub(crate) fn of_fd(fd: u32) -> Result<Self> {
        let file = LocalFile::fget(fd).map_err(|_| EBADF)?;
        // SAFETY: No system call of this thread that holds a file's position lets us run.
        Ok(HeldFile(unsafe { LocalFile::assume_no_fdget_pos(file) }))
    }

    /// Whether the current task runs this program. RCU is locked, which `_reading` proves; any
    /// context.
    pub(crate) fn is_run_here(&self, _reading: &Reading<'_>) -> bool {
        let task = Current::get().as_non_null();
        // SAFETY: The current task is valid, and changes its address space itself.
        let Some(mm) = NonNull::new(unsafe { (*task.as_ptr()).mm }) else {
            return false;
        };
        // SAFETY: The current task keeps its address space. Under RCU the memory of its file stays
        // one of a file (SLAB_TYPESAFE_BY_RCU), though perhaps of another one: only the address of
        // its inode is read. That of ours stays, as the file is held.
        unsafe {
            let file = ptr::read_volatile(&raw const (*mm.as_ptr()).__bindgen_anon_1.exe_file);
            !file.is_null()
                && ptr::read_volatile(&raw const (*file).f_inode) == (*self.0.as_ptr()).f_inode
        }
    }

    /// Opens the file anew, read-only, as the current task. Task context, may sleep. `EREMOTE` if
    /// that could wait for a server: then neither the opened file nor the caller could be ended.
    pub(crate) fn reopen(&self) -> Result<Opened> {
        // SAFETY: The held file keeps its dentry, that its inode (on overlayfs: the real one), and
        // that its superblock.
        let kernel_answers = unsafe {
            let inode = helpers::nsprobe_real_inode(self.0.as_ptr());
            helpers::nsprobe_kernel_answers((*inode).i_sb)
        };
        if !kernel_answers {
            return Err(eremote());
        }
        let flags = bindings::O_RDONLY | bindings::O_LARGEFILE | bindings::O_NOATIME;
        // SAFETY: The held file keeps its path.
        let path = unsafe { &(*self.0.as_ptr()).__bindgen_anon_1.f_path };
        Opened::new(|| {
            open(path, flags)
                // Only the owner of a file may suppress updates of its access time.
                .or_else(|_| open(path, flags & !bindings::O_NOATIME))
        })
    }
}

/// A root directory, held by a reference. Its mount stays even after its mount namespace has ended.
pub(crate) struct HeldRoot(bindings::path);

// SAFETY: A path is two counted references, which belong to no thread.
unsafe impl Send for HeldRoot {}
// SAFETY: It is never changed.
unsafe impl Sync for HeldRoot {}

impl HeldRoot {
    /// The root directory of the current task; `None` while it exits. Takes a spin lock, and does
    /// not sleep.
    pub(crate) fn of_current() -> Option<Self> {
        let mut path = MaybeUninit::<bindings::path>::uninit();
        // SAFETY: The room is ours, and is written when the answer is yes.
        unsafe {
            helpers::nsprobe_get_root(path.as_mut_ptr()).then(|| HeldRoot(path.assume_init()))
        }
    }

    /// The directory: device and inode number.
    pub(crate) fn place(&self) -> (u64, u64) {
        // SAFETY: The path is held, so its dentry is, which is that of a directory and so has an
        // inode.
        unsafe {
            let inode = (*self.0.dentry).d_inode;
            (helpers::nsprobe_inode_dev(inode), (*inode).i_ino)
        }
    }

    /// Opens the directory with `O_PATH`. Task context, may sleep.
    pub(crate) fn open(&self) -> Result<Opened> {
        Opened::new(|| open(&self.0, bindings::O_PATH | bindings::O_DIRECTORY))
    }
}

impl Drop for HeldRoot {
    /// May sleep.
    fn drop(&mut self) {
        // SAFETY: The references are ours, and are given up here.
        unsafe { bindings::path_put(&self.0) }
    }
}

/// Opens a path as the current task.
fn open(path: &bindings::path, flags: u32) -> Result<ARef<File>> {
    let credential = kernel::current!();
    // SAFETY: `current`'s credentials are valid while it runs this code.
    let credential = unsafe { Credential::from_ptr((*credential.as_ptr()).cred) };
    // SAFETY: Who has the path holds it; `dentry_open` takes references of its own and gives
    // an opened file or an error pointer.
    let file = unsafe { bindings::dentry_open(path, flags as i32, credential.as_ptr()) };
    let file = from_err_ptr(file)?;
    let file = NonNull::new(file).ok_or(ENOENT)?;
    // SAFETY: `dentry_open` gave us the only reference of a new file, in which no
    // `fdget_pos` can be active.
    Ok(unsafe { ARef::from_raw(file.cast()) })
}

/// An open file, and a close-on-exec descriptor reserved for it. Without [`install`](Self::install)
/// both are released.
pub(crate) struct Opened {
    descriptor: FileDescriptorReservation,
    file: ARef<File>,
}

impl Opened {
    fn new(open: impl FnOnce() -> Result<ARef<File>>) -> Result<Self> {
        // Reserve the descriptor first: without one, opening the file would be useless.
        let descriptor = FileDescriptorReservation::get_unused_fd_flags(bindings::O_CLOEXEC)?;
        Ok(Opened {
            descriptor,
            file: open()?,
        })
    }

    /// The descriptor's number.
    pub(crate) fn fd(&self) -> i32 {
        self.descriptor.reserved_fd() as i32
    }

    /// Installs the file at the descriptor.
    pub(crate) fn install(self) {
        self.descriptor.fd_install(self.file);
    }
}
