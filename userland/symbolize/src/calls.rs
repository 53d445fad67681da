// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a place can be a return address: does a call end right before it?
//!
//! Only the lengths matter (Intel SDM volume 2, chapter 2): `E8` with four bytes
//! of offset, and `FF /2` with its ModRM byte, SIB byte and displacement. Bytes
//! that look like a call may be something else: "no" is sure, "yes" is not.

/// Longest call without prefixes, in bytes.
pub(crate) const CALL_BYTES_MAX: usize = 7;

/// Whether `before`, the bytes in front of an address, end in a call.
pub(crate) fn ends_in_call(before: &[u8]) -> bool {
    let ends_with = |length: usize| before.len().checked_sub(length).map(|at| &before[at..]);
    if ends_with(5).is_some_and(|call| call[0] == 0xe8) {
        return true;
    }
    (2..=CALL_BYTES_MAX).any(|length| {
        ends_with(length)
            .is_some_and(|call| call[0] == 0xff && indirect_length(call) == Some(length))
    })
}

/// Length of the indirect call at the start of `call`.
fn indirect_length(call: &[u8]) -> Option<usize> {
    let modrm = *call.get(1)?;
    let (mode, operation, base) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    if operation != 2 {
        return None;
    }
    let has_sib = mode != 3 && base == 4;
    let no_base = match has_sib {
        true => *call.get(2)? & 7 == 5,
        false => base == 5,
    };
    let displacement = match mode {
        0 if no_base => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(2 + usize::from(has_sib) + displacement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_call_is_known() {
        let calls: [&[u8]; 9] = [
            &[0xe8, 1, 2, 3, 4],             // call rel32
            &[0xff, 0xd0],                   // call *%rax
            &[0x41, 0xff, 0xd4],             // call *%r12
            &[0xff, 0x10],                   // call *(%rax)
            &[0xff, 0x50, 0x18],             // call *24(%rax)
            &[0xff, 0x14, 0xc8],             // call *(%rax,%rcx,8)
            &[0xff, 0x54, 0xc8, 0x08],       // call *8(%rax,%rcx,8)
            &[0xff, 0x15, 1, 2, 3, 4],       // call *rel32(%rip)
            &[0xff, 0x94, 0xc8, 1, 2, 3, 4], // call *disp32(%rax,%rcx,8)
        ];
        for call in calls {
            let before = [&[0x90; 8], call].concat();
            assert!(ends_in_call(&before), "{call:x?}");
        }
    }

    #[test]
    fn other_instructions_are_not() {
        for bytes in [&[0x90u8; 8][..], &[0xff, 0xe0], &[0xff, 0xc8], &[0xc3], &[]] {
            assert!(!ends_in_call(bytes), "{bytes:x?}");
        }
    }
}
