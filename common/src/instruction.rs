// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Recognizes x86 instructions that must not be probed, although the kernel accepts them, and those
//! that a handler can emulate.

/// Bytes of the longest instruction, and of the copy of it that the kernel keeps
/// (`MAX_UINSN_BYTES` of `arch/x86/include/asm/uprobes.h`).
pub const INSTRUCTION_BYTES_MAX: usize = 16;

/// Whether these bytes begin with `syscall` or `sysenter`.
///
/// The kernel executes a copy of a probed instruction with the trap flag set, and takes the trap
/// for its end. After a system call it returns by `iret`, which traps one instruction later: that
/// one has been executed then, and the program continues at a meaningless address. The kernel's own
/// table lists these as not supported, but its check of the first byte (0f) accepts them before
/// (`uprobe_init_insn` of `arch/x86/kernel/uprobes.c`).
pub fn is_system_call(bytes: &[u8]) -> bool {
    let bytes = bytes.get(..INSTRUCTION_BYTES_MAX).unwrap_or(bytes);
    let mut rest = bytes.iter().copied();
    let opcode = rest.find(|&byte| !is_prefix(byte));
    opcode == Some(0x0f) && matches!(rest.next(), Some(0x05 | 0x34))
}

/// If these bytes are a near return, the bytes that it takes off the stack. The only prefixes
/// allowed are `rep` and `bnd`, which mean nothing there.
pub fn popped_by_return(bytes: &[u8]) -> Option<u64> {
    match bytes {
        [0xc3, ..] | [0xf2 | 0xf3, 0xc3, ..] => Some(8),
        [0xc2, low, high, ..] => Some(u64::from(u16::from_le_bytes([*low, *high])).wrapping_add(8)),
        _ => None,
    }
}

/// The legacy prefixes (segments, sizes, lock, repeat) and REX (Intel SDM volume 2, 2.1.1 and
/// 2.2.1). In 32-bit code REX's bytes are instructions, of which none is followed by the
/// second byte of another.
const fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_are_known_behind_prefixes() {
        for bytes in [
            &[0x0f, 0x05][..],
            &[0x0f, 0x05, 0xc3],
            &[0x48, 0x0f, 0x05],
            &[0xf3, 0x66, 0x48, 0x0f, 0x05],
            &[0x0f, 0x34],
        ] {
            assert!(is_system_call(bytes), "{bytes:x?}");
        }
    }

    #[test]
    fn near_returns_are_known_with_what_they_pop() {
        for (bytes, popped) in [
            (&[0xc3][..], Some(8)),
            (&[0xf3, 0xc3, 0x90], Some(8)),
            (&[0xc2, 0x04, 0x01], Some(8 + 0x104)),
            (&[0xc2, 0x04], None),
            (&[0x48, 0xc3], None),
            (&[0xcb], None),
            (&[], None),
        ] {
            assert_eq!(popped_by_return(bytes), popped, "{bytes:x?}");
        }
    }

    #[test]
    fn nothing_else_is_a_system_call() {
        for bytes in [
            &[][..],
            &[0x0f],
            &[0x48, 0x0f],
            &[0x05, 0x0f, 0x05, 0, 0],
            &[0xb8, 0x66, 0, 0, 0, 0x0f, 0x05],
            &[0x0f, 0x1f, 0x05],
            &[0x90, 0x0f, 0x05],
            &[0x48; INSTRUCTION_BYTES_MAX + 2],
        ] {
            assert!(!is_system_call(bytes), "{bytes:x?}");
        }
    }
}
