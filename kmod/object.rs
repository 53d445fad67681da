// SPDX-License-Identifier: GPL-2.0-only
//! The mapped files that a session's frames name.
//!
//! A session gives each file a small id when it first shows up in a stack, or as a program that is
//! started. It reads the file's build-id from the process's own mapped notes, never from the file:
//! that could sleep, or touch pages that must not be touched. It holds the file and the process's
//! root directory until the reader asks for them, so that the file can be named although the
//! process, or its container, is gone. The table is allocated when the session is made, never
//! shrinks, and never gives an id to another file: a lookup takes no lock. Unwind rows come and go
//! (`sys/rcu_slot.rs`).
//!
//! Notes are hostile and long to read. So none are read in an interrupt, nor for more than some
//! files of a stack: the next stack through the file reads them.

pub(crate) mod unwind_rows;

use crate::{
    common::{
        abi::{ObjectIdentity, OBJECTS_MAX, UNWIND_BYTES_MAX},
        elf_note::{self, BuildId},
        record::Unmapped,
        unwind::Table, //
    },
    object::unwind_rows::Rows,
    sys::{
        self,
        file_ref::{HeldFile, HeldRoot},
        lock::{raw_lock, RawLock},
        memory::{self, GFP_REQUEST},
        program_start::Program,
        rcu_slot::{self, RcuSlot, Reading},
        user_mem,
        vma::{look_up, FileKey, Mapping}, //
    }, //
};
use core::{
    cell::Cell,
    sync::atomic::{
        AtomicBool,
        AtomicU32,
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release}, //
    },
};
use kernel::{
    prelude::*,
    sync::SetOnce, //
};

impl FileKey {
    /// The file's identity for user space, without build-id and process.
    pub(crate) fn identity(&self) -> ObjectIdentity {
        ObjectIdentity {
            dev: self.dev,
            ino: self.ino,
            generation: self.generation,
            file_bytes: self.bytes,
            ctime_ns: self.ctime_ns,
            ..ObjectIdentity::default()
        }
    }
}

/// Places of the hash index: twice the objects, so that probing stays short.
const PLACES: usize = 2 * OBJECTS_MAX as usize;
/// Places looked at before the table counts as full.
const PROBES_MAX: usize = 64;
/// Mappings of a file, from its code downwards, that are searched for the ELF header.
const HEADER_SEARCH_MAX: usize = 8;
/// Files whose notes are read for one stack.
const NOTES_MAX: u32 = 4;

/// A file. One that has rows may not have been seen in a stack yet.
struct Slot {
    key: SetOnce<FileKey>,
    /// The process that was first seen with it.
    pid: SetOnce<u32>,
    /// The build-id from its mapping when it was first seen in a stack.
    build_id: SetOnce<Option<BuildId>>,
    /// Whether the file was announced to the reader, and its rows were not dropped since.
    told: AtomicBool,
    rows: RcuSlot<Rows>,
    /// When a stack last went through it, to some tenths of a second, or when its rows were given.
    used_ns: AtomicU64,
    file: RawLock<Option<HeldFile>>,
    /// Whether `root` is held, or is being set.
    has_root: AtomicBool,
    /// Whether the next stack outside of an interrupt has to set `root`.
    owes_root: AtomicBool,
    /// The root directory of the process that was first seen with the file.
    root: RawLock<Option<HeldRoot>>,
}

impl Slot {
    fn new() -> Self {
        Slot {
            key: SetOnce::new(),
            pid: SetOnce::new(),
            build_id: SetOnce::new(),
            told: AtomicBool::new(false),
            rows: RcuSlot::new(),
            used_ns: AtomicU64::new(0),
            file: raw_lock!(None),
            has_root: AtomicBool::new(false),
            owes_root: AtomicBool::new(false),
            root: raw_lock!(None),
        }
    }
}

/// A session's objects. An object's id is its place in `slots`, counted from one; `index` finds the
/// id by the file's key, and is zero where there is none yet.
pub(crate) struct Objects {
    slots: KVVec<Slot>,
    index: KVVec<AtomicU32>,
    /// The number of objects; held while one is added.
    count: RawLock<u32>,
    /// Whether no more can be added.
    is_full: AtomicBool,
    row_bytes: AtomicU64,
    /// How many times rows were dropped.
    dropped: AtomicU32,
}

/// An object's id, and whether it is new.
pub(crate) struct Identified {
    pub(crate) id: u32,
    pub(crate) is_new: bool,
}

