// SPDX-License-Identifier: GPL-2.0-only
//! Walks a user stack by the unwind rows of its files, and by frame pointers where there are none.
//!
//! Every step goes up the stack, and a frame whose address is not in executable memory ends the
//! walk: a stack may be truncated, but it never continues with a guess.

mod fast;
mod frame_pointers;
mod rows;

use crate::{
    common::{
        record::{Frame, Method, StackEnd, Unmapped},
        unwind::{At, Registers}, //
    },
    stack::{
        resolver::Resolver,
        walk_cache::{CachedWalk, KnownSteps, UnwindStep, WalkKey, WalkRecorder},
        Stack, //
        StackRequest,
    },
    sys::{
        regs::RegisterFile,
        user_mem::NoFaults, //
    }, //
};
use core::sync::atomic::Ordering::Relaxed;

/// A walk in progress.
pub(crate) struct Walk<'a, A, P> {
    stack: &'a mut Stack,
    resolver: Resolver<'a, A, P>,
    regs: &'a RegisterFile,
    request: &'a StackRequest,
    memory: NoFaults,
    by_rows: bool,
    /// Compares this walk with a cached one. `None` if another context on this CPU holds the
    /// caches.
    recorder: Option<WalkRecorder<'a>>,
    /// The end depends on the last registers alone, so the walk may be cached.
    ends_for_good: bool,
}

impl<'a, A: FnMut(u32), P: Fn() -> u32> Walk<'a, A, P> {
    /// A walk of the current task from these registers, by rows or by frame pointers; `cached`
    /// holds a walk that may match.
    pub(crate) fn new(
        stack: &'a mut Stack,
        resolver: Resolver<'a, A, P>,
        regs: &'a RegisterFile,
        request: &'a StackRequest,
        by_rows: bool,
        (memory, cached): (NoFaults, Option<(&'a CachedWalk, WalkKey, bool)>),
    ) -> Self {
        Walk {
            recorder: match (cached, &resolver.mappings) {
                (Some((cached, key, has_key)), Some(kept)) => {
                    Some(WalkRecorder::new(cached, kept.arrays(), key, has_key))
                }
                _ => None,
            },
            stack,
            resolver,
            regs,
            request,
            memory,
            by_rows,
            ends_for_good: false,
        }
    }

    pub(crate) fn words(&self) -> &[u64] {
        self.stack.words()
    }

    /// The address that could not be read.
    pub(crate) fn missed(&self) -> Option<u64> {
        self.memory.missed()
    }

    /// Caches the walk, which ended with `end`, if it may be cached.
    pub(crate) fn keep(&mut self, end: StackEnd) {
        let is_final = self.is_final(end);
        if let (Some(recorder), true) = (&mut self.recorder, is_final) {
            recorder.keep(end);
        }
    }

    /// Whether the end, too, depends on the last registers alone.
    fn is_final(&self, end: StackEnd) -> bool {
        let is_full = self.stack.frames >= self.request.max_frames;
        self.ends_for_good || (end == StackEnd::Limit && is_full)
    }

    /// The number of frames that still fit.
    fn room(&self) -> usize {
        self.request.max_frames.saturating_sub(self.stack.frames) as usize
    }

    /// Records the id of the stack in the cache.
    pub(crate) fn set_id(&self, id: Option<u32>, end: StackEnd) {
        if let (Some(recorder), true, Some(id)) = (&self.recorder, self.is_final(end), id) {
            recorder.set_id(id);
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
            ..Registers::default()
        };
        // Only walks of 64-bit code are cached.
        if self.recorder.is_none() && !self.regs.is_64bit() {
            return Err(StackEnd::Unsupported);
        }
        let room = self.room();
        let known = match &mut self.recorder {
            Some(recorder) => recorder.at_start(&self.memory, room),
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

    /// Takes over the steps that are known.
    fn take(&mut self, known: &KnownSteps<'_>, at: &mut Registers) -> Result<(), StackEnd> {
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
                ..*at
            };
        }
        match known.end {
            Some(end) => {
                self.ends_for_good = true;
                Err(end)
            }
            None => {
                // The next step needs the mapping of this step's caller.
                let mapping = self.resolver.resolve(at.inside(), at.rip, Method::Row);
                mapping.map(|_| ()).ok_or(StackEnd::NotCode)
            }
        }
    }

    /// Notes a step, and takes over the steps after it if they are known.
    fn note(&mut self, step: &UnwindStep, at: &mut Registers) -> Result<(), StackEnd> {
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        if !recorder.step(step) {
            return Ok(());
        }
        self.take_behind(at)
    }

    /// Takes over the steps after one that matched a kept step.
    #[cold]
    fn take_behind(&mut self, at: &mut Registers) -> Result<(), StackEnd> {
        let room = self.room();
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        match recorder.behind_step(&self.memory, room) {
            Some(known) => self.take(&known, at),
            None => Ok(()),
        }
    }

    /// Nothing before this point can be cached together with what follows.
    fn break_off(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.break_off();
        }
    }

    /// The walk goes on on another stack, where kept steps may be met from the first one on.
    #[cold]
    fn start_over(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.start_over();
        }
    }

    /// Frame 0: the function that was probed.
    fn first(&mut self) -> Result<(), StackEnd> {
        let (ip, breakpoint_delta) = (self.regs.ip(), self.request.breakpoint_delta);
        let frame = match self.resolver.resolve(ip, ip, Method::Registers) {
            Some(Frame::Object { id, offset, method }) => Frame::Object {
                id,
                offset: offset.wrapping_sub(breakpoint_delta),
                method,
            },
            Some(frame) => frame,
            None => Frame::Address {
                address: ip.wrapping_sub(breakpoint_delta),
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
