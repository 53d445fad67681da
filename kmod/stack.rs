// SPDX-License-Identifier: GPL-2.0-only
//! The user stack of the current task, as objects and file offsets.
//!
//! Runs in handlers. Every read is non-faulting, every step goes up the stack,
//! and a frame whose address is not in executable memory ends the walk: a stack
//! may be short, with the reason, but it does not go on with a guess.

use crate::{
    common::record::{Frame, Method, StackEnd, Unmapped, OFFSET_BITS, WORDS_MAX},
    object::Objects,
    sys::{
        scratch::Words,
        uprobe::Regs,
        user_mem::{self, Fault},
        vma::{look_up, Mapping}, //
    },
};

/// Mappings remembered during one walk; frames cluster in few objects.
const REMEMBERED: usize = 4;

/// What a walk is asked for.
pub(crate) struct Request {
    /// The return address is on top of the stack.
    pub(crate) at_entry: bool,
    /// Bytes that frame 0 lies in front of the instruction pointer.
    pub(crate) ahead: u64,
    /// Most frames.
    pub(crate) max_frames: u32,
}

/// A captured stack.
pub(crate) struct Stack {
    words: Words<WORDS_MAX>,
    frames: u32,
}

impl Stack {
    /// No frames.
    pub(crate) fn new() -> Self {
        Stack {
            words: Words::new(),
            frames: 0,
        }
    }

    /// The frames' words.
    pub(crate) fn words(&self) -> &[u64] {
        self.words.as_slice()
    }

    /// Appends a frame; false when there is no room.
    fn push(&mut self, frame: Frame) -> bool {
        let (words, count) = frame.encode();
        let pushed = words
            .get(..count)
            .is_some_and(|words| self.words.extend(words));
        self.frames = self.frames.wrapping_add(u32::from(pushed));
        pushed
    }

    /// Walks the current task's stack. `announce` is told of each object that is
    /// seen for the first time.
    pub(crate) fn capture(
        &mut self,
        regs: &Regs<'_>,
        request: &Request,
        objects: &Objects,
        pid: impl Fn() -> u32,
        announce: impl FnMut(u32),
    ) -> StackEnd {
        let mut walk = Walk {
            stack: self,
            resolver: Resolver {
                objects,
                pid,
                announce,
                remembered: [Remembered::default(); REMEMBERED],
                next: 0,
            },
            max_frames: request.max_frames,
            word: if regs.is_64bit() { 8 } else { 4 },
        };
        match walk.run(regs, request) {
            Ok(end) | Err(end) => end,
        }
    }
}

struct Walk<'a, A, P> {
    stack: &'a mut Stack,
    resolver: Resolver<'a, A, P>,
    max_frames: u32,
    word: u64,
}

impl<A: FnMut(u32), P: Fn() -> u32> Walk<'_, A, P> {
    fn run(&mut self, regs: &Regs<'_>, request: &Request) -> Result<StackEnd, StackEnd> {
        self.first(regs.ip(), request.ahead)?;
        let mut floor = regs.sp();
        if request.at_entry {
            let caller = self.read_word(floor)?;
            self.caller(caller, Method::StackTop)?;
            floor = floor.saturating_add(self.word);
        }
        let mut fp = regs.bp();
        loop {
            if fp == 0 {
                return Ok(StackEnd::Outermost);
            }
            if fp & self.word.wrapping_sub(1) != 0 || fp < floor {
                return Err(StackEnd::BadFramePointer);
            }
            let (next, caller) = self.read_pair(fp)?;
            if caller == 0 {
                return Ok(StackEnd::Outermost);
            }
            self.caller(caller, Method::FramePointer)?;
            // The next frame lies above this one, so the walk ends.
            floor = fp.saturating_add(self.word.wrapping_mul(2));
            fp = next;
        }
    }

    /// Frame 0: the function that was probed.
    fn first(&mut self, ip: u64, ahead: u64) -> Result<(), StackEnd> {
        let frame = match self.resolver.resolve(ip, ip, Method::Registers) {
            Some(Frame::Object { id, offset, method }) => Frame::Object {
                id,
                offset: offset.wrapping_sub(ahead),
                method,
            },
            Some(frame) => frame,
            None => Frame::Address {
                address: ip.wrapping_sub(ahead),
                why: Unmapped::NoMapping as u8,
                method: Method::Registers as u8,
            },
        };
        self.push(frame)
    }

    /// A return address. It is looked up one byte earlier, inside the call: a call
    /// that never returns may be the last of its mapping.
    fn caller(&mut self, address: u64, method: Method) -> Result<(), StackEnd> {
        let inside = address.checked_sub(1).ok_or(StackEnd::NotCode)?;
        let frame = self
            .resolver
            .resolve(inside, address, method)
            .ok_or(StackEnd::NotCode)?;
        self.push(frame)
    }

    fn push(&mut self, frame: Frame) -> Result<(), StackEnd> {
        if self.stack.frames >= self.max_frames || !self.stack.push(frame) {
            return Err(StackEnd::Limit);
        }
        Ok(())
    }

    fn read_word(&self, address: u64) -> Result<u64, StackEnd> {
        let value = match self.word {
            8 => user_mem::read_value::<u64>(address),
            _ => user_mem::read_value::<u32>(address).map(u64::from),
        };
        value.map_err(|Fault| StackEnd::Fault)
    }

    fn read_pair(&self, address: u64) -> Result<(u64, u64), StackEnd> {
        let pair = match self.word {
            8 => user_mem::read_value::<[u64; 2]>(address),
            _ => user_mem::read_value::<[u32; 2]>(address).map(|pair| pair.map(u64::from)),
        };
        let [first, second] = pair.map_err(|Fault| StackEnd::Fault)?;
        Ok((first, second))
    }
}

/// A mapping that frames fell into: addresses `start..end` are `object` at
/// `address + delta`.
#[derive(Clone, Copy, Default)]
struct Remembered {
    start: u64,
    end: u64,
    delta: u64,
    object: u32,
}

struct Resolver<'a, A, P> {
    objects: &'a Objects,
    /// The process, as the opener numbers it.
    pid: P,
    announce: A,
    remembered: [Remembered; REMEMBERED],
    next: usize,
}

impl<A: FnMut(u32), P: Fn() -> u32> Resolver<'_, A, P> {
    /// The frame of `address`, when `inside` lies in executable memory.
    fn resolve(&mut self, inside: u64, address: u64, method: Method) -> Option<Frame> {
        let known = self
            .remembered
            .iter()
            .find(|known| (known.start..known.end).contains(&inside));
        let known = match known {
            Some(known) => *known,
            None => match look_up(inside, |mapping| self.locate(&mapping))?? {
                Ok(known) => known,
                Err(why) => return Some(bare(address, why, method)),
            },
        };
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

    /// Identifies and remembers a mapping; `None` when it is not executable.
    fn locate(&mut self, mapping: &Mapping<'_>) -> Option<Result<Remembered, Unmapped>> {
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
        let known = Remembered {
            start: mapping.start(),
            end: mapping.end(),
            delta: mapping.file_offset().wrapping_sub(mapping.start()),
            object: identified.id,
        };
        if let Some(place) = self.remembered.get_mut(self.next % REMEMBERED) {
            *place = known;
        }
        self.next = self.next.wrapping_add(1);
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