/// How many files' notes may still be read for a stack.
pub(crate) struct NoteBudget(Cell<u32>);

impl NoteBudget {
    /// That of a stack captured here.
    pub(crate) fn of_stack() -> Self {
        NoteBudget(Cell::new(match sys::in_interrupt() {
            true => 0,
            false => NOTES_MAX,
        }))
    }

    fn take(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left != 0
    }
}

impl Objects {
    /// Makes an empty table.
    pub(crate) fn new() -> Result<Self> {
        Ok(Objects {
            slots: memory::made(OBJECTS_MAX as usize, |_| Ok(Slot::new()))?,
            index: memory::zeroed(PLACES)?,
            count: raw_lock!(0),
            is_full: AtomicBool::new(false),
            row_bytes: AtomicU64::new(0),
            dropped: AtomicU32::new(0),
        })
    }

    /// Identifies the object of a locked mapping of process `pid`. Runs in handlers.
    pub(crate) fn identify(
        &self,
        mapping: &Mapping<'_>,
        pid: &impl Fn() -> u32,
        notes: &NoteBudget,
    ) -> Result<Identified, Unmapped> {
        let key = mapping.key().ok_or(Unmapped::Anonymous)?;
        let id = match self.find(&key) {
            Found::Known(id) => id,
            Found::Free(_) => self.id_of(key)?,
            Found::Full => return Err(Unmapped::TableFull),
        };
        let is_in_use = self.is_in_use(id);
        if !self.was_seen(id) && notes.take() {
            return self.see(mapping, key, id, pid());
        }
        if !is_in_use {
            return self.tell(id, pid(), held(mapping), true);
        }
        let is_new = self.slot(id).is_some_and(Slot::hold_owed_root);
        Ok(Identified { id, is_new })
    }

    /// Identifies the object of the program of process `pid`, which is the current one if it starts
    /// the program now. The program may not be mapped and present yet, so the first stack through
    /// it, or the reader, finds its build-id. Runs in tracepoints.
    pub(crate) fn identify_program(
        &self,
        program: Program,
        pid: u32,
        is_current: bool,
    ) -> Result<Identified, Unmapped> {
        match self.find(&program.key) {
            Found::Known(id) if self.is_in_use(id) => Ok(Identified { id, is_new: false }),
            Found::Full => Err(Unmapped::TableFull),
            _ => {
                let id = self.id_of(program.key)?;
                self.tell(id, pid, Some(program.file), is_current)
            }
        }
    }

