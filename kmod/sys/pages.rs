// SPDX-License-Identifier: GPL-2.0-only
//! The memory of one ring, and its mappings in the reader.
//!
//! ```text
//!   page 0       page 1       page 2 …
//!   consumer     producer     data
//!   read/write   ─────── read-only ───────
//! ```
//!
//! The reader may write the consumer page at any time, so it is only ever read
//! as one atomic word. The data is written by the kernel alone.

use super::{
    helpers, //
    memory::REQUEST_ZEROED,
};
use crate::common::ring::{ConsumerPage, Geometry, ProducerPage};
use core::{
    ffi::c_int,
    mem::offset_of,
    sync::atomic::{AtomicU64, Ordering}, //
};
use kernel::{
    bindings,
    mm::virt::VmaNew,
    page::PAGE_SIZE,
    prelude::*, //
};

const WORD: usize = size_of::<u64>();

/// The pages of one ring.
///
/// # Invariants
///
/// `memory` has room for two pages and `geometry.data_bytes()` bytes of data,
/// zeroed when it was allocated, and is never pushed to.
pub(crate) struct RingPages {
    memory: VVec<u64>,
    geometry: Geometry,
}

impl RingPages {
    /// Zeroed pages for a ring whose data is a multiple of a page.
    pub(crate) fn new(geometry: Geometry) -> Result<Self> {
        let data = usize::try_from(geometry.data_bytes())?;
        if data % PAGE_SIZE != 0 {
            return Err(EINVAL);
        }
        let bytes = data.checked_add(2 * PAGE_SIZE).ok_or(EINVAL)?;
        // SAFETY: We may sleep: a request makes rings.
        let memory = unsafe { helpers::nsprobe_vmalloc(bytes, REQUEST_ZEROED) }.cast::<u64>();
        if memory.is_null() {
            return Err(ENOMEM);
        }
        // INVARIANT: vmalloc gives whole zeroed pages.
        let pages = RingPages {
            // SAFETY: vmalloc has allocated `bytes`, which begin at a page, are a multiple of
            // a page and fewer than `isize::MAX` (`RING_BYTES_MAX`); nothing else refers to
            // them. `Vmalloc`, the allocator of `VVec`, only frees them, by `vfree()`, as the
            // vector is never pushed to.
            memory: unsafe { VVec::from_raw_parts(memory, 0, bytes / WORD) },
            geometry,
        };
        let data_bytes = PAGE_SIZE + offset_of!(ProducerPage, data_bytes);
        pages
            .word(data_bytes)
            .store(geometry.data_bytes(), Ordering::Relaxed);
        Ok(pages)
    }

    /// Bytes of all pages: the distance of two rings in the device's file.
    pub(crate) fn stride(geometry: Geometry) -> u64 {
        (2 * PAGE_SIZE as u64).saturating_add(geometry.data_bytes())
    }

    /// The word at byte offset `at` of the memory; the first word if the offset is out of range,
    /// which no caller passes.
    fn word(&self, at: usize) -> &AtomicU64 {
        let at = if at / WORD < self.memory.capacity() {
            at / WORD
        } else {
            0
        };
        // SAFETY: By the invariant `at` is inside the allocation, which is aligned for
        // u64 and zeroed. All accesses to words that others may touch are atomic.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().cast_mut().add(at)) }
    }

    fn data_word(&self, position: u64) -> &AtomicU64 {
        self.word((2 * PAGE_SIZE).wrapping_add(self.geometry.index(position)))
    }

    /// The reader's position, as the reader wrote it; it is not trusted.
    pub(crate) fn consumer(&self) -> u64 {
        let at = offset_of!(ConsumerPage, position);
        self.word(at).load(Ordering::Acquire)
    }

    /// Sets the reader's position, for a reader that uses `read()`.
    pub(crate) fn set_consumer(&self, position: u64) {
        let at = offset_of!(ConsumerPage, position);
        self.word(at).store(position, Ordering::Release);
    }

