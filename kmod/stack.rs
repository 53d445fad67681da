// SPDX-License-Identifier: GPL-2.0-only
//! The user stack of the current task, as objects and file offsets.
//!
//! Runs in handlers: every read is non-faulting. A stack may be short, with the reason.

pub(crate) mod captured;
pub(crate) mod mapping_cache;
pub(crate) mod raw_copy;
pub(crate) mod stack_table;
pub(crate) mod walk;
pub(crate) mod walk_cache;

use crate::{
    common::{
        record::{Frame, Method, StackEnd, Unmapped, OFFSET_BITS, WORDS_MAX},
        unwind::{Registers, Table}, //
    },
    object::Objects,
    stack::{
        mapping_cache::{Known, Mappings},
        stack_table::Stacks,
        walk::Walk,
        walk_cache::{Memo, Start}, //
    },
    sys::{
        regs::RegisterFile,
        scratch::Words,
        swap::Reading,
        user_mem::NoFaults,
        vma::{look_up, Mapping}, //
    }, //
};

/// What a walk is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// The return address is on top of the stack.
    pub(crate) at_entry: bool,
    /// Bytes that frame 0 lies in front of the instruction pointer.
    pub(crate) ahead: u64,
    /// Most frames.
    pub(crate) max_frames: u32,
    /// Where a file has no rows, the walk ends, to be gone on with from a copy.
    pub(crate) copies: bool,
    /// An id is enough, where there is one.
    pub(crate) by_id: bool,
}

/// Where frames are looked up.
pub(crate) struct Maps<'a> {
    pub(crate) objects: &'a Objects,
    /// What keeps their rows.
    pub(crate) reading: Reading<'a>,
    /// What was looked up for earlier stacks.
    pub(crate) kept: Option<Mappings<'a>>,
    /// Where stacks get ids.
    pub(crate) stacks: Option<&'a Stacks>,
}

/// A captured stack.
pub(crate) struct Stack {
    pub(crate) words: Words<WORDS_MAX>,
    pub(crate) frames: u32,
    /// The stack's id, when it has one; then there may be no words.
    id: Option<u32>,
    /// Where a walk has ended that is to be gone on with.
    pub(crate) rest: Option<Registers>,
    /// Where a walk has ended as nothing could be read.
    missed: Option<u64>,
}

impl Stack {
    /// No frames.
    pub(crate) fn new() -> Self {
        Stack {
            words: Words::new(),
            frames: 0,
            id: None,
            rest: None,
            missed: None,
        }
    }

    /// The frames' words.
    pub(crate) fn words(&self) -> &[u64] {
        self.words.as_slice()
    }

    /// The stack's id: instead of its words.
    pub(crate) fn id(&self) -> Option<u32> {
        self.id
    }

    /// The registers of the last frame, when the walk is to be gone on with.
    pub(crate) fn rest(&self) -> Option<Registers> {
        self.rest
    }

    /// The address that could not be read, when the walk ended so.
    pub(crate) fn missed(&self) -> Option<u64> {
        self.missed
    }

    /// Appends a frame; false when there is no room.
    pub(crate) fn push(&mut self, frame: Frame) -> bool {
        let ([first, second], count) = frame.encode();
        let pushed = match count {
            1 => self.words.push(first),
            _ => self.words.extend(&[first, second]),
        };
        self.frames = self.frames.wrapping_add(u32::from(pushed));
        pushed
    }

    /// Walks the current task's stack. `announce` is called for each object that is
    /// seen for the first time.
    pub(crate) fn capture(
        &mut self,
        regs: &RegisterFile,
        request: &Request,
        maps: Maps<'_>,
        pid: impl Fn() -> u32,
        announce: impl FnMut(u32),
    ) -> StackEnd {
        let by_rows = regs.is_64bit() && (request.copies || maps.objects.has_rows());
        let memo = match &maps.kept {
            Some(kept) if regs.is_64bit() => {
                let start = Start::new(regs, request, by_rows);
                Some((start.pick(kept.memos()), start))
            }
            _ => None,
        };
        if let (Some((memo, start)), true) = (&memo, request.by_id) {
            if let Some((id, end)) = memo.known_id(start, &NoFaults::new()) {
                self.id = Some(id);
                return end;
            }
        }
        self.walk(regs, request, maps, by_rows, memo, (pid, announce))
    }

    /// Out of line, as most stacks that an id stands for are known.
    #[inline(never)]
    fn walk(
        &mut self,
        regs: &RegisterFile,
        request: &Request,
        maps: Maps<'_>,
        by_rows: bool,
        memo: Option<(&Memo, Start)>,
        (pid, announce): (impl Fn() -> u32, impl FnMut(u32)),
    ) -> StackEnd {
        let resolver = Resolver {
            objects: maps.objects,
            reading: maps.reading,
            pid,
            announce,
            mappings: maps.kept,
            last: Known::default(),
        };
        let mut walk = Walk::new(self, resolver, regs, request, by_rows, memo);
        let (Ok(end) | Err(end)) = walk.run();
        walk.keep(end);
        let missed = walk.missed().filter(|_| end == StackEnd::Fault);
        // Those that may yet be gone on with are no stacks of their own.
        let is_whole = !matches!(end, StackEnd::Fault | StackEnd::Copied);
        let stacks = maps.stacks.filter(|_| is_whole && request.by_id);
        let id = stacks.and_then(|stacks| stacks.id_of(walk.words()));
        walk.set_id(id, end);
        drop(walk);
        (self.id, self.missed) = (id, missed);
        end
    }
}

/// Finds which files addresses belong to.
pub(crate) struct Resolver<'a, A, P> {
    objects: &'a Objects,
    reading: Reading<'a>,
    /// The process, as the opener numbers it.
    pid: P,
    announce: A,
    /// What was looked up for earlier stacks.
    pub(crate) mappings: Option<Mappings<'a>>,
    /// The mapping of the frame before: frames cluster.
    pub(crate) last: Known,
}

impl<'a, A: FnMut(u32), P: Fn() -> u32> Resolver<'a, A, P> {
    /// The files.
    pub(crate) fn objects(&self) -> &'a Objects {
        self.objects
    }

    /// The unwind rows of the file that the last address was in.
    pub(crate) fn rows(&self) -> Option<Table<'a>> {
        self.objects.rows(self.last.object, self.reading)
    }

    /// The frame of `address`, when `inside` lies in executable memory.
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

    /// Identifies and keeps a mapping; `None` when it is not executable.
    fn locate(&mut self, mapping: &Mapping<'_>) -> Option<Result<Known, Unmapped>> {
        if !mapping.is_executable() {
            return None;
        }
        let identified = match self.objects.identify(mapping, &self.pid) {
            Ok(identified) => identified,
            Err(why) => return Some(Err(why)),
        };
        if identified.is_new {
            (self.announce)(identified.id);
        }
        let known = Known {
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
