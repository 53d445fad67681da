// SPDX-License-Identifier: MIT OR Apache-2.0
//! Help by subject: the headings of options, the groups of verbs, man pages and completions.

use super::candidates::VARIABLE;
use super::Arguments;
use clap::{Command, CommandFactory};
use clap_complete::env::Shells;
use clap_complete::CompleteEnv;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

/// Headings of options in help.
pub(super) const TARGET: &str = "Target";
pub(super) const SHOW: &str = "What to show";
pub(super) const OUTPUT: &str = "Output";
pub(super) const LIMITS: &str = "Limits";
/// Headings of options that only `--help` has.
pub(super) const PROBES: &str = "Probes";
pub(super) const STACKS: &str = "Stacks and names";

/// The verbs as help lists them.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Calls", &["trace", "count", "hist", "stacks", "set"]),
    ("CPU time and waits", &["profile", "lock", "top"]),
    ("Memory", &["leak"]),
    ("All the time", &["agent"]),
    (
        "Recordings",
        &["record", "script", "report", "export", "info", "symbolize"],
    ),
    ("Containers and tasks", &["containers", "ps", "tree"]),
    ("Probes", &["list", "verify", "status"]),
    ("Help", &["doctor", "completions", "help"]),
];

/// The definition of all command lines, with the verbs in [`GROUPS`].
pub(super) fn definition() -> Command {
    let command = Arguments::command();
    let mut verbs = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(verbs, "{heading}:");
        for name in names {
            let about = match command.find_subcommand(name) {
                Some(verb) => verb.get_about().map(ToString::to_string),
                None => Some("Print help for a verb".to_owned()),
            };
            let _ = writeln!(verbs, "  {name:<11}  {}", about.unwrap_or_default());
        }
        verbs.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{verbs}Options:\n\
         {{options}}{{after-help}}"
    ))
}

/// Answers a shell that asks what a word could be, and ends then.
pub(super) fn complete() {
    CompleteEnv::with_factory(definition)
        .var(VARIABLE)
        .complete();
}

/// Prints what makes a shell ask nsprobe how to complete its command lines.
pub(crate) fn print_completions(shell: clap_complete::Shell) -> io::Result<()> {
    let shells = Shells::builtins();
    let known = shells.completer(&shell.to_string());
    let known = known.ok_or_else(|| io::Error::other(format!("no completions for {shell}")))?;
    let mut script = Vec::new();
    known.write_registration(VARIABLE, "nsprobe", "nsprobe", "nsprobe", &mut script)?;
    if shell == clap_complete::Shell::Zsh {
        // Loaded at the first Tab, it has to answer that one, too.
        let now = "\n[ \"$funcstack[1]\" != _nsprobe ] || _clap_dynamic_completer_nsprobe \"$@\"\n";
        script.extend_from_slice(now.as_bytes());
    }
    io::stdout().write_all(&script)
}

/// Writes nsprobe.1, and nsprobe-VERB.1 for each verb, into a directory.
pub(crate) fn write_man_pages(directory: &Path) -> io::Result<()> {
    clap_mangen::generate_to(definition(), directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_each_verb_once() {
        let command = definition();
        let visible = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let mut verbs: Vec<&str> = visible.map(Command::get_name).chain(["help"]).collect();
        let mut listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        verbs.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, verbs);
    }
}
