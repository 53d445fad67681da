// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile names made safe to print.

use std::fmt;

/// Bytes that print as one line of harmless text; see [`escaped`].
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(&'a [u8]);

/// `name` with everything escaped that could deceive a terminal or a reader:
/// control characters, newlines, terminal escapes, bidirectional overrides,
/// invisible characters, invalid UTF-8, and the backslash itself.
pub fn escaped<T: AsRef<[u8]> + ?Sized>(name: &T) -> Escaped<'_> {
    Escaped(name.as_ref())
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!("{:?}", self.0)
    }
}
