// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a function is left.
//!
//! Its code is swept from the first instruction to the last, and so is that of the functions
//! that it leaves to by a jump (tail calls): they return in its place. Code that was written
//! by a compiler tells where its pieces are and whether the return address is on top of the
//! stack; a jump where it is not stays in the function.

mod budget;
mod disguise;
mod leaving;
mod piece;
mod reach;
mod settle;
mod stack;
mod table;
mod undescribed;
mod unit;

use crate::breakpoint::{has_bad_prefix, FunctionCode};
use budget::Budget;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use unit::{Branch, BranchKind, SweptFunction};

/// Most jumps from a function, each to another one, that are followed.
pub const JUMPS_MAX: usize = 4;

/// The code of a file, as far as exits are followed through it.
pub trait FileCode {
    /// The piece of code (a function, or a part of one that the compiler moved elsewhere) that
    /// holds an address: where it begins, and its bytes.
    fn piece(&self, address: u64) -> Option<(u64, Cow<'_, [u8]>)>;

    /// At most `bytes` of code from an address on that no piece holds, up to the next function that
    /// has a symbol or a description of its frame, or the section's end; empty where there is none.
    fn undescribed(&self, address: u64, bytes: usize) -> Vec<u8>;

    /// Whether the return address is on top of the stack before the instruction at an address;
    /// `None` where that is not known.
    fn is_at_top(&self, address: u64) -> Option<bool>;

    /// The function of this file that the dynamic linker puts the address of into a variable;
    /// `None` for one of another file, or where that is not known.
    fn linked(&self, variable: u64) -> Option<u64>;

    /// What is known of the function at an address, or of the one that the dynamic linker puts
    /// into the variable at `slot`.
    fn behind(&self, address: u64, slot: Option<u64>) -> Behind;

    /// Bytes of read-only data at an address.
    fn data(&self, address: u64, bytes: usize) -> Option<Cow<'_, [u8]>>;
}

/// All instructions by which a function is left, but for calls that do not return. Addresses
/// are by the function's count, rising.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exits {
    /// The `ret` instructions of the function, and of those that it leaves to, where others come
    /// as well.
    pub returns: Vec<u64>,
    /// Where it continues in code that cannot be followed, one for each address.
    pub left: Vec<Left>,
}

/// An instruction after which a function continues in code that cannot be followed: the result is
/// not known yet. It is in the function or in one that it leaves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its address.
    pub address: u64,
    /// When the function continues elsewhere.
    pub when: When,
    /// Where.
    pub behind: Behind,
}

/// What is known of a function that another one leaves to by a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing that makes it needless to follow it.
    Unknown,
    /// It returns its first argument, as `memset` does.
    ReturnsArgument,
    /// A probe of its own sees its calls.
    HasProbe,
}

/// When an instruction leaves a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// When the condition is true.
    Flags(Condition),
    /// When the target of the jump is in none of some ranges.
    Outside {
        /// Where the address is that it goes to.
        target: Target,
        /// The addresses of the code that the jump is in.
        inside: Vec<Range<u64>>,
    },
}

/// A condition on the flags: the lower four bits of the instruction's code (Intel SDM, volume
/// 1, appendix B), such as 4 for "equal" and 5 for "not equal".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition(pub u8);

/// Where a computed jump finds the address that it goes to. Registers are by the numbers of
/// the instruction set: %rax, %rcx, %rdx, %rbx, %rsp, %rbp, %rsi, %rdi, %r8 and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// In a register.
    Register(u8),
    /// In the eight bytes at the sum of a register, another one times a scale, and a number.
    Memory {
        /// The register.
        base: Option<u8>,
        /// The other one, and the scale: 1, 2, 4 or 8.
        index: Option<(u8, u8)>,
        /// The number.
        displacement: i64,
    },
}

/// Why it is not known where a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclear {
    /// Nothing is known of its code.
    NoCode,
    /// It is longer than what is looked through.
    TooLong,
    /// What is at this address cannot be decoded, or is no instruction's beginning although
    /// something goes there.
    Undecodable(u64),
    /// The jump at this address goes to a computed place, again and again.
    ComputedJump(u64),
    /// The instruction at this address goes elsewhere in a way that has no name here.
    Branch(u64),
    /// The instruction at this address leaves it, or may, and no breakpoint can be on it.
    NoBreakpoint(u64),
    /// It never returns.
    Never,
}

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unclear::NoCode => f.write_str("its length is not known"),
            Unclear::TooLong => f.write_str("it is too long to be looked through"),
            Unclear::Undecodable(address) => {
                write!(f, "its code at {address:#x} cannot be decoded")
            }
            Unclear::ComputedJump(address) => write!(
                f,
                "its jump at {address:#x} goes to a computed place, in it or not, in a loop"
            ),
            Unclear::Branch(address) => {
                write!(
                    f,
                    "its branch at {address:#x} goes where it cannot be followed"
                )
            }
            Unclear::NoBreakpoint(address) => write!(
                f,
                "it is left by the instruction at {address:#x}, or may be, and the kernel puts no \
                 breakpoint on one with such a prefix"
            ),
            Unclear::Never => f.write_str("it has no instruction by which it returns"),
        }
    }
}

