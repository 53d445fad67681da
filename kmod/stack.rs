// SPDX-License-Identifier: GPL-2.0-only
//! The user stack of the current task, as objects and file offsets.
//!
//! Runs in handlers: every read is non-faulting. A stack may be short, with the reason.

pub(crate) mod capture;
pub(crate) mod mapping_cache;
pub(crate) mod raw_copy;
pub(crate) mod resolver;
pub(crate) mod stack_table;
pub(crate) mod walk;
pub(crate) mod walk_cache;

use crate::{
    common::{
        record::{Frame, WORDS_MAX},
        unwind::Registers, //
    },
    sys::scratch::Words, //
};

/// The parameters of a walk.
#[derive(Clone, Copy)]
pub(crate) struct StackRequest {
    /// The return address is on top of the stack.
    pub(crate) at_entry: bool,
    /// Bytes from frame 0 to the instruction pointer.
    pub(crate) breakpoint_delta: u64,
    /// The maximum number of frames.
    pub(crate) max_frames: u32,
    /// Whether a walk into a file without rows ends there, for user space to continue from a copy.
    pub(crate) copies: bool,
    /// Whether a known stack may be returned as its id alone.
    pub(crate) by_id: bool,
}

/// A captured stack.
pub(crate) struct Stack {
    pub(crate) words: Words<WORDS_MAX>,
    pub(crate) frames: u32,
    /// The stack's id, if it has one; then there may be no words.
    id: Option<u32>,
    /// The registers from which user space continues the walk.
    pub(crate) rest: Option<Registers>,
    /// The address that could not be read, where the walk ended.
    missed: Option<u64>,
}

impl Stack {
    /// An empty stack.
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

    /// The stack's id, which replaces its words.
    pub(crate) fn id(&self) -> Option<u32> {
        self.id
    }

    /// The registers of the last frame, if user space continues the walk.
    pub(crate) fn rest(&self) -> Option<Registers> {
        self.rest
    }

    /// The address that could not be read, if the walk ended there.
    pub(crate) fn missed(&self) -> Option<u64> {
        self.missed
    }

    /// Appends a frame; returns false if there is no room.
    pub(crate) fn push(&mut self, frame: Frame) -> bool {
        let ([first, second], count) = frame.encode();
        let pushed = match count {
            1 => self.words.push(first),
            _ => self.words.extend(&[first, second]),
        };
        self.frames = self.frames.wrapping_add(u32::from(pushed));
        pushed
    }
}
