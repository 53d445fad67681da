// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an instruction means for finding where a function is left.

use super::piece::target;
use super::table::has_own_segment;
use super::unit::{Branch, BranchKind};
use super::{Condition, Target, Unclear};
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Where an instruction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// On.
    Inside,
    /// To its caller.
    Return,
    /// To an address, or on.
    Branch(Branch),
    /// To a computed address.
    Computed(Target),
    /// To where the variable at an address says.
    Variable(u64),
}

pub(super) fn way(instruction: &Instruction) -> Result<Way, Unclear> {
    let address = instruction.ip();
    let kind = match instruction.flow_control() {
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => return Ok(Way::Return),
        FlowControl::Return => return Err(Unclear::Undecodable(address)),
        FlowControl::IndirectBranch => return computed(instruction),
        FlowControl::UnconditionalBranch => BranchKind::Always,
        FlowControl::ConditionalBranch => conditional(instruction),
        FlowControl::Call => BranchKind::Call,
        FlowControl::XbeginXabortXend => BranchKind::Odd,
        _ => return Ok(Way::Inside),
    };
    match target(instruction) {
        Some(target) => Ok(Way::Branch(Branch {
            address,
            target,
            kind,
        })),
        // `xabort`, `xend`; `syscall`.
        None if matches!(kind, BranchKind::Odd | BranchKind::Call) => Ok(Way::Inside),
        None => Err(Unclear::Branch(address)),
    }
}

fn conditional(instruction: &Instruction) -> BranchKind {
    // `None` is the first.
    let number = (instruction.condition_code() as u8).checked_sub(1);
    match number.filter(|_| instruction.is_jcc_short_or_near()) {
        Some(number) => BranchKind::Flags(Condition(number)),
        None => BranchKind::Odd,
    }
}

fn computed(jump: &Instruction) -> Result<Way, Unclear> {
    let unclear = Err(Unclear::ComputedJump(jump.ip()));
    if jump.code() != Code::Jmp_rm64 {
        return unclear;
    }
    if jump.op0_kind() == OpKind::Register {
        let register = number(jump.op0_register());
        return register.map_or(unclear, |of| Ok(Way::Computed(Target::Register(of))));
    }
    let (base, index) = (jump.memory_base(), jump.memory_index());
    if index == Register::None && [Register::None, Register::RIP].contains(&base) {
        return Ok(Way::Variable(jump.memory_displacement64()));
    }
    let is_known = |of: Register| of == Register::None || number(of).is_some();
    let is_plain = !has_own_segment(jump);
    match is_plain && is_known(base) && is_known(index) {
        true => Ok(Way::Computed(Target::Memory {
            base: number(base),
            index: number(index).map(|of| (of, jump.memory_index_scale() as u8)),
            displacement: jump.memory_displacement64() as i64,
        })),
        false => unclear,
    }
}

/// The number of a register of 64 bits.
fn number(register: Register) -> Option<u8> {
    register.is_gpr64().then(|| register.number() as u8)
}
