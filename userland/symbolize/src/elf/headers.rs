// SPDX-License-Identifier: MIT OR Apache-2.0
//! ELF headers: segments, and what a file is that is no program for x86-64.

use super::{u16_at, u32_at, u64_at};
use crate::{Address, FileOffset, Segment};
use object::elf;
use std::ops::Range;

pub(super) fn parse_segment(header: &[u8]) -> Option<Segment> {
    if u32_at(header, 0)? != elf::PT_LOAD.0 {
        return None;
    }
    Some(Segment {
        executable: u32_at(header, 4)? & elf::PF_X.0 != 0,
        writable: u32_at(header, 4)? & elf::PF_W.0 != 0,
        file_offset: FileOffset(u64_at(header, 8)?),
        address: Address(u64_at(header, 16)?),
        file_bytes: u64_at(header, 32)?,
    })
}

/// Where the file has the path of the dynamic linker, and its length in bytes.
pub(super) fn interpreter(header: &[u8]) -> Option<(u64, u64)> {
    let is_it = u32_at(header, 0)? == elf::PT_INTERP.0;
    is_it.then_some((u64_at(header, 8)?, u64_at(header, 32)?))
}

/// The memory that an executable segment takes.
pub(super) fn code_in_memory(header: &[u8]) -> Option<Range<u64>> {
    let segment = parse_segment(header)?;
    let start = segment.address.0;
    let range = start..start.checked_add(u64_at(header, 40)?)?;
    (segment.executable && !range.is_empty()).then_some(range)
}

/// What a file that is not ELF seems to be.
pub(super) fn guess(start: &[u8]) -> &'static str {
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b | 0x20..=0x7e | 0x80..);
    match start {
        [] => "an empty file",
        [b'#', b'!', ..] => "a script",
        [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => "an archive of object files",
        [0x1f, 0x8b, ..] => "a gzip file",
        _ if start.iter().all(is_text) && std::str::from_utf8(start).is_ok() => "a text file",
        _ => "some other data",
    }
}

/// For which machine a file is, by its header, which is in that machine's byte order.
pub(super) fn machine_of(header: &[u8]) -> u16 {
    let machine = u16_at(header, 18).unwrap_or(0);
    match header.get(5) == Some(&elf::ELFDATA2MSB.0) {
        true => machine.swap_bytes(),
        false => machine,
    }
}

pub(super) fn machine_name(machine: u16, header: &[u8]) -> String {
    let name = match elf::Machine(machine) {
        elf::EM_386 => "32-bit x86",
        elf::EM_X86_64 if header.get(4) == Some(&elf::ELFCLASS32.0) => {
            "x86 with 32-bit pointers (x32)"
        }
        elf::EM_X86_64 => "x86 with another byte order",
        elf::EM_AARCH64 => "64-bit Arm",
        elf::EM_ARM => "32-bit Arm",
        elf::EM_RISCV => "RISC-V",
        elf::EM_PPC64 => "64-bit PowerPC",
        elf::EM_S390 => "s390",
        elf::EM_BPF => "BPF",
        _ => return format!("machine number {machine}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::HEADER_BYTES;
    use super::*;

    #[test]
    fn machines_of_either_byte_order_have_their_names() {
        let name = |class: u8, order: u8, machine: [u8; 2]| {
            let mut header = [0; HEADER_BYTES];
            header[4..6].copy_from_slice(&[class, order]);
            header[18..20].copy_from_slice(&machine);
            machine_name(machine_of(&header), &header)
        };
        assert_eq!(name(2, 2, [0, 22]), "s390");
        assert_eq!(name(2, 2, [0, 21]), "64-bit PowerPC");
        assert_eq!(name(2, 1, [21, 0]), "64-bit PowerPC");
        assert_eq!(name(2, 1, [183, 0]), "64-bit Arm");
        assert_eq!(name(1, 1, [3, 0]), "32-bit x86");
        assert_eq!(name(2, 2, [0, 2]), "machine number 2");
    }
}
