// SPDX-License-Identifier: MIT OR Apache-2.0
//! A function with all of its parts.

use super::budget::{take, Budget};
use super::leaving::{self, Way};
use super::piece::{goes_on, is_padding, CodePiece};
use super::{Condition, FileCode, Left, Target, Unclear, When};
use crate::breakpoint::FunctionCode;
use iced_x86::{Code as Opcode, FlowControl, Instruction};
use std::borrow::Cow;
use std::ops::Range;

/// Past the end of a function the next one begins at such an address.
const ALIGNMENT: u64 = 16;

/// An instruction that goes to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Branch {
    pub(super) address: u64,
    pub(super) target: u64,
    pub(super) kind: BranchKind,
}

/// How it goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BranchKind {
    /// And comes back.
    Call,
    Always,
    Flags(Condition),
    /// On a condition that is not one of flags.
    Odd,
    /// By a table, and else to other places.
    ByTable(Target),
    /// It is the last of its piece.
    Falls,
}

/// A function: what was swept of it.
pub(super) struct SweptFunction<'c> {
    pub(super) code: &'c dyn FileCode,
    pub(super) pieces: Vec<CodePiece<'c>>,
    pub(super) branches: Vec<Branch>,
    /// Computed jumps that may leave it, and how they find their target.
    pub(super) computed: Vec<(u64, JumpSource)>,
    pub(super) returns: Vec<u64>,
    pub(super) left: Vec<Left>,
    /// Where its first piece begins, and where others come to it.
    pub(super) start: u64,
    pub(super) entry: u64,
    begins_with_endbr64: bool,
    has_more_endbr64: bool,
    /// What the file says of its frames is wrong.
    has_wrong_frames: bool,
}

/// Where a computed jump finds the address that it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JumpSource {
    Target(Target),
    /// In the variable at an address.
    Variable(u64),
}

