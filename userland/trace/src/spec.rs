// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the user wants to probe: `BINARY:` and what `nsprobe_spec` reads after it.
//!
//! The first colon divides, so that `app:ns::Type::method` needs no quoting; a
//! colon in the name of a file is written `\:`.

use nsprobe_spec::{Spec, SpecText};
use nsprobe_text::{escaped, nearest};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A binary, as the target sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BinaryName {
    /// A path: something with a slash.
    Path(PathBuf),
    /// A bare name: a mapped library, or a program in `$PATH`.
    Bare(String),
}

impl BinaryName {
    fn new(name: String) -> BinaryName {
        if name.contains('/') {
            BinaryName::Path(PathBuf::from(name))
        } else {
            BinaryName::Bare(name)
        }
    }

    /// The name as a path.
    pub(crate) fn as_path(&self) -> &Path {
        match self {
            BinaryName::Path(path) => path,
            BinaryName::Bare(name) => Path::new(name),
        }
    }
}

impl fmt::Display for BinaryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_path().display().fmt(f)
    }
}

/// Places to be probed, what is fetched there, and which hits count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// Where they are.
    pub(crate) binary: BinaryName,
    /// Which they are, and the rest.
    pub spec: Spec,
    /// As it was typed.
    text: String,
    /// Where `spec` begins in it.
    base: usize,
}

impl ProbeSpec {
    /// The places, as they were typed.
    pub(crate) fn place(&self) -> &str {
        let span = &self.spec.place_span;
        let place = self.text.get(self.base + span.start..self.base + span.end);
        place.unwrap_or(&self.text)
    }

    /// Its condition, as it was typed.
    pub(crate) fn condition(&self) -> Option<&str> {
        let span = &self.spec.condition.as_ref()?.span;
        self.text.get(self.base + span.start..self.base + span.end)
    }

    /// What is wrong with the spec, or with the texts that it is counted by, as was found later.
    pub fn error(&self, error: &nsprobe_spec::SpecError, counted: CountedTexts<'_>) -> SpecError {
        let (text, base) = match error.text {
            SpecText::Probe => (self.text.as_str(), self.base),
            SpecText::Keys => (counted.keys, 0),
            SpecText::Value => (counted.value, 0),
        };
        let at = base + error.span.start..base + error.span.end;
        let why = escaped(&error.message);
        let why = match error.text {
            SpecText::Probe | SpecText::Value => why.to_string(),
            SpecText::Keys => {
                let word = text.get(at.clone()).unwrap_or_default();
                let similar = nearest(word, KEYS.map(str::to_owned), 2);
                let (similar, why) = match similar.is_empty() {
                    true => (String::new(), format!(": {why}")),
                    false => (
                        format!(" (did you mean {}?)", similar.join(", ")),
                        String::new(),
                    ),
                };
                format!(
                    "--by: no key `{}`{similar}; keys are {}, and expressions{why}",
                    escaped(word),
                    KEYS.join(", ")
                )
            }
        };
        SpecError {
            text: text.to_owned(),
            at,
            why,
        }
    }
}

/// Keys of waits that need no dollar sign.
pub const WAIT_KEYS: [&str; 3] = ["kind", "syscall", "fd"];

/// Keys that need no dollar sign.
pub const KEYS: [&str; 11] = [
    "func",
    "pid",
    "tid",
    "nspid",
    "nstid",
    "comm",
    "uid",
    "gid",
    "cpu",
    "container",
    "elapsed",
];

/// The texts of what hits are counted by.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountedTexts<'a> {
    /// The keys, separated by commas; may be empty.
    pub keys: &'a str,
    /// What is added up, or spread over buckets; may be empty.
    pub value: &'a str,
}

/// A binary, and which of its functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListSpec {
    /// Where they are.
    pub binary: BinaryName,
    /// A glob, or a part of the name; none for all.
    pub pattern: Option<String>,
}

/// What is wrong with a spec, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    text: String,
    /// The bytes in question.
    at: Range<usize>,
    why: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = |part: Option<&str>| {
            let part = escaped(part.unwrap_or_default()).to_string();
            part.chars().count()
        };
        let before = columns(self.text.get(..self.at.start));
        let width = columns(self.text.get(self.at.clone())).max(1);
        let (text, why) = (escaped(&self.text), &self.why);
        write!(f, "{why}\n    {text}\n    {:before$}{:^<width$}", "", "")
    }
}

impl std::error::Error for SpecError {}

