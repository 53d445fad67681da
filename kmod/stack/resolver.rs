// SPDX-License-Identifier: GPL-2.0-only
//! Resolves the addresses of a walk to files.

use crate::{
    common::{
        record::{Frame, Method, Unmapped, OFFSET_BITS},
        unwind::Table, //
    },
    object::{NoteBudget, Objects},
    stack::mapping_cache::{CodeRange, Mappings},
    sys::{
        rcu_slot::Reading,
        vma::{look_up, Mapping}, //
    }, //
};

/// Finds the files that addresses belong to.
pub(crate) struct Resolver<'a, A, P> {
    pub(super) objects: &'a Objects,
    pub(super) reading: Reading<'a>,
    /// The process id in the session owner's namespace.
    pub(super) pid: P,
    pub(super) announce: A,
    pub(super) notes: NoteBudget,
    /// Mappings that were looked up for earlier stacks.
    pub(crate) mappings: Option<Mappings<'a>>,
    /// The mapping of the previous frame: frames cluster.
    pub(crate) last: CodeRange,
}

impl<'a, A: FnMut(u32), P: Fn() -> u32> Resolver<'a, A, P> {
    /// The session's objects.
    pub(crate) fn objects(&self) -> &'a Objects {
        self.objects
    }

    /// The unwind rows of the file that the last address was in.
    pub(crate) fn rows(&self) -> Option<Table<'a>> {
        self.objects.rows(self.last.object, self.reading)
    }

    /// The frame of `address`, if `inside` lies in executable memory.
    pub(crate) fn resolve(&mut self, inside: u64, address: u64, method: Method) -> Option<Frame> {
        if !self.last.holds(inside) {
            let kept = self.mappings.as_ref().and_then(|kept| kept.find(inside));
            self.last = match kept {
                Some(known) => known,
                None => match look_up(inside, |mapping| self.locate(&mapping))?? {
                    Ok(known) => known,
                    Err(why) => return Some(bare(address, why, method)),
                },
            };
        }
        let known = &self.last;
        let offset = address.wrapping_add(known.delta);
        if offset >> OFFSET_BITS != 0 {
            return Some(bare(address, Unmapped::HugeOffset, method));
        }
        Some(Frame::Object {
            id: known.object,
            offset,
            method: method as u8,
        })
    }

    /// Identifies and keeps a mapping; `None` if it is not executable.
    fn locate(&mut self, mapping: &Mapping<'_>) -> Option<Result<CodeRange, Unmapped>> {
        if !mapping.is_executable() {
            return None;
        }
        let identified = match self.objects.identify(mapping, &self.pid, &self.notes) {
            Ok(identified) => identified,
            Err(why) => return Some(Err(why)),
        };
        if identified.is_new {
            (self.announce)(identified.id);
        }
        let known = CodeRange {
            start: mapping.start(),
            bytes: mapping.end().saturating_sub(mapping.start()),
            delta: mapping.file_offset().wrapping_sub(mapping.start()),
            object: identified.id,
        };
        if let Some(kept) = &self.mappings {
            kept.keep(&known);
        }
        Some(Ok(known))
    }
}

fn bare(address: u64, why: Unmapped, method: Method) -> Frame {
    Frame::Address {
        address,
        why: why as u8,
        method: method as u8,
    }
}
