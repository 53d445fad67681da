// SPDX-License-Identifier: MIT OR Apache-2.0
//! A piece of code that was swept.

use super::Unclear;
use crate::breakpoint::{decode, FUNCTION_BYTES_MAX, INSTRUCTION_BYTES_MAX};
use iced_x86::{Code, FlowControl, Instruction, OpKind};
use std::borrow::Cow;
use std::ops::Range;

const LOCK: u8 = 0xf0;

/// A piece of code, all of which can be decoded.
pub(super) struct CodePiece<'a> {
    start: u64,
    bytes: Cow<'a, [u8]>,
    /// Of each byte, whether an instruction begins with it.
    begins: Vec<bool>,
}

impl<'a> CodePiece<'a> {
    /// Decodes a piece, and hands each instruction to `look`.
    pub(super) fn sweep(
        start: u64,
        bytes: Cow<'a, [u8]>,
        mut look: impl FnMut(&Instruction) -> Result<(), Unclear>,
    ) -> Result<CodePiece<'a>, Unclear> {
        if bytes.len() > FUNCTION_BYTES_MAX {
            return Err(Unclear::TooLong);
        }
        if start.checked_add(bytes.len() as u64).is_none() {
            return Err(Unclear::Undecodable(start));
        }
        let mut begins = vec![false; bytes.len()];
        let mut at = 0;
        while let Some(begins) = begins.get_mut(at) {
            *begins = true;
            let address = start + at as u64;
            let rest = bytes.get(at..).unwrap_or(&[]);
            let instruction = decode(rest, address).ok_or(Unclear::Undecodable(address))?;
            look(&instruction)?;
            at += instruction.len();
        }
        Ok(CodePiece {
            start,
            bytes,
            begins,
        })
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }

    pub(super) fn holds(&self, address: u64) -> bool {
        self.range().contains(&address)
    }

    /// Whether an instruction begins at an address.
    pub(super) fn begins(&self, address: u64) -> bool {
        let into = address.wrapping_sub(self.start) as usize;
        self.holds(address) && self.begins.get(into) == Some(&true)
    }

    /// Whether something can go to an address: to an instruction, or to one without its lock
    /// prefix, over which C libraries have jumped.
    pub(super) fn is_landing(&self, address: u64) -> bool {
        let prefix = address.wrapping_sub(1);
        let into = prefix.wrapping_sub(self.start) as usize;
        let is_lock = || self.bytes.get(into) == Some(&LOCK);
        self.begins(address) || self.holds(address) && self.begins(prefix) && is_lock()
    }

    /// The instruction at an address.
    pub(super) fn at(&self, address: u64) -> Option<Instruction> {
        let into = address.checked_sub(self.start)?;
        decode(self.bytes.get(usize::try_from(into).ok()?..)?, address)
    }

    /// The instruction that ends at an address.
    pub(super) fn before(&self, address: u64) -> Option<Instruction> {
        let into = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let from = into.saturating_sub(INSTRUCTION_BYTES_MAX);
        let begins = self.begins.get(from..into)?;
        let found = begins.iter().rposition(|begins| *begins)?;
        self.at(self.start + (from + found) as u64)
    }

    /// Where its instructions begin.
    pub(super) fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        let places = self.range().zip(&self.begins);
        places.filter_map(|(address, begins)| begins.then_some(address))
    }
}

/// Whether code is filled up with an instruction.
pub(super) fn is_padding(instruction: &Instruction) -> bool {
    matches!(
        instruction.code(),
        Code::Nopd
            | Code::Nopw
            | Code::Nopq
            | Code::Nop_rm16
            | Code::Nop_rm32
            | Code::Nop_rm64
            | Code::Int3
    )
}

/// Whether the next instruction may run after an instruction, as far as is known of calls.
pub(super) fn goes_on(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Next => instruction.code() != Code::Hlt,
        FlowControl::Interrupt => instruction.code() != Code::Int3,
        FlowControl::Call | FlowControl::IndirectCall => true,
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => true,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => false,
        FlowControl::Return | FlowControl::Exception => false,
    }
}

/// Where a branch or a call goes, when the instruction says it.
pub(super) fn target(instruction: &Instruction) -> Option<u64> {
    let is_near = instruction.op0_kind() == OpKind::NearBranch64;
    is_near.then(|| instruction.near_branch_target())
}

/// Where a stub of a linkage table at an address, if one is there, finds what it jumps to.
pub(super) fn slot_of_stub((start, bytes): &(u64, Cow<'_, [u8]>), address: u64) -> Option<u64> {
    let into = address.wrapping_sub(*start) as usize;
    let at = |into: usize| decode(bytes.get(into..)?, start.wrapping_add(into as u64));
    let first = at(into);
    let next = match first {
        Some(first) if first.code() == Code::Endbr64 => at(into + first.len()),
        first => first,
    };
    let next = next?;
    let is_stub =
        next.flow_control() == FlowControl::IndirectBranch && next.is_ip_rel_memory_operand();
    is_stub.then(|| next.ip_rel_memory_address())
}
