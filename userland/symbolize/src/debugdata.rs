// SPDX-License-Identifier: MIT OR Apache-2.0
//! `.gnu_debugdata`: an ELF file, compressed by xz, with the symbols that `.dynsym` lacks
//! (gdb manual, "MiniDebugInfo").

use crate::dwarf::guarded;
use crate::{Binary, Result};
use lzma_rust2::XzReader;
use nix::sys::memfd::{memfd_create, MFdFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

/// The section.
const SECTION: &str = ".gnu_debugdata";
/// Most bytes of the section; a browser's takes some 10 MB.
const PACKED_BYTES_MAX: usize = 32 << 20;
/// Most bytes of the file in it.
const BYTES_MAX: u64 = 64 << 20;
/// Most memory of the decoder, in KiB: its dictionary has at most 64 MiB (`xz -9`).
const DECODER_KIB_MAX: u32 = 66 << 10;

/// The symbols in a program's `.gnu_debugdata`; none when it has no such section.
pub(crate) fn read(program: &Binary) -> Result<Option<Binary>> {
    let Some(section) = program.elf.section(SECTION) else {
        return Ok(None);
    };
    let packed = program.elf.data(section)?;
    program.elf.check_unchanged()?;
    let what = "the compressed symbols";
    let limit = PACKED_BYTES_MAX as u64;
    program.elf.check_size(what, packed.len() as u64, limit)?;
    let file = guarded(|| unpacked(&packed).map_err(|error| error.to_string()));
    let malformed = |why| program.elf.malformed(format!("{SECTION}: {why}"));
    let file = file.map_err(malformed)?;
    let label = PathBuf::from(format!("{SECTION} of {}", program.elf.path().display()));
    let binary = Binary::open_debug(file, &label, program)?;
    crate::layout::check(&program.elf, &binary.elf).map_err(malformed)?;
    Ok(Some(binary))
}

/// What is in the stream, as a file in memory.
fn unpacked(packed: &[u8]) -> io::Result<File> {
    let decoder = XzReader::new_mem_limit(packed, false, DECODER_KIB_MAX);
    let mut bounded = decoder.take(BYTES_MAX + 1);
    let mut file = File::from(memfd_create(c"debugdata", MFdFlags::MFD_CLOEXEC)?);
    let mut buffer = vec![0; 1 << 16];
    let mut bytes = 0;
    loop {
        let length = bounded.read(&mut buffer)?;
        bytes += length as u64;
        match buffer.get(..length) {
            _ if bytes > BYTES_MAX => return Err(io::Error::other("too big when decompressed")),
            None | Some([]) => return Ok(file),
            Some(piece) => file.write_all(piece)?,
        }
    }
}
