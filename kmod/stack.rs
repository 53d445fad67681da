// SPDX-License-Identifier: GPL-2.0-only
//! The user stack of the current task, as objects and file offsets: by the unwind rows of
//! its files, and by frame pointers where there are none.
//!
//! Runs in handlers. Every read is non-faulting, every step goes up the stack,
//! and a frame whose address is not in executable memory ends the walk: a stack
//! may be short, with the reason, but it does not go on with a guess.

use crate::{
    common::{
        program::Register,
        record::{Frame, Method, StackEnd, Unmapped, OFFSET_BITS, WORDS_MAX},
        unwind::{At, Memory, Registers, Stop}, //
    },
    mapping_cache::{Known, Mappings, SimpleRule},
    object::Objects,
    sys::{
        returns::{may_be_trampoline, real_address},
        scratch::Words,
        uprobe::Regs,
        user_mem::{self, Fault, NoFaults},
        vma::{look_up, Mapping}, //
    },
};

/// What a walk is asked for.
pub(crate) struct Request {
    /// The return address is on top of the stack.
    pub(crate) at_entry: bool,
    /// Bytes that frame 0 lies in front of the instruction pointer.
    pub(crate) ahead: u64,
    /// Most frames.
    pub(crate) max_frames: u32,
    /// Where a file has no rows, the walk ends, to be gone on with from a copy.
    pub(crate) copies: bool,
}

/// A captured stack.
pub(crate) struct Stack {
    words: Words<WORDS_MAX>,
    frames: u32,
    /// Where a walk has ended that is to be gone on with.
    rest: Option<Registers>,
}

impl Stack {
    /// No frames.
    pub(crate) fn new() -> Self {
        Stack {
            words: Words::new(),
            frames: 0,
            rest: None,
        }
    }

    /// The frames' words.
    pub(crate) fn words(&self) -> &[u64] {
        self.words.as_slice()
    }

    /// The registers of the last frame, when the walk is to be gone on with.
    pub(crate) fn rest(&self) -> Option<Registers> {
        self.rest
    }

