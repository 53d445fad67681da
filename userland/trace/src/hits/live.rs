// SPDX-License-Identifier: MIT OR Apache-2.0
//! Supplies what records do not contain, while a session lasts.

use crate::attach::run::Added;
use crate::hits::lookup::{Lookup, NameFrames, Rest};
use crate::hits::offline_unwind::StackContinuations;
use crate::names::jit::{CodeName, Moment};
use crate::names::named::{bare_address, in_kernel, NamedFrame};
use crate::names::FrameNames;
use crate::tasks::HitNames;
use libnsprobe::common::record::{
    CodeMapping, Details, Frame, Frames, Hit, Record, StackCopy, Unmapped,
};
use libnsprobe::{Batch, Session, Stacks};
use nsprobe_symbolize::{KernelSymbol, KernelSymbols};
use std::collections::HashSet;
use std::rc::Rc;

/// Names and containers for the records of a session.
pub struct Live {
    /// The names of frames.
    pub names: FrameNames,
    continuations: StackContinuations,
    stacks: Stacks,
    kernel: KernelSymbols,
    containers: Option<HitNames>,
    /// The traced process if there is only one: rows of tables do not name their process.
    only_process: Option<u32>,
}

impl Live {
    /// With these names, and with those of the kernel's functions if they are requested.
    pub(crate) fn new(names: FrameNames, with_kernel: bool) -> Live {
        Live {
            names,
            continuations: StackContinuations::default(),
            stacks: Stacks::default(),
            kernel: match with_kernel {
                // Without them, addresses are printed.
                true => KernelSymbols::read().unwrap_or_default(),
                false => KernelSymbols::default(),
            },
            containers: None,
            only_process: None,
        }
    }

    /// Also names generated code in rows of tables, as that of the only traced process.
    pub fn with_only_process(self, only_process: Option<u32>) -> Live {
        Live {
            only_process,
            ..self
        }
    }

    /// Reads what the only process reports of its code, while it lives.
    pub fn look_at_code(&mut self) {
        if let Some(pid) = self.only_process {
            self.names.jit.look_at(pid);
        }
    }

    /// Adds the names of containers.
    pub fn with_containers(self, names: HitNames) -> Live {
        Live {
            containers: Some(names),
            ..self
        }
    }

    /// Takes the names of containers that were added.
    pub fn learn(&mut self, added: &Added) {
        if let Some(names) = &mut self.containers {
            names.learn(added);
        }
    }

    /// Adds the session, for queries.
    pub fn of<'a>(&'a mut self, session: &'a Session) -> LiveOf<'a> {
        LiveOf {
            session,
            live: self,
        }
    }
}

/// Names and containers for the records of a session, with the session.
pub struct LiveOf<'a> {
    session: &'a Session,
    live: &'a mut Live,
}

impl LiveOf<'_> {
    /// Names an address in the generated code of a process at a moment; `exact` says whether it is
    /// that of the instruction itself.
    pub(crate) fn generated(&mut self, address: u64, exact: bool, moment: Moment) -> CodeName {
        self.live.names.jit.name(address, !exact, moment)
    }

    /// Adds the frames that the module took of a hit to others.
    pub fn add_frames(&mut self, hit: &Hit, details: &Details<'_>, into: &mut HashSet<Frame>) {
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
    fn name(&mut self, frame: Frame) -> Rc<NamedFrame> {
        if let Some((address, exact)) = bare_address(&frame, Unmapped::Kernel) {
            return Rc::new(in_kernel(address, self.kernel(address, exact)));
        }
        match (
            self.live.only_process,
            bare_address(&frame, Unmapped::Anonymous),
        ) {
            (Some(pid), Some((address, exact))) => {
                self.live.names.jit.name_last(address, !exact, pid).named
            }
            _ => self.live.names.name(self.session, frame),
        }
    }

    fn name_at(&mut self, frame: Frame, moment: Moment) -> Rc<NamedFrame> {
        self.live.names.name_at(self.session, frame, moment)
    }

    fn prepare(&mut self, frames: &[Frame]) -> bool {
        self.live.names.prepare(self.session, frames)
    }

    fn wait(&mut self) {
        self.live.names.wait();
    }
}

impl Lookup for LiveOf<'_> {
    fn stack(&mut self, id: u32) -> Option<Rc<[u64]>> {
        // A session that is asked for its own stacks has them.
        self.live.stacks.frames(self.session, id).ok().flatten()
    }

    fn rest(&mut self, hit: &Hit, count: usize) -> Rest {
        let Live {
            names,
            continuations,
            ..
        } = &mut *self.live;
        continuations.finish(self.session, names, hit, count)
    }

    fn note_copy(&mut self, head: &StackCopy, mappings: &[CodeMapping], words: &[u64]) {
        self.live.continuations.note(head, mappings, words);
    }

    fn kernel(&self, address: u64, exact: bool) -> Option<&KernelSymbol> {
        self.live.kernel.find(address.wrapping_add(exact.into()))
    }

    fn finished(&self) -> u64 {
        self.live.continuations.finished()
    }

    fn container(&mut self, hit: &Hit) -> Option<String> {
        let names = self.live.containers.as_mut()?;
        names.of_hit(hit.pid, hit.pidns_id)
    }
}

/// Pins the files that the stacks of a batch name, before they are gone.
pub fn secure(live: &mut Live, session: &Session, batch: &Batch<'_>) {
    for record in batch.records() {
        match record {
            Record::Object(object) => live.names.announce(session, object),
            // They come first.
            _ => break,
        }
    }
}
