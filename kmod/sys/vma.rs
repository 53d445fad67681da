// SPDX-License-Identifier: GPL-2.0-only
//! Mappings of the current task, and the files behind them.
//!
//! Nothing here sleeps or faults: a mapping is looked up under its own lock, and
//! when that is contended under a trylock of the mmap lock.

use super::{
    file_ref::HeldFile,
    helpers,
    in_interrupt,
    task::{Current, Mm},
    user_mem::ends_of_read, //
};
use core::{
    ffi::c_void,
    ptr::NonNull,
    sync::atomic::{
        fence,
        AtomicU32,
        Ordering::{Acquire, Relaxed}, //
    },
};
use kernel::{
    bindings,
    mm::virt::{flags, VmaRef}, //
};

/// Identifies a file, well enough to notice that an inode's memory was reused, or that the file was
/// written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileKey {
    address: usize,
    /// Device, as user space numbers it.
    pub(crate) dev: u64,
    /// Inode number.
    pub(crate) ino: u64,
    /// Inode generation.
    pub(crate) generation: u32,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Change time in nanoseconds since 1970.
    pub(crate) ctime_ns: u64,
}

/// `I_CTIME_QUERIED` of include/linux/fs.h: a mark in the nanoseconds of file
/// systems with multigrain timestamps, not part of the time.
const CTIME_QUERIED: u32 = 1 << 31;

impl FileKey {
    /// Of no file.
    pub(crate) const NONE: FileKey = FileKey {
        address: 0,
        dev: 0,
        ino: 0,
        generation: 0,
        bytes: 0,
        ctime_ns: 0,
    };

    /// Whether both are keys of one inode; both must be pinned.
    pub(crate) fn is_inode_of(&self, other: &FileKey) -> bool {
        self.address == other.address
    }

    /// The key of `inode`.
    ///
    /// # Safety
    ///
    /// The inode must be valid during the call.
    pub(super) unsafe fn of(inode: NonNull<bindings::inode>) -> Self {
        let raw = inode.as_ptr();
        // SAFETY: The caller keeps the inode valid. Size and change time may change
        // while they are read; a torn pair differs from every stored one, so that
        // the file is taken for a new one, which is what it is.
        unsafe {
            FileKey {
                address: raw as usize,
                dev: helpers::nsprobe_inode_dev(raw),
                ino: (*raw).i_ino,
                generation: (*raw).i_generation,
                bytes: (*raw).i_size as u64,
                ctime_ns: ((*raw).i_ctime_sec as u64)
                    .wrapping_mul(1_000_000_000)
                    .wrapping_add(u64::from((*raw).i_ctime_nsec & !CTIME_QUERIED)),
            }
        }
    }

    /// The key of a vDSO: of its image in the kernel, identified by the image's address.
    fn of_vdso(image: NonNull<c_void>) -> Self {
        FileKey {
            address: image.as_ptr() as usize,
            dev: 0,
            ino: 0,
            generation: 0,
            bytes: 0,
            ctime_ns: 0,
        }
    }

    /// The key of the current task's vDSO.
    pub(crate) fn of_own_vdso() -> Option<Self> {
        vdso().map(|(image, _)| FileKey::of_vdso(image))
    }

    /// A number to spread keys by.
    pub(crate) fn hash(&self) -> u64 {
        let mixed = (self.address as u64 >> 4) ^ self.ctime_ns.rotate_left(32) ^ self.bytes;
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    }
}

/// A mapping, locked for as long as this borrow lives.
pub(crate) struct Mapping<'a>(&'a VmaRef);

impl<'a> Mapping<'a> {
    /// First address.
    pub(crate) fn start(&self) -> u64 {
        self.0.start() as u64
    }

    /// First address after the mapping.
    pub(crate) fn end(&self) -> u64 {
        self.0.end() as u64
    }

    /// Whether code may run there.
    pub(crate) fn is_executable(&self) -> bool {
        self.0.flags() & flags::EXEC != 0
    }

    /// File offset of the mapping's first byte.
    pub(crate) fn file_offset(&self) -> u64 {
        // SAFETY: The mapping is locked; `vm_pgoff` is written under the write lock only.
        let pages = unsafe { (*self.0.as_ptr()).vm_pgoff };
        (pages as u64) << bindings::PAGE_SHIFT
    }

    /// What is mapped: a file, or the vDSO.
    pub(crate) fn key(&self) -> Option<FileKey> {
        match self.file() {
            Some(file) => file.key(),
            None => vdso()
                .filter(|(_, start)| *start == self.start())
                .map(|(image, _)| FileKey::of_vdso(image)),
        }
    }

    /// Whether it is memory of the process's own, and no userfaultfd serves it.
    pub(crate) fn is_private_memory(&self) -> bool {
        // SAFETY: The mapping is locked.
        unsafe { helpers::nsprobe_is_private_memory(self.0.as_ptr()) }
    }

    /// Whether it is memory, or a file that the kernel itself reads: a page that is not present
    /// comes at once, or from a disk.
    pub(crate) fn is_of_memory_or_disk(&self) -> bool {
        // SAFETY: The mapping is locked.
        unsafe { helpers::nsprobe_is_of_memory_or_disk(self.0.as_ptr()) }
    }

    /// The mapped file: on overlayfs the real one below.
    pub(crate) fn file(&self) -> Option<MappedFile<'a>> {
        // SAFETY: The mapping is locked; `vm_file` is fixed until it is unmapped.
        let file = NonNull::new(unsafe { (*self.0.as_ptr()).vm_file })?;
        Some(MappedFile {
            file,
            _mapping: self.0,
        })
    }
}

