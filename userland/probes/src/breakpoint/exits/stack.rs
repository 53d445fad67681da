// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much lies on top of the return address, by the code itself.

use super::piece::{goes_on, target};
use super::reach::JumpTables;
use super::table::writes;
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::BTreeMap;

/// Most bytes on top of a return address: more is nonsense.
const DEPTH_MAX: i64 = 1 << 40;

/// Bytes on top of the return address before an instruction, and those that were there where %rbp
/// points to; `None` where that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Depth {
    stack: Option<i64>,
    frame: Option<i64>,
}

impl Depth {
    const ENTRY: Depth = Depth {
        stack: Some(0),
        frame: None,
    };

    /// Whether the return address is on top of the stack.
    pub(super) fn is_at_top(self) -> Option<bool> {
        Some(self.stack? == 0)
    }

    /// Whether the return address was taken from the stack.
    pub(super) fn is_above(self) -> bool {
        self.stack.is_some_and(|stack| stack < 0)
    }

    /// What is known where paths with these meet.
    fn met(self, other: Depth) -> Depth {
        let same = |one: Option<i64>, other| one.filter(|_| one == other);
        Depth {
            stack: same(self.stack, other.stack),
            frame: same(self.frame, other.frame),
        }
    }

    /// After an instruction; a call has returned.
    fn behind(self, instruction: &Instruction) -> Depth {
        Depth {
            stack: self.after(set(instruction, Register::RSP), self.stack),
            frame: self.after(set(instruction, Register::RBP), self.frame),
        }
    }

    fn after(self, set: Set, before: Option<i64>) -> Option<i64> {
        let (from, more) = match set {
            Set::Not => return before,
            Set::To(Register::RSP, more) => (self.stack?, more),
            Set::To(Register::RBP, more) => (self.frame?, more),
            Set::To(..) | Set::Other => return None,
        };
        let depth = from.checked_sub(more)?;
        (depth.abs() < DEPTH_MAX).then_some(depth)
    }

    /// In what a call goes to, which has pushed its return address.
    fn called(self) -> Depth {
        Depth {
            stack: self.stack.map(|stack| stack.saturating_add(8)),
            frame: self.frame,
        }
    }
}

/// What an instruction sets a register to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// It does not.
    Not,
    /// To the sum of a register, as it was before, and a number.
    To(Register, i64),
    Other,
}

/// What an instruction sets %rsp or %rbp to; a call has returned.
pub(super) fn set(instruction: &Instruction, register: Register) -> Set {
    let is_call = matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    );
    if is_call || !writes(instruction, register) {
        return Set::Not;
    }
    let own = |more: i64| Set::To(register, more);
    match instruction.code() {
        Code::Leaveq if register == Register::RSP => Set::To(Register::RBP, 8),
        Code::Mov_r64_rm64 | Code::Mov_rm64_r64 if instruction.op1_kind() == OpKind::Register => {
            Set::To(instruction.op1_register(), 0)
        }
        Code::Lea_r64_m if instruction.memory_index() == Register::None => {
            let more = instruction.memory_displacement64() as i64;
            Set::To(instruction.memory_base(), more)
        }
        Code::Add_rm64_imm8 | Code::Add_rm64_imm32 => own(instruction.immediate(1) as i64),
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 => {
            own((instruction.immediate(1) as i64).saturating_neg())
        }
        _ if is_push_or_pop(instruction, register) => {
            own(instruction.stack_pointer_increment().into())
        }
        _ => Set::Other,
    }
}

/// Whether all that an instruction does to the stack pointer is to move it.
fn is_push_or_pop(instruction: &Instruction, register: Register) -> bool {
    let is_its_operand =
        instruction.op0_kind() == OpKind::Register && instruction.op0_register() == register;
    match instruction.mnemonic() {
        Mnemonic::Pop => register == Register::RSP && !is_its_operand,
        Mnemonic::Push | Mnemonic::Pushfq | Mnemonic::Popfq => register == Register::RSP,
        _ => false,
    }
}

/// What lies on top of the return address before each instruction that is reached from an entry, by
/// branches that say where they go, by tables and by calls for which `is_own` holds.
pub(super) fn depths(
    entry: u64,
    at: impl Fn(u64) -> Option<Instruction>,
    is_own: impl Fn(u64) -> bool,
    tables: &JumpTables,
) -> BTreeMap<u64, Depth> {
    let mut depths: BTreeMap<u64, Depth> = BTreeMap::new();
    let mut open = vec![(entry, Depth::ENTRY)];
    while let Some((address, depth)) = open.pop() {
        let Some(instruction) = at(address) else {
            continue;
        };
        let before = depths.get(&address).copied();
        let depth = before.map_or(depth, |before| before.met(depth));
        // Each comes here thrice at most: less and less is known.
        if before == Some(depth) {
            continue;
        }
        depths.insert(address, depth);
        let behind = depth.behind(&instruction);
        if goes_on(&instruction) {
            open.push((instruction.next_ip(), behind));
        }
        let is_call = instruction.flow_control() == FlowControl::Call;
        match target(&instruction) {
            Some(target) if !is_call => open.push((target, behind)),
            Some(target) if target != entry && is_own(target) => {
                open.push((target, depth.called()));
            }
            _ => {}
        }
        let cases = tables.get(&address).into_iter().flatten();
        open.extend(cases.map(|case| (*case, behind)));
    }
    depths
}