    /// Appends a frame; false when there is no room.
    fn push(&mut self, frame: Frame) -> bool {
        let ([first, second], count) = frame.encode();
        let pushed = match count {
            1 => self.words.push(first),
            _ => self.words.extend(&[first, second]),
        };
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
        mappings: Option<Mappings<'_>>,
        pid: impl Fn() -> u32,
        announce: impl FnMut(u32),
    ) -> StackEnd {
        let mut walk = Walk {
            stack: self,
            resolver: Resolver {
                objects,
                pid,
                announce,
                mappings,
                last: Known::default(),
            },
            memory: NoFaults::new(),
            max_frames: request.max_frames,
            copies: request.copies,
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
    memory: NoFaults,
    max_frames: u32,
    copies: bool,
    word: u64,
}

impl<A: FnMut(u32), P: Fn() -> u32> Walk<'_, A, P> {
    fn run(&mut self, regs: &Regs<'_>, request: &Request) -> Result<StackEnd, StackEnd> {
        self.first(regs.ip(), request.ahead)?;
        if self.word == 8 && (self.copies || self.resolver.objects.has_rows()) {
            return self.rows(regs, request.at_entry);
        }
        let mut floor = regs.sp();
        if request.at_entry {
            let caller = self.read_word(floor)?;
            self.caller(caller, floor, Method::StackTop)?;
            floor = floor.saturating_add(self.word);
        }
        match self.word {
            8 => self.frame_pointers::<8>(regs.bp(), floor),
            _ => self.frame_pointers::<4>(regs.bp(), floor),
        }
    }

    /// Follows frame pointers of `WORD` bytes from `fp` on, which must not lie below
    /// `floor`. A hot loop for callers in one mapping after the other.
    fn frame_pointers<const WORD: u64>(
        &mut self,
        mut fp: u64,
        mut floor: u64,
    ) -> Result<StackEnd, StackEnd> {
        loop {
            let last = self.resolver.last;
            let place = Frame::place(last.object, Method::FramePointer);
            let mut room = self.max_frames.saturating_sub(self.stack.frames);
            let full = room;
            let mut slot = 0;
            let elsewhere = loop {
                if fp & WORD.wrapping_sub(1) != 0 || fp < floor {
                    break None;
                }
                let [next, caller] = match WORD {
                    8 => self.memory.pair(fp),
                    _ => read_narrow_pair(fp),
                }
                .map_err(|Fault| StackEnd::Fault)?;
                slot = fp.wrapping_add(WORD);
                // The next frame lies above this one, so the walk ends.
                floor = fp.saturating_add(WORD.wrapping_mul(2));
                fp = next;
                let offset = caller.wrapping_add(last.delta);
                if !last.holds(caller.wrapping_sub(1))
                    || offset >> OFFSET_BITS != 0
                    || may_be_trampoline(caller)
                {
                    break Some(caller);
                }
                if room == 0 || !self.stack.words.push(place | offset) {
                    return Err(StackEnd::Limit);
                }
                room = room.wrapping_sub(1);
            };
            self.stack.frames = self.stack.frames.wrapping_add(full.wrapping_sub(room));
            match elsewhere {
                None if fp == 0 => return Ok(StackEnd::Outermost),
                None => return Err(StackEnd::BadFramePointer),
                Some(0) => return Ok(StackEnd::Outermost),
                Some(caller) => self.caller(caller, slot, Method::FramePointer)?,
            }
        }
    }

    /// Follows unwind rows; where there are none, the frame pointer.
    fn rows(&mut self, regs: &Regs<'_>, at_entry: bool) -> Result<StackEnd, StackEnd> {
        let mut at = Registers {
            rip: regs.ip(),
            rsp: regs.sp(),
            rbp: regs.bp(),
            knows_rbp: true,
            at: At::Innermost,
        };
        loop {
            self.kept_rows(&mut at)?;
            let inside = at.inside();
            let known = self.resolver.last;
            let offset = inside.wrapping_add(known.delta);
            let table = match known.holds(inside) {
                true => self.resolver.objects.rows(known.object),
                false => None,
            };
            let rule = table.and_then(|table| table.find(offset));
            let memory = OfTask {
                memory: &self.memory,
                regs,
            };
            let stepped = match rule {
                Some(rule) => {
                    if let Some(kept) = &self.resolver.mappings {
                        kept.keep_rule(known.object, offset, rule);
                    }
                    rule.step(&mut at, &memory)
                }
                None => Err(Stop::Unknown),
            };
            let (slot, method) = match stepped {
                Ok(slot) if at.at == At::Interrupted => (slot, Method::Signal),
                Ok(slot) => (slot, Method::Row),
                // At an entry the caller is on top of the stack, whatever is known.
                Err(Stop::Unknown)
                    if self.copies
                        && !(at_entry && at.at == At::Innermost)
                        && table.is_none()
                        && known.holds(inside)
                        && self.resolver.objects.may_copy(known.object) =>
                {
                    self.stack.rest = Some(at);
                    return Err(StackEnd::Copied);
                }
                Err(Stop::Unknown) => {
                    // Where a file says of its code how it is left, but not of this, or
                    // nobody has asked it yet, a frame pointer would be a guess.
                    let objects = self.resolver.objects;
                    let guesses = match (rule, table) {
                        (Some(rule), _) => !rule.leads_by_frame_pointer(),
                        (None, Some(table)) => !table.is_empty(),
                        (None, None) => known.holds(inside) && objects.has_rows(),
                    };
                    if guesses && at.at != At::Innermost {
                        return Err(StackEnd::NoRow);
                    }
                    self.without_row(&mut at, at_entry)?
                }
                Err(Stop::Outermost) => return Ok(StackEnd::Outermost),
                Err(Stop::Fault) => return Err(StackEnd::Fault),
                Err(Stop::Unsupported) => return Err(StackEnd::Unsupported),
                Err(Stop::NotAbove) => return Err(StackEnd::BadRow),
            };
            if may_be_trampoline(at.rip) {
                at.rip = real_address(slot).unwrap_or(at.rip);
            }
            if at.rip == 0 {
                return Ok(StackEnd::Outermost);
            }
            let frame = self.resolver.resolve(at.inside(), at.rip, method);
            self.push(frame.ok_or(StackEnd::NotCode)?)?;
        }
    }

    /// Follows rules that are kept, as far as there are some.
    fn kept_rows(&mut self, at: &mut Registers) -> Result<(), StackEnd> {
        let Some(kept) = self.resolver.mappings.as_ref().filter(|_| at.knows_rbp) else {
            return Ok(());
        };
        let mut hot = Hot {
            kept,
            memory: &self.memory,
            last: self.resolver.last,
            stack: &mut *self.stack,
            max_frames: self.max_frames,
        };
        let end = hot.follow(at);
        self.resolver.last = hot.last;
        end
    }

    /// Steps where no row says how: tells where the return address was, and the way.
    #[cold]
    fn without_row(
        &mut self,
        at: &mut Registers,
        at_entry: bool,
    ) -> Result<(u64, Method), StackEnd> {
        let (slot, rip, rbp, method) = match at.at {
            At::Innermost if at_entry => {
                let rip = self.read_word(at.rsp)?;
                (at.rsp, rip, at.rbp, Method::StackTop)
            }
            _ => {
                let fp = at.rbp;
                if !at.knows_rbp || fp & 7 != 0 || fp < at.rsp {
                    return Err(match fp {
                        0 if at.knows_rbp => StackEnd::Outermost,
                        _ => StackEnd::BadFramePointer,
                    });
                }
                let [rbp, rip] = self.memory.pair(fp).map_err(|Fault| StackEnd::Fault)?;
                (fp.saturating_add(8), rip, rbp, Method::FramePointer)
            }
        };
        *at = Registers {
            rip,
            rsp: slot.saturating_add(8),
            rbp,
            knows_rbp: true,
            at: At::Call,
        };
        Ok((slot, method))
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

    /// A return address, read at `slot`. It is looked up one byte earlier, inside the
    /// call: a call that never returns may be the last of its mapping.
    fn caller(&mut self, address: u64, slot: u64, method: Method) -> Result<(), StackEnd> {
        let address = match may_be_trampoline(address) {
            true => real_address(slot).unwrap_or(address),
            false => address,
        };
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
            8 => self.memory.word(address),
            _ => user_mem::read_value::<u32>(address).map(u64::from),
        };
        value.map_err(|Fault| StackEnd::Fault)
    }
}

/// What the hot loop over kept rules needs. A type of its own, for few live variables.
struct Hot<'a> {
    kept: &'a Mappings<'a>,
    memory: &'a NoFaults,
    last: Known,
    stack: &'a mut Stack,
    max_frames: u32,
}