/// The file of a locked mapping.
#[derive(Clone, Copy)]
pub(crate) struct MappedFile<'a> {
    file: NonNull<bindings::file>,
    _mapping: &'a VmaRef,
}

impl MappedFile<'_> {
    /// Which file it is.
    pub(crate) fn key(&self) -> Option<FileKey> {
        // SAFETY: The mapping holds the file, and that its inode.
        unsafe { NonNull::new((*self.file.as_ptr()).f_inode).map(|inode| FileKey::of(inode)) }
    }

    /// A reference of one's own.
    pub(crate) fn hold(&self) -> HeldFile {
        // SAFETY: The mapping holds the file.
        unsafe { HeldFile::take(self.file) }
    }
}

/// The vDSO that the current task has: its image, and where that is mapped.
fn vdso() -> Option<(NonNull<c_void>, u64)> {
    let current = kernel::current!();
    let mm = current.mm()?.as_raw();
    let mut start = 0;
    // SAFETY: The current task keeps its address space; the number is ours.
    let image = unsafe { helpers::nsprobe_vdso(mm, &mut start) };
    Some((NonNull::new(image.cast_mut())?, start))
}

/// Looks up the mapping of the current task at `address` and passes it to `look`. `None` if there
/// is none, or if it cannot be locked without waiting.
pub(crate) fn look_up<R>(address: u64, look: impl FnOnce(Mapping<'_>) -> R) -> Option<R> {
    let address = usize::try_from(address).ok()?;
    let current = kernel::current!();
    let mm = current.mm()?;
    if let Some(vma) = mm.lock_vma_under_rcu(address) {
        return Some(look(Mapping(&vma)));
    }
    // Either nothing is mapped there, or the mapping is being changed.
    let locked = mm.mmap_read_trylock()?;
    locked.vma_lookup(address).map(|vma| look(Mapping(vma)))
}

/// Whether all mappings of `bytes` bytes at `address`, which could not be read, are of a kind: a read
/// may extend into another one.
pub(crate) fn is_all(address: u64, bytes: u64, kind: fn(&Mapping<'_>) -> bool) -> bool {
    ends_of_read(address, bytes)
        .iter()
        .all(|&end| look_up(end, |mapping| kind(&mapping)) == Some(true))
}

/// The mappings of an address space at a moment: they have not changed since when its
/// layout is still the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Names the address space, once and for all.
    pub(crate) context: u64,
    /// Counts changes; it comes round after 2^31 of them.
    pub(crate) sequence: u32,
}

impl Layout {
    /// That of the current task. `None` while it is being changed.
    #[inline(always)]
    pub(crate) fn current() -> Option<Layout> {
        let mm = Current::get().mm()?;
        // SAFETY: The current task keeps its address space.
        let (context, changes) = unsafe { (Mm::from_ptr(mm).number(), changes_of(mm)) };
        let sequence = changes.load(Acquire);
        // While it is being changed the count is odd (`mmap_lock_speculate_try_begin()`).
        (sequence % 2 == 0).then_some(Layout { context, sequence })
    }

    /// Whether it is still that of the current task.
    pub(crate) fn holds(&self) -> bool {
        let Some(mm) = Current::get().mm() else {
            return false;
        };
        // As `mmap_lock_speculate_retry()`: what was read before belongs to this count.
        fence(Acquire);
        // SAFETY: The current task keeps its address space.
        unsafe { changes_of(mm) }.load(Relaxed) == self.sequence
    }
}

/// The count of changes of an address space.
///
/// # Safety
///
/// `mm` must stay valid for `'a`.
#[inline(always)]
unsafe fn changes_of<'a>(mm: NonNull<bindings::mm_struct>) -> &'a AtomicU32 {
    // SAFETY: By this function's contract; the kernel reads and writes it as a whole.
    unsafe { AtomicU32::from_ptr(&raw mut (*mm.as_ptr()).__bindgen_anon_1.mm_lock_seq.sequence) }
}

/// Most mappings that [`each_code`] looks at, and in a softirq, which no task can preempt.
const EACH_MAX: usize = 4096;
const EACH_MAX_IN_SOFTIRQ: usize = 256;

/// Passes each executable mapping of the current task to `look`, by rising address, until that
/// returns false. Returns the number of mappings that it looked at, and false if there may be more:
/// there are too many, or they are being changed. Not with interrupts off: it takes long.
pub(crate) fn each_code(mut look: impl FnMut(Mapping<'_>) -> bool) -> (usize, bool) {
    let current = kernel::current!();
    let Some(mm) = current.mm() else {
        return (0, true);
    };
    let Some(_locked) = mm.mmap_read_trylock() else {
        return (0, false);
    };
    let mut address = 0;
    let most = match in_interrupt() {
        true => EACH_MAX_IN_SOFTIRQ,
        false => EACH_MAX,
    };
    for count in 0..most {
        // SAFETY: The mmap lock is held for reading; what is found is valid as long as
        // that is, and `mapping` does not outlive the guard.
        let mapping = unsafe {
            let Some(vma) = NonNull::new(bindings::find_vma(mm.as_raw(), address)) else {
                return (count, true);
            };
            Mapping(VmaRef::from_raw(vma.as_ptr()))
        };
        address = mapping.end() as usize;
        if mapping.is_executable() && !look(mapping) {
            return (count, false);
        }
    }
    (most, false)
}
