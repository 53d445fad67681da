// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output's queries about frames, to a session or a capsule.

use crate::hits::view::FrameView;
use crate::names::jit::Moment;
use crate::names::named::NamedFrame;
use libnsprobe::common::record::{
    CodeMapping, Details, Frame, Frames, Hit, StackCopy, StackEnd, HIT_KERNEL,
};
use nsprobe_symbolize::KernelSymbol;
use std::rc::Rc;

/// Looks up the names of frames.
pub trait NameFrames {
    /// The name of `frame`.
    fn name(&mut self, frame: Frame) -> Rc<NamedFrame>;

    /// The name of `frame` in a process at a moment: generated code belongs to its process.
    fn name_at(&mut self, frame: Frame, _: Moment) -> Rc<NamedFrame> {
        self.name(frame)
    }

    /// A frame with what is known of it.
    fn view(&mut self, frame: Frame) -> FrameView {
        FrameView {
            frame,
            named: self.name(frame),
        }
    }

    /// Asks for the names of a stack, or of other frames, at once; whether all are there, or
    /// are not waited for. Until then, [`wait`](Self::wait).
    fn prepare(&mut self, _frames: &[Frame]) -> bool {
        true
    }

    /// Waits a little for what was asked for.
    fn wait(&mut self) {}

    /// The frames of a stack's words with their names, however long these take.
    fn views(&mut self, words: &[u64]) -> Vec<FrameView>
    where
        Self: Sized,
    {
        let frames: Vec<Frame> = Frames(words).collect();
        self.prepare_all(&frames);
        frames.into_iter().map(|frame| self.view(frame)).collect()
    }

    /// The names of frames that will be printed, however long they take.
    fn prepare_all(&mut self, frames: &[Frame]) {
        while !self.prepare(frames) {
            self.wait();
        }
    }
}

/// Supplies everything that records do not contain.
pub trait Lookup: NameFrames {
    /// The words of a stack that records name by its id.
    fn stack(&mut self, id: u32) -> Option<Rc<[u64]>>;

    /// The frames after the first `count` ones of a hit whose stack was copied.
    fn rest(&mut self, hit: &Hit, count: usize) -> Rest;

    /// Keeps a copy of a stack for the hit that comes next.
    fn note_copy(&mut self, head: &StackCopy, mappings: &[CodeMapping], words: &[u64]);

    /// The kernel's function that an address lies in; `exact` says whether it is that of the
    /// instruction itself, and not after a call.
    fn kernel(&self, address: u64, exact: bool) -> Option<&KernelSymbol>;

    /// Stacks that [`rest`](Self::rest) has finished.
    fn finished(&self) -> u64;

    /// The name of the container that a hit's thread was in then. Not escaped.
    fn container(&mut self, _: &Hit) -> Option<String> {
        None
    }
}

/// The frames after those that the module took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// They are these, and this is why there are no more.
    Known(Vec<Frame>, StackEnd),
    /// Their names are unknown.
    Unknown,
    /// The file that names them is still being read: ask again.
    NotYet,
}

/// Used in place of a `StackEnd`: the id of the stack is unknown.
const FRAMES_UNKNOWN: u8 = u8::MAX;

/// A hit with all its frames, as far as they are known; none when that is not known yet.
pub fn whole_stack(
    lookup: &mut impl Lookup,
    hit: &Hit,
    details: &Details<'_>,
) -> Option<(Hit, Vec<Frame>)> {
    let mut hit = *hit;
    let mut frames: Vec<Frame> = match hit.stack {
        0 => details.frames.collect(),
        id => match lookup.stack(id) {
            Some(words) => Frames(&words).collect(),
            None => {
                hit.stack_end = FRAMES_UNKNOWN;
                Vec::new()
            }
        },
    };
    if hit.stack_end == StackEnd::Copied as u8 {
        match lookup.rest(&hit, frames.len()) {
            Rest::Known(rest, end) => {
                frames.extend(rest);
                hit.stack_end = end as u8;
            }
            Rest::Unknown => {}
            Rest::NotYet => return None,
        }
    }
    Some((hit, frames))
}

/// Frames as records and rows have them.
pub fn words_of(frames: &[Frame]) -> Vec<u64> {
    let mut words = Vec::with_capacity(frames.len());
    for frame in frames {
        let (encoded, count) = frame.encode();
        words.extend(encoded.iter().take(count));
    }
    words
}

/// The addresses of the kernel's stack in a record, and whether each is that of the instruction
/// itself: a sample begins where the kernel was interrupted; all others are return addresses.
pub fn kernel_addresses<'a>(
    hit: &Hit,
    addresses: &'a [u64],
) -> impl Iterator<Item = (u64, bool)> + 'a {
    let is_sample = hit.flags & HIT_KERNEL != 0;
    let numbered = addresses.iter().enumerate();
    numbered.map(move |(number, address)| (*address, is_sample && number == 0))
}
