// SPDX-License-Identifier: GPL-2.0-only
//! A probed file, open while a request needs it, and its inode, which is held without pinning a
//! mount.
//!
//! `uprobe_register` requires its caller to hold the inode and the file system. Holding the opened
//! `struct file` would do, but keeps the mount busy that the file was opened through: a container
//! could not be unmounted while a probe is in its file. So the inode and the file system's
//! superblock are held instead: an unmount succeeds at once, and the file system itself ends when
//! the last probe in it does. On overlayfs the inode is that of the real file below, the one that
//! the kernel maps and uprobes work on.

use super::{helpers, vma::FileKey};
use core::ptr::NonNull;
use kernel::{
    bindings,
    fs::LocalFile,
    prelude::*,
    sync::aref::ARef, //
};

/// Why a file descriptor has no usable inode.
#[derive(Clone, Copy)]
pub(crate) enum Unusable {
    /// Not open, or not for reading.
    BadFd,
    /// Not a regular file.
    NotRegular,
}

/// A file of the current process that is open for reading, held while one request needs it.
pub(crate) struct ReadableFile(ARef<LocalFile>);

impl ReadableFile {
    /// The file behind descriptor `fd`. Task context.
    pub(crate) fn from_fd(fd: i32) -> Result<Self, Unusable> {
        let fd = u32::try_from(fd).map_err(|_| Unusable::BadFd)?;
        let file = LocalFile::fget(fd).map_err(|_| Unusable::BadFd)?;
        // SAFETY: `file` is held.
        if !unsafe { helpers::nsprobe_file_is_readable(file.as_ptr()) } {
            return Err(Unusable::BadFd);
        }
        Ok(ReadableFile(file))
    }

    pub(crate) fn inode(&self) -> Result<PinnedInode, Unusable> {
        PinnedInode::of(&self.0)
    }

    /// Reads the file at `offset`; returns the number of bytes, 0 if it cannot be read. Waits for
    /// the file system.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let Ok(mut position) = i64::try_from(offset) else {
            return 0;
        };
        // SAFETY: The file is held and open for reading, `bytes` is that long, and the
        // position is ours.
        let read = unsafe {
            bindings::kernel_read(
                self.0.as_ptr(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                &mut position,
            )
        };
        usize::try_from(read).unwrap_or(0)
    }
}

/// An inode that is held together with its file system.
///
/// # Invariants
///
/// Owns one reference of the inode and one active reference of its superblock.
pub(crate) struct PinnedInode(NonNull<bindings::inode>);

// SAFETY: References of inodes and superblocks are counted atomically and belong
// to no task.
unsafe impl Send for PinnedInode {}
// SAFETY: The methods read fields that are fixed for the inode's life, or that
// the kernel reads without a lock as well.
unsafe impl Sync for PinnedInode {}

impl PinnedInode {
    /// The inode behind descriptor `fd` of the current process, which must be open
    /// for reading. Task context.
    pub(crate) fn from_fd(fd: i32) -> Result<Self, Unusable> {
        ReadableFile::from_fd(fd)?.inode()
    }

    /// The same, where an `O_PATH` descriptor will do. Task context.
    pub(crate) fn from_path_fd(fd: i32) -> Result<Self, Unusable> {
        let fd = u32::try_from(fd).map_err(|_| Unusable::BadFd)?;
        // SAFETY: `fget_raw` has no preconditions, and gives a reference or NULL.
        let file = NonNull::new(unsafe { bindings::fget_raw(fd) }).ok_or(Unusable::BadFd)?;
        // SAFETY: The reference is ours. As for `LocalFile::fget`: either this thread alone has the
        // descriptor, or others use the file's position under its lock.
        let file = unsafe { ARef::<LocalFile>::from_raw(file.cast()) };
        // SAFETY: `file` is held.
        if !unsafe { helpers::nsprobe_file_shows_data(file.as_ptr()) } {
            return Err(Unusable::BadFd);
        }
        Self::of(&file)
    }

    fn of(file: &LocalFile) -> Result<Self, Unusable> {
        // SAFETY: `file` is held, so it and its dentry are valid.
        let inode = unsafe { helpers::nsprobe_real_inode(file.as_ptr()) };
        let inode = NonNull::new(inode).ok_or(Unusable::NotRegular)?;
        // SAFETY: The open file holds its dentry, and that the inode beneath it.
        let mode = unsafe { (*inode.as_ptr()).i_mode };
        if u32::from(mode) & bindings::S_IFMT != bindings::S_IFREG {
            return Err(Unusable::NotRegular);
        }
        // SAFETY: As above; `i_sb` is fixed for the inode's life. The open file (on
        // overlayfs: the overlay's own mount of the layer) keeps the superblock
        // active during the call.
        if !unsafe { helpers::nsprobe_super_get((*inode.as_ptr()).i_sb) } {
            return Err(Unusable::BadFd);
        }
        // SAFETY: The open file holds the inode, so its count is not zero.
        unsafe { bindings::ihold(inode.as_ptr()) };
        // INVARIANT: Both references were just taken.
        Ok(PinnedInode(inode))
    }

    /// The raw inode, valid as long as `self`.
    pub(super) fn as_ptr(&self) -> *mut bindings::inode {
        self.0.as_ptr()
    }

    /// Current size of the file in bytes.
    pub(crate) fn size(&self) -> u64 {
        // SAFETY: The inode is held; on 64-bit kernels `i_size_read` is this load.
        unsafe { (*self.0.as_ptr()).i_size as u64 }
    }

    /// Whether its pages can carry breakpoints.
    pub(crate) fn has_pages(&self) -> bool {
        // SAFETY: The inode is held.
        unsafe { helpers::nsprobe_has_pages(self.0.as_ptr()) }
    }

    /// Whether the kernel itself answers when the file is read, and no server that may never do so.
    pub(crate) fn kernel_answers(&self) -> bool {
        // SAFETY: The inode and its superblock are held.
        unsafe { helpers::nsprobe_kernel_answers((*self.0.as_ptr()).i_sb) }
    }

    /// The key of this file.
    pub(crate) fn key(&self) -> FileKey {
        // SAFETY: The inode is held.
        unsafe { FileKey::of(self.0) }
    }
}

impl Drop for PinnedInode {
    fn drop(&mut self) {
        let inode = self.0.as_ptr();
        // SAFETY: By the invariant both references are ours to give back; the
        // superblock goes last, as the inode is part of it.
        unsafe {
            let sb = (*inode).i_sb;
            bindings::iput(inode);
            bindings::deactivate_super(sb);
        }
    }
}
