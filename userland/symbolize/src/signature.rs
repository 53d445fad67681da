// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of C++ and Rust with parameters or template arguments, compared by what they say: blanks, the
//! side on which `const` stands, and long names of standard types make no difference.

use crate::short_names::{operator_bytes, shortened};

/// What stands for a namespace without a name.
const ANONYMOUS: &str = "(anonymous namespace)";

/// Suffix of a name by which g++ distinguishes two libraries: `f[abi:cxx11]`.
const TAG: &str = "[abi:";

/// The name without such tags, if it has any.
pub(crate) fn without_tags(name: &str) -> Option<String> {
    let (first, rest) = name.split_once(TAG)?;
    let behind = rest.split(TAG).filter_map(|rest| rest.split_once(']'));
    let mut plain = first.to_owned();
    plain.extend(behind.map(|(_, behind)| behind));
    Some(plain)
}

/// A name that a user wrote.
#[derive(Debug)]
pub(crate) struct Signature {
    all: String,
    /// Bytes of it up to the parameters.
    name: usize,
}

/// Whether the name has parameters or template arguments.
pub(crate) fn is_signature(name: &str) -> bool {
    name.contains(['(', '<'])
}

impl Signature {
    pub(crate) fn new(written: &str) -> Signature {
        let all = plain(written);
        let name = name_bytes(&all);
        Signature { all, name }
    }

    pub(crate) fn has_parameters(&self) -> bool {
        self.name < self.all.len()
    }

    /// Whether it is of a function with that readable name, which may have no parameters.
    pub(crate) fn is_of(&self, short: &str) -> bool {
        // Most differ without being rewritten.
        let length = |text: &str| text.find(['<', '(', ' ']).unwrap_or(text.len());
        let last = |text: &str| {
            let path = text.get(..length(text)).unwrap_or("");
            path.rsplit(':').next().map(str::to_owned)
        };
        if !short.contains(['<', ' ', '(', '[']) && last(short) != last(&self.all) {
            return false;
        }
        let found = self.plain(short);
        let name = found.get(..name_bytes(&found));
        name == self.all.get(..self.name)
    }

    /// Whether the readable name says all of it.
    pub(crate) fn is_all(&self, readable: &str) -> bool {
        self.plain(readable) == self.all
    }

    /// A readable name, without tags if this one has none.
    fn plain(&self, readable: &str) -> String {
        let bare = without_tags(readable).filter(|_| !self.all.contains(TAG));
        plain(bare.as_deref().unwrap_or(readable))
    }
}

/// Where the parameters begin, or the text ends.
fn name_bytes(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0usize);
    while let Some(rest) = text.get(at..) {
        let Some(next) = rest.chars().next() else {
            break;
        };
        let operator = operator_bytes(text.get(..at).unwrap_or(""), rest);
        at += match next {
            'o' if operator > 0 => operator,
            '(' if rest.starts_with(ANONYMOUS) => ANONYMOUS.len(),
            '(' if depth == 0 => return at,
            '-' if rest.starts_with("->") => 2,
            next => {
                match next {
                    '<' | '(' | '{' => depth += 1,
                    '>' | ')' | '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                next.len_utf8()
            }
        };
    }
    text.len()
}

/// The name in one spelling of all that say the same.
fn plain(name: &str) -> String {
    let is_name = |char: char| char.is_alphanumeric() || char == '_';
    let short = shortened(name);
    let mut out = String::with_capacity(short.len());
    let mut chars = short.trim().chars().peekable();
    while let Some(next) = chars.next() {
        if !next.is_whitespace() {
            out.push(next);
            continue;
        }
        while chars.next_if(|next| next.is_whitespace()).is_some() {}
        // A blank between two words separates them.
        if out.ends_with(is_name) && chars.peek().is_some_and(|next| is_name(*next)) {
            out.push(' ');
        }
    }
    let out = out.replace("(anonymousnamespace)", ANONYMOUS);
    east(&out)
}

/// The name with each `const` after what it applies to.
fn east(name: &str) -> String {
    const WORD: &str = "const ";
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(WORD) {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let found = found.get(WORD.len()..).unwrap_or("");
        if !out.is_empty() && !out.ends_with(['(', '<', ',']) {
            // It stands there already, or is a part of another word.
            out.push_str(WORD);
            rest = found;
            continue;
        }
        let mut depth = 0usize;
        let end = found.find(|next: char| {
            let ends = depth == 0 && matches!(next, '*' | '&' | ',' | ')' | '>');
            match next {
                '<' | '(' => depth += 1,
                '>' | ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            ends
        });
        let (kind, behind) = found.split_at(end.unwrap_or(found.len()));
        out.push_str(&east(kind));
        out.push_str(" const");
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_makes_no_difference() {
        let full = "shop::f(int, std::__cxx11::basic_string<char, std::char_traits<char>, \
                    std::allocator<char> > const&)";
        for written in [
            full,
            "shop::f(int, std::string const&)",
            "shop::f(int,const std::string&)",
            "shop::f( int , std::string const & )",
        ] {
            let signature = Signature::new(written);
            assert!(signature.has_parameters());
            assert!(signature.is_of("shop::f"), "{signature:?}");
            assert!(!signature.is_of("shop::g"));
            assert!(signature.is_all(full), "{signature:?} {}", plain(full));
            assert!(!signature.is_all("shop::f(int, std::string&)"));
        }
    }

    #[test]
    fn templates_need_no_parameters() {
        let signature = Signature::new("Box<std::string>::get");
        assert!(!signature.has_parameters());
        assert!(signature.is_of(
            "Box<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> \
             > >::get"
        ));
        assert!(!signature.is_of("Box<int>::get"));
        let call = Signature::new("(anonymous namespace)::A::operator()(int)");
        assert!(call.is_of("(anonymous namespace)::A::operator()"));
        assert!(Signature::new("operator<(A,B)").is_of("operator<"));
    }
}
