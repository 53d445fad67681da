// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the unwind rows of a file as the request UNWIND takes them, for programs in C:
//! the number of the first block (64 bits); how many blocks, rows and rules there are, and
//! zero (32 bits each); then the blocks, the rows and the rules. All in the machine's own
//! byte order. Usage: table FILE TO.

use nsprobe_symbolize::Binary;
use nsprobe_unwind::UnwindTable;
use std::error::Error;
use std::fs::File;
use std::path::Path;
use zerocopy::IntoBytes;

fn bytes_of(table: &UnwindTable) -> Result<Vec<u8>, Box<dyn Error>> {
    let counts = [table.blocks.len(), table.rows.len(), table.rules.len(), 0];
    let mut bytes = table.first.to_ne_bytes().to_vec();
    for count in counts {
        bytes.extend(u32::try_from(count)?.to_ne_bytes());
    }
    bytes.extend(table.blocks.as_bytes());
    bytes.extend(table.rows.as_bytes());
    bytes.extend(table.rules.as_bytes());
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [from, to] = words.as_slice() else {
        return Err("usage: table FILE TO".into());
    };
    let path = Path::new(from);
    let table = UnwindTable::of(&Binary::open_sections(File::open(path)?, path)?)?;
    std::fs::write(to, bytes_of(&table)?)?;
    Ok(())
}
