// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests that there are, as the guest's test program lists them.

use anyhow::{bail, Context, Result};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

/// One test of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) name: String,
    /// Seconds until it counts as hanging.
    pub(crate) limit_s: u64,
    pub(crate) tags: BTreeSet<String>,
}

impl Test {
    pub(crate) fn has(&self, tag: &str) -> bool {
        self.tags.contains(tag)
    }
}

/// All tests, in the order of their files.
pub(crate) fn read(payload: &Path) -> Result<Vec<Test>> {
    let program = payload.join("nsprobe-guest-test");
    let output = Command::new(&program)
        .arg("--list")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{}: make payload builds it", program.display()))?;
    if !output.status.success() {
        bail!("{} --list: {}", program.display(), output.status);
    }
    parse(&String::from_utf8(output.stdout)?)
}

/// `NAME LIMIT [TAG…]`, a line each.
pub(crate) fn parse(text: &str) -> Result<Vec<Test>> {
    let line = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let [name, limit, tags @ ..] = &words[..] else {
            bail!("no line of a list of tests: {line:?}");
        };
        Ok(Test {
            name: (*name).to_owned(),
            limit_s: limit.parse().with_context(|| line.to_owned())?,
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        })
    };
    let tests: Result<Vec<_>> = text.lines().map(line).collect();
    let tests = tests?;
    let names: BTreeSet<_> = tests.iter().map(|test| &test.name).collect();
    if names.len() != tests.len() {
        bail!("two tests have the same name");
    }
    Ok(tests)
}

/// The longest limit of a test, in seconds; that of most where there is none.
pub(crate) fn longest_s(tests: &[Test]) -> u64 {
    let limits = tests.iter().map(|test| test.limit_s);
    limits.max().unwrap_or(60)
}

/// The test of that name; else an error that names those that are like it.
pub(crate) fn find(tests: &[Test], name: &str) -> Result<Test> {
    if let Some(test) = tests.iter().find(|test| test.name == name) {
        return Ok(test.clone());
    }
    let words: Vec<_> = name.split('_').filter(|word| word.len() > 2).collect();
    let likeness = |test: &Test| {
        let shared = words.iter().filter(|word| test.name.contains(**word));
        shared.count() + 10 * usize::from(test.name.contains(name))
    };
    let mut like: Vec<_> = tests.iter().filter(|test| likeness(test) > 0).collect();
    like.sort_by_key(|test| std::cmp::Reverse(likeness(test)));
    let mut text = format!("no test is called {name:?}");
    if like.is_empty() {
        text += "; build/payload/nsprobe-guest-test --list shows all";
    } else {
        text += "; like it are:";
        for test in like.iter().take(5) {
            text += "\n  ";
            text += &test.name;
        }
    }
    bail!(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests() -> Vec<Test> {
        parse("a_hit_is_recorded 60 module cpus=2\na_name_is_found 20\n").expect("it is a list")
    }

    #[test]
    fn a_list_is_read() {
        let tests = tests();
        assert_eq!((tests.len(), tests[1].limit_s), (2, 20));
        assert!(tests[0].has("module") && tests[0].has("cpus=2"));
        assert!(tests[1].tags.is_empty());
        for bad in ["a", "a b", "a 1\na 2"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_longest_limit_is_that_of_one() {
        assert_eq!(longest_s(&tests()), 60);
        assert_eq!(longest_s(&tests()[1..]), 20);
        assert_eq!(longest_s(&[]), 60);
    }

    #[test]
    fn a_wrong_name_is_told_with_those_like_it() {
        assert!(find(&tests(), "a_hit_is_recorded").is_ok());
        let error = find(&tests(), "a_hit_was_recorded").expect_err("none is called so");
        assert!(
            error.to_string().ends_with("\n  a_hit_is_recorded"),
            "{error}"
        );
        let error = find(&tests(), "xyz").expect_err("none is called so");
        assert!(error.to_string().contains("--list"), "{error}");
    }
}
