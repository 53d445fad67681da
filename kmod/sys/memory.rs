// SPDX-License-Identifier: GPL-2.0-only
//! Memory that requests take. How much that is, the caller says; so it is accounted to the
//! caller, and where memory lacks the request gets `ENOMEM`: the kernel must end no process to
//! make room for what one of them asked for, and has nothing to warn of.

use super::shim;
use kernel::{
    alloc::{
        flags::__GFP_ZERO,
        Flags, //
    },
    bindings,
    page::PAGE_SIZE,
    prelude::*, //
};
use zerocopy::FromZeros;

const RETRY_MAYFAIL: u32 = 1 << bindings::___GFP_RETRY_MAYFAIL_BIT;

/// For all that requests allocate.
// SAFETY: `Flags` is a `u32` and nothing else (their sizes are the same, or this would not
// compile), and any bits are flags. The kernel crate has no name for one of them.
pub(crate) const GFP_REQUEST: Flags = unsafe {
    core::mem::transmute::<u32, Flags>(
        bindings::GFP_KERNEL_ACCOUNT | bindings::__GFP_NOWARN | RETRY_MAYFAIL,
    )
};

/// `ENOMEM` when it is plain that the machine does not have so many bytes. What it has may be
/// wanted by others a moment later, so that an allocation may fail all the same; but one that
/// cannot succeed takes nothing from them.
pub(crate) fn look_for(bytes: u64) -> Result {
    // SAFETY: It only reads counters.
    let pages = u64::try_from(unsafe { bindings::si_mem_available() }).unwrap_or(0);
    match bytes / PAGE_SIZE as u64 <= pages {
        true => Ok(()),
        false => Err(ENOMEM),
    }
}

/// While it lives the kernel, should it have to end a process for want of memory, ends this
/// one. It may have to although we get `ENOMEM` where memory lacks: others, who take the last
/// of it, need not.
pub(crate) struct Blamed(());

impl Blamed {
    /// From now on.
    pub(crate) fn new() -> Self {
        // SAFETY: Task context.
        unsafe { shim::nsprobe_oom_origin(true) };
        Blamed(())
    }
}

impl Drop for Blamed {
    fn drop(&mut self) {
        // SAFETY: Task context.
        unsafe { shim::nsprobe_oom_origin(false) };
    }
}

/// Room for so many. Task context, sleeps.
pub(crate) fn room<T>(count: usize) -> Result<KVVec<T>> {
    take(count, false)
}

/// So many, all bytes of which are zero. Task context, sleeps.
pub(crate) fn zeroed<T: FromZeros>(count: usize) -> Result<KVVec<T>> {
    let mut all = take(count, true)?;
    // SAFETY: There is room for so many, and its bytes are zero, which `T` allows.
    unsafe { all.inc_len(count) };
    Ok(all)
}

/// Appends one. Where there is no room for it, there will be for as many again.
pub(crate) fn push<T>(all: &mut KVVec<T>, value: T) -> Result {
    if all.len() == all.capacity() {
        let mut larger = room(all.len().saturating_mul(2).max(8))?;
        for value in core::mem::take(all) {
            put(&mut larger, value)?;
        }
        *all = larger;
    }
    put(all, value)
}

/// Appends one, for which there is room.
fn put<T>(all: &mut KVVec<T>, value: T) -> Result {
    all.push_within_capacity(value).map_err(|_| ENOMEM)
}

/// So many of a value.
pub(crate) fn filled<T: Clone>(count: usize, value: T) -> Result<KVVec<T>> {
    let mut all = room(count)?;
    for _ in 0..count {
        put(&mut all, value.clone())?;
    }
    Ok(all)
}

/// Room for so many, whose bytes are zero if `is_zeroed`.
fn take<T>(count: usize, is_zeroed: bool) -> Result<KVVec<T>> {
    const { assert!(align_of::<T>() <= PAGE_SIZE) };
    let bytes = count.checked_mul(size_of::<T>()).ok_or(ENOMEM)?;
    if bytes <= PAGE_SIZE {
        let flags = match is_zeroed {
            true => GFP_REQUEST | __GFP_ZERO,
            false => GFP_REQUEST,
        };
        return Ok(KVVec::with_capacity(count, flags)?);
    }
    let bytes = bytes
        .checked_next_multiple_of(PAGE_SIZE)
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or(ENOMEM)?;
    look_for(bytes as u64)?;
    let _blamed = Blamed::new();
    // SAFETY: Task context: requests are.
    let memory = unsafe { shim::nsprobe_kvmalloc(bytes, is_zeroed) }.cast::<T>();
    if memory.is_null() {
        return Err(ENOMEM);
    }
    // SAFETY: It is `kmalloc`'s or `vmalloc`'s, as all that `KVmalloc` allocates. Of a multiple of
    // a page both begin where a page does. There is room for `count`, of which none is there.
    Ok(unsafe { KVVec::from_raw_parts(memory, 0, count) })
}
