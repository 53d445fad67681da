// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the branches of a function go.

use crate::breakpoint::{decode, FunctionCode, FUNCTION_BYTES_MAX};
use iced_x86::{Code, FlowControl, Instruction};

/// The branches of a function.
pub(crate) struct Flow {
    /// Offsets in it that something branches to.
    targets: Vec<usize>,
}

impl Flow {
    /// Follows the whole code, from its first instruction to its last; `None` if a branch has an
    /// unknown target.
    pub(crate) fn of(function: &FunctionCode<'_>) -> Option<Flow> {
        let mut targets = Vec::new();
        // With indirect branch tracking, jumps that are tracked land on an `endbr64`.
        let is_tracked = decode(function.bytes, function.address)?.code() == Code::Endbr64;
        let whole = (function.address, function.bytes);
        for (address, bytes) in std::iter::once(&whole).chain(function.elsewhere) {
            if bytes.len() > FUNCTION_BYTES_MAX {
                return None;
            }
            let mut at = 0;
            while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
                let instruction = decode(rest, address.wrapping_add(at as u64))?;
                if is_blind(&instruction, is_tracked) {
                    return None;
                }
                if let Some(target) = target(&instruction).or_else(|| landing(&instruction)) {
                    let offset = target.wrapping_sub(function.address);
                    let offset = usize::try_from(offset).ok();
                    targets.extend(offset.filter(|offset| *offset < function.bytes.len()));
                }
                at += instruction.len();
            }
        }
        Some(Flow { targets })
    }

    /// Whether the offset is reached from the function's beginning, and from nowhere else; a call
    /// of the function itself begins there.
    pub(crate) fn is_straight_to(&self, offset: usize) -> bool {
        !self
            .targets
            .iter()
            .any(|target| (1..=offset).contains(target))
    }
}

/// Where a branch or a call goes, when the instruction says it.
pub(crate) fn target(instruction: &Instruction) -> Option<u64> {
    let direct = instruction.is_jcc_short_or_near()
        || instruction.is_jmp_short_or_near()
        || instruction.is_call_near()
        || instruction.is_loop()
        || instruction.is_loopcc()
        || instruction.is_jcx_short();
    direct.then(|| instruction.near_branch_target())
}

/// Where tracked jumps may land, for all that is known.
fn landing(instruction: &Instruction) -> Option<u64> {
    (instruction.code() == Code::Endbr64).then(|| instruction.ip())
}

/// Whether an instruction may jump to any place of the function: by a table, or to a
/// computed address.
fn is_blind(instruction: &Instruction, is_tracked: bool) -> bool {
    match instruction.flow_control() {
        FlowControl::IndirectBranch => !is_tracked || has_notrack(instruction),
        FlowControl::XbeginXabortXend => true,
        _ => false,
    }
}

/// `notrack`, by which a jump need not land on an `endbr64`, is the prefix of %ds.
pub(crate) fn has_notrack(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == iced_x86::Register::DS
}