    /// Publishes the position up to which space is reserved.
    pub(crate) fn set_producer(&self, position: u64) {
        let at = PAGE_SIZE + offset_of!(ProducerPage, position);
        self.word(at).store(position, Ordering::Release);
    }

    /// Publishes the number of lost records.
    pub(crate) fn set_lost(&self, lost: u64) {
        let at = PAGE_SIZE + offset_of!(ProducerPage, lost);
        self.word(at).store(lost, Ordering::Relaxed);
    }

    /// Publishes the number of overwritten hits.
    pub(crate) fn set_overwritten(&self, count: u64) {
        let at = PAGE_SIZE + offset_of!(ProducerPage, overwritten);
        self.word(at).store(count, Ordering::Relaxed);
    }

    /// The record header at `position`.
    pub(crate) fn header(&self, position: u64) -> u64 {
        self.data_word(position).load(Ordering::Acquire)
    }

    /// Writes the record header at `position`; earlier writes are visible to every CPU that sees
    /// it.
    pub(crate) fn set_header(&self, position: u64, header: u64) {
        self.data_word(position).store(header, Ordering::Release);
    }

    /// Writes a record that publishing makes visible: its header, a first part of its body, of a fixed
    /// length, and others.
    #[inline(always)]
    pub(crate) fn write_record<const N: usize>(
        &self,
        position: u64,
        header: u64,
        first: &[u64; N],
        parts: &[&[u64]],
    ) {
        let words = parts
            .iter()
            .fold(N.wrapping_add(1), |sum, part| sum.wrapping_add(part.len()));
        let index = self.geometry.index(position) / WORD;
        let room = (self.geometry.data_bytes() as usize / WORD).saturating_sub(index);
        if words > room {
            self.write_around(position, header, first, parts);
            return;
        }
        let data = self.data();
        let mut at = index;
        let mut put = |word: u64| {
            // SAFETY: `at` is less than `index + words`, as that many are put, which is within the
            // data; further as in `copy_in`.
            unsafe { data.add(at).write_volatile(word) };
            at = at.wrapping_add(1);
        };
        put(header);
        first.iter().for_each(|word| put(*word));
        parts
            .iter()
            .for_each(|part| part.iter().for_each(|word| put(*word)));
    }

    #[cold]
    #[inline(never)]
    fn write_around(&self, position: u64, header: u64, first: &[u64], parts: &[&[u64]]) {
        self.write(position, &[header]);
        self.write_parts(position.wrapping_add(WORD as u64), first, parts);
    }

    /// Copies these parts, one after the other, to `position`, wrapping at the end.
    pub(crate) fn write_parts(&self, position: u64, first: &[u64], parts: &[&[u64]]) {
        let mut to = position;
        for part in Iterator::chain(core::iter::once(first), parts.iter().copied()) {
            self.write(to, part);
            to = to.wrapping_add(size_of_val(part) as u64);
        }
    }

    /// The first word of data.
    fn data(&self) -> *mut u64 {
        // SAFETY: By the invariant the data begins two pages into the allocation.
        unsafe { self.memory.as_ptr().cast_mut().add(2 * PAGE_SIZE / WORD) }
    }

    /// Copies `words` to `position`, wrapping at the end.
    pub(crate) fn write(&self, position: u64, words: &[u64]) {
        let (index, before) = self.geometry.split(position, size_of_val(words));
        let (first, second) = words
            .split_at_checked(before / WORD)
            .unwrap_or((words, &[]));
        self.copy_in(index / WORD, first);
        self.copy_in(0, second);
    }

