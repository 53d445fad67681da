// SPDX-License-Identifier: GPL-2.0-only
//! Walks a user stack: by the unwind rows of its files, and by frame pointers where there
//! are none.
//!
//! Every step goes up the stack, and a frame whose address is not in executable memory ends
//! the walk: a stack may be short, but it does not go on with a guess.

mod fast;

use crate::{
    common::{
        program::Register,
        record::{Frame, Method, StackEnd, Unmapped},
        unwind::{At, Memory, Registers, Stop}, //
    },
    stack::{
        mapping_cache::SimpleRule,
        walk_cache::{self, Made, Memo, Start, Walked},
        Request,
        Resolver,
        Stack, //
    },
    sys::{
        regs::RegisterFile,
        returns::{may_be_trampoline, real_address},
        user_mem::{Fault, NoFaults}, //
    }, //
};
use core::sync::atomic::Ordering::Relaxed;
use fast::{Hot, Stopped};

/// A walk that is under way.
pub(crate) struct Walk<'a, A, P> {
    stack: &'a mut Stack,
    resolver: Resolver<'a, A, P>,
    regs: &'a RegisterFile,
    request: &'a Request,
    memory: NoFaults,
    by_rows: bool,
    /// The walk before, to be compared with. None for who cannot have it to himself.
    walked: Option<Walked<'a>>,
    /// The end depends on the last registers alone, so the walk may be cached.
    ends_for_good: bool,
}