impl Hot<'_> {
    /// Goes on from `at`, whose `rbp` is known, until something is not kept.
    #[inline(never)]
    fn follow(&mut self, at: &mut Registers) -> Result<(), StackEnd> {
        let mut inside = at.inside();
        if !self.last.holds(inside) || self.last.is_far() {
            return Ok(());
        }
        let Registers {
            mut rsp, mut rbp, ..
        } = *at;
        let mut base = self.last.key_base();
        let mut place = self.last.word_base(Method::Row);
        let mut room = self.max_frames.saturating_sub(self.stack.frames);
        let full = room;
        let end = loop {
            let Some(rule) = self.kept.rule(inside.wrapping_add(base)) else {
                break Ok(());
            };
            let from = match rule.by_rbp() {
                true => rbp,
                false => rsp,
            };
            let frame = from.wrapping_add(rule.offset());
            if frame <= rsp || frame & 7 != 0 {
                break match rule.is_outermost() {
                    true => Err(StackEnd::Outermost),
                    false => Err(StackEnd::BadRow),
                };
            }
            let read = match rule.saves_below() {
                true => self.memory.pair(frame.wrapping_sub(16)),
                false => self.apart(frame, rule, rbp),
            };
            let Ok([saved, rip]) = read else {
                break Err(StackEnd::Fault);
            };
            if may_be_trampoline(rip) {
                break Ok(());
            }
            let caller = rip.wrapping_sub(1);
            if !self.last.holds(caller) {
                match self.kept.find(caller) {
                    Some(known) if !known.is_far() => self.last = known,
                    _ => break Ok(()),
                }
                base = self.last.key_base();
                place = self.last.word_base(Method::Row);
            }
            if room == 0 || !self.stack.words.push(rip.wrapping_add(place)) {
                break Err(StackEnd::Limit);
            }
            room = room.wrapping_sub(1);
            (inside, rsp, rbp) = (caller, frame, saved);
        };
        let walked = full.wrapping_sub(room);
        if walked != 0 {
            *at = Registers {
                rip: inside.wrapping_add(1),
                rsp,
                rbp,
                knows_rbp: true,
                at: At::Call,
            };
            self.stack.frames = self.stack.frames.wrapping_add(walked);
        }
        end
    }

    /// The caller's `rbp`, and the return address, which are not side by side.
    #[inline(always)]
    fn apart(&self, frame: u64, rule: SimpleRule, rbp: u64) -> Result<[u64; 2], Fault> {
        let rip = self.memory.word(frame.wrapping_sub(8))?;
        let rbp = match rule.saved_at() {
            Some(at) => self.memory.word(frame.wrapping_add(at))?,
            None => rbp,
        };
        Ok([rbp, rip])
    }
}

/// What rules read of the current task.
struct OfTask<'a> {
    memory: &'a NoFaults,
    regs: &'a Regs<'a>,
}

impl Memory for OfTask<'_> {
    #[inline(always)]
    fn word(&self, address: u64) -> Option<u64> {
        self.memory.word(address).ok()
    }

    #[inline(always)]
    fn pair(&self, address: u64) -> Option<[u64; 2]> {
        self.memory.pair(address).ok()
    }

    fn register(&self, number: u8) -> Option<u64> {
        self.regs.get(Register::from_u8(number)?)
    }
}

/// Two words of a 32-bit task.
#[cold]
#[inline(never)]
fn read_narrow_pair(address: u64) -> Result<[u64; 2], Fault> {
    user_mem::read_value::<[u32; 2]>(address).map(|pair| pair.map(u64::from))
}

struct Resolver<'a, A, P> {
    objects: &'a Objects,
    /// The process, as the opener numbers it.
    pid: P,
    announce: A,
    /// What was looked up for earlier stacks.
    mappings: Option<Mappings<'a>>,
    /// The mapping of the frame before: frames cluster.
    last: Known,
}

impl<A: FnMut(u32), P: Fn() -> u32> Resolver<'_, A, P> {
    /// The frame of `address`, when `inside` lies in executable memory.
    fn resolve(&mut self, inside: u64, address: u64, method: Method) -> Option<Frame> {
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
