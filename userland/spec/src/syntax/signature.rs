// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of C++ with their parameters, without quotes: `ns::f(int, std::string const&) const`.
//!
//! What stands in brackets after a function is fields. It is parameters where it could be
//! nothing else: types that no expression looks like.

use super::lexer::is_name;
use super::{Expression, ExpressionKind, Spec};

/// Names of C++ that no variable has.
const KEYWORDS: [&str; 16] = [
    "bool", "char", "char8_t", "char16_t", "char32_t", "const", "double", "float", "int", "long",
    "short", "signed", "unsigned", "void", "volatile", "wchar_t",
];

/// What may stand after the parameters of a method.
const QUALIFIERS: [&str; 4] = [" const", " volatile", " &&", " &"];

/// Whether a field of a spec is a type.
pub(super) fn has_types(spec: &Spec) -> bool {
    let is_type = |value: &Expression| match &value.kind {
        ExpressionKind::Name(name) => KEYWORDS.contains(&name.as_str()),
        _ => false,
    };
    spec.fields.iter().any(|field| is_type(&field.value))
}

/// Where a name ends whose parameters begin at `from` with a bracket; none when these are
/// not types.
pub(super) fn end(text: &str, from: usize) -> Option<usize> {
    let inside = text.get(from..)?.strip_prefix('(')?;
    let length = closing(inside)?;
    if !are_types(inside.get(..length)?) {
        return None;
    }
    let mut end = from + 1 + length + 1;
    while let Some(rest) = text.get(end..) {
        let known = QUALIFIERS.iter().find(|word| {
            let behind = rest.strip_prefix(**word);
            behind.is_some_and(|behind| !behind.starts_with(is_name))
        });
        match known {
            Some(word) => end += word.len(),
            None => break,
        }
    }
    Some(end)
}

/// Where the bracket is that closes what is open in front of the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, next) in text.char_indices() {
        match next {
            '(' | '<' | '[' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' | '>' | ']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// Whether all parts may be types, and one of them can be nothing else.
fn are_types(parameters: &str) -> bool {
    let mut depth = 0usize;
    let parts = parameters.split(|next: char| {
        match next {
            '(' | '<' | '[' => depth += 1,
            ')' | '>' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        next == ',' && depth == 0
    });
    let kinds: Vec<Looks> = parts.map(|part| looks(part.trim())).collect();
    !kinds.contains(&Looks::Other) && kinds.contains(&Looks::Type)
}

/// What a part looks like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// A type and nothing else.
    Type,
    /// A name, of whatever.
    Name,
    Other,
}

fn looks(part: &str) -> Looks {
    if part == "..." {
        return Looks::Type;
    }
    let is_of_type = |next: char| is_name(next) || ":<>,*& ()[]".contains(next);
    let begins = part.starts_with(|next: char| is_name(next) && !next.is_ascii_digit());
    // A format stands after one colon, never two.
    let has_format = part.replace("::", "").contains(':');
    if !begins || has_format || !part.chars().all(is_of_type) {
        return Looks::Other;
    }
    let mut words = part
        .split(|next| !is_name(next))
        .filter(|word| !word.is_empty());
    if part.ends_with(['*', '&']) || words.any(|word| KEYWORDS.contains(&word)) {
        return Looks::Type;
    }
    // `std::string` and `Box<T>` are types, or names: of variables, too.
    match part.contains([' ', '(', ')', '[', ']', '*', '&']) {
        true => Looks::Other,
        false => Looks::Name,
    }
}