    /// Copies word by word: records are short, and the kernel's `memcpy`, a `rep movsb`, takes
    /// longer to start than they take to copy.
    fn copy_in(&self, index: usize, words: &[u64]) {
        let room = (self.geometry.data_bytes() as usize / WORD).saturating_sub(index);
        let data = self.data();
        for (step, word) in (0..room).zip(words) {
            // SAFETY: `index + step` is less than the words of data. No Rust reference to
            // them exists; the range was reserved for this writer, and the reader may not
            // look at it before its header says so. Volatile, so that the loop stays one.
            unsafe { data.add(index.wrapping_add(step)).write_volatile(*word) };
        }
    }

    /// Copies the committed record bytes at `position` to `out`.
    pub(crate) fn read(&self, position: u64, out: &mut [u8]) {
        let (index, before) = self.geometry.split(position, out.len());
        if let Some((first, second)) = out.split_at_mut_checked(before) {
            self.copy_out(index, first);
            self.copy_out(0, second);
        }
    }

    fn copy_out(&self, index: usize, out: &mut [u8]) {
        let room = (self.geometry.data_bytes() as usize).saturating_sub(index);
        let count = out.len().min(room);
        // SAFETY: As in `copy_in`; the caller read the header of a committed record
        // that it has not given back, so no writer touches the range.
        unsafe {
            let data = self.memory.as_ptr().cast::<u8>().add(2 * PAGE_SIZE);
            core::ptr::copy_nonoverlapping(data.add(index), out.as_mut_ptr(), count);
        }
    }

    /// Maps pages of the ring into `vma`, which begins at page `first` of them: the consumer page
    /// alone (it may be writable), or all others, or the data (read-only).
    pub(crate) fn map(&self, first: usize, vma: &VmaNew) -> Result {
        let data_pages = self.geometry.data_bytes() as usize / PAGE_SIZE;
        let count = vma.end().saturating_sub(vma.start()) / PAGE_SIZE;
        match (first, count) {
            (0, 1) => {}
            (1, n) if n == data_pages.saturating_add(1) => vma.try_clear_maywrite()?,
            (2, n) if n == data_pages => vma.try_clear_maywrite()?,
            _ => return Err(EINVAL),
        }
        vma.try_clear_mayexec()?;
        // Children and core dumps do not get the ring, and it cannot grow.
        vma.set_dontcopy();
        vma.set_dontexpand();
        vma.set_dontdump();
        // SAFETY: The VMA is being set up by our `mmap`, so its operations are ours to
        // give; the table is static.
        unsafe { (*vma.as_ptr()).vm_ops = &raw const RING_VM_OPS.0 };
        for page in 0..count {
            self.insert(first.saturating_add(page), vma, page)?;
        }
        Ok(())
    }

    fn insert(&self, from: usize, vma: &VmaNew, to: usize) -> Result {
        let address = vma.start().saturating_add(to.saturating_mul(PAGE_SIZE));
        let at = self.word(from.saturating_mul(PAGE_SIZE));
        // SAFETY: The word lies in vmalloc memory, which gives its page; the VMA is
        // being set up and `address` is inside of it. The mapping takes a reference of
        // the page, so it stays valid after the ring is gone.
        kernel::error::to_result(unsafe {
            let page = bindings::vmalloc_to_page(core::ptr::from_ref(at).cast());
            bindings::vm_insert_page(vma.as_ptr(), address, page)
        })
    }
}

/// The operations of a ring's mapping.
struct VmOps(bindings::vm_operations_struct);

// SAFETY: The table is never written.
unsafe impl Sync for VmOps {}

static RING_VM_OPS: VmOps = VmOps(bindings::vm_operations_struct {
    may_split: Some(refuse_split),
    // SAFETY: `vm_operations_struct` is plain function pointers; none is allowed.
    ..unsafe { core::mem::zeroed() }
});

/// A ring is mapped and unmapped as a whole.
///
/// # Safety
///
/// None: the arguments are not looked at.
unsafe extern "C" fn refuse_split(_vma: *mut bindings::vm_area_struct, _address: usize) -> c_int {
    EINVAL.to_errno()
}
