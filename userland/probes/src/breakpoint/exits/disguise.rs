// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jumps that look like returns, and returns that look like jumps.
//!
//! A `ret` after `push %rax`, or after a call of the next instructions and `mov %rax,(%rsp)`, goes
//! where %rax says: thunks are made so (retpolines). A `jmp *%rcx` after `pop %rcx` returns.

use super::reach::JumpTables;
use super::stack::{depths, set, Depth, Set};
use super::unit::{BranchKind, SweptFunction};
use super::{Behind, Left, Unclear, When};
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};
use std::collections::BTreeMap;

/// How a `ret` comes to find on top of the stack what its own code has put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// By the push at this address.
    Pushed(u64),
    /// By the move at an address, in straight code that something goes to.
    Moved { at: u64, start: u64 },
}

/// What lies on top of the return address, by address.
pub(super) struct Depths(BTreeMap<u64, Depth>);

impl Depths {
    /// Whether the return address is on top of the stack, by the code.
    pub(super) fn is_at_top(&self, address: u64) -> Option<bool> {
        self.0.get(&address)?.is_at_top()
    }

    fn is_above(&self, address: u64) -> bool {
        self.0.get(&address).is_some_and(|depth| depth.is_above())
    }
}

impl SweptFunction<'_> {
    pub(super) fn depths(&self, tables: &JumpTables) -> Depths {
        let at = |address| self.at_address(address);
        let is_own = |target| target != self.start && self.holds(target);
        Depths(depths(self.entry, at, is_own, tables))
    }

    /// How what a `ret` finds on top of the stack was put there, if the code in front of it says so.
    pub(super) fn put(&self, ret: u64, targets: &[u64]) -> Option<Put> {
        let (_, before) = self.before(ret, targets)?;
        // Where that is, from the stack pointer after an instruction.
        let mut above = 0;
        for instruction in before.nearest_first() {
            let at = instruction.ip();
            if is_store(instruction, above) {
                let start = before.nearest_first().last()?.ip();
                return Some(Put::Moved { at, start });
            }
            match set(instruction, Register::RSP) {
                Set::Not => {}
                Set::To(Register::RSP, -8) if above == 0 && is_push(instruction) => {
                    return Some(Put::Pushed(at));
                }
                Set::To(Register::RSP, more) => above = more.checked_add(above)?,
                _ => return None,
            }
        }
        None
    }

    /// Whether one of some `ret`s finds something on top of the return address, as the file
    /// describes it, though nothing was put there to jump to: then what it says of other
    /// instructions is as wrong.
    pub(super) fn contradicts_frames(&self, returns: &[u64]) -> bool {
        let mut framed = returns
            .iter()
            .filter(|ret| self.has_frame(**ret))
            .peekable();
        if framed.peek().is_none() {
            return false;
        }
        let targets = self.targets();
        framed.any(|ret| self.put(*ret, &targets).is_none())
    }

    /// Finds out which `ret`s jump, and which jumps return.
    pub(super) fn undisguise(&mut self, tables: &JumpTables) -> Result<(), Unclear> {
        let targets = self.targets();
        let puts = self.returns.iter().copied();
        let puts = puts.filter_map(|ret| Some((ret, self.put(ret, &targets)?)));
        let puts: Vec<(u64, Put)> = puts.collect();
        if puts.is_empty() && self.computed.is_empty() {
            return Ok(());
        }
        let depths = self.depths(tables);
        for (ret, put) in puts {
            if let Some(left) = self.left_by(ret, put, &depths) {
                self.returns.retain(|other| *other != ret);
                self.left.extend(left.into_iter().map(always));
            }
        }
        for (jump, place) in std::mem::take(&mut self.computed) {
            if !depths.is_above(jump) {
                self.computed.push((jump, place));
                continue;
            }
            let before = self.before(jump, &targets);
            let popped = before.and_then(|(_, before)| {
                let mut before = before.nearest_first().map(Instruction::ip);
                before.find(|at| depths.is_at_top(*at) == Some(true))
            });
            let popped = popped.ok_or(Unclear::Branch(jump))?;
            self.left.push(always(popped));
        }
        Ok(())
    }

    /// Where the function is left by a `ret` that jumps; `None` if it returns, for all that is
    /// known.
    fn left_by(&self, ret: u64, put: Put, depths: &Depths) -> Option<Vec<u64>> {
        let is_top = depths.is_at_top(ret);
        match put {
            Put::Pushed(push) => match (is_top, depths.is_at_top(push)) {
                (Some(false), Some(true)) => Some(vec![push]),
                (Some(false), _) => Some(Vec::new()),
                _ => None,
            },
            Put::Moved { at, .. } if is_top == Some(true) && depths.is_at_top(at) == is_top => {
                Some(vec![at])
            }
            Put::Moved { start, .. } => {
                let comes = self.branches.iter().filter(|branch| branch.target == start);
                let mut calls = Vec::new();
                for branch in comes {
                    if branch.kind != BranchKind::Call {
                        return None;
                    }
                    calls.push(branch.address);
                }
                let is_called = !calls.is_empty();
                calls.retain(|call| match depths.is_at_top(*call) {
                    Some(is_top) => is_top,
                    None => !self.has_frame(*call),
                });
                is_called.then_some(calls)
            }
        }
    }

    /// Whether a computed jump is known to stay in the function: a tail call has removed its frame
    /// before.
    pub(super) fn stays(&self, jump: u64, depths: &Depths) -> bool {
        self.has_frame(jump) && depths.is_at_top(jump) != Some(true) && !depths.is_above(jump)
    }
}

fn always(address: u64) -> Left {
    Left {
        address,
        when: When::Always,
        behind: Behind::Unknown,
    }
}

fn is_push(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Push
}

/// Whether an instruction writes a register to the stack, so far above the stack pointer.
fn is_store(instruction: &Instruction, above: i64) -> bool {
    instruction.code() == Code::Mov_rm64_r64
        && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() as i64 == above
}