impl<'a, A: FnMut(u32), P: Fn() -> u32> Walk<'a, A, P> {
    /// A walk from these registers of the current task's on, by rows or not; `memo` has what
    /// may be the same.
    pub(crate) fn new(
        stack: &'a mut Stack,
        resolver: Resolver<'a, A, P>,
        regs: &'a RegisterFile,
        request: &'a Request,
        by_rows: bool,
        memo: Option<(&'a Memo, Start)>,
    ) -> Self {
        Walk {
            walked: match (memo, &resolver.mappings) {
                (Some((memo, start)), Some(kept)) => Some(Walked::new(memo, kept.fresh(), start)),
                _ => None,
            },
            stack,
            resolver,
            regs,
            request,
            memory: NoFaults::new(),
            by_rows,
            ends_for_good: false,
        }
    }

    /// The words of its frames.
    pub(crate) fn words(&self) -> &[u64] {
        self.stack.words()
    }

    /// Where nothing could be read.
    pub(crate) fn missed(&self) -> Option<u64> {
        self.memory.missed()
    }

    /// Keeps a walk that has ended so for the next one.
    pub(crate) fn keep(&mut self, end: StackEnd) {
        let is_final = self.is_final(end);
        if let (Some(walked), true) = (&mut self.walked, is_final) {
            walked.keep(end);
        }
    }

    /// Whether the end, too, depends on the last registers alone.
    fn is_final(&self, end: StackEnd) -> bool {
        let is_full = self.stack.frames >= self.request.max_frames;
        self.ends_for_good || (end == StackEnd::Limit && is_full)
    }

    /// For how many more frames there is room.
    fn room(&self) -> usize {
        self.request.max_frames.saturating_sub(self.stack.frames) as usize
    }

    /// The stack has this id.
    pub(crate) fn set_id(&self, id: Option<u32>, end: StackEnd) {
        if let (Some(walked), true, Some(id)) = (&self.walked, self.is_final(end), id) {
            walked.set_id(id);
        }
    }

    /// Walks to the end.
    pub(crate) fn run(&mut self) -> Result<StackEnd, StackEnd> {
        self.first()?;
        let mut at = Registers {
            rip: self.regs.ip(),
            rsp: self.regs.sp(),
            rbp: self.regs.bp(),
            knows_rbp: true,
            at: At::Innermost,
        };
        if !self.regs.is_64bit() {
            return Err(StackEnd::Unsupported);
        }
        let room = self.room();
        let known = match &mut self.walked {
            Some(walked) => walked.at_start(&self.memory, room),
            None => None,
        };
        if let Some(known) = known {
            self.take(&known, &mut at)?;
        }
        match self.by_rows {
            true => self.rows(&mut at),
            false => self.frame_pointers(&mut at),
        }
    }

    /// Takes steps that are known.
    fn take(&mut self, known: &walk_cache::Known<'_>, at: &mut Registers) -> Result<(), StackEnd> {
        if known.steps.is_empty() && known.end.is_none() {
            return Ok(());
        }
        let room = self.room();
        for step in known.steps.iter().take(room) {
            if !self.stack.words.push(step.word.load(Relaxed)) {
                return Err(StackEnd::Limit);
            }
        }
        let taken = known.steps.len().min(room) as u32;
        self.stack.frames = self.stack.frames.wrapping_add(taken);
        if known.steps.len() > room {
            return Err(StackEnd::Limit);
        }
        if let Some(last) = known.steps.last() {
            *at = Registers {
                rip: last.rip.load(Relaxed),
                rsp: last.slot.load(Relaxed).wrapping_add(8),
                rbp: last.rbp.load(Relaxed),
                knows_rbp: true,
                at: At::Call,
            };
        }
        match known.end {
            Some(end) => {
                self.ends_for_good = true;
                Err(end)
            }
            None => {
                // The next step needs the mapping that this one has led to.
                let mapping = self.resolver.resolve(at.inside(), at.rip, Method::Row);
                mapping.map(|_| ()).ok_or(StackEnd::NotCode)
            }
        }
    }

    /// Takes down a step, and takes those behind it when they are known.
    fn note(&mut self, made: &Made, at: &mut Registers) -> Result<(), StackEnd> {
        let Some(walked) = &mut self.walked else {
            return Ok(());
        };
        if !walked.step(made) {
            return Ok(());
        }
        self.take_behind(at)
    }

    /// Takes the steps behind one that has led to a kept one.
    #[cold]
    fn take_behind(&mut self, at: &mut Registers) -> Result<(), StackEnd> {
        let room = self.room();
        let Some(walked) = &mut self.walked else {
            return Ok(());
        };
        match walked.behind_step(&self.memory, room) {
            Some(known) => self.take(&known, at),
            None => Ok(()),
        }
    }

    /// Nothing before here can be kept together with what follows.
    fn break_off(&mut self) {
        if let Some(walked) = &mut self.walked {
            walked.break_off();
        }
    }

    /// Follows frame pointers.
    fn frame_pointers(&mut self, at: &mut Registers) -> Result<StackEnd, StackEnd> {
        if at.at == At::Innermost && self.request.at_entry {
            let slot = at.rsp;
            let rip = self.memory.word(slot).map_err(|Fault| StackEnd::Fault)?;
            let made = Made {
                slot,
                rip,
                rbp_slot: 0,
                rbp: at.rbp,
                by_rbp: true,
                word: 0,
            };
            self.caller(made, Method::StackTop, at)?;
        }
        loop {
            let fp = at.rbp;
            if fp & 7 != 0 || fp < at.rsp {
                self.ends_for_good = true;
                return match fp {
                    0 => Ok(StackEnd::Outermost),
                    _ => Err(StackEnd::BadFramePointer),
                };
            }
            let [rbp, rip] = self.memory.pair(fp).map_err(|Fault| StackEnd::Fault)?;
            if rip == 0 {
                return Ok(StackEnd::Outermost);
            }
            let made = Made {
                slot: fp.wrapping_add(8),
                rip,
                rbp_slot: fp,
                rbp,
                by_rbp: true,
                word: 0,
            };
            self.caller(made, Method::FramePointer, at)?;
        }
    }

    /// Goes to a caller whose return address and frame pointer were read.
    #[inline(always)]
    fn caller(
        &mut self,
        mut made: Made,
        method: Method,
        at: &mut Registers,
    ) -> Result<(), StackEnd> {
        let last = self.resolver.last;
        *at = Registers {
            rip: made.rip,
            rsp: made.slot.saturating_add(8),
            rbp: made.rbp,
            knows_rbp: true,
            at: At::Call,
        };
        let is_plain = last.holds(made.rip.wrapping_sub(1)) && !last.is_far();
        if !is_plain || may_be_trampoline(made.rip) {
            return self.far_caller(made, method, at);
        }
        made.word = made.rip.wrapping_add(last.word_base(method));
        let full = self.stack.frames >= self.request.max_frames;
        if full || !self.stack.words.push(made.word) {
            return Err(StackEnd::Limit);
        }
        self.stack.frames = self.stack.frames.wrapping_add(1);
        self.note(&made, at)
    }

    /// A caller in another mapping than the frame before, or behind a trampoline.
    #[cold]
    #[inline(never)]
    fn far_caller(
        &mut self,
        mut made: Made,
        method: Method,
        at: &mut Registers,
    ) -> Result<(), StackEnd> {
        let mut is_known = true;
        if may_be_trampoline(made.rip) {
            if let Some(real) = real_address(made.slot) {
                at.rip = real;
                is_known = false;
            }
        }
        let inside = at.rip.checked_sub(1).ok_or(StackEnd::NotCode)?;
        let frame = self.resolver.resolve(inside, at.rip, method);
        let frame = frame.ok_or(StackEnd::NotCode)?;
        self.push(frame)?;
        match frame.encode() {
            ([word, _], 1) if is_known => {
                made.word = word;
                self.note(&made, at)
            }
            _ => {
                self.break_off();
                Ok(())
            }
        }
    }

    /// Follows unwind rows; where there are none, the frame pointer.
    fn rows(&mut self, at: &mut Registers) -> Result<StackEnd, StackEnd> {
        loop {
            self.kept_rows(at)?;
            let before = *at;
            let inside = at.inside();
            let known = self.resolver.last;
            let offset = inside.wrapping_add(known.delta);
            let table = match known.holds(inside) {
                true => self.resolver.rows(),
                false => None,
            };
            let rule = table.and_then(|table| table.find(offset));
            let memory = OfTask {
                memory: &self.memory,
                regs: self.regs,
            };
            let mut simple = None;
            let stepped = match rule {
                Some(rule) => {
                    simple = SimpleRule::of(rule);
                    if let (Some(kept), Some(simple)) = (&self.resolver.mappings, simple) {
                        kept.keep_rule(known.object, offset, simple);
                    }
                    rule.step(at, &memory)
                }
                None => Err(Stop::Unknown),
            };
            let at_entry = self.request.at_entry && before.at == At::Innermost;
            let (slot, method) = match stepped {
                Ok(slot) if at.at == At::Interrupted => (slot, Method::Signal),
                Ok(slot) => (slot, Method::Row),
                // At an entry the caller is on top of the stack, whatever is known.
                Err(Stop::Unknown)
                    if self.request.copies
                        && !at_entry
                        && table.is_none()
                        && known.holds(inside) =>
                {
                    self.stack.rest = Some(*at);
                    return Err(StackEnd::Copied);
                }
                Err(Stop::Unknown) => {
                    // Where a file says of its code how it is left, but not of this, or
                    // nobody has asked it yet, a frame pointer would be a guess.
                    let objects = self.resolver.objects();
                    let guesses = match (rule, table) {
                        (Some(rule), _) => !rule.leads_by_frame_pointer(),
                        (None, Some(table)) => !table.is_empty(),
                        (None, None) => known.holds(inside) && objects.has_rows(),
                    };
                    if guesses && !at_entry {
                        // A table never changes; where there is none yet, one may come.
                        self.ends_for_good = table.is_some();
                        return Err(match table {
                            Some(_) => StackEnd::NoRow,
                            None => StackEnd::RowsNotReady,
                        });
                    }
                    self.without_row(at, at_entry)?
                }
                Err(Stop::Outermost) => {
                    self.ends_for_good = true;
                    return Ok(StackEnd::Outermost);
                }
                Err(Stop::Fault) => return Err(StackEnd::Fault),
                Err(Stop::Unsupported) => return Err(StackEnd::Unsupported),
                Err(Stop::NotAbove) => return Err(StackEnd::BadRow),
            };
            let simple = simple.filter(|_| before.knows_rbp && method == Method::Row);
            if at.rip == 0 {
                return Ok(StackEnd::Outermost);
            }
            self.next_frame(slot, method, simple, at)?;
        }
    }

    /// Goes to the frame that a row, or what stands in for one, has led to.
    fn next_frame(
        &mut self,
        slot: u64,
        method: Method,
        simple: Option<SimpleRule>,
        at: &mut Registers,
    ) -> Result<(), StackEnd> {
        let read = at.rip;
        if may_be_trampoline(read) {
            at.rip = real_address(slot).unwrap_or(read);
        }
        let frame = self.resolver.resolve(at.inside(), at.rip, method);
        let frame = frame.ok_or(StackEnd::NotCode)?;
        self.push(frame)?;
        match (simple, frame.encode()) {
            (Some(simple), ([word, _], 1)) if at.rip == read && at.knows_rbp => {
                let made = Made {
                    slot,
                    rip: read,
                    rbp_slot: simple.saved_slot(slot.wrapping_add(8)),
                    rbp: at.rbp,
                    by_rbp: simple.by_rbp(),
                    word,
                };
                self.note(&made, at)
            }
            _ => {
                self.break_off();
                Ok(())
            }
        }
    }

    /// Follows rules that are kept, as far as there are some.
    fn kept_rows(&mut self, at: &mut Registers) -> Result<(), StackEnd> {
        loop {
            let kept = self.resolver.mappings.as_ref().filter(|_| at.knows_rbp);
            let (Some(kept), Some(walked)) = (kept, &mut self.walked) else {
                return Ok(());
            };
            let mut hot = Hot {
                kept,
                memory: &self.memory,
                last: self.resolver.last,
                stack: &mut *self.stack,
                max_frames: self.request.max_frames,
                walked,
            };
            let stopped = hot.follow(at);
            self.resolver.last = hot.last;
            match stopped {
                Stopped::NotKept => return Ok(()),
                Stopped::Ended(end) => {
                    self.ends_for_good = end == StackEnd::Outermost;
                    return Err(end);
                }
                Stopped::MeetsKept => self.take_behind(at)?,
            }
        }
    }

    /// Steps where no row says how: tells where the return address was, and the way.
    #[cold]
    fn without_row(
        &mut self,
        at: &mut Registers,
        at_entry: bool,
    ) -> Result<(u64, Method), StackEnd> {
        let (slot, rip, rbp, method) = match at_entry {
            true => {
                let rip = self.memory.word(at.rsp).map_err(|Fault| StackEnd::Fault)?;
                (at.rsp, rip, at.rbp, Method::StackTop)
            }
            false => {
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
    fn first(&mut self) -> Result<(), StackEnd> {
        let (ip, ahead) = (self.regs.ip(), self.request.ahead);
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

    fn push(&mut self, frame: Frame) -> Result<(), StackEnd> {
        if self.stack.frames >= self.request.max_frames || !self.stack.push(frame) {
            return Err(StackEnd::Limit);
        }
        Ok(())
    }
}

/// What rules read of the current task.
struct OfTask<'a> {
    memory: &'a NoFaults,
    regs: &'a RegisterFile,
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
