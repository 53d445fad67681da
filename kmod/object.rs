// SPDX-License-Identifier: GPL-2.0-only
//! The mapped files that a session's frames name.
//!
//! A session gives each file a small id the first time it shows up in a stack,
//! reads its build-id from the process's own mapped notes (never from the file:
//! that could sleep, or touch pages that must not be touched), and holds the
//! file until the reader asks for it, so that it can be named although the
//! process, or its container, is gone. The table is allocated when the session
//! is made, never shrinks and never changes an entry: looking up takes no lock.

use crate::{
    common::{
        abi::{ObjectIdentity, OBJECTS_MAX},
        elf_note::{self, BuildId},
        record::Unmapped, //
    },
    sys::{
        lock::RawLock,
        user_mem,
        vma::{look_up, FileKey, HeldFile, MappedFile, Mapping}, //
    },
};
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release}, //
};
use kernel::{
    prelude::*,
    sync::SetOnce, //
};

impl FileKey {
    /// What user space is told of the file; nothing of build-id and process.
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
/// Mappings of one file below its code that are looked at for the ELF header.
const HEADER_SEARCH_MAX: usize = 8;

/// One mapped file.
struct Object {
    key: FileKey,
    build_id: Option<BuildId>,
    pid: u32,
}

struct Slot {
    object: SetOnce<Object>,
    file: RawLock<Option<HeldFile>>,
}

/// A session's objects. An object's id is its place in `slots`, counted from one;
/// `index` finds it by its key: an id, or zero where nothing is yet.
pub(crate) struct Objects {
    slots: KVVec<Slot>,
    index: KVVec<AtomicU32>,
    /// How many there are; held while one is added.
    count: RawLock<u32>,
}

/// An object's id, and whether it was given just now.
pub(crate) struct Identified {
    pub(crate) id: u32,
    pub(crate) is_new: bool,
}

impl Objects {
    /// An empty table.
    pub(crate) fn new() -> Result<Self> {
        let mut slots = KVVec::with_capacity(OBJECTS_MAX as usize, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..OBJECTS_MAX {
            slots.push(
                Slot {
                    object: SetOnce::new(),
                    file: RawLock::new(None),
                },
                GFP_KERNEL_ACCOUNT,
            )?;
        }
        let mut index = KVVec::with_capacity(PLACES, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..PLACES {
            index.push(AtomicU32::new(0), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Objects {
            slots,
            index,
            count: RawLock::new(0),
        })
    }

    /// The object of a locked mapping of process `pid`. Runs in handlers.
    pub(crate) fn identify(
        &self,
        mapping: &Mapping<'_>,
        pid: &impl Fn() -> u32,
    ) -> Result<Identified, Unmapped> {
        let file = mapping.file().ok_or(Unmapped::Anonymous)?;
        let key = file.key().ok_or(Unmapped::Anonymous)?;
        match self.find(&key) {
            Found::Known(id) => Ok(Identified { id, is_new: false }),
            Found::Free(_) => self.add(mapping, &file, key, pid()),
            Found::Full => Err(Unmapped::TableFull),
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
                id if self.slot(id).is_some_and(|(_, object)| object.key == *key) => {
                    return Found::Known(id)
                }
                _ => {}
            }
        }
        Found::Full
    }

    #[cold]
    fn add(
        &self,
        mapping: &Mapping<'_>,
        file: &MappedFile<'_>,
        key: FileKey,
        pid: u32,
    ) -> Result<Identified, Unmapped> {
        let object = Object {
            key,
            build_id: build_id(mapping, &key),
            pid,
        };
        let held = file.hold();
        let mut count = self.count.lock();
        // Another task may have been faster.
        let place = match self.find(&key) {
            Found::Known(id) => return Ok(Identified { id, is_new: false }),
            Found::Free(place) => place,
            Found::Full => return Err(Unmapped::TableFull),
        };
        let slot = self.slots.get(*count as usize).ok_or(Unmapped::TableFull)?;
        *slot.file.lock() = Some(held);
        slot.object.populate(object);
        let id = count.wrapping_add(1);
        *count = id;
        place.store(id, Release);
        Ok(Identified { id, is_new: true })
    }

    fn slot(&self, id: u32) -> Option<(&Slot, &Object)> {
        let slot = self.slots.get((id as usize).checked_sub(1)?)?;
        Some((slot, slot.object.as_ref()?))
    }

    /// What the object with this id is.
    pub(crate) fn identity(&self, id: u32) -> Option<ObjectIdentity> {
        let (_, object) = self.slot(id)?;
        let build_id = object.build_id.as_ref();
        Some(ObjectIdentity {
            build_id_len: build_id.map_or(0, BuildId::len),
            build_id: build_id.map_or([0; 20], BuildId::padded),
            pid: object.pid,
            ..object.key.identity()
        })
    }

    /// Takes the object's file out of the table.
    pub(crate) fn take_file(&self, id: u32) -> Option<HeldFile> {
        let (slot, _) = self.slot(id)?;
        slot.file.lock().take()
    }

    /// Puts a file back that [`take_file`](Self::take_file) gave.
    pub(crate) fn put_file(&self, id: u32, file: HeldFile) {
        if let Some((slot, _)) = self.slot(id) {
            let previous = slot.file.lock().replace(file);
            drop(previous);
        }
    }
}

enum Found<'a> {
    Known(u32),
    Free(&'a AtomicU32),
    Full,
}

/// The build-id in the notes of the file that `mapping` maps, when they are
/// mapped and present.
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

/// Where the file's first bytes are mapped: linkers put the headers into the
/// segment at file offset 0, which lies right below the code.
fn header_mapping(mapping: &Mapping<'_>, key: &FileKey) -> Option<(u64, u64)> {
    let (mut start, mut end, mut offset) = (mapping.start(), mapping.end(), mapping.file_offset());
    for _ in 0..HEADER_SEARCH_MAX {
        if offset == 0 {
            return Some((start, end));
        }
        let below = look_up(start.checked_sub(1)?, |below| {
            let same = below.file()?.key()? == *key;
            same.then(|| (below.start(), below.end(), below.file_offset()))
        })??;
        (start, end, offset) = below;
    }
    None
}
