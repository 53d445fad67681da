// SPDX-License-Identifier: MIT OR Apache-2.0
//! Continues the walk of stacks that the module could not finish, as a file had no unwind rows yet:
//! from the raw copy of registers, mappings and memory that precedes such a hit.

use crate::hits::lookup::Rest;
use crate::names::{FileRows, FrameNames};
use libnsprobe::common::abi::{FRAMES_MAX, STACK_COPY_WORDS_MAX};
use libnsprobe::common::record::{
    CodeMapping, Frame, Hit, Method, StackCopy, StackEnd, COPY_BEHIND_CALL, COPY_MAPPINGS_CUT,
    COPY_WITHOUT_RBP,
};
use libnsprobe::common::unwind::{At, Memory, Registers, Stop};
use libnsprobe::Session;
use std::collections::HashMap;

/// Most copies that wait for their hits; each has at most 20 KB.
const COPIES_MAX: usize = 4096;
/// Most results kept for a repeated query; a caller repeats its query before other stacks are
/// walked.
const FOLLOWED_MAX: usize = 64;
/// More copies shall not be taken before some of these were followed.
pub const COPIES_ENOUGH: usize = COPIES_MAX / 2;

/// Copies, and the rows to follow them by.
#[derive(Debug, Default)]
pub(crate) struct StackContinuations {
    /// By thread, probe and time: the hit comes next.
    copies: HashMap<(u32, u32, u64), Copied>,
    /// Finished walks, for a caller that repeats its query while it waits for their names.
    followed: HashMap<(u32, u32, u64), (Vec<Frame>, StackEnd)>,
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
            ..Registers::default()
        }
    }

    /// The mapping that holds an address.
    fn mapping(&self, address: u64) -> Option<&CodeMapping> {
        let holds = |mapping: &&CodeMapping| address.wrapping_sub(mapping.start) < mapping.bytes;
        self.mappings.iter().find(holds)
    }

    /// Why a word of memory is not there.
    fn missing(&self) -> StackEnd {
        match self.words.len() >= STACK_COPY_WORDS_MAX {
            true => StackEnd::CopyEnd,
            false => StackEnd::Fault,
        }
    }

    /// Why there is nothing at a place that no mapping holds.
    fn outside(&self) -> StackEnd {
        match self.head.flags & COPY_MAPPINGS_CUT {
            0 => StackEnd::NotCode,
            // Code may be there, of which nothing is known.
            _ => StackEnd::NoRow,
        }
    }
}

/// Steps from a place in the file to its caller, as the module does; returns how.
fn step(
    rows: &FileRows,
    offset: u64,
    at: &mut Registers,
    copied: &Copied,
) -> Result<Method, StackEnd> {
    let rule = match rows {
        FileRows::Table(table) => table.table().find(offset).copied(),
        FileRows::None | FileRows::Unavailable => None,
    };
    let stepped = match &rule {
        Some(rule) => rule.step(at, copied),
        None => Err(Stop::Unknown),
    };
    match stepped {
        Ok(_) if at.at == At::Interrupted => Ok(Method::Signal),
        Ok(_) => Ok(Method::Row),
        Err(Stop::Unknown) => {
            // No guess if a file describes its code, or cannot be read.
            let leads = match rule {
                Some(rule) => rule.leads_by_frame_pointer(),
                None => matches!(rows, FileRows::None),
            };
            if !leads {
                return Err(match rows {
                    FileRows::Unavailable => StackEnd::RowsNotReady,
                    FileRows::Table(_) | FileRows::None => StackEnd::NoRow,
                });
            }
            by_frame_pointer(at, copied).map(|()| Method::FramePointer)
        }
        Err(Stop::Outermost) => Err(StackEnd::Outermost),
        Err(Stop::Fault) => Err(copied.missing()),
        Err(Stop::Unsupported) => Err(StackEnd::Unsupported),
        Err(Stop::NotAbove) => Err(StackEnd::BadRow),
    }
}

impl StackContinuations {
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
        let key = (head.tid, head.probe, head.time_ns);
        self.copies.insert(key, copied);
    }

    /// Stacks that were finished.
    pub(crate) fn finished(&self) -> u64 {
        self.finished
    }

    /// The frames after the first `count` ones of a hit, if there is a copy of it. What files
    /// say of them may still have to come.
    pub(crate) fn finish(
        &mut self,
        session: &Session,
        names: &mut FrameNames,
        hit: &Hit,
        count: usize,
    ) -> Rest {
        let key = (hit.tid, hit.probe, hit.time_ns);
        if let Some((frames, end)) = self.followed.get(&key) {
            return Rest::Known(frames.clone(), *end);
        }
        let Some(copied) = self.copies.get(&key) else {
            return Rest::Unknown;
        };
        let mut frames = Vec::new();
        let mut rows = |object| names.table(session, object);
        let end = follow(copied, &mut rows, &mut |frame| {
            frames.push(frame);
            frames.len() + count < FRAMES_MAX as usize
        });
        let Some(end) = end else {
            return Rest::NotYet;
        };
        self.copies.remove(&key);
        self.finished += 1;
        if self.followed.len() >= FOLLOWED_MAX {
            self.followed.clear();
        }
        self.followed.insert(key, (frames.clone(), end));
        Rest::Known(frames, end)
    }
}

