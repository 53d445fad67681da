// SPDX-License-Identifier: GPL-2.0-only
//! The walk by unwind rows, and by the frame pointer where a file has none.

use super::Walk;
use crate::{
    common::{
        program::Register,
        record::{Method, StackEnd},
        unwind::{At, Base, Memory, Registers, SimpleRule, Stop}, //
    },
    stack::walk_cache::UnwindStep,
    sys::{
        regs::RegisterFile,
        returns::{may_be_trampoline, real_address},
        user_mem::{Fault, NoFaults}, //
    }, //
};

impl<A: FnMut(u32), P: Fn() -> u32> Walk<'_, A, P> {
    /// Follows unwind rows, or the frame pointer where there are none.
    pub(super) fn rows(&mut self, at: &mut Registers) -> Result<StackEnd, StackEnd> {
        loop {
            if at.knows_rbp {
                self.fast(at)?;
            }
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
                // At an entry the return address is on top of the stack, with or without a row.
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
                    // Where a file's rows do not cover this code, or user space has not given them
                    // yet, a frame pointer would be a guess.
                    let objects = self.resolver.objects();
                    let guesses = match (rule, table) {
                        (Some(rule), _) => !rule.leads_by_frame_pointer(),
                        (None, Some(table)) => !table.is_empty(),
                        (None, None) => known.holds(inside) && objects.has_rows(),
                    };
                    if guesses && !at_entry {
                        // A table never changes; a file without one may get one later.
                        self.ends_for_good = table.is_some();
                        return Err(match table {
                            Some(_) => StackEnd::NoRow,
                            None => StackEnd::RowsNotReady,
                        });
                    }
                    self.without_row(at, at_entry)?
                }
                Err(Stop::Outermost) => {
                    // Whether a thread runs a goroutine is not a matter of the registers alone.
                    let is_of_go = rule.is_some_and(|rule| rule.base != Base::Outermost as u8);
                    self.ends_for_good = !is_of_go;
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
            if at.rsp < before.rsp {
                self.start_over();
            }
        }
    }

    /// Steps to the frame that a row, or its substitute, has led to.
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
                let step = UnwindStep {
                    slot,
                    rip: read,
                    rbp_slot: simple.saved_slot(slot.wrapping_add(8)),
                    rbp: at.rbp,
                    by_rbp: simple.by_rbp(),
                    word,
                };
                self.note(&step, at)
            }
            _ => {
                self.break_off();
                Ok(())
            }
        }
    }

    /// Steps where no row applies; returns where the return address was, and the method.
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
            ..*at
        };
        Ok((slot, method))
    }
}

/// What rules read from the current task.
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

    fn thread_pointer(&self) -> Option<u64> {
        Some(self.memory.thread_pointer())
    }
}