impl FromStr for ProbeSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<ProbeSpec, SpecError> {
        let (binary, rest) = split(text)?;
        let missing = "a probe is BINARY:FUNCTION; here the colon and the function are missing";
        let (base, rest) = rest.ok_or_else(|| error(text, text.len(), missing))?;
        if rest.is_empty() {
            let missing = "a probe is BINARY:FUNCTION; here the function is missing";
            return Err(error(text, base, missing));
        }
        let spec = Spec::parse(rest);
        Ok(ProbeSpec {
            binary,
            spec: spec.map_err(|wrong| SpecError {
                text: text.to_owned(),
                at: base + wrong.span.start..base + wrong.span.end,
                why: escaped(&wrong.message).to_string(),
            })?,
            text: text.to_owned(),
            base,
        })
    }
}

/// Something is wrong at a byte of the text.
fn error(text: &str, at: usize, why: &str) -> SpecError {
    SpecError {
        text: text.to_owned(),
        at: at..at,
        why: why.to_owned(),
    }
}

impl FromStr for ListSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<ListSpec, SpecError> {
        let (binary, pattern) = split(text)?;
        let pattern = pattern.map(|(_, pattern)| pattern);
        Ok(ListSpec {
            binary,
            pattern: pattern.filter(|p| !p.is_empty()).map(str::to_owned),
        })
    }
}

/// The binary, and what follows the first plain colon with its place.
#[allow(
    clippy::type_complexity,
    reason = "a name and, if any, a place and a rest"
)]
fn split(text: &str) -> Result<(BinaryName, Option<(usize, &str)>), SpecError> {
    let error = |at, why| error(text, at, why);
    let mut name = String::new();
    let mut rest = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        match char {
            '\0' => return Err(error(at, "a file's name cannot hold a NUL")),
            '\\' if chars.next_if(|&(_, next)| next == ':').is_some() => name.push(':'),
            ':' => {
                rest = text.get(at + 1..).map(|rest| (at + 1, rest));
                break;
            }
            char => name.push(char),
        }
    }
    if name.is_empty() {
        return Err(error(0, "the binary is missing before the colon"));
    }
    if let Some((start, at)) = rest.and_then(|(start, rest)| Some((start, rest.find('\0')?))) {
        return Err(error(start + at, "a function's name cannot hold a NUL"));
    }
    if name.ends_with('/') {
        return Err(error(
            rest.map_or(text.len(), |(start, _)| start - 1),
            "this names a directory; the binary's own name is missing",
        ));
    }
    Ok((BinaryName::new(name), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nsprobe_spec::syntax::ProbePoint;
    use proptest::prelude::*;

    fn probe(text: &str) -> ProbeSpec {
        text.parse().unwrap()
    }

    fn function(spec: &ProbeSpec) -> &str {
        match &spec.spec.place {
            ProbePoint::Functions { name, .. } => name,
            place => panic!("{place:?}"),
        }
    }

    #[test]
    fn the_first_colon_divides() {
        let spec = probe("/usr/bin/app:\"ns::Type::method(int)\"");
        assert_eq!(spec.binary, BinaryName::Path("/usr/bin/app".into()));
        assert_eq!(function(&spec), "ns::Type::method(int)");
        let spec = probe(r"a\:b:f");
        assert_eq!(spec.binary, BinaryName::Bare("a:b".into()));
        let list: ListSpec = "libc.so.6".parse().unwrap();
        assert_eq!(list.pattern, None);
        let list: ListSpec = "libc.so.6:mal*".parse().unwrap();
        assert_eq!(list.pattern.as_deref(), Some("mal*"));
    }

    #[test]
    fn errors_point_at_the_place() {
        let text = |spec: &str| spec.parse::<ProbeSpec>().unwrap_err().to_string();
        assert_eq!(
            text("redis-server"),
            "a probe is BINARY:FUNCTION; here the colon and the function are missing\n    \
             redis-server\n                ^"
        );
        assert!(text("app:").ends_with("\n    app:\n        ^"));
        assert!(text(":main").ends_with("\n    :main\n    ^"));
        assert!(text("/usr/bin/:main").contains("directory"));
        assert!(text("a:\u{1b}[31m\0").contains("NUL"));
        assert!(!text("a:\u{1b}[31m\0").contains('\u{1b}'));
        assert!(text("app:f(a b)").ends_with("\n    app:f(a b)\n            ^"));
        assert!(text("app:f(%rdj)").ends_with("\n    app:f(%rdj)\n          ^^^^"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>()) {
            if let Err(error) = text.parse::<ProbeSpec>() {
                prop_assert_eq!(error.to_string().lines().count(), 3);
            }
            let _ = text.parse::<ListSpec>();
        }

        #[test]
        fn what_was_meant_comes_back(binary in "[a-z/.:]{0,8}[a-z]", function in "[a-z*]{1,8}") {
            let spec = probe(&format!("{}:{function}", binary.replace(':', r"\:")));
            prop_assert_eq!(self::function(&spec), function);
            prop_assert_eq!(spec.binary, BinaryName::new(binary));
        }
    }
}
