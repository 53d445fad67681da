// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readable C++ names as people write them: `std::string` for
//! `std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >`, and
//! containers without the arguments that they have by default.

use std::borrow::Cow;

/// Operators of C++ in whose names brackets open and close nothing; the longest come first.
const OPERATORS: [&str; 15] = [
    "<<=", ">>=", "->*", "<=>", "()", "[]", "<<", ">>", "<=", ">=", "->", "<", ">", ",", "-",
];

/// Templates of characters, and what they are called when they are of `char`.
const OF_CHARACTERS: [(&str, &str); 13] = [
    ("std::basic_string", "string"),
    ("std::basic_string_view", "string_view"),
    ("std::basic_istream", "istream"),
    ("std::basic_ostream", "ostream"),
    ("std::basic_iostream", "iostream"),
    ("std::basic_ifstream", "ifstream"),
    ("std::basic_ofstream", "ofstream"),
    ("std::basic_fstream", "fstream"),
    ("std::basic_istringstream", "istringstream"),
    ("std::basic_ostringstream", "ostringstream"),
    ("std::basic_stringstream", "stringstream"),
    ("std::basic_streambuf", "streambuf"),
    ("std::basic_ios", "ios"),
];

/// Characters, and what stands in front of such a name when it is of them.
const CHARACTERS: [(&str, &str); 5] = [
    ("char", ""),
    ("wchar_t", "w"),
    ("char8_t", "u8"),
    ("char16_t", "u16"),
    ("char32_t", "u32"),
];

/// Containers, and how many of their arguments must be said.
const CONTAINERS: [(&str, usize); 13] = [
    ("std::vector", 1),
    ("std::deque", 1),
    ("std::list", 1),
    ("std::forward_list", 1),
    ("std::set", 1),
    ("std::multiset", 1),
    ("std::unordered_set", 1),
    ("std::unordered_multiset", 1),
    ("std::unique_ptr", 1),
    ("std::map", 2),
    ("std::multimap", 2),
    ("std::unordered_map", 2),
    ("std::unordered_multimap", 2),
];

/// Templates whose instance for an argument is the default for it; the allocator's argument is
/// made of others.
const DEFAULTS: [&str; 5] = [
    "std::char_traits",
    "std::less",
    "std::hash",
    "std::equal_to",
    "std::default_delete",
];
const ALLOCATOR: &str = "std::allocator";

/// A bracket that is open, in the text that comes out.
struct Open {
    bracket: u8,
    /// Where what is in it begins.
    inside: usize,
    /// Where its commas are.
    commas: Vec<usize>,
}

/// Bytes of the name of an operator of C++ that begins the text, else 0. What stands `before`
/// must not make it another name.
pub(crate) fn operator_bytes(before: &str, text: &str) -> usize {
    let is_name = |char: char| char.is_alphanumeric() || char == '_';
    let Some(rest) = text.strip_prefix("operator") else {
        return 0;
    };
    let symbol = OPERATORS.iter().find(|symbol| rest.starts_with(**symbol));
    match symbol {
        Some(symbol) if !before.ends_with(is_name) => "operator".len() + symbol.len(),
        _ => 0,
    }
}

/// The name as people write it; unchanged if its brackets cannot be distinguished from operators.
pub fn shortened(name: &str) -> Cow<'_, str> {
    let candidates = ["std::basic_", "std::__", "std::allocator<", "std::less<"];
    let has_any = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if !has_any(&candidates) && !has_any(&["std::hash<", "std::default_delete<"]) {
        return name.into();
    }
    shorten(name).map_or_else(|| name.into(), Cow::from)
}

fn shorten(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    while let Some(rest) = name.get(at..) {
        let Some(next) = rest.chars().next() else {
            break;
        };
        let operator = operator_bytes(&out, rest);
        let length = match next {
            'o' if operator > 0 => operator,
            // The arrow of a trailing type closes nothing.
            '-' if rest.starts_with("->") => 2,
            next => next.len_utf8(),
        };
        let piece = rest.get(..length)?;
        at += length;
        match piece {
            "<" | "(" | "{" | "[" => {
                out.push_str(piece);
                open.push(Open {
                    bracket: *piece.as_bytes().first()?,
                    inside: out.len(),
                    commas: Vec::new(),
                });
            }
            "," => {
                if let Some(open) = open.last_mut() {
                    open.commas.push(out.len());
                }
                out.push_str(piece);
            }
            ">" | ")" | "}" | "]" => {
                let closed = open.pop()?;
                let fits = matches!(
                    (closed.bracket, piece),
                    (b'<', ">") | (b'(', ")") | (b'{', "}") | (b'[', "]")
                );
                if !fits {
                    return None;
                }
                match piece {
                    ">" => close(&mut out, &closed)?,
                    _ => out.push_str(piece),
                }
            }
            _ => out.push_str(piece),
        }
    }
    open.is_empty().then_some(out)
}

