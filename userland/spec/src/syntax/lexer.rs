// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text into tokens.

use super::{Span, SpecError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Number(u64),
    Text(Vec<u8>),
    /// A name, maybe with `::` in it.
    Name(String),
    /// `$name`
    Dollar(String),
    /// `%name`
    Percent(String),
    /// An operator or a bracket.
    Mark(&'static str),
}

/// The longest come first.
const MARKS: [&str; 35] = [
    "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "(", ")", "[", "]", "{", "}", ",", ":",
    "=", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">", ".", "?", ";", "@", "#",
];

pub(super) fn is_name(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// The tokens of `text` from byte `from` on, each with its place.
pub(super) fn tokens(text: &str, from: usize) -> Result<Vec<(Token, Span)>, SpecError> {
    let mut tokens = Vec::new();
    let mut at = from;
    while let Some(rest) = text.get(at..) {
        let Some(first) = rest.chars().next() else {
            break;
        };
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, length) = token(rest, first, at)?;
        tokens.push((token, at..at + length));
        at += length;
    }
    Ok(tokens)
}

fn token(rest: &str, first: char, at: usize) -> Result<(Token, usize), SpecError> {
    let word = |skip: usize| -> &str {
        let tail = rest.get(skip..).unwrap_or("");
        let end = tail.find(|c| !is_name(c)).unwrap_or(tail.len());
        tail.get(..end).unwrap_or("")
    };
    match first {
        '0'..='9' => {
            let digits = word(0);
            match number(digits).or_else(|| nanoseconds(digits)) {
                Some(value) => Ok((Token::Number(value), digits.len())),
                None => Err(SpecError::new(
                    at..at + digits.len(),
                    "this is not a number: 10, 0x1f and 20ms are",
                )),
            }
        }
        // A name that would be something else: `Box<int>::count`, `main.Count`.
        '`' => {
            let (name, length) = text(rest, at, '`')?;
            let name = String::from_utf8_lossy(&name).into_owned();
            Ok((Token::Name(name), length))
        }
        '"' => text(rest, at, '"').map(|(bytes, length)| (Token::Text(bytes), length)),
        '\'' => {
            let (bytes, length) = text(rest, at, '\'')?;
            let mut characters = std::str::from_utf8(&bytes).unwrap_or("").chars();
            match (characters.next(), characters.next()) {
                (Some(one), None) => Ok((Token::Number(u32::from(one).into()), length)),
                _ => Err(SpecError::new(
                    at..at + length,
                    "one character stands between single quotes; strings stand between double ones",
                )),
            }
        }
        // After a remainder's sign a number may stand; no register begins with a digit.
        '$' | '%' if word(1).starts_with(|c: char| !c.is_ascii_digit()) => {
            let name = word(1).to_owned();
            let length = 1 + name.len();
            match first {
                '$' => Ok((Token::Dollar(name), length)),
                _ => Ok((Token::Percent(name), length)),
            }
        }
        first if is_name(first) => {
            let length = qualified(rest);
            let length = length + member_of_pack(rest.get(length..).unwrap_or(""));
            let name = rest.get(..length).unwrap_or("").to_owned();
            Ok((Token::Name(name), length))
        }
        _ => match MARKS.iter().find(|mark| rest.starts_with(**mark)) {
            Some(mark) => Ok((Token::Mark(mark), mark.len())),
            None => Err(SpecError::new(
                at..at + first.len_utf8(),
                "this character means nothing here",
            )),
        },
    }
}

/// Bytes of a name with its `::`.
fn qualified(text: &str) -> usize {
    let mut end = 0;
    loop {
        let tail = text.get(end..).unwrap_or("");
        end += tail.find(|c| !is_name(c)).unwrap_or(tail.len());
        let more = text.get(end..).and_then(|tail| tail.strip_prefix("::"));
        match more.and_then(|more| more.chars().next()) {
            Some(next) if is_name(next) => end += 2,
            _ => return end,
        }
    }
}

/// Bytes of what tells apart the parameters of a pack: `#2`.
fn member_of_pack(text: &str) -> usize {
    let digits = text.strip_prefix('#').unwrap_or("");
    match digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len())
    {
        0 => 0,
        digits => 1 + digits,
    }
}

/// A decimal number, or with 0x, 0o or 0b one of that base.
pub(super) fn number(digits: &str) -> Option<u64> {
    let (digits, base) = match digits.get(..2) {
        Some("0x" | "0X") => (digits.get(2..)?, 16),
        Some("0o") => (digits.get(2..)?, 8),
        Some("0b") => (digits.get(2..)?, 2),
        _ => (digits, 10),
    };
    u64::from_str_radix(digits, base)
        .ok()
        .filter(|_| !digits.starts_with('+'))
}

/// A time span with a unit, as `$elapsed` counts: in nanoseconds.
fn nanoseconds(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 4] = [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
    ];
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let is_decimal = digits.bytes().all(|digit| digit.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_decimal)?;
    number.checked_mul(*unit)
}

/// A string up to its closing quote.
fn text(rest: &str, at: usize, quote: char) -> Result<(Vec<u8>, usize), SpecError> {
    let mut bytes = Vec::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((index, char)) = chars.next() {
        let char = match char {
            '\\' => match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, 't')) => '\t',
                Some((_, '0')) => {
                    return Err(SpecError::new(
                        at + index..at + index + 2,
                        "a string of the program cannot hold a NUL",
                    ))
                }
                Some((_, other)) => other,
                None => break,
            },
            char if char == quote => return Ok((bytes, index + 1)),
            char => char,
        };
        bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Err(SpecError::new(
        at..at + rest.len(),
        "the closing quote is missing",
    ))
}