impl<'c> SweptFunction<'c> {
    /// A function whose parts are known.
    pub(super) fn of(
        function: &FunctionCode<'c>,
        code: &'c dyn FileCode,
        budget: &mut Budget,
    ) -> Result<SweptFunction<'c>, Unclear> {
        let mut unit = SweptFunction::new(function.address, function.address, code);
        let whole = (function.address, function.bytes);
        for (start, bytes) in std::iter::once(&whole).chain(function.elsewhere) {
            unit.add(*start, Cow::Borrowed(bytes), budget)?;
        }
        unit.complete(budget)?;
        Ok(unit)
    }

    /// The function that others come to at an address in a piece of it.
    pub(super) fn at(
        (start, bytes): (u64, Cow<'c, [u8]>),
        entry: u64,
        code: &'c dyn FileCode,
        budget: &mut Budget,
    ) -> Result<SweptFunction<'c>, Unclear> {
        let mut unit = SweptFunction::new(start, entry, code);
        unit.add(start, bytes, budget)?;
        unit.complete(budget)?;
        Ok(unit)
    }

    fn new(start: u64, entry: u64, code: &'c dyn FileCode) -> SweptFunction<'c> {
        SweptFunction {
            code,
            pieces: Vec::new(),
            branches: Vec::new(),
            computed: Vec::new(),
            returns: Vec::new(),
            left: Vec::new(),
            start,
            entry,
            begins_with_endbr64: false,
            has_more_endbr64: false,
            has_wrong_frames: false,
        }
    }

    /// Sweeps a piece of it.
    pub(super) fn add(
        &mut self,
        start: u64,
        bytes: Cow<'c, [u8]>,
        budget: &mut Budget,
    ) -> Result<(), Unclear> {
        take(&mut budget.pieces, 1).ok_or(Unclear::TooLong)?;
        take(&mut budget.bytes, bytes.len()).ok_or(Unclear::TooLong)?;
        let mut last = None;
        let known = self.returns.len();
        let piece = CodePiece::sweep(start, bytes, |instruction| {
            if !is_padding(instruction) {
                let is_call = matches!(
                    instruction.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                );
                let falls = goes_on(instruction) && !is_call;
                last = falls.then(|| instruction.ip());
            }
            self.look(instruction)
        })?;
        let end = piece.range().end;
        self.pieces.push(piece);
        let new = self.returns.get(known..).unwrap_or(&[]);
        self.has_wrong_frames |= self.contradicts_frames(new);
        if let Some(address) = last {
            self.falls(address, end, budget);
        }
        Ok(())
    }

    fn look(&mut self, instruction: &Instruction) -> Result<(), Unclear> {
        let address = instruction.ip();
        if instruction.code() == Opcode::Endbr64 {
            let is_first = address == self.start;
            self.begins_with_endbr64 |= is_first;
            self.has_more_endbr64 |= !is_first;
        }
        match leaving::way(instruction)? {
            Way::Inside => {}
            Way::Return => self.returns.push(address),
            Way::Branch(branch) => self.branches.push(branch),
            Way::Computed(target) => self.computed.push((address, JumpSource::Target(target))),
            Way::Variable(slot) => self.computed.push((address, JumpSource::Variable(slot))),
        }
        Ok(())
    }

    /// After the last instruction of a piece something else follows.
    fn falls(&mut self, address: u64, end: u64, budget: &mut Budget) {
        // Code that is never reached has no end.
        if self.has_frame(address) {
            return;
        }
        let aligned = end.next_multiple_of(ALIGNMENT);
        let is_code = |at: &u64| budget.piece(self.code, *at).is_some();
        if let Some(target) = [end, aligned].into_iter().find(is_code) {
            self.branches.push(Branch {
                address,
                target,
                kind: BranchKind::Falls,
            });
        }
    }

    /// Whether it is known that something lies on top of the return address.
    pub(super) fn has_frame(&self, address: u64) -> bool {
        !self.has_wrong_frames && self.code.is_at_top(address) == Some(false)
    }

    /// Whether an address is in it.
    pub(super) fn holds(&self, address: u64) -> bool {
        self.pieces.iter().any(|piece| piece.holds(address))
    }

    /// Whether something can go to an address.
    pub(super) fn is_landing(&self, address: u64) -> bool {
        self.pieces.iter().any(|piece| piece.is_landing(address))
    }

    /// The instruction that begins at an address.
    pub(super) fn at_address(&self, address: u64) -> Option<Instruction> {
        let piece = self.pieces.iter().find(|piece| piece.begins(address))?;
        piece.at(address)
    }

    /// What goes elsewhere, and does not come back.
    pub(super) fn leaving(&self) -> Vec<Branch> {
        let leaves =
            |branch: &&Branch| branch.kind != BranchKind::Call && !self.holds(branch.target);
        self.branches.iter().filter(leaves).copied().collect()
    }

    /// When a branch leaves it; none when that has no name.
    pub(super) fn when(&self, kind: BranchKind) -> Option<When> {
        match kind {
            BranchKind::Call | BranchKind::Odd => None,
            BranchKind::Always | BranchKind::Falls => Some(When::Always),
            BranchKind::Flags(condition) => Some(When::Flags(condition)),
            BranchKind::ByTable(target) => Some(self.outside(target)),
        }
    }

    pub(super) fn outside(&self, target: Target) -> When {
        let mut inside: Vec<Range<u64>> = self.pieces.iter().map(CodePiece::range).collect();
        inside.sort_by_key(|range| range.start);
        When::Outside { target, inside }
    }

    /// Whether the instructions of both begin at the same places, as far as they lie in the
    /// same code or one goes to the other.
    pub(super) fn agrees(&self, other: &SweptFunction<'_>) -> bool {
        let lands = |at: u64| !other.holds(at) || other.is_landing(at);
        let begins = |at: u64| !other.holds(at) || other.at_address(at).is_some();
        let mut branches = self.branches.iter();
        branches.all(|branch| lands(branch.target) && begins(branch.address))
            && self.returns.iter().all(|at| begins(*at))
            && self.left.iter().all(|left| begins(left.address))
    }

    /// Whether computed jumps that are tracked leave it: with indirect branch tracking they
    /// land on an `endbr64`, and it has none but its first. (One with labels as values has
    /// more.)
    pub(super) fn is_tracked(&self) -> bool {
        self.begins_with_endbr64 && !self.has_more_endbr64
    }
}
