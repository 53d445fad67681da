// SPDX-License-Identifier: GPL-2.0-only
//! Structs that are copied from and to user space by the rule of `copy_struct_from_user`: a shorter
//! one is padded with zeroes, a longer one may only have zeroes after what the module knows.

use crate::{
    common::{
        abi,
        program::Step,
        unwind::Rule, //
    },
    sys::{
        cond_resched,
        memory, //
    },
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    uaccess::{UserPtr, UserSlice}, //
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes that are copied from user space before other tasks may run.
const CHUNK_BYTES: usize = 1 << 20;

/// A type that requests are made of.
pub(crate) trait Plain: FromBytes + IntoBytes + Immutable + Default + Copy {
    /// Bytes of its first version: the minimum that a caller must know.
    const BYTES_V1: usize = size_of::<Self>();
}

impl Plain for u32 {}
impl Plain for u8 {}
impl Plain for Step {}
impl Plain for abi::Info {}
impl Plain for abi::Setup {}
impl Plain for abi::Filter {
    const BYTES_V1: usize = abi::FILTER_BYTES_V1;
}
impl Plain for abi::Attach {}
impl Plain for abi::Detach {}
impl Plain for abi::Object {}
impl Plain for abi::Program {}
impl Plain for abi::Table {}
impl Plain for abi::Rows {}
impl Plain for abi::DropSpans {}
impl Plain for abi::SpanOwner {}
impl Plain for abi::Freeze {}
impl Plain for abi::Unwind {}
impl Plain for abi::Stack {}
impl Plain for abi::Tasks {}
impl Plain for abi::TaskDump {}
impl Plain for abi::CpuTimes {}
impl Plain for abi::TaskCounters {}
impl Plain for abi::Hold {}
impl Plain for abi::Held {}
impl Plain for Rule {}
impl Plain for abi::File {}
impl Plain for abi::PidNamespace {}
impl Plain for abi::Probe {
    const BYTES_V1: usize = abi::PROBE_BYTES_V1;
}
impl Plain for abi::Counters {
    const BYTES_V1: usize = abi::COUNTERS_BYTES_V1;
}

/// A request, and the number of its bytes that the caller knows.
pub(crate) struct UserStruct<T> {
    pub(crate) value: T,
    at: UserPtr,
    size: usize,
}

impl<T: Plain> UserStruct<T> {
    /// Reads the struct at `at`, whose first field is its size. It is read once: a caller that
    /// changes it meanwhile cannot make the module see two different sizes.
    pub(crate) fn read(at: UserPtr) -> Result<Self> {
        let mut size = 0u32;
        UserSlice::new(at, size_of::<u32>())
            .reader()
            .read_slice(size.as_mut_bytes())?;
        let size = size as usize;
        let mut value = read_sized::<T>(at, size)?;
        // The field may have changed since; the size that was read first is valid.
        if let Some(field) = value.as_mut_bytes().first_chunk_mut() {
            *field = (size as u32).to_ne_bytes();
        }
        Ok(UserStruct { value, at, size })
    }

    /// Writes the part of the struct that the caller knows back.
    pub(crate) fn write_back(&self) -> Result {
        write_sized(&self.value, self.at, self.size)
    }
}

/// Reads a `T` of which the caller knows `size` bytes.
fn read_sized<T: Plain>(at: UserPtr, size: usize) -> Result<T> {
    if size < T::BYTES_V1 {
        return Err(EINVAL);
    }
    if size > PAGE_SIZE {
        return Err(E2BIG);
    }
    let mut reader = UserSlice::new(at, size).reader();
    let mut value = T::default();
    let known = size.min(size_of::<T>());
    reader.read_slice(value.as_mut_bytes().get_mut(..known).ok_or(EINVAL)?)?;
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

/// Writes the part of `value` that the caller knows: the first `size` bytes.
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
    /// An array of `count` structs of `stride` bytes at address `at`; `count` is from one to `max`.
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

    /// Reads all structs.
    pub(crate) fn read_all<T: Plain>(&self) -> Result<KVVec<T>> {
        memory::made(self.count as usize, |index| self.read(index as u32))
    }

    /// Reads all structs, of a type that the caller and the module know alike.
    pub(crate) fn read_plain<T: Plain>(&self) -> Result<KVVec<T>> {
        if self.stride != size_of::<T>() {
            return Err(EINVAL);
        }
        let count = self.count as usize;
        let mut all = memory::zeroed::<T>(count)?;
        let mut at = self.at;
        for chunk in all.chunks_mut(CHUNK_BYTES / size_of::<T>()) {
            let bytes = chunk.as_mut_bytes();
            UserSlice::new(at, bytes.len()).reader().read_slice(bytes)?;
            at = at.wrapping_byte_add(bytes.len());
            cond_resched();
        }
        Ok(all)
    }

    /// The number of structs.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    fn place(&self, index: u32) -> UserPtr {
        self.at
            .wrapping_byte_add(self.stride.wrapping_mul(index as usize))
    }

    /// Reads the struct at `index`.
    pub(crate) fn read<T: Plain>(&self, index: u32) -> Result<T> {
        read_sized(self.place(index), self.stride)
    }

    /// Writes the struct at `index`.
    pub(crate) fn write<T: Plain>(&self, index: u32, value: &T) -> Result {
        write_sized(value, self.place(index), self.stride)
    }
}
