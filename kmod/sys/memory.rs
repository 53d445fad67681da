// SPDX-License-Identifier: GPL-2.0-only
//! Memory that requests allocate. The caller chooses the size, so it is accounted to the caller's
//! control group. A request for which there is too little memory gets `ENOMEM`, without a warning
//! and without the OOM killer.

use super::helpers;
use kernel::{
    alloc::{
        flags::__GFP_ZERO,
        Flags, //
    },
    bindings,
    cpu::nr_cpu_ids,
    page::PAGE_SIZE,
    prelude::*, //
};
use zerocopy::FromZeros;

/// The flags of all allocations of requests: accounted, without a warning or the OOM killer.
const REQUEST: u32 =
    bindings::GFP_KERNEL_ACCOUNT | bindings::__GFP_NOWARN | 1 << bindings::___GFP_RETRY_MAYFAIL_BIT;

/// As `REQUEST`, with all bytes zero.
pub(super) const REQUEST_ZEROED: u32 = REQUEST | bindings::__GFP_ZERO;

/// `REQUEST` for the kernel crate's functions.
// SAFETY: `Flags` is a `u32` and nothing else (their sizes are the same, or this would not
// compile), and any bits are flags. The kernel crate has no name for one of them.
pub(crate) const GFP_REQUEST: Flags = unsafe { core::mem::transmute::<u32, Flags>(REQUEST) };

/// `ENOMEM` if the machine has fewer than `bytes` available. An allocation may still fail, as other
/// processes allocate meanwhile; but one that cannot succeed takes nothing from them.
pub(crate) fn look_for(bytes: u64) -> Result {
    // SAFETY: It only reads counters.
    let pages = u64::try_from(unsafe { bindings::si_mem_available() }).unwrap_or(0);
    match bytes / PAGE_SIZE as u64 <= pages {
        true => Ok(()),
        false => Err(ENOMEM),
    }
}

/// While this lives, the OOM killer kills the current process before all others. The allocations of
/// requests do not invoke it, but those of other processes may, if too little is left for them.
pub(crate) struct Blamed(());

impl Blamed {
    /// Starts now.
    pub(crate) fn new() -> Self {
        // SAFETY: Task context.
        unsafe { helpers::nsprobe_oom_origin(true) };
        Blamed(())
    }
}

impl Drop for Blamed {
    fn drop(&mut self) {
        // SAFETY: Task context.
        unsafe { helpers::nsprobe_oom_origin(false) };
    }
}

/// Allocates room for `count` values. Task context, sleeps.
pub(crate) fn room<T>(count: usize) -> Result<KVVec<T>> {
    take(count, false)
}

/// Allocates `count` values whose bytes are all zero. Task context, sleeps.
pub(crate) fn zeroed<T: FromZeros>(count: usize) -> Result<KVVec<T>> {
    let mut all = take(count, true)?;
    // SAFETY: There is room for `count`, and its bytes are zero, which `T` allows.
    unsafe { all.inc_len(count) };
    Ok(all)
}

/// Appends one value; doubles the room if it is full.
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

/// Appends one value, for which there is room.
fn put<T>(all: &mut KVVec<T>, value: T) -> Result {
    all.push_within_capacity(value).map_err(|_| ENOMEM)
}

/// Makes `count` values, each by `make` for its index. Task context, sleeps.
pub(crate) fn made<T>(
    count: usize,
    make: impl FnMut(usize) -> Result<T>, //
) -> Result<KVVec<T>> {
    let mut all = room(count)?;
    for value in (0..count).map(make) {
        put(&mut all, value?)?;
    }
    Ok(all)
}

/// Makes one value for each possible CPU. Task context, sleeps.
pub(crate) fn made_for_each_cpu<T>(mut make: impl FnMut() -> Result<T>) -> Result<KVVec<T>> {
    made(nr_cpu_ids() as usize, |_| make())
}

/// Allocates room for `count` values, whose bytes are zero if `is_zeroed`.
fn take<T>(count: usize, is_zeroed: bool) -> Result<KVVec<T>> {
    const { assert!(align_of::<T>() <= PAGE_SIZE) };
    let bytes = count.checked_mul(size_of::<T>()).ok_or(ENOMEM)?;
    let (flags, bits) = match is_zeroed {
        true => (GFP_REQUEST | __GFP_ZERO, REQUEST_ZEROED),
        false => (GFP_REQUEST, REQUEST),
    };
    if bytes <= PAGE_SIZE {
        return Ok(KVVec::with_capacity(count, flags)?);
    }
    let bytes = bytes
        .checked_next_multiple_of(PAGE_SIZE)
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or(ENOMEM)?;
    look_for(bytes as u64)?;
    let _blamed = Blamed::new();
    // SAFETY: Task context: requests are.
    let memory = unsafe { helpers::nsprobe_kvmalloc(bytes, bits) }.cast::<T>();
    if memory.is_null() {
        return Err(ENOMEM);
    }
    // SAFETY: It is `kmalloc`'s or `vmalloc`'s, as all that `KVmalloc` allocates. Of a multiple of
    // a page both begin where a page does. There is room for `count`, of which none is there.
    Ok(unsafe { KVVec::from_raw_parts(memory, 0, count) })
}
