// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hit, its frames and their names, as output takes them.

use crate::names::named::{bare_address, NamedFrame};
use libnsprobe::common::record::{Frame, Hit, Method, StackEnd, Unmapped, HIT_RETURN};
use nsprobe_spec::decode::{FieldFormat, FieldValue};
use nsprobe_symbolize::KernelSymbol;
use std::rc::Rc;

/// A hit with everything that output needs to know.
#[derive(Debug)]
pub struct HitView<'a> {
    /// Its record.
    pub hit: &'a Hit,
    /// When the trace began, in the clock of the records.
    pub start_ns: u64,
    /// `binary:function`, escaped.
    pub label: &'a str,
    /// The probed file's path.
    pub binary: &'a str,
    /// The probed function.
    pub function: &'a str,
    /// Duration of the call, for a return whose entry was seen.
    pub elapsed_ns: Option<u64>,
    /// The fields that were fetched.
    pub formats: &'a [FieldFormat],
    /// A value for each of the formats.
    pub values: &'a [FieldValue],
    /// The stack, innermost first; none when none was asked for.
    pub frames: &'a [FrameView],
    /// The kernel's stack, innermost first.
    pub kernel: &'a [KernelFrame<'a>],
    /// The container that it was in, when its name is known.
    pub container: Option<&'a str>,
}

/// A frame of the kernel's stack, and its name.
#[derive(Clone, Copy, Debug)]
pub struct KernelFrame<'a> {
    /// A return address, or where a sample was taken.
    pub address: u64,
    /// The function; none when the kernel hides its addresses.
    pub symbol: Option<&'a KernelSymbol>,
}

/// A frame and its name.
#[derive(Clone, Debug)]
pub struct FrameView {
    /// Its words in the record.
    pub frame: Frame,
    /// What is known of the place.
    pub named: Rc<NamedFrame>,
}

impl HitView<'_> {
    /// Seconds since the trace began.
    pub fn seconds(&self) -> f64 {
        self.hit.time_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// The thread's name, without its padding.
    pub fn comm(&self) -> &[u8] {
        let comm = &self.hit.comm;
        let end = comm
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(comm.len());
        comm.get(..end).unwrap_or_default()
    }

    /// Whether the function returned.
    pub fn is_return(&self) -> bool {
        self.hit.flags & HIT_RETURN != 0
    }

    /// Whether the end of the stack is unknown.
    pub fn has_unknown_end(&self) -> bool {
        StackEnd::from_u8(self.hit.stack_end).is_none()
    }
}

/// Whether the frame of this number may not exist, or not be the caller of the one before it.
pub fn is_doubtful(frames: &[FrameView], number: usize) -> bool {
    let is_wrong = frames.get(number).is_some_and(|view| view.named.doubtful);
    is_wrong || is_past_generated_code(frames, number)
}

/// Whether frames may be missing in the middle of a stack.
pub fn may_lack_frames(frames: &[FrameView]) -> bool {
    (0..frames.len()).any(|number| is_past_generated_code(frames, number))
}

/// Whether a frame was found by the frame pointer of generated code, or leads to one found so. No
/// file says whether that code keeps a frame pointer: if not, it is that of a function further out,
/// and the frames between are not seen.
fn is_past_generated_code(frames: &[FrameView], number: usize) -> bool {
    let Some(view) = frames.get(number) else {
        return false;
    };
    let method = match view.frame {
        Frame::Object { method, .. } | Frame::Address { method, .. } => method,
    };
    let before = number.checked_sub(1).and_then(|before| frames.get(before));
    let mut both = before.into_iter().chain([view]);
    method == Method::FramePointer as u8
        && both.any(|view| bare_address(&view.frame, Unmapped::Anonymous).is_some())
}
