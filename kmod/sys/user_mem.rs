// SPDX-License-Identifier: GPL-2.0-only
//! Reads of the current task's memory that never fault.
//!
//! A uprobe handler runs inside a tasks-trace read section: a page that never
//! arrives (userfaultfd, FUSE) would hold up every uprobe and BPF detach on the
//! machine. `copy_from_user_nofault` disables page faults instead, and answers
//! -EFAULT for a page that is not there.

use super::shim;
use core::mem::MaybeUninit;
use kernel::{
    bindings,
    types::NotThreadSafe, //
};
use zerocopy::{FromBytes, IntoBytes};

/// The memory is not there, or not the user's.
#[derive(Debug)]
pub(crate) struct Fault;

/// Page faults of this task are off while it lives: for many short reads.
pub(crate) struct NoFaults(NotThreadSafe);

impl NoFaults {
    /// Turns them off.
    pub(crate) fn new() -> Self {
        // SAFETY: Counted per task; `drop` gives it back, in the same task.
        unsafe { shim::nsprobe_pagefault_disable() };
        NoFaults(NotThreadSafe)
    }

    /// The word at user address `address`.
    pub(crate) fn word(&self, address: u64) -> Result<u64, Fault> {
        let mut word = 0;
        // SAFETY: `word` is valid for writes; the address is checked, may be any, and a
        // page that is not there is an error, as page faults are off.
        let read = unsafe { shim::nsprobe_read_word(&mut word, address as *const u64) };
        read.then_some(word).ok_or(Fault)
    }

    /// The two words at user address `address`.
    #[inline(always)]
    pub(crate) fn pair(&self, address: u64) -> Result<[u64; 2], Fault> {
        let mut pair = MaybeUninit::uninit();
        // SAFETY: As for `word`.
        let read = unsafe { shim::nsprobe_read_pair(pair.as_mut_ptr(), address as *const u64) };
        match read {
            // SAFETY: Both words were written.
            true => Ok(unsafe { pair.assume_init() }),
            false => Err(Fault),
        }
    }
}

impl Drop for NoFaults {
    fn drop(&mut self) {
        // SAFETY: `new` has disabled them once for this.
        unsafe { shim::nsprobe_pagefault_enable() };
    }
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

/// Writes `bytes` to user address `address`. A page that is not there, not writable,
/// or shared with a file or another process until it is written stays as it is. Any
/// context of a user task.
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

/// The value at user address `address`.
pub(crate) fn read_value<T: FromBytes + IntoBytes + Default>(address: u64) -> Result<T, Fault> {
    let mut value = T::default();
    read(address, value.as_mut_bytes())?;
    Ok(value)
}
