// SPDX-License-Identifier: MIT OR Apache-2.0
//! Goes on with stacks that the module could not follow, as a file had no unwind rows yet:
//! from the copy of registers, mappings and memory that precedes such a hit.

use crate::names::Names;
use libnsprobe::common::abi::FRAMES_MAX;
use libnsprobe::common::record::{
    CodeMapping, Frame, Hit, Method, StackCopy, StackEnd, COPY_BEHIND_CALL, COPY_WITHOUT_RBP,
};
use libnsprobe::common::unwind::{At, Memory, Registers, Stop};
use libnsprobe::Session;
use nsprobe_symbolize::Binary;
use nsprobe_unwind::UnwindTable;
use std::collections::HashMap;
use std::rc::Rc;

/// Most copies that wait for their hits; each has at most 20 KB.
const COPIES_MAX: usize = 1024;

/// Copies, and the rows to follow them by.
#[derive(Debug, Default)]
pub(crate) struct Rests {
    /// By thread and probe: the hit comes next.
    copies: HashMap<(u32, u32), Copied>,
    /// By object; none for a file without rows.
    tables: HashMap<u32, Option<Rc<UnwindTable>>>,
    finished: u64,
}

#[derive(Debug)]
struct Copied {
    head: StackCopy,
    mappings: Vec<CodeMapping>,
    words: Vec<u64>,
}

impl Memory for Copied {
    fn word(&self, address: u64) -> Option<u64> {
        let into = address.checked_sub(self.head.rsp)?;
        let index = usize::try_from(into / 8).ok()?;
        self.words.get(index).copied().filter(|_| into % 8 == 0)
    }

    /// The copy has those that most frames need, and no others.
    fn register(&self, _: u8) -> Option<u64> {
        None
    }
}

impl Copied {
    /// The mapping that holds an address.
    fn mapping(&self, address: u64) -> Option<&CodeMapping> {
        let holds = |mapping: &&CodeMapping| address.wrapping_sub(mapping.start) < mapping.bytes;
        self.mappings.iter().find(holds)
    }
}

impl Rests {
    /// Keeps a copy for its hit.
    pub(crate) fn note(&mut self, head: &StackCopy, mappings: &[CodeMapping], words: &[u64]) {
        if self.copies.len() >= COPIES_MAX {
            self.copies.clear();
        }
        let copied = Copied {
            head: *head,
            mappings: mappings.to_vec(),
            words: words.to_vec(),
        };
        self.copies.insert((head.tid, head.probe), copied);
    }

    /// Stacks that were finished.
    pub(crate) fn finished(&self) -> u64 {
        self.finished
    }

    /// The frames behind the first `count` ones of a hit, and why there are no more; none
    /// when there is no copy of it.
    pub(crate) fn finish(
        &mut self,
        session: &Session,
        names: &mut Names,
        hit: &Hit,
        count: usize,
    ) -> Option<(Vec<Frame>, StackEnd)> {
        let copied = self.copies.remove(&(hit.tid, hit.probe))?;
        if copied.head.time_ns != hit.time_ns {
            return None;
        }
        let mut frames = Vec::new();
        let end = self.follow(session, names, &copied, &mut |frame| {
            frames.push(frame);
            frames.len() + count < FRAMES_MAX as usize
        });
        self.finished += 1;
        Some((frames, end))
    }

    fn follow(
        &mut self,
        session: &Session,
        names: &mut Names,
        copied: &Copied,
        push: &mut dyn FnMut(Frame) -> bool,
    ) -> StackEnd {
        let head = &copied.head;
        let mut at = Registers {
            rip: head.rip,
            rsp: head.rsp,
            rbp: head.rbp,
            knows_rbp: head.flags & COPY_WITHOUT_RBP == 0,
            at: match head.flags & COPY_BEHIND_CALL {
                0 => At::Interrupted,
                _ => At::Call,
            },
        };
        loop {
            let inside = at.inside();
            let Some(mapping) = copied.mapping(inside) else {
                return StackEnd::NotCode;
            };
            let table = self.table(session, names, mapping.object);
            let offset = inside.wrapping_add(mapping.delta);
            let rule = table
                .as_ref()
                .and_then(|table| table.table().find(offset).copied());
            let stepped = match &rule {
                Some(rule) => rule.step(&mut at, copied),
                None => Err(Stop::Unknown),
            };
            let method = match stepped {
                Ok(_) if at.at == At::Interrupted => Method::Signal,
                Ok(_) => Method::Row,
                Err(Stop::Unknown) => {
                    // As in the module: no guess where a file tells of its code.
                    let guesses = match rule {
                        Some(rule) => !rule.leads_by_frame_pointer(),
                        None => table.is_some(),
                    };
                    match by_frame_pointer(&mut at, copied) {
                        _ if guesses => return StackEnd::NoRow,
                        Ok(()) => Method::FramePointer,
                        Err(end) => return end,
                    }
                }
                Err(Stop::Outermost) => return StackEnd::Outermost,
                Err(Stop::Fault) => return StackEnd::Fault,
                Err(Stop::Unsupported) => return StackEnd::Unsupported,
                Err(Stop::NotAbove) => return StackEnd::BadRow,
            };
            if at.rip == 0 {
                return StackEnd::Outermost;
            }
            let Some(mapping) = copied.mapping(at.inside()) else {
                return StackEnd::NotCode;
            };
            let frame = Frame::Object {
                id: mapping.object,
                offset: at.rip.wrapping_add(mapping.delta),
                method: method as u8,
            };
            if !push(frame) {
                return StackEnd::Limit;
            }
        }
    }

    /// The rows of an object.
    fn table(
        &mut self,
        session: &Session,
        names: &mut Names,
        object: u32,
    ) -> Option<Rc<UnwindTable>> {
        let known = self.tables.entry(object);
        let table = known.or_insert_with(|| {
            let (file, path) = names.file(session, object)?;
            let binary = Binary::open_sections(file, &path).ok()?;
            UnwindTable::of(&binary).ok().map(Rc::new)
        });
        table.clone()
    }
}

/// Steps to the caller by the frame pointer.
fn by_frame_pointer(at: &mut Registers, copied: &Copied) -> Result<(), StackEnd> {
    let fp = at.rbp;
    if !at.knows_rbp || !fp.is_multiple_of(8) || fp < at.rsp {
        return Err(match fp {
            0 if at.knows_rbp => StackEnd::Outermost,
            _ => StackEnd::BadFramePointer,
        });
    }
    let [rbp, rip] = copied.pair(fp).ok_or(StackEnd::Fault)?;
    *at = Registers {
        rip,
        rsp: fp.wrapping_add(16),
        rbp,
        knows_rbp: true,
        at: At::Call,
    };
    Ok(())
}
