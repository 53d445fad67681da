// SPDX-License-Identifier: MIT OR Apache-2.0
//! What output asks of a session, or a capsule, about frames.

use crate::hits::rest::Rests;
use crate::names::jit::{CodeName, Moment};
use crate::names::named::{without_object, Named};
use crate::names::Names;
use crate::output::text::FrameView;
use crate::tasks::HitNames;
use libnsprobe::common::record::{
    CodeMapping, Details, Frame, Frames, Hit, Method, StackCopy, StackEnd, Unmapped,
};
use libnsprobe::{Session, Stacks};
use nsprobe_symbolize::{KernelSymbol, KernelSymbols, SourceFrame};
use std::collections::HashSet;
use std::path::PathBuf;
use std::rc::Rc;

/// Who knows the names of frames.
pub(crate) trait NameFrames {
    /// What is known of `frame`.
    fn name(&mut self, frame: Frame) -> Rc<Named>;

    /// What is known of `frame` of a process at a moment: generated code is its own.
    fn name_at(&mut self, frame: Frame, _: Moment) -> Rc<Named> {
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

    /// The names of frames that will be printed, however long they take.
    fn prepare_all(&mut self, frames: &[Frame]) {
        while !self.prepare(frames) {
            self.wait();
        }
    }
}

/// Who knows all that records do not say themselves.
pub(crate) trait Lookup: NameFrames {
    /// The words of a stack that records name by its id.
    fn stack(&mut self, id: u32) -> Option<Rc<[u64]>>;

    /// The frames behind the first `count` ones of a hit whose stack was copied.
    fn rest(&mut self, hit: &Hit, count: usize) -> Rest;

    /// Keeps a copy of a stack for the hit that comes next.
    fn note_copy(&mut self, head: &StackCopy, mappings: &[CodeMapping], words: &[u64]);

    /// The kernel's function that a return address lies in.
    fn kernel(&self, return_address: u64) -> Option<&KernelSymbol>;

    /// Stacks that [`rest`](Self::rest) has finished.
    fn finished(&self) -> u64;

    /// The name of the container that a hit's thread was in then. Not escaped.
    fn container(&mut self, _: &Hit) -> Option<String> {
        None
    }
}

/// The frames behind those that the module took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// They are these, and this is why there are no more.
    Known(Vec<Frame>, StackEnd),
    /// Nothing is known of them.
    Unknown,
    /// Somebody reads what they are found by: it is to be asked again.
    NotYet,
}

/// In place of a `StackEnd`: the stack is named by an id that nobody knows.
const FRAMES_UNKNOWN: u8 = u8::MAX;

/// A hit with all its frames, as far as they are known; none when that is not known yet.
pub(crate) fn whole_stack(
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
pub(crate) fn words_of(frames: &[Frame]) -> Vec<u64> {
    let mut words = Vec::with_capacity(frames.len());
    for frame in frames {
        let (encoded, count) = frame.encode();
        words.extend(encoded.iter().take(count));
    }
    words
}

/// What is known of the records of a session.
pub(crate) struct Live {
    pub(crate) names: Names,
    rests: Rests,
    stacks: Stacks,
    kernel: KernelSymbols,
    containers: Option<HitNames>,
}

impl Live {
    /// With these names, and with those of the kernel's functions if they are wanted.
    pub(crate) fn new(names: Names, with_kernel: bool) -> Live {
        Live {
            names,
            rests: Rests::default(),
            stacks: Stacks::default(),
            kernel: match with_kernel {
                // Without them, addresses are printed.
                true => KernelSymbols::read().unwrap_or_default(),
                false => KernelSymbols::default(),
            },
            containers: None,
        }
    }

    /// The same with the names of containers.
    pub(crate) fn with_containers(self, names: HitNames) -> Live {
        Live {
            containers: Some(names),
            ..self
        }
    }

    /// The same with the session, to ask.
    pub(crate) fn of<'a>(&'a mut self, session: &'a Session) -> LiveOf<'a> {
        LiveOf {
            session,
            live: self,
        }
    }
}

/// What is known of the records of a session, with the session.
pub(crate) struct LiveOf<'a> {
    session: &'a Session,
    live: &'a mut Live,
}

impl LiveOf<'_> {
    /// What is at an address in the generated code of a process at a moment; `exact` says
    /// whether it is that of the instruction itself.
    pub(crate) fn generated(&mut self, address: u64, exact: bool, moment: Moment) -> CodeName {
        self.live.names.generated(address, exact, moment)
    }

    /// Adds the frames that the module took of a hit to others.
    pub(crate) fn add_frames(
        &mut self,
        hit: &Hit,
        details: &Details<'_>,
        into: &mut HashSet<Frame>,
    ) {
        match hit.stack {
            0 => into.extend(details.frames),
            id => {
                let words = self.stack(id);
                into.extend(words.iter().flat_map(|words| Frames(words)));
            }
        }
    }
}

impl NameFrames for LiveOf<'_> {
    fn name(&mut self, frame: Frame) -> Rc<Named> {
        match frame {
            Frame::Address {
                address,
                why,
                method,
            } if why == Unmapped::Kernel as u8 => {
                let behind = u64::from(Method::is_exact(method));
                let symbol = self.kernel(address.wrapping_add(behind));
                Rc::new(symbol.map_or_else(|| without_object(why), |it| in_kernel(it, address)))
            }
            frame => self.live.names.name(self.session, frame),
        }
    }

    fn name_at(&mut self, frame: Frame, moment: Moment) -> Rc<Named> {
        self.live.names.name_at(self.session, frame, moment)
    }

    fn prepare(&mut self, frames: &[Frame]) -> bool {
        self.live.names.prepare(self.session, frames)
    }

    fn wait(&mut self) {
        self.live.names.wait();
    }
}

/// A place in a function of the kernel.
fn in_kernel(symbol: &KernelSymbol, address: u64) -> Named {
    let file = symbol.module.as_deref().unwrap_or("kernel");
    Named {
        functions: vec![SourceFrame {
            function: symbol.name.clone(),
            function_offset: Some(address.wrapping_sub(symbol.address)),
            file: None,
            line: None,
            inlined: false,
        }],
        path: Some(PathBuf::from(format!("[{file}]"))),
        ..Named::default()
    }
}

impl Lookup for LiveOf<'_> {
    fn stack(&mut self, id: u32) -> Option<Rc<[u64]>> {
        // A session that is asked for its own stacks has them.
        self.live.stacks.frames(self.session, id).ok().flatten()
    }

    fn rest(&mut self, hit: &Hit, count: usize) -> Rest {
        let Live { names, rests, .. } = &mut *self.live;
        rests.finish(self.session, names, hit, count)
    }

    fn note_copy(&mut self, head: &StackCopy, mappings: &[CodeMapping], words: &[u64]) {
        self.live.rests.note(head, mappings, words);
    }

    fn kernel(&self, return_address: u64) -> Option<&KernelSymbol> {
        self.live.kernel.find(return_address)
    }

    fn finished(&self) -> u64 {
        self.live.rests.finished()
    }

    fn container(&mut self, hit: &Hit) -> Option<String> {
        let names = self.live.containers.as_mut()?;
        names.name(hit.pidns_id)
    }
}
