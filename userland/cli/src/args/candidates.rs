// SPDX-License-Identifier: MIT OR Apache-2.0
//! What shells complete words with: containers that run, and keys.

use super::plan::HitKey;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use nsprobe_containers::{Containers, Runtime};
use nsprobe_trace::spec::KEYS;
use std::ffi::OsStr;

/// The variable that a shell's completions set when they ask.
pub(super) const VARIABLE: &str = "NSPROBE_COMPLETE";

/// For names of containers.
pub(super) fn containers() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let Ok(containers) = Containers::take() else {
            return Vec::new();
        };
        let running = containers.iter().filter(|one| one.is_running());
        let named = running.filter(|one| one.runtime != Runtime::Bare);
        let fit = named.filter(|one| is_plain(&one.name) && begins(&one.name, current));
        fit.map(|one| CompletionCandidate::new(&one.name).help(Some(one.runtime.name().into())))
            .collect()
    })
}

/// For keys of calls.
pub(super) fn keys() -> ArgValueCompleter {
    last_of(KEYS.map(str::to_owned).to_vec())
}

/// For keys of what a capsule has, but for its fields.
pub(super) fn hit_keys() -> ArgValueCompleter {
    last_of(HitKey::names())
}

/// For words with commas between them, of which the last one is completed.
fn last_of(words: Vec<String>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let current = current.to_str().unwrap_or_default();
        let (before, last) = match current.rfind(',') {
            Some(comma) => current.split_at(comma + 1),
            None => ("", current),
        };
        let fit = words.iter().filter(|word| word.starts_with(last));
        fit.map(|word| CompletionCandidate::new(format!("{before}{word}")))
            .collect()
    })
}

/// Whether a shell takes the name as it is. Users of the machine choose names of containers.
fn is_plain(name: &str) -> bool {
    name.chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-@/".contains(c))
}

fn begins(name: &str, current: &OsStr) -> bool {
    current
        .to_str()
        .is_some_and(|current| name.starts_with(current))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_keys_is_completed() {
        let complete = |current: &str| {
            let candidates = keys().complete(OsStr::new(current));
            let texts = candidates
                .iter()
                .map(|one| one.get_value().to_string_lossy().into_owned());
            texts.collect::<Vec<_>>()
        };
        assert_eq!(complete("co"), ["comm", "container"]);
        assert_eq!(complete("pid,fu"), ["pid,func"]);
        assert!(complete("pid,arg1,x").is_empty());
    }

    #[test]
    fn names_that_a_shell_would_take_apart_are_not_offered() {
        assert!(is_plain("web-1.service"));
        assert!(["a b", "$(id)", "a;b", "a\u{1b}", "ä"]
            .iter()
            .all(|name| !is_plain(name)));
    }
}