/// Walks a copy to its end; `push` says whether there is room for more frames. `None` while a file
/// that has the next rows, which `rows` reports, is still being read.
fn follow(
    copied: &Copied,
    rows: &mut dyn FnMut(u32) -> Option<FileRows>,
    push: &mut dyn FnMut(Frame) -> bool,
) -> Option<StackEnd> {
    let mut at = copied.registers();
    Some(loop {
        let inside = at.inside();
        let Some(mapping) = copied.mapping(inside) else {
            break copied.outside();
        };
        let rows = match mapping.object {
            // Generated code: no file has its unwind rows.
            0 => FileRows::None,
            object => rows(object)?,
        };
        let offset = inside.wrapping_add(mapping.delta);
        let method = match step(&rows, offset, &mut at, copied) {
            Ok(method) => method,
            Err(end) => break end,
        };
        if at.rip == 0 {
            break StackEnd::Outermost;
        }
        let Some(mapping) = copied.mapping(at.inside()) else {
            break copied.outside();
        };
        if !push(frame(mapping, at.rip, method)) {
            break StackEnd::Limit;
        }
    })
}

/// The frame of a place in a mapping.
fn frame(mapping: &CodeMapping, address: u64, method: Method) -> Frame {
    let method = method as u8;
    match mapping.object {
        0 => Frame::Address {
            address,
            why: mapping.unmapped as u8,
            method,
        },
        id => Frame::Object {
            id,
            offset: address.wrapping_add(mapping.delta),
            method,
        },
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
    let [rbp, rip] = copied.pair(fp).ok_or_else(|| copied.missing())?;
    *at = Registers {
        rip,
        rsp: fp.wrapping_add(16),
        rbp,
        knows_rbp: true,
        at: At::Call,
        ..*at
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use libnsprobe::common::frame::Unmapped;
    use libnsprobe::common::record::COPY_BEHIND_CALL;

    const FILE: CodeMapping = CodeMapping {
        start: 0x1000,
        bytes: 0x1000,
        delta: 0x4000,
        object: 7,
        unmapped: 0,
    };
    const GENERATED: CodeMapping = CodeMapping {
        start: 0x9000,
        bytes: 0x1000,
        delta: 0,
        object: 0,
        unmapped: Unmapped::Anonymous as u32,
    };

    /// A stack of functions that keep frame pointers: in the file, generated, in the file.
    fn copied(mappings: &[CodeMapping], flags: u32) -> Copied {
        let rsp = 0x7000;
        Copied {
            head: StackCopy {
                rip: 0x1234,
                rsp,
                rbp: rsp,
                flags: COPY_BEHIND_CALL | flags,
                ..StackCopy::default()
            },
            mappings: mappings.to_vec(),
            words: vec![rsp + 16, 0x9567, rsp + 32, 0x1890, 0, 0],
        }
    }

    fn followed(copied: &Copied) -> (Vec<Frame>, Option<StackEnd>) {
        let mut frames = Vec::new();
        let mut rows = |object| {
            assert_eq!(object, FILE.object);
            Some(FileRows::None)
        };
        let end = follow(copied, &mut rows, &mut |frame| {
            frames.push(frame);
            true
        });
        (frames, end)
    }

    #[test]
    fn the_end_of_a_copy_is_told_from_memory_that_is_not_there() {
        let mut copied = copied(&[FILE, GENERATED], 0);
        copied.words.truncate(3);
        let (frames, end) = followed(&copied);
        assert_eq!((frames.len(), end), (1, Some(StackEnd::Fault)));
        // The next frame is after all that is copied at most.
        copied.words = vec![0; STACK_COPY_WORDS_MAX];
        copied.words[..2].copy_from_slice(&[0x7000 + 8 * STACK_COPY_WORDS_MAX as u64, 0x9567]);
        let (frames, end) = followed(&copied);
        assert_eq!((frames.len(), end), (1, Some(StackEnd::CopyEnd)));
    }

    #[test]
    fn generated_code_is_gone_through() {
        let (frames, end) = followed(&copied(&[FILE, GENERATED], 0));
        let method = Method::FramePointer as u8;
        let wanted = [
            Frame::Address {
                address: 0x9567,
                why: Unmapped::Anonymous as u8,
                method,
            },
            Frame::Object {
                id: 7,
                offset: 0x5890,
                method,
            },
        ];
        assert_eq!(frames, wanted);
        assert_eq!(end, Some(StackEnd::Outermost));
    }

    #[test]
    fn what_is_not_told_of_is_no_proof_that_there_is_no_code() {
        let (frames, end) = followed(&copied(&[FILE], 0));
        assert_eq!((frames.len(), end), (0, Some(StackEnd::NotCode)));
        let (frames, end) = followed(&copied(&[FILE], COPY_MAPPINGS_CUT));
        assert_eq!((frames.len(), end), (0, Some(StackEnd::NoRow)));
    }
}
