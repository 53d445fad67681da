// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether x86-64 bytes end in a call instruction.

/// `call` to an address relative to the next instruction.
const CALL_RELATIVE: u8 = 0xe8;
/// The group of one-operand instructions that the indirect `call` is in.
const GROUP_5: u8 = 0xff;
/// The indirect `call` in that group.
const GROUP_5_CALL: u8 = 2;

/// Whether a call instruction may end where the bytes end. Prefixes come before
/// the opcode and do not matter.
pub(crate) fn ends_in_call(bytes: &[u8]) -> bool {
    let from_end = |length: usize| {
        bytes
            .len()
            .checked_sub(length)
            .and_then(|at| bytes.get(at..))
    };
    let relative = from_end(5).is_some_and(|call| call.first() == Some(&CALL_RELATIVE));
    relative || (2..=7).filter_map(from_end).any(is_indirect_call)
}

/// Whether the bytes are one whole `call` through a register or memory.
fn is_indirect_call(bytes: &[u8]) -> bool {
    let [GROUP_5, modrm, rest @ ..] = bytes else {
        return false;
    };
    (modrm >> 3) & 7 == GROUP_5_CALL && operand_bytes(*modrm, rest.first()) == Some(rest.len())
}

/// How many bytes follow the modrm byte: the sib byte and the displacement.
fn operand_bytes(modrm: u8, sib: Option<&u8>) -> Option<usize> {
    let register = modrm & 7;
    let has_sib = register == 4;
    let displacement = match modrm >> 6 {
        0 if register == 5 => 4,
        0 if has_sib && sib? & 7 == 5 => 4,
        0 => 0,
        1 => 1,
        2 => 4,
        _ => return Some(0),
    };
    Some(usize::from(has_sib) + displacement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_call_is_seen() {
        let calls: [&[u8]; 11] = [
            &[0xe8, 1, 2, 3, 4],             // call rel32
            &[0x67, 0xe8, 1, 2, 3, 4],       // addr32 call rel32
            &[0xff, 0xd0],                   // call *%rax
            &[0x41, 0xff, 0xd4],             // call *%r12
            &[0xff, 0x10],                   // call *(%rax)
            &[0xff, 0x50, 8],                // call *8(%rax)
            &[0xff, 0x90, 1, 2, 3, 4],       // call *0x4030201(%rax)
            &[0xff, 0x15, 1, 2, 3, 4],       // call *x(%rip)
            &[0x41, 0xff, 0x54, 0x24, 8],    // call *8(%r12)
            &[0xff, 0x14, 0xc5, 1, 2, 3, 4], // call *x(,%rax,8)
            &[0xff, 0x94, 0xc8, 1, 2, 3, 4], // call *x(%rax,%rcx,8)
        ];
        for call in calls {
            assert!(ends_in_call(call), "{call:x?}");
        }
    }

    #[test]
    fn other_instructions_are_none() {
        let others: [&[u8]; 7] = [
            &[],
            &[0xe9, 1, 2, 3, 4],       // jmp
            &[0x90; 7],                // nop
            &[0xff, 0xe0],             // jmp *%rax
            &[0xff, 0x25, 1, 2, 3, 4], // jmp *x(%rip)
            &[0xff, 0x15, 1, 2, 3],    // cut short
            &[0xff],
        ];
        for other in others {
            assert!(!ends_in_call(other), "{other:x?}");
        }
    }
}