    fn find(&self, key: &FileKey) -> Found<'_> {
        let start = key.hash() as usize;
        for probe in 0..PROBES_MAX {
            let Some(place) = self.index.get(start.wrapping_add(probe) % PLACES) else {
                break;
            };
            match place.load(Acquire) {
                0 => return Found::Free(place),
                id if self.slot(id).and_then(|slot| slot.key.as_ref()) == Some(key) => {
                    return Found::Known(id)
                }
                _ => {}
            }
        }
        Found::Full
    }

    /// Reads the notes of an object that was seen in a stack. It may have been announced before.
    #[cold]
    fn see(
        &self,
        mapping: &Mapping<'_>,
        key: FileKey,
        id: u32,
        pid: u32,
    ) -> Result<Identified, Unmapped> {
        let build_id = build_id(mapping, &key);
        let slot = self.slot(id).ok_or(Unmapped::TableFull)?;
        let has_one = build_id.is_some();
        let is_news = slot.build_id.populate(build_id) && has_one;
        let told = self.tell(id, pid, held(mapping), true)?;
        let owed_root = slot.hold_owed_root();
        Ok(Identified {
            is_new: told.is_new || is_news || owed_root,
            ..told
        })
    }

    /// Marks a file that process `pid` was seen with as announced, unless it already is.
    /// `is_current` says whether `pid` is the current process.
    fn tell(
        &self,
        id: u32,
        pid: u32,
        held: Option<HeldFile>,
        is_current: bool,
    ) -> Result<Identified, Unmapped> {
        let slot = self.slot(id).ok_or(Unmapped::TableFull)?;
        slot.pid.populate(pid);
        // Another task may have been faster.
        let is_new = !slot.told.swap(true, Relaxed);
        if is_new {
            *slot.file.lock() = held;
            if is_current {
                slot.hold_root();
            }
        }
        slot.use_now();
        Ok(Identified { id, is_new })
    }

    /// Whether the file was seen in a stack, not only as a program.
    fn was_seen(&self, id: u32) -> bool {
        self.slot(id)
            .is_some_and(|slot| slot.build_id.as_ref().is_some())
    }

    /// Finds the id of a file, or gives it one.
    fn id_of(&self, key: FileKey) -> Result<u32, Unmapped> {
        if self.is_full.load(Relaxed) {
            return Err(Unmapped::TableFull);
        }
        self.add(&mut self.count.lock(), key)
    }

    /// Notes that a stack goes through an object; false if the object must be announced first.
    fn is_in_use(&self, id: u32) -> bool {
        let slot = self.slot(id).filter(|slot| slot.told.load(Relaxed));
        if let Some(slot) = slot {
            slot.use_now();
        }
        slot.is_some()
    }

    /// As `id_of`, with `count` locked.
    fn add(&self, count: &mut u32, key: FileKey) -> Result<u32, Unmapped> {
        let place = match self.find(&key) {
            Found::Known(id) => return Ok(id),
            Found::Free(place) => place,
            Found::Full => return Err(Unmapped::TableFull),
        };
        let Some(slot) = self.slots.get(*count as usize) else {
            self.is_full.store(true, Relaxed);
            return Err(Unmapped::TableFull);
        };
        slot.key.populate(key);
        let id = count.wrapping_add(1);
        *count = id;
        place.store(id, Release);
        Ok(id)
    }

    fn slot(&self, id: u32) -> Option<&Slot> {
        self.slots.get((id as usize).checked_sub(1)?)
    }

    /// Keeps the rows of a file; returns the object's id. Task context.
    pub(crate) fn give_rows(&self, key: FileKey, rows: Rows) -> Result<u32> {
        let bytes = rows.bytes();
        let rows = KBox::new(rows, GFP_REQUEST)?;
        let id = {
            let mut count = self.count.lock();
            self.add(&mut count, key).map_err(|_| ENOSPC)?
        };
        let slot = self.slot(id).ok_or(ENOSPC)?;
        if slot.rows.with(|rows| rows.is_some()) {
            return Err(EEXIST);
        }
        let before = self.row_bytes.fetch_add(bytes, Relaxed);
        let fits = before.saturating_add(bytes) <= UNWIND_BYTES_MAX;
        slot.use_now();
        if fits && slot.rows.fill(rows).is_ok() {
            return Ok(id);
        }
        self.row_bytes.fetch_sub(bytes, Relaxed);
        Err(if fits { EEXIST } else { ENOSPC })
    }

    /// Drops the rows of the files that no stack went through for `unused_ns`, and returns their
    /// bytes. The next stack through such a file announces it again. Task context, sleeps.
    pub(crate) fn drop_unused(&self, unused_ns: u64) -> u64 {
        let until_ns = sys::now_ns().saturating_sub(unused_ns);
        let is_unused = |slot: &&Slot| slot.used_ns.load(Relaxed) <= until_ns;
        self.drop_rows(self.slots.iter().filter(is_unused))
    }

    /// Drops the rows that `give_rows` has just put into the object `id`. Task context, sleeps.
    pub(crate) fn take_back(&self, id: u32) {
        self.drop_rows(self.slot(id).into_iter());
    }

    fn drop_rows<'a>(&'a self, slots: impl Iterator<Item = &'a Slot>) -> u64 {
        let mut dropped = 0u64;
        rcu_slot::drop_all(slots.filter_map(|slot| {
            let rows = slot.rows.take_out()?;
            dropped = dropped.saturating_add(rows.bytes());
            self.row_bytes.fetch_sub(rows.bytes(), Relaxed);
            // Only after the rows are gone: user space gives rows to an object that has none.
            slot.told.store(false, Relaxed);
            Some(rows)
        }));
        if dropped != 0 {
            // A walk that read a dropped row has ended, and kept its rules under the old number.
            self.dropped.fetch_add(1, Relaxed);
        }
        dropped
    }

    pub(crate) fn row_bytes(&self) -> u64 {
        self.row_bytes.load(Relaxed)
    }

    /// A number that changes after rows were dropped: rules that were kept under another number may
    /// be of dropped rows.
    #[inline(always)]
    pub(crate) fn rows_version(&self) -> u32 {
        self.dropped.load(Relaxed)
    }

    /// Whether there are any rows.
    #[inline(always)]
    pub(crate) fn has_rows(&self) -> bool {
        self.row_bytes() != 0
    }

    /// The rows of an object.
    #[inline(always)]
    pub(crate) fn rows<'a>(&'a self, id: u32, reading: Reading<'a>) -> Option<Table<'a>> {
        Some(self.slot(id)?.rows.get(reading)?.table())
    }

    /// The identity of the object with this id.
    pub(crate) fn identity(&self, id: u32) -> Option<ObjectIdentity> {
        let slot = self.slot(id)?;
        let pid = *slot.pid.as_ref()?;
        let build_id = slot.build_id.as_ref().and_then(Option::as_ref);
        Some(ObjectIdentity {
            build_id_len: build_id.map_or(0, BuildId::len),
            build_id: build_id.map_or([0; 20], BuildId::padded),
            pid,
            ..slot.key.as_ref()?.identity()
        })
    }

    /// Takes the object's file out of the table.
    pub(crate) fn take_file(&self, id: u32) -> Option<HeldFile> {
        self.slot(id)?.file.lock().take()
    }

    /// Takes the root directory of the process that was first seen with the file out of the table.
    pub(crate) fn take_root(&self, id: u32) -> Option<HeldRoot> {
        let slot = self.slot(id)?;
        let root = slot.root.lock().take()?;
        slot.has_root.store(false, Relaxed);
        Some(root)
    }

    /// Puts back a file that [`take_file`](Self::take_file) returned.
    pub(crate) fn put_file(&self, id: u32, file: HeldFile) {
        if let Some(slot) = self.slot(id) {
            let previous = slot.file.lock().replace(file);
            drop(previous);
        }
    }

    /// Puts back a root directory that [`take_root`](Self::take_root) returned, unless another one
    /// is held already.
    pub(crate) fn put_root(&self, id: u32, root: HeldRoot) {
        if let Some(slot) = self.slot(id) {
            // As in `hold_root`: the task that sets the flag owns the place, which is empty.
            if !slot.has_root.swap(true, Relaxed) {
                *slot.root.lock() = Some(root);
            }
        }
    }
}

