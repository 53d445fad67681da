// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line for people: what a file's names came from.

use std::path::Path;

/// Source of a file's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesNote {
    /// A short text, with one reason why the names are not better.
    pub short: String,
    /// The full text.
    pub whole: String,
    /// Whether names are missing because of a failure.
    pub is_failure: bool,
}

impl NamesNote {
    /// A line to which nothing is added.
    pub fn plain(text: String) -> NamesNote {
        NamesNote {
            short: text.clone(),
            whole: text,
            is_failure: false,
        }
    }

    /// One that says what failed.
    pub fn failed(text: String) -> NamesNote {
        NamesNote {
            is_failure: true,
            ..NamesNote::plain(text)
        }
    }

    /// The line of a file without names.
    pub(super) fn without(path: Option<&Path>, build_id: &str, why: &str) -> NamesNote {
        NamesNote::failed(format!("{}: no names: {why}", name(path, build_id)))
    }

    /// Adds the reasons to the text.
    pub(super) fn with(text: &str, reasons: &[String], rest: Option<&String>) -> NamesNote {
        let mut whole: Vec<&str> = Vec::new();
        for reason in reasons.iter().chain(rest) {
            // A second look at a file finds the same.
            if !whole.contains(&reason.as_str()) {
                whole.push(reason);
            }
        }
        let in_brackets = |reasons: String| match reasons.is_empty() {
            true => text.to_owned(),
            false => format!("{text} ({reasons})"),
        };
        NamesNote {
            short: in_brackets(reasons.first().cloned().unwrap_or_default()),
            whole: in_brackets(whole.join("; ")),
            is_failure: false,
        }
    }
}

/// Display name of a file.
pub(super) fn name(path: Option<&Path>, build_id: &str) -> String {
    match (path, build_id) {
        (Some(path), _) => path.display().to_string(),
        (None, "") => "a file without a build-id".to_owned(),
        (None, id) => format!("the file with build-id {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_one_reason_and_programs_all() {
        let reasons = ["it is stripped", "/d is refused", "it is stripped"].map(str::to_owned);
        let line = NamesNote::with(
            "/a: symbol table of it",
            &reasons,
            Some(&"looked for /b".to_owned()),
        );
        assert_eq!(line.short, "/a: symbol table of it (it is stripped)");
        let whole = "/a: symbol table of it (it is stripped; /d is refused; looked for /b)";
        assert_eq!(line.whole, whole);
        assert_eq!(
            NamesNote::with("/a", &[], None),
            NamesNote::plain("/a".to_owned())
        );
        let lost = NamesNote::without(None, "12ab", "it is gone");
        assert_eq!(
            lost.short,
            "the file with build-id 12ab: no names: it is gone"
        );
    }
}