/// Ends a list of template arguments, in as few words as say the same.
fn close(out: &mut String, list: &Open) -> Option<()> {
    let inside = out.get(list.inside..)?;
    let mut arguments = Vec::new();
    let mut from = list.inside;
    for comma in list.commas.iter().copied().chain([out.len()]) {
        arguments.push(out.get(from..comma)?.trim());
        from = comma + 1;
    }
    let before = out.get(..list.inside.checked_sub(1)?)?;
    let is_name = |char: char| char.is_alphanumeric() || char == '_' || char == ':';
    let start = before.trim_end_matches(is_name).len();
    let template = usual(before.get(start..)?);
    if let Some(short) = of_characters(&template, &arguments) {
        out.truncate(start);
        out.push_str(&short);
        return Some(());
    }
    let container = CONTAINERS.iter().find(|(name, _)| *name == template);
    let Some((name, said)) = container else {
        // As demanglers do, so that it is not read as a shift.
        let space = inside.ends_with('>');
        out.push_str(if space { " >" } else { ">" });
        return Some(());
    };
    let first = arguments.first().copied().unwrap_or("");
    let mut count = arguments.len();
    while count > *said && is_default(arguments.get(count - 1)?, first) {
        count -= 1;
    }
    let mut short = format!("{name}<{}", arguments.get(..count)?.join(", "));
    short.push_str(if short.ends_with('>') { " >" } else { ">" });
    out.truncate(start);
    out.push_str(&short);
    Some(())
}

/// The name without the namespaces that distinguish versions of libraries.
fn usual(template: &str) -> Cow<'_, str> {
    for inline in [
        "std::__cxx11::",
        "std::__1::",
        "std::__ndk1::",
        "std::__debug::",
    ] {
        if let Some(rest) = template.strip_prefix(inline) {
            return format!("std::{rest}").into();
        }
    }
    template.into()
}

/// What a template of characters is called, when all else is its default.
fn of_characters(template: &str, arguments: &[&str]) -> Option<String> {
    let (_, name) = OF_CHARACTERS.iter().find(|(full, _)| *full == template)?;
    let (of, rest) = arguments.split_first()?;
    let (_, prefix) = CHARACTERS.iter().find(|(character, _)| character == of)?;
    // Only strings are called so of all characters.
    let has_name = name.starts_with("string") && !name.ends_with("stream") || prefix.len() < 2;
    let is_short = rest.iter().all(|argument| is_default(argument, of));
    (has_name && is_short).then(|| format!("std::{prefix}{name}"))
}

/// Whether a template has this argument by default when its first one is `first`.
fn is_default(argument: &str, first: &str) -> bool {
    let Some((template, of)) = argument.split_once('<') else {
        return false;
    };
    let Some(of) = of.strip_suffix('>') else {
        return false;
    };
    let template = usual(template);
    template == ALLOCATOR || (DEFAULTS.contains(&template.as_ref()) && of.trim() == first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_containers_are_named_as_people_do() {
        for (long, short) in [
            (
                "shop::hash_of(std::__cxx11::basic_string<char, std::char_traits<char>, \
                 std::allocator<char> > const&)",
                "shop::hash_of(std::string const&)",
            ),
            (
                "f(std::__1::basic_string<char, std::__1::char_traits<char>, \
                 std::__1::allocator<char>>)",
                "f(std::string)",
            ),
            (
                "g(std::basic_string_view<char, std::char_traits<char> >, \
                 std::basic_string<wchar_t, std::char_traits<wchar_t>, std::allocator<wchar_t> >)",
                "g(std::string_view, std::wstring)",
            ),
            (
                "std::vector<std::__cxx11::basic_string<char, std::char_traits<char>, \
                 std::allocator<char> >, std::allocator<std::__cxx11::basic_string<char, \
                 std::char_traits<char>, std::allocator<char> > > >::push_back(int)",
                "std::vector<std::string>::push_back(int)",
            ),
            (
                "f(std::map<int, long, std::less<int>, std::allocator<std::pair<int const, \
                 long> > > const&)",
                "f(std::map<int, long> const&)",
            ),
            (
                "f(std::map<int, long, std::greater<int>, std::allocator<std::pair<int const, \
                 long> > > const&)",
                "f(std::map<int, long, std::greater<int> > const&)",
            ),
            (
                "f(std::unique_ptr<A, std::default_delete<A> >, std::unique_ptr<A, \
                 std::default_delete<B> >)",
                "f(std::unique_ptr<A>, std::unique_ptr<A, std::default_delete<B> >)",
            ),
            (
                "std::basic_ostream<char, std::char_traits<char> >& std::operator<< \
                 <std::char_traits<char> >(std::basic_ostream<char, std::char_traits<char> >&, \
                 char const*)",
                "std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, \
                 char const*)",
            ),
            // The allocator is not the default where it is all that there is.
            (
                "std::allocator_traits<std::allocator<int> >::allocate(int)",
                "std::allocator_traits<std::allocator<int> >::allocate(int)",
            ),
            (
                "std::_Vector_base<int, std::allocator<int> >::f()",
                "std::_Vector_base<int, std::allocator<int> >::f()",
            ),
        ] {
            assert_eq!(shortened(long), short);
            assert_eq!(shortened(short), short);
        }
    }

    #[test]
    fn what_is_not_understood_stays() {
        for name in [
            "f<(a)>(b)>(std::allocator<int>)",
            "std::vector<int, std::allocator<int>",
            "std::allocator<int>)",
            "std::basic_string<Rune, std::char_traits<Rune>, std::allocator<Rune> >::f()",
            "std::hash<",
            "plain",
        ] {
            assert_eq!(shortened(name), name);
        }
    }
}