impl Slot {
    /// Holds the root directory of the current task, unless one is held.
    fn hold_root(&self) {
        if sys::in_interrupt() {
            // The interrupted task may hold the locks that this takes.
            return self.owes_root.store(true, Relaxed);
        }
        // This must not drop a root: that could sleep.
        if !self.has_root.swap(true, Relaxed) {
            *self.root.lock() = HeldRoot::of_current();
        }
    }

    /// Holds the root directory that could not be held in an interrupt; returns whether there was
    /// one.
    fn hold_owed_root(&self) -> bool {
        let owed = self.owes_root.load(Relaxed)
            && !sys::in_interrupt()
            && self.owes_root.swap(false, Relaxed);
        if owed {
            self.hold_root();
        }
        owed
    }

    fn use_now(&self) {
        self.used_ns.store(sys::now_ns(), Relaxed);
    }
}

enum Found<'a> {
    Known(u32),
    Free(&'a AtomicU32),
    Full,
}

/// The mapping's file, held by a reference of its own.
fn held(mapping: &Mapping<'_>) -> Option<HeldFile> {
    mapping.file().map(|file| file.hold())
}

/// Reads the build-id from the notes of the file that `mapping` maps, if they are mapped and
/// present.
fn build_id(mapping: &Mapping<'_>, key: &FileKey) -> Option<BuildId> {
    let (start, end) = header_mapping(mapping, key)?;
    elf_note::find(|offset, out| {
        let Some(address) = start.checked_add(offset) else {
            return false;
        };
        let inside = address
            .checked_add(out.len() as u64)
            .is_some_and(|read_end| read_end <= end);
        inside && user_mem::read(address, out).is_ok()
    })
    .ok()
}

/// Finds where the file's first bytes are mapped: linkers put the headers into the segment at file
/// offset 0, which lies right below the code.
fn header_mapping(mapping: &Mapping<'_>, key: &FileKey) -> Option<(u64, u64)> {
    let (mut start, mut end, mut offset) = (mapping.start(), mapping.end(), mapping.file_offset());
    for _ in 0..HEADER_SEARCH_MAX {
        if offset == 0 {
            return Some((start, end));
        }
        let below = look_up(start.checked_sub(1)?, |below| {
            let same = below.key()? == *key;
            same.then(|| (below.start(), below.end(), below.file_offset()))
        })??;
        (start, end, offset) = below;
    }
    None
}
