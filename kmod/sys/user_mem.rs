// SPDX-License-Identifier: GPL-2.0-only
//! The current task's memory: reads that never fault, for handlers, and one that does, for a task
//! on its way back to user space ([`fetch`]).
//!
//! A uprobe handler runs inside a tasks-trace read section: a page that never arrives (userfaultfd,
//! FUSE) would hold up every uprobe and BPF detach on the machine. `copy_from_user_nofault`
//! disables page faults instead, and returns -EFAULT for a page that is not present.

use super::{
    helpers,
    task::Current, //
};
use core::{cell::Cell, mem::MaybeUninit};
use kernel::{
    bindings,
    types::NotThreadSafe, //
};

/// The memory is not present, or is not user memory.
#[derive(Debug)]
pub(crate) struct Fault;

/// Keeps page faults of this task disabled while it lives: for many short reads.
pub(crate) struct NoFaults {
    /// The address of the last read that failed.
    missed: Cell<Option<u64>>,
    _of_this_task: NotThreadSafe,
}

impl NoFaults {
    /// Disables page faults.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        // SAFETY: `drop` takes it back, in the same task.
        unsafe { Current::get().add_to_disabled_page_faults(1) };
        NoFaults {
            missed: Cell::new(None),
            _of_this_task: NotThreadSafe,
        }
    }

    /// The address of the last read that failed.
    pub(crate) fn missed(&self) -> Option<u64> {
        self.missed.get()
    }

    /// The task's thread pointer. The kernel itself does not use the register that holds it.
    pub(crate) fn thread_pointer(&self) -> u64 {
        // SAFETY: It reads a register, which is that of this task as long as `self` is here.
        unsafe { helpers::nsprobe_thread_pointer() }
    }

    #[cold]
    pub(super) fn miss(&self, address: u64) -> Fault {
        self.missed.set(Some(address));
        Fault
    }

    /// The word at user address `address`.
    pub(crate) fn word(&self, address: u64) -> Result<u64, Fault> {
        let mut word = 0;
        // SAFETY: `word` is valid for writes; the address is checked, may be any, and a
        // page that is not there is an error, as page faults are off.
        let read = unsafe { helpers::nsprobe_read_word(&mut word, address as *const u64) };
        match read {
            true => Ok(word),
            false => Err(self.miss(address)),
        }
    }

    /// The two words at user address `address`.
    #[inline(always)]
    pub(crate) fn pair(&self, address: u64) -> Result<[u64; 2], Fault> {
        let mut pair = MaybeUninit::uninit();
        // SAFETY: As for `word`.
        let read = unsafe { helpers::nsprobe_read_pair(pair.as_mut_ptr(), address as *const u64) };
        match read {
            // SAFETY: Both words were written.
            true => Ok(unsafe { pair.assume_init() }),
            false => Err(self.miss(address)),
        }
    }
}

impl Drop for NoFaults {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `new` has disabled them once for this.
        unsafe { Current::get().add_to_disabled_page_faults(-1) };
    }
}

/// The word at a user address. Any context of a user task.
#[inline(always)]
pub(crate) fn word(address: u64) -> Option<u64> {
    let mut word = 0;
    // SAFETY: `word` is valid for writes; the address is checked, may be any, and a page that is
    // not there is an error.
    let read = unsafe { helpers::nsprobe_read_word_nofault(&mut word, address as *const u64) };
    read.then_some(word)
}

/// Fills `out` from user address `address`. Any context of a user task.
pub(crate) fn read(address: u64, out: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: `out` is valid for writes of its length; the source is checked by
    // `copy_from_user_nofault` itself and may be any address.
    let left = unsafe {
        bindings::copy_from_user_nofault(
            out.as_mut_ptr().cast(),
            address as *const core::ffi::c_void,
            out.len(),
        )
    };
    match left {
        0 => Ok(()),
        _ => Err(Fault),
    }
}

/// Bytes that [`NoFaults::pair`] reads.
pub(crate) const PAIR_BYTES: u64 = 16;

/// The first and the last of `bytes` bytes at `address`.
pub(super) fn ends_of_read(address: u64, bytes: u64) -> [u64; 2] {
    [address, address.wrapping_add(bytes.saturating_sub(1))]
}

/// Fetches `bytes` bytes at `address`, which are on two pages at most, as far as possible. Task
/// context of a user task, outside of handlers: it sleeps until the pages are present.
pub(crate) fn fetch(address: u64, bytes: u64) -> Result<(), Fault> {
    for at in ends_of_read(address, bytes) {
        let mut byte = 0u8;
        // SAFETY: `byte` is valid for writes; the address is checked, and may be any.
        let left = unsafe {
            bindings::_copy_from_user(
                core::ptr::from_mut(&mut byte).cast(),
                at as *const core::ffi::c_void,
                1,
            )
        };
        if left != 0 {
            return Err(Fault);
        }
    }
    Ok(())
}

/// Writes `bytes` to user address `address`. A page that is not present, not writable, or shared
/// with a file or another process until it is written stays unchanged. Any context of a user task.
pub(crate) fn write(address: u64, bytes: &[u8]) -> Result<(), Fault> {
    // SAFETY: `bytes` is valid for reads of its length; the destination is checked by
    // `copy_to_user_nofault` itself and may be any address.
    let left = unsafe {
        bindings::copy_to_user_nofault(
            address as *mut core::ffi::c_void,
            bytes.as_ptr().cast(),
            bytes.len(),
        )
    };
    match left {
        0 => Ok(()),
        _ => Err(Fault),
    }
}
