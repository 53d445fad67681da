// SPDX-License-Identifier: GPL-2.0-only
//! The address space of another process, as far as it can be read without waiting for that process:
//! the server of its page faults decides how long its locks are held.

use super::{
    any_task::AnyTask,
    cond_resched,
    file_ref::HeldFile,
    program_start::{Args, Program},
    vma::FileKey, //
};
use core::{ffi::c_int, ptr::NonNull};
use kernel::{
    bindings,
    mm::{
        virt::{flags, VmaRef},
        MmWithUser,
    },
    prelude::*,
    sync::aref::ARef, //
};
use zerocopy::IntoBytes;

/// How often a lock is tried for.
const TRIES: u32 = 50;
/// How long in between.
const PAUSE_US: usize = 100;
/// Most mappings of one process that are looked at.
const MAPPINGS_MAX: usize = 1 << 16;

/// An address space with a user: us.
pub(crate) struct RemoteMm {
    mm: ARef<MmWithUser>,
    task: ARef<kernel::task::Task>,
}

/// A mapping that may be run.
pub(crate) struct Seen {
    /// First address.
    pub(crate) start: u64,
    /// First address after it.
    pub(crate) end: u64,
    /// File offset of the first byte.
    pub(crate) file_offset: u64,
    /// What is mapped.
    pub(crate) file: Option<Program>,
}

impl RemoteMm {
    /// That of a task; `None` for a kernel thread, or one that has none any more.
    pub(crate) fn of(task: &AnyTask<'_>) -> Option<Self> {
        // SAFETY: The task is valid. `get_task_mm` gives a reference or NULL; the other
        // reference is taken from a task that is not freed yet, as RCU is locked: its own
        // count may be zero, which `refcount_inc_not_zero` would show, but a task that has
        // an address space is not reaped.
        unsafe {
            let mm = NonNull::new(bindings::get_task_mm(task.as_ptr()))?;
            let mm = ARef::from_raw(mm.cast());
            let task = &*task.as_ptr().cast::<kernel::task::Task>();
            Some(RemoteMm {
                mm,
                task: task.into(),
            })
        }
    }

    /// Takes the lock for reading, for `look`. `EAGAIN` if it is not free for a while. Task
    /// context, sleeps.
    fn locked<R>(&self, look: impl FnOnce() -> Result<R>) -> Result<R> {
        for _ in 0..TRIES {
            if let Some(_guard) = self.mm.mmap_read_trylock() {
                return look();
            }
            // SAFETY: Task context, no locks are held.
            unsafe {
                let state = bindings::TASK_UNINTERRUPTIBLE;
                bindings::usleep_range_state(PAUSE_US, PAUSE_US << 1, state);
            }
        }
        Err(EAGAIN)
    }

    /// Hands each mapping that may be run to `look`, by rising address. Task context, sleeps.
    pub(crate) fn each_code(&self, mut look: impl FnMut(Seen) -> Result) -> Result {
        self.locked(|| {
            let mut address = 0;
            for _ in 0..MAPPINGS_MAX {
                // SAFETY: The lock is held for reading; what is found is valid as long.
                let vma = unsafe {
                    let vma = bindings::find_vma(self.mm.as_raw(), address);
                    match NonNull::new(vma) {
                        None => return Ok(()),
                        Some(vma) => VmaRef::from_raw(vma.as_ptr()),
                    }
                };
                address = vma.end();
                if vma.flags() & flags::EXEC != 0 {
                    look(seen(vma))?;
                }
            }
            Ok(())
        })
    }

    /// Reads the process's arguments as far as they are in memory, from the beginning of
    /// `room` on; what is left of it is zero. Task context, sleeps.
    pub(crate) fn read_args(&self, room: &mut [u64]) -> Args {
        let mm = self.mm.as_raw();
        // SAFETY: The address space is ours to look at; these are plain numbers, that a
        // `prctl(2)` may change.
        let (start, end) = unsafe {
            let fields = &raw const (*mm).__bindgen_anon_1;
            (
                (&raw const (*fields).arg_start).read_volatile(),
                (&raw const (*fields).arg_end).read_volatile(),
            )
        };
        let bytes = end.saturating_sub(start);
        let out = room.as_mut_bytes();
        let most = bytes.min(out.len());
        let mut found = 0;
        // A task that waits for the lock would wait inside, too, but can be killed there.
        if most != 0 && self.locked(|| Ok(())).is_ok() {
            // SAFETY: `room` has `most` bytes; the task is held. Nothing is faulted in.
            let read = unsafe {
                bindings::access_process_vm(
                    self.task.as_ptr(),
                    start,
                    out.as_mut_ptr().cast(),
                    most as c_int,
                    bindings::FOLL_NOFAULT,
                )
            };
            found = usize::try_from(read).unwrap_or(0).min(most);
        }
        if let Some(rest) = out.get_mut(found..) {
            rest.fill(0);
        }
        cond_resched();
        Args {
            found,
            is_cut: found < bytes,
        }
    }
}

/// The description of a mapping whose address space is locked.
fn seen(vma: &VmaRef) -> Seen {
    // SAFETY: The mapping is locked: its file is fixed, and held by it, and that holds its
    // inode.
    let (pages, file) = unsafe {
        let raw = vma.as_ptr();
        let file = NonNull::new((*raw).vm_file).and_then(|file| {
            let inode = NonNull::new((*file.as_ptr()).f_inode)?;
            Some(Program {
                key: FileKey::of(inode),
                file: HeldFile::take(file),
            })
        });
        ((*raw).vm_pgoff, file)
    };
    Seen {
        start: vma.start() as u64,
        end: vma.end() as u64,
        file_offset: (pages as u64) << bindings::PAGE_SHIFT,
        file,
    }
}