/// All instructions by which a function is left, but for calls that do not return.
pub fn exits(function: &FunctionCode<'_>, code: &dyn FileCode) -> Result<Exits, Unclear> {
    if function.bytes.is_empty() {
        return Err(Unclear::NoCode);
    }
    let mut budget = Budget::default();
    let unit = SweptFunction::of(function, code, &mut budget)?;
    let mut walk = ExitWalk {
        code,
        budget,
        followed: vec![(unit, 0)],
        refused: BTreeSet::new(),
        left: Vec::new(),
    };
    let mut number = 0;
    while let Some((unit, jumps)) = walk.followed.get(number) {
        let (leaving, jumps) = (unit.leaving(), *jumps);
        for branch in leaving {
            walk.follow(number, jumps, &branch)?;
        }
        number += 1;
    }
    walk.finish()
}

/// The walk from a function through those that it leaves to, the nearest first.
struct ExitWalk<'c> {
    code: &'c dyn FileCode,
    budget: Budget,
    /// What was understood, and how many jumps from the function it is.
    followed: Vec<(SweptFunction<'c>, usize)>,
    /// Where something cannot be followed to.
    refused: BTreeSet<u64>,
    left: Vec<Left>,
}

impl<'c> ExitWalk<'c> {
    /// Goes where a branch of what was followed goes.
    fn follow(&mut self, number: usize, jumps: usize, branch: &Branch) -> Result<(), Unclear> {
        let slot = self.slot_of_stub(branch.target);
        let behind = match branch.kind {
            BranchKind::Always => self.code.behind(branch.target, slot),
            _ => Behind::Unknown,
        };
        if behind != Behind::Unknown {
            return self.leave(number, branch, behind);
        }
        let target = slot.and_then(|slot| self.code.linked(slot));
        let target = target.unwrap_or(branch.target);
        let mut followed = self.followed.iter();
        if let Some((unit, _)) = followed.find(|(unit, _)| unit.holds(target)) {
            return match unit.is_landing(target) {
                true => Ok(()),
                false => self.leave(number, branch, Behind::Unknown),
            };
        }
        if jumps == JUMPS_MAX || self.refused.contains(&target) {
            return self.leave(number, branch, Behind::Unknown);
        }
        match self.unit_at(target) {
            Some(unit) => self.followed.push((unit, jumps + 1)),
            None => {
                self.refused.insert(target);
                self.leave(number, branch, Behind::Unknown)?;
            }
        }
        Ok(())
    }

    /// The variable that a stub jumps by, when there is one at an address.
    fn slot_of_stub(&mut self, target: u64) -> Option<u64> {
        let piece = self.budget.piece(self.code, target)?;
        piece::slot_of_stub(&piece, target)
    }

    /// The function that a jump goes to, when all of it is understood.
    fn unit_at(&mut self, target: u64) -> Option<SweptFunction<'c>> {
        let piece = self.budget.piece(self.code, target)?;
        if piece::slot_of_stub(&piece, target).is_some() {
            return None;
        }
        let unit = SweptFunction::at(piece, target, self.code, &mut self.budget).ok()?;
        // A thunk, through which others go as well.
        let only_jumps =
            unit.returns.is_empty() && !unit.left.is_empty() && unit.leaving().is_empty();
        if only_jumps {
            return None;
        }
        let mut followed = self.followed.iter();
        let agrees = followed.all(|(other, _)| unit.agrees(other) && other.agrees(&unit));
        (agrees && unit.is_landing(target)).then_some(unit)
    }

    /// A branch goes where the sweep cannot follow.
    fn leave(&mut self, number: usize, branch: &Branch, behind: Behind) -> Result<(), Unclear> {
        let address = branch.address;
        let unit = self.followed.get(number).map(|(unit, _)| unit);
        // The call is not found by the stack pointer that it has there.
        let is_found = unit.is_some_and(|unit| !unit.has_frame(address));
        let when = unit.and_then(|unit| unit.when(branch.kind));
        match when.filter(|_| is_found) {
            Some(when) => self.left.push(Left {
                address,
                when,
                behind,
            }),
            None => return Err(Unclear::Branch(address)),
        }
        Ok(())
    }

    fn takes_breakpoint(&self, address: u64) -> bool {
        let mut units = self.followed.iter();
        let instruction = units.find_map(|(unit, _)| unit.at_address(address));
        instruction.is_none_or(|instruction| !has_bad_prefix(&instruction))
    }

    fn finish(mut self) -> Result<Exits, Unclear> {
        let mut exits = Exits::default();
        for (unit, _) in &mut self.followed {
            exits.returns.append(&mut unit.returns);
            self.left.append(&mut unit.left);
        }
        let left = self.left.iter().map(|left| left.address);
        let mut places = exits.returns.iter().copied().chain(left);
        if let Some(place) = places.find(|place| !self.takes_breakpoint(*place)) {
            return Err(Unclear::NoBreakpoint(place));
        }
        exits.returns.sort_unstable();
        exits.returns.dedup();
        exits.left = once_each(self.left);
        match exits == Exits::default() {
            true => Err(Unclear::Never),
            false => Ok(exits),
        }
    }
}

/// By rising address; what leaves in two ways does so always.
fn once_each(mut left: Vec<Left>) -> Vec<Left> {
    left.sort_by_key(|left| left.address);
    left.dedup_by(|next, before| {
        let is_same = next.address == before.address;
        if is_same && next.when != before.when {
            before.when = When::Always;
            before.behind = Behind::Unknown;
        }
        is_same
    });
    left
}

#[cfg(test)]
mod tests;
