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
    /// By object.
    tables: HashMap<u32, Rows>,
    finished: u64,
}

/// What a file says of its frames.
#[derive(Clone, Debug)]
enum Rows {
    Table(Rc<UnwindTable>),
    /// Nothing.
    None,
    /// The file cannot be had.
    Unavailable,
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
    /// The registers of the hit's last frame.
    fn registers(&self) -> Registers {
        let head = &self.head;
        Registers {
            rip: head.rip,
            rsp: head.rsp,
            rbp: head.rbp,
            knows_rbp: head.flags & COPY_WITHOUT_RBP == 0,
            at: match head.flags & COPY_BEHIND_CALL {
                0 => At::Interrupted,
                _ => At::Call,
            },
        }
    }

    /// The mapping that holds an address.
    fn mapping(&self, address: u64) -> Option<&CodeMapping> {
        let holds = |mapping: &&CodeMapping| address.wrapping_sub(mapping.start) < mapping.bytes;
        self.mappings.iter().find(holds)
    }
}

impl Rows {
    /// Steps from a place in the file to its caller, as the module does; tells how.
    fn step(&self, offset: u64, at: &mut Registers, copied: &Copied) -> Result<Method, StackEnd> {
        let rule = match self {
            Rows::Table(table) => table.table().find(offset).copied(),
            Rows::None | Rows::Unavailable => None,
        };
        let stepped = match &rule {
            Some(rule) => rule.step(at, copied),
            None => Err(Stop::Unknown),
        };
        match stepped {
            Ok(_) if at.at == At::Interrupted => Ok(Method::Signal),
            Ok(_) => Ok(Method::Row),
            Err(Stop::Unknown) => {
                // No guess where a file tells of its code, or cannot be asked.
                let leads = match rule {
                    Some(rule) => rule.leads_by_frame_pointer(),
                    None => matches!(self, Rows::None),
                };
                if !leads {
                    return Err(StackEnd::NoRow);
                }
                by_frame_pointer(at, copied).map(|()| Method::FramePointer)
            }
            Err(Stop::Outermost) => Err(StackEnd::Outermost),
            Err(Stop::Fault) => Err(StackEnd::Fault),
            Err(Stop::Unsupported) => Err(StackEnd::Unsupported),
            Err(Stop::NotAbove) => Err(StackEnd::BadRow),
        }
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

    /// Follows a copy to its end; `push` says whether there is room for more frames.
    fn follow(
        &mut self,
        session: &Session,
        names: &mut Names,
        copied: &Copied,
        push: &mut dyn FnMut(Frame) -> bool,
    ) -> StackEnd {
        let mut at = copied.registers();
        loop {
            let inside = at.inside();
            let Some(mapping) = copied.mapping(inside) else {
                return StackEnd::NotCode;
            };
            let rows = self.rows(session, names, mapping.object);
            let offset = inside.wrapping_add(mapping.delta);
            let method = match rows.step(offset, &mut at, copied) {
                Ok(method) => method,
                Err(end) => return end,
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
    fn rows(&mut self, session: &Session, names: &mut Names, object: u32) -> Rows {
        let known = self.tables.entry(object);
        let rows = known.or_insert_with(|| match names.table(session, object) {
            Some(Ok(table)) => Rows::Table(Rc::new(table)),
            Some(Err(_)) => Rows::None,
            None => Rows::Unavailable,
        });
        rows.clone()
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
