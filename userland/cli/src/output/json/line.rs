// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line of JSON, in ASCII.

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Result, Write};

/// Writes `value` as one line. Everything beyond ASCII is escaped, so that no
/// name can play tricks on a terminal, and every reader gets it back unchanged.
pub(crate) fn line(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    let mut serializer = Serializer::with_formatter(&mut *out, Ascii);
    value.serialize(&mut serializer).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> Result<()> {
        if fragment.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return out.write_all(fragment.as_bytes());
        }
        for char in fragment.chars() {
            match char {
                ' '..='~' => out.write_all(&[char as u8])?,
                char => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        write!(out, "\\u{unit:04x}")?;
                    }
                }
            }
        }
        Ok(())
    }
}
