// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of Go: where one begins for good, and whether one in assembly language keeps the
//! goroutine.
//!
//! The compiler's functions check their stack first. When there is no room, the check calls for a larger stack and then jumps to the function's
//! beginning, which is passed twice in that call. Nothing of its caller's has changed behind the
//! check (`stacksplit` of `src/cmd/internal/obj/x86/obj6.go`): it computes in %r12, which holds
//! nothing at a call.

use super::{decode, flow, FunctionCode};
use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// Most instructions of a check: that of a frame of many pages.
const CHECK_MAX: usize = 8;
/// Where a `g` has `stackguard0` and `stackguard1` (`runtime.g` of `src/runtime/runtime2.go`).
const GUARDS: [u64; 2] = [16, 24];

/// Bytes of a function of Go up to the first instruction behind its stack check; zero when it has
/// none.
pub fn behind_stack_check(function: &FunctionCode<'_>) -> usize {
    find(function).unwrap_or(0)
}

/// Whether %r14, in which compiled code of Go has its goroutine, is the same at all returns of a
/// function as at its beginning: it is not written, and no other function runs.
pub fn keeps_goroutine(function: &FunctionCode<'_>) -> bool {
    let mut info = InstructionInfoFactory::new();
    let end = function.address.saturating_add(function.bytes.len() as u64);
    let mut offset = 0;
    while let Some(rest) = function.bytes.get(offset..).filter(|rest| !rest.is_empty()) {
        let address = function.address.saturating_add(offset as u64);
        let Some(instruction) = decode(rest, address) else {
            return false;
        };
        offset += instruction.len();
        let stays = match instruction.flow_control() {
            FlowControl::Next | FlowControl::Return => true,
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                flow::target(&instruction).is_some_and(|to| (function.address..end).contains(&to))
            }
            // Such as ud2.
            FlowControl::Exception => true,
            _ => false,
        };
        let used = info.info(&instruction).used_registers();
        let writes = used.iter().any(|used| {
            used.register().full_register() == Register::R14 && used.access() != OpAccess::Read
        });
        if !stays || writes {
            return false;
        }
    }
    true
}

fn find(function: &FunctionCode<'_>) -> Option<usize> {
    let end = function.address.checked_add(function.bytes.len() as u64)?;
    let mut offset = 0;
    let mut is_compared = false;
    for _ in 0..CHECK_MAX {
        let address = function.address.checked_add(offset as u64)?;
        let instruction = decode(function.bytes.get(offset..)?, address)?;
        offset += instruction.len();
        if instruction.is_jcc_short_or_near() {
            let target = flow::target(&instruction)?;
            if !(address..end).contains(&target) {
                return None;
            }
            if is_compared {
                return Some(offset);
            }
        } else if is_of_guard(&instruction) {
            is_compared = true;
        } else if !computes(&instruction) {
            return None;
        }
    }
    None
}

/// `cmp 0x10(%r14),%rsp` or `…,%r12`.
fn is_of_guard(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Cmp
        && [Register::RSP, Register::R12].contains(&instruction.op0_register())
        && instruction.op1_kind() == OpKind::Memory
        && instruction.memory_base() == Register::R14
        && instruction.memory_index() == Register::None
        && GUARDS.contains(&instruction.memory_displacement64())
}

/// `lea -0x…(%rsp),%r12`, `mov %rsp,%r12` and `sub $0x…,%r12`.
fn computes(instruction: &Instruction) -> bool {
    let is = [Mnemonic::Lea, Mnemonic::Mov, Mnemonic::Sub].contains(&instruction.mnemonic());
    let reads = [OpKind::Register, OpKind::Memory, OpKind::Immediate32to64];
    let from = match instruction.op1_kind() {
        OpKind::Register => instruction.op1_register(),
        _ => instruction.memory_base(),
    };
    is && instruction.op0_register() == Register::R12
        && reads.contains(&instruction.op1_kind())
        && [Register::RSP, Register::None].contains(&from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind(bytes: &[u8]) -> usize {
        behind_stack_check(&FunctionCode {
            address: 0x47_0000,
            bytes,
            elsewhere: &[],
        })
    }

    #[test]
    fn each_size_of_frame_has_its_check() {
        let filled = |check: &[u8]| [check, &[0x90; 0x100]].concat();
        // cmp 0x10(%r14),%rsp; jbe
        let small = filled(&[0x49, 0x3b, 0x66, 0x10, 0x76, 0x20, 0x55]);
        assert_eq!(behind(&small), 6);
        // lea -0x98(%rsp),%r12; cmp 0x10(%r14),%r12; jbe near
        let medium = filled(&[
            0x4c, 0x8d, 0xa4, 0x24, 0x68, 0xff, 0xff, 0xff, 0x4d, 0x3b, 0x66, 0x10, 0x0f, 0x86,
            0x80, 0, 0, 0, 0x55,
        ]);
        assert_eq!(behind(&medium), 18);
        // mov %rsp,%r12; sub $0x1ff8,%r12; jb near; cmp 0x10(%r14),%r12; jbe near
        let large = filled(&[
            0x49, 0x89, 0xe4, 0x49, 0x81, 0xec, 0xf8, 0x1f, 0, 0, 0x0f, 0x82, 0x80, 0, 0, 0, 0x4d,
            0x3b, 0x66, 0x10, 0x0f, 0x86, 0x70, 0, 0, 0, 0x55,
        ]);
        assert_eq!(behind(&large), 26);
    }

    #[test]
    fn a_goroutine_is_kept_by_what_does_not_write_it() {
        let keeps = |bytes: &[u8]| {
            keeps_goroutine(&FunctionCode {
                address: 0x47_0000,
                bytes,
                elsewhere: &[],
            })
        };
        // cmp 0x10(%r14),%rsp; ret
        assert!(keeps(&[0x49, 0x3b, 0x66, 0x10, 0xc3]));
        // mov %rax,%r14d; ret
        assert!(!keeps(&[0x41, 0x89, 0xc6, 0xc3]));
        // call elsewhere; ret
        assert!(!keeps(&[0xe8, 0, 1, 0, 0, 0xc3]));
        // jmp elsewhere
        assert!(!keeps(&[0xe9, 0, 1, 0, 0]));
        // jmp *%rax
        assert!(!keeps(&[0xff, 0xe0]));
    }

    #[test]
    fn what_is_no_check_is_not_passed() {
        // push %rbp; mov %rsp,%rbp
        assert_eq!(behind(&[0x55, 0x48, 0x89, 0xe5, 0xc3]), 0);
        // A loop: jbe to the front of the function.
        assert_eq!(behind(&[0x49, 0x3b, 0x66, 0x10, 0x76, 0xe0, 0x55, 0xc3]), 0);
        // mov (%rax),%r12 may fault.
        let loads = [
            0x4c, 0x8b, 0x20, 0x49, 0x3b, 0x66, 0x10, 0x76, 0x02, 0x55, 0xc3, 0xc3,
        ];
        assert_eq!(behind(&loads), 0);
        assert_eq!(behind(&[]), 0);
    }
}
