// SPDX-License-Identifier: GPL-2.0-only
//! Structs that come from user space and go back there, by the rule of
//! `copy_struct_from_user`: a shorter one is filled up with zeroes, a longer one
//! may only have zeroes behind what we know.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    uaccess::{UserPtr, UserSlice}, //
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A type that requests are made of.
pub(crate) trait Plain: FromBytes + IntoBytes + Immutable + Default {}
impl<T: FromBytes + IntoBytes + Immutable + Default> Plain for T {}

/// A request, and how much of it the caller knows.
pub(crate) struct Request<T> {
    pub(crate) value: T,
    at: UserPtr,
    size: usize,
}

impl<T: Plain> Request<T> {
    /// Reads the struct at `at`, whose first field tells its size. It is read once:
    /// a caller that changes it meanwhile cannot make us see two of them.
    pub(crate) fn read(at: UserPtr) -> Result<Self> {
        let mut size = 0u32;
        UserSlice::new(at, size_of::<u32>())
            .reader()
            .read_slice(size.as_mut_bytes())?;
        let size = size as usize;
        let mut value = read_sized::<T>(at, size)?;
        // The field may have changed since; what counts is what was read.
        if let Some(field) = value.as_mut_bytes().first_chunk_mut() {
            *field = (size as u32).to_ne_bytes();
        }
        Ok(Request { value, at, size })
    }

    /// Writes the struct back, as far as the caller knows it.
    pub(crate) fn write_back(&self) -> Result {
        write_sized(&self.value, self.at, self.size)
    }
}

/// Reads a `T` of which the caller knows `size` bytes.
fn read_sized<T: Plain>(at: UserPtr, size: usize) -> Result<T> {
    // The first version of every struct is the one that we know.
    if size < size_of::<T>() {
        return Err(EINVAL);
    }
    if size > PAGE_SIZE {
        return Err(E2BIG);
    }
    let mut reader = UserSlice::new(at, size).reader();
    let mut value = T::default();
    reader.read_slice(value.as_mut_bytes())?;
    let mut rest = [0u8; 64];
    while !reader.is_empty() {
        let count = reader.len().min(rest.len());
        let chunk = rest.get_mut(..count).ok_or(EINVAL)?;
        reader.read_slice(chunk)?;
        if chunk.iter().any(|&byte| byte != 0) {
            return Err(E2BIG);
        }
    }
    Ok(value)
}

/// Writes what the caller knows of `value`: the first `size` bytes.
fn write_sized<T: Plain>(value: &T, at: UserPtr, size: usize) -> Result {
    let bytes = value.as_bytes();
    let bytes = bytes.get(..size.min(bytes.len())).ok_or(EINVAL)?;
    UserSlice::new(at, bytes.len()).writer().write_slice(bytes)
}

/// An array of structs in user space.
pub(crate) struct Array {
    at: UserPtr,
    stride: usize,
    count: u32,
}

impl Array {
    /// `count` structs of `stride` bytes at address `at`, between one and `max`.
    pub(crate) fn new(at: u64, stride: u32, count: u32, max: u32) -> Result<Self> {
        if count == 0 || count > max {
            return Err(EINVAL);
        }
        Ok(Array {
            at: UserPtr::from_addr(usize::try_from(at)?),
            stride: stride as usize,
            count,
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    fn place(&self, index: u32) -> UserPtr {
        self.at
            .wrapping_byte_add(self.stride.wrapping_mul(index as usize))
    }

    /// Reads one.
    pub(crate) fn read<T: Plain>(&self, index: u32) -> Result<T> {
        read_sized(self.place(index), self.stride)
    }

    /// Writes one.
    pub(crate) fn write<T: Plain>(&self, index: u32, value: &T) -> Result {
        write_sized(value, self.place(index), self.stride)
    }
}
