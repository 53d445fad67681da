// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place of a spec: where it ends, and which kind it is.

use super::lexer::{is_name, number};
use super::{ProbePoint, Span, SpecError};

/// The operators whose names would be taken for brackets or suffixes; the longest
/// come first.
const OPERATORS: [&str; 16] = [
    "<<=", ">>=", "->*", "<=>", "()", "[]", "<<", ">>", "<=", ">=", "->", "++", "+=", "+", "<", ">",
];

/// How demanglers write a namespace without a name.
const ANONYMOUS: &str = "(anonymous namespace)";

/// The place, its text without quotes, and where what follows begins. Without quotes
/// it ends at the first bracket or blank that is not between angle brackets.
pub(super) fn place_text(text: &str) -> Result<(Span, String, usize), SpecError> {
    let start = text.len() - text.trim_start().len();
    let rest = text.get(start..).unwrap_or("");
    for quote in ['"', '`'] {
        if let Some(inner) = rest.strip_prefix(quote) {
            let Some(end) = inner.find(quote) else {
                let message = "the closing quote is missing";
                return Err(SpecError::new(start..text.len(), message));
            };
            let name = inner.get(..end).unwrap_or("").to_owned();
            let after = start + 1 + end + 1;
            return Ok((start..after, name, after));
        }
    }
    let end = end(rest).map_err(|at| {
        SpecError::new(
            start + at..start + at + 1,
            "this bracket is never closed; a name that is really so stands in `quotes`",
        )
    })?;
    let name = rest.get(..end).unwrap_or("").to_owned();
    if name.is_empty() {
        return Err(SpecError::new(start..start, "the function is missing here"));
    }
    Ok((start..start + end, name, start + end))
}

/// Where a place ends that stands without quotes; or the angle bracket that is
/// never closed.
fn end(text: &str) -> Result<usize, usize> {
    let mut open: Vec<usize> = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        let Some(next) = rest.chars().next() else {
            break;
        };
        let before = text.get(..at).unwrap_or("");
        match next {
            'o' if !before.ends_with(is_name) && operator(rest) > 0 => {
                at += operator(rest);
                continue;
            }
            // The arrow of `fn() -> T` closes nothing.
            '-' if rest.starts_with("->") => at += 1,
            '<' => open.push(at),
            '>' => drop(open.pop()),
            '(' if rest.starts_with(ANONYMOUS) => {
                at += ANONYMOUS.len();
                continue;
            }
            // The receiver of Go's `main.(*Server).handle`, and the types of `main.Map[...]`.
            '(' if open.is_empty() && before.ends_with('.') && rest.contains(").") => {
                at += enclosed(rest, '(', ')');
                continue;
            }
            '[' if open.is_empty() && rest.contains(']') => {
                at += enclosed(rest, '[', ']');
                continue;
            }
            '(' if open.is_empty() => break,
            next if open.is_empty() && next.is_whitespace() => break,
            _ => {}
        }
        at += text
            .get(at..)
            .and_then(|rest| rest.chars().next())
            .map_or(1, char::len_utf8);
    }
    match open.last() {
        Some(open) => Err(*open),
        None => Ok(at),
    }
}

/// Bytes of what the text begins with, from an opening bracket to the closing one.
fn enclosed(text: &str, opening: char, closing: char) -> usize {
    let mut depth = 0usize;
    for (at, next) in text.char_indices() {
        if next == opening {
            depth += 1;
        } else if next == closing {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return at + next.len_utf8();
            }
        }
    }
    text.len()
}

/// Bytes of the name of an operator of C++ that begins the text, else 0.
fn operator(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("operator") else {
        return 0;
    };
    let symbol = OPERATORS.iter().find(|symbol| rest.starts_with(**symbol));
    symbol.map_or(0, |symbol| "operator".len() + symbol.len())
}

pub(super) fn place(text: &str, span: &Span) -> Result<ProbePoint, SpecError> {
    if let Some(offset) = text.strip_prefix("0x").and(number(text)) {
        return Ok(ProbePoint::FileOffset(offset));
    }
    if let Some((before, after)) = split_colon(text) {
        if before.is_empty() || after.is_empty() {
            return Err(SpecError::new(
                span.clone(),
                "this is neither FILE:LINE nor PROVIDER:NAME",
            ));
        }
        if after.bytes().all(|byte| byte.is_ascii_digit()) {
            return match after.parse() {
                Ok(line) if line > 0 => Ok(ProbePoint::Line {
                    file: before.to_owned(),
                    line,
                }),
                _ => Err(SpecError::new(span.clone(), "no file has such a line")),
            };
        }
        return Ok(ProbePoint::Usdt {
            provider: before.to_owned(),
            name: after.to_owned(),
        });
    }
    // `operator+` has no number after it.
    let (name, offset) = match text.rsplit_once('+') {
        Some((name, digits))
            if !name.is_empty() && digits.starts_with(|c: char| c.is_ascii_digit()) =>
        {
            match number(digits) {
                Some(offset) => (name, offset),
                None => {
                    return Err(SpecError::new(
                        span.clone(),
                        "what stands behind the + is not a number of bytes",
                    ))
                }
            }
        }
        _ => (text, 0),
    };
    Ok(ProbePoint::Functions {
        name: name.to_owned(),
        offset,
    })
}

/// Divides at a colon that is not part of a `::`, nor in brackets, as in `f[abi:cxx11]`.
fn split_colon(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let is_colon = |at: usize| bytes.get(at) == Some(&b':');
    let mut depth = 0usize;
    let at = (0..bytes.len()).find(|&at| {
        match bytes.get(at) {
            Some(b'[' | b'(') => depth += 1,
            Some(b']' | b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_alone = !is_colon(at + 1) && !at.checked_sub(1).is_some_and(is_colon);
        depth == 0 && is_colon(at) && is_alone
    })?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}
