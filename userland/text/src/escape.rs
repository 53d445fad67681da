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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for piece in chunk.valid().split_inclusive(is_escaped) {
                let (plain, special) = piece.split_at(piece.trim_end_matches(is_escaped).len());
                f.write_str(plain)?;
                for character in special.chars() {
                    write_escaped(f, character)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

fn write_escaped(f: &mut fmt::Formatter<'_>, character: char) -> fmt::Result {
    match character {
        '\\' => f.write_str("\\\\"),
        '\n' => f.write_str("\\n"),
        '\t' => f.write_str("\\t"),
        '\0'..='\u{7f}' if character.is_ascii_control() => {
            write!(f, "\\x{:02x}", u32::from(character))
        }
        _ => write!(f, "\\u{{{:x}}}", u32::from(character)),
    }
}

fn is_escaped(character: char) -> bool {
    character == '\\' || deceives(character)
}

/// Whether the character is invisible, or changes how others are shown.
fn deceives(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_deceives_is_escaped_and_the_rest_is_not() {
        for (raw, shown) in [
            (
                &b"std::vec<int>::push_back(int&&)"[..],
                "std::vec<int>::push_back(int&&)",
            ),
            ("größe_λ".as_bytes(), "größe_λ"),
            (b"a\x1b[31mb\r\n\tc", "a\\x1b[31mb\\x0d\\n\\tc"),
            (b"\\n", "\\\\n"),
            (b"a\xffb\xc3", "a\\xffb\\xc3"),
            (
                "a\u{202e}b\u{200b}c\u{9b}".as_bytes(),
                "a\\u{202e}b\\u{200b}c\\u{9b}",
            ),
            (b"\0\x7f", "\\x00\\x7f"),
        ] {
            assert_eq!(escaped(raw).to_string(), shown);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_become_one_harmless_line(bytes: Vec<u8>) {
            let shown = escaped(&bytes).to_string();
            prop_assert!(!shown.chars().any(deceives), "{shown:?}");
        }

        #[test]
        fn different_names_stay_different(a: Vec<u8>, b: Vec<u8>) {
            prop_assert_eq!(a == b, escaped(&a).to_string() == escaped(&b).to_string());
        }
    }
}
