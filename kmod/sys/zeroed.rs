// SPDX-License-Identifier: GPL-2.0-only
//! Vectors of zeroes, as the allocator gives them: large ones are made for a session.

use core::sync::atomic::{AtomicU32, AtomicU64};
use kernel::{alloc::flags::__GFP_ZERO, prelude::*};

/// What is valid when all its bytes are zero.
///
/// # Safety
///
/// That must be so, and the type must not need to be dropped.
pub(crate) unsafe trait Zero: Sized {}

// SAFETY: A number.
unsafe impl Zero for AtomicU32 {}
// SAFETY: A number.
unsafe impl Zero for AtomicU64 {}
// SAFETY: Only numbers.
unsafe impl Zero for super::user_mem::Step {}

/// So many zeroes. Task context.
pub(crate) fn zeroed<T: Zero>(count: usize) -> Result<KVVec<T>> {
    let flags = GFP_KERNEL_ACCOUNT | __GFP_ZERO;
    let mut all = KVVec::<T>::with_capacity(count, flags)?;
    // SAFETY: There is room for so many, and its bytes are zero, which `T` allows.
    unsafe { all.inc_len(count) };
    Ok(all)
}
