// SPDX-License-Identifier: MIT OR Apache-2.0
//! `.gnu_debugdata`: an ELF file, compressed by xz, with the symbols that `.dynsym` lacks
//! (gdb manual, "MiniDebugInfo").

use crate::dwarf::guarded;
use crate::elf::Elf;
use crate::SymbolizeError;
use lzma_rust2::XzReader;
use std::io::{self, Read};
use std::path::PathBuf;

const SECTION: &str = ".gnu_debugdata";
/// Most bytes of the section; a browser's takes some 10 MB.
const PACKED_BYTES_MAX: usize = 32 << 20;
/// Most bytes of the file in it.
const BYTES_MAX: u64 = 64 << 20;
/// Most memory of the decoder, in KiB: its dictionary has at most 64 MiB (`xz -9`).
const DECODER_KIB_MAX: u32 = 66 << 10;

/// The file in a program's `.gnu_debugdata`; none when it has no such section.
pub(crate) fn read(program: &Elf) -> Result<Option<Elf>, SymbolizeError> {
    let Some(section) = program.section(SECTION) else {
        return Ok(None);
    };
    let packed = program.data(section)?;
    program.check_unchanged()?;
    let what = "the compressed symbols";
    let limit = PACKED_BYTES_MAX as u64;
    program.check_size(what, packed.len() as u64, limit)?;
    let file = guarded(|| unpacked(&packed).map_err(|error| error.to_string()));
    let malformed = |why| program.malformed(format!("{SECTION}: {why}"));
    let label = PathBuf::from(format!("{SECTION} of {}", program.path().display()));
    let elf = Elf::in_memory(file.map_err(malformed)?, &label)?;
    crate::layout::check(program, &elf).map_err(malformed)?;
    Ok(Some(elf))
}

/// What is in the stream. The sandbox allows no file for it, not even one in memory.
fn unpacked(packed: &[u8]) -> io::Result<Vec<u8>> {
    let decoder = XzReader::new_mem_limit(packed, false, DECODER_KIB_MAX);
    let mut bytes = Vec::new();
    decoder.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > BYTES_MAX {
        true => Err(io::Error::other("too big when decompressed")),
        false => Ok(bytes),
    }
}
