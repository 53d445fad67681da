// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile names made safe for all formats. A caller with more knowledge of names has escaped them
//! before: what is escaped already stays as it is.

use crate::model::UNKNOWN;
use std::borrow::Cow;
use std::fmt::Write;

/// A name without control characters and what XML does not have, which are `\x1b` and the like.
pub(crate) fn plain(name: &str) -> Cow<'_, str> {
    if !name.contains(is_harmful) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        match is_harmful(character) {
            // Writing to a string does not fail.
            true => drop(write!(text, "\\x{:02x}", u32::from(character))),
            false => text.push(character),
        }
    }
    Cow::Owned(text)
}

fn is_harmful(character: char) -> bool {
    character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}')
}

/// A plain name as a frame of a folded stack: `;` is a colon, as it ends frames. Readers take a
/// number after a space for the count, and `# ` at a line's beginning for a comment: the one has
/// underscores for its spaces, the other one in front.
pub(crate) fn folded(name: &str) -> String {
    let name = match name.trim() {
        "" => UNKNOWN.to_owned(),
        name => name.replace(';', ":"),
    };
    let is_digit = |digit: char| digit.is_ascii_digit() || digit == '.';
    let last = name.rsplit_once(char::is_whitespace).map(|(_, last)| last);
    if last.is_some_and(|last| last.chars().all(is_digit)) {
        return name.replace(char::is_whitespace, "_");
    }
    match name.split(char::is_whitespace).next() {
        Some("#") => format!("_{name}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_once() {
        assert_eq!(plain("std::map<a, b>"), "std::map<a, b>");
        assert_eq!(plain("a\x1b[1m\nb\u{9b}"), "a\\x1b[1m\\x0ab\\x9b");
        let once = plain("a\n\\n").into_owned();
        assert_eq!(plain(&once), once);
    }

    #[test]
    fn folded_names_are_frames_and_nothing_else() {
        for (name, frame) in [
            ("operator new(unsigned long)", "operator new(unsigned long)"),
            ("[u8; 4]", "[u8: 4]"),
            ("worker 12", "worker_12"),
            ("of 1.5 2.5", "of_1.5_2.5"),
            ("7", "7"),
            ("#", "_#"),
            ("# no comment", "_# no comment"),
            (" a ", "a"),
            (" ", "[unknown]"),
            ("f32", "f32"),
        ] {
            assert_eq!(folded(name), frame);
        }
    }
}
