// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of command lines.

use super::value::{ring_bytes, time_span};
use super::*;
use nsprobe_trace::options::{ContainerGroup, TargetSpec};
use std::process::Command as Process;
use std::time::Duration;

/// Prints the words that each line of its second argument gives to `nsprobe`. Lines that
/// write files write them in the folder of the first. No other program can be run.
const SHELL: &str = r#"exec 3>&1; cd "$1"; PATH=
        sudo() { "$@"; }
        nsprobe() { printf '%s\0' nsprobe "$@" '' >&3; }
        eval "$2""#;

/// The command lines of nsprobe in a text, as a shell takes them apart.
fn command_lines(text: &str) -> Vec<Vec<String>> {
    let folder = std::env::temp_dir().join(format!("nsprobe-lines-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut shell = Process::new("sh");
    let shell = shell.args(["-c", SHELL, "sh"]).arg(&folder).arg(text);
    let told = String::from_utf8(shell.output().unwrap().stdout).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    let lines = told.split_terminator("\0\0");
    lines
        .map(|line| line.split('\0').map(str::to_owned).collect())
        .collect()
}

/// The shell code of a page.
fn shell_code(page: &str) -> String {
    let blocks = page.split("```sh\n").skip(1);
    blocks
        .filter_map(|block| block.split("```").next())
        .collect()
}

/// The examples in the help of a verb, and in that of those below.
fn examples(command: &clap::Command) -> Vec<String> {
    let helps = [command.get_after_help(), command.get_after_long_help()];
    let helps = helps.into_iter().flatten().map(ToString::to_string);
    let own = helps.flat_map(|help| {
        let behind = help.split_once("Example").map(|(_, behind)| behind);
        let lines = behind.into_iter().flat_map(|text| text.lines().skip(1));
        lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    });
    own.chain(command.get_subcommands().flat_map(examples))
        .collect()
}

fn trace(words: &[&str]) -> Result<TracePlan, clap::Error> {
    let words = ["nsprobe", "trace"].iter().chain(words);
    match Plan::of_words(words)? {
        Plan::Trace(plan) => Ok(plan),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_definition_is_sound() {
    definition().debug_assert();
}

#[test]
fn command_lines_of_the_documents_and_of_help_are_understood() {
    let examples = examples(&definition());
    let begins = |line: &&str| {
        let line = line.trim_start_matches("sudo ");
        line.starts_with("nsprobe ") || line.contains("| nsprobe ")
    };
    for text in [
        shell_code(include_str!("../../../../README.md")),
        shell_code(include_str!("../../../../docs/spec.md"))
            + &shell_code(include_str!("../../../../docs/profiles.md")),
        examples.join("\n"),
    ] {
        let lines = command_lines(&text);
        let there = text.lines().filter(begins).count();
        assert!(there >= 8 && lines.len() == there, "{lines:#?} of {text}");
        for words in lines {
            let plan = Plan::of_words(&words);
            assert!(plan.is_ok(), "{words:?}: {}", plan.unwrap_err());
        }
    }
}

#[test]
fn targets_are_told_apart() {
    assert_eq!(trace(&["a:f"]).unwrap().options.who, TargetSpec::Host);
    assert_eq!(
        trace(&["-p", "7", "a:f"]).unwrap().options.who,
        TargetSpec::Processes(vec![7])
    );
    assert_eq!(
        trace(&["a:f", "-c", "web", "b:g"]).unwrap().options.who,
        TargetSpec::Container("web".into())
    );
    let plan = trace(&["a:f", "--", "sleep", "--stack"]).unwrap();
    assert_eq!(
        plan.options.who,
        TargetSpec::Command(vec!["sleep".into(), "--stack".into()])
    );
    assert!(!plan.stack);
    assert!(trace(&["-p", "1", "-c", "web", "a:f"]).is_err());
    assert!(trace(&["-p", "1", "a:f", "--", "true"]).is_err());
    assert!(trace(&["-p", "0", "a:f"]).is_err());
    assert!(trace(&[]).is_err());
    assert_eq!(
        trace(&["-p", "7", "-p", "8,9", "a:f"]).unwrap().options.who,
        TargetSpec::Processes(vec![7, 8, 9])
    );
    for (words, patterns, follow) in [
        (&["-c", "web-*"][..], &["web-*"][..], false),
        (&["-c", "web", "-c", "db"], &["web", "db"], false),
        (&["-c", "web", "--follow"], &["web"], true),
    ] {
        let patterns = patterns.iter().map(|one| (*one).to_owned()).collect();
        let group = ContainerGroup { patterns, follow };
        let who = trace(&[words, &["a:f"]].concat()).unwrap().options.who;
        assert_eq!(who, TargetSpec::Group(group));
    }
}

#[test]
fn a_record_without_a_probe_takes_what_concerns_tasks() {
    let record = |words: &[&str]| {
        let given = ["nsprobe", "record", "-o", "x"].iter().chain(words);
        Plan::of_words(given).map_err(|error| error.to_string())
    };
    for words in [&["--all"][..], &["-c", "web", "-t", "1"], &["--", "true"]] {
        assert!(record(words).is_ok(), "{words:?}");
    }
    for (words, why) in [
        (&[][..], "no PROBE, and no target"),
        (&["--all", "--every", "3"], "--every goes with a PROBE"),
        (&["--all", "--stack"], "--stack goes with a PROBE"),
        (&["--all", "--no-tasks"], "--no-tasks goes with a PROBE"),
        (&["--all", "--follow"], "--follow without a PROBE"),
    ] {
        let error = record(words).unwrap_err();
        assert!(error.contains(why), "{words:?}: {error}");
    }
}

#[test]
fn a_leak_needs_whole_processes_and_both_ends_of_blocks() {
    let leak = |words: &[&str]| {
        let plan = Plan::of_words(["nsprobe", "leak"].iter().chain(words));
        plan.map_err(|error| error.to_string())
    };
    let free = ["-p", "1", "--free", "a:f", "--alloc"];
    assert!(leak(&["-c", "web", "--older-than", "200ms", "--sample", "512K"]).is_ok());
    assert!(leak(&[&free[..], &["a:g(block=$retval, bytes=arg2)"]].concat()).is_ok());
    // One of several may have its block from another one.
    let frees = |others: &[&str]| {
        let plan = leak(&[&free[..], &["a:g"], others].concat()).unwrap();
        let Plan::Leak(plan) = plan else {
            panic!("a leak's plan");
        };
        let fields = &plan.options.probes[0].spec.fields;
        fields.iter().any(|field| field.name == "freed")
    };
    assert!(!frees(&[]));
    assert!(frees(&["--alloc", "a:h"]));
    for (words, why) in [
        (&[][..], "needs a target"),
        (&["--cgroup", "/x"], "needs a target"),
        (&["-p", "1", "--tid", "1"], "whole processes"),
        (&["-p", "1", "-o", "x.nsprobe"], "has a recording"),
        (&["-p", "1", "--sample", "0"], "omit the option"),
        (&["-p", "1", "--older-than", "5x"], "not a time span"),
        (&["-p", "1", "--alloc", "a:f"], "--free"),
        (
            &[&free[..], &["a:g(freed=arg1)"]].concat(),
            "the field block= is missing",
        ),
    ] {
        let error = leak(words).unwrap_err();
        assert!(error.contains(why), "{words:?}: {error}");
    }
}

#[test]
fn the_name_of_an_output_file_says_its_format() {
    let plan = |words: &[&str]| Plan::of_words(["nsprobe"].iter().chain(words));
    for words in [
        &["trace", "a:f", "-o", "x.svg"][..],
        &["count", "a:f", "-o", "x.pb.gz"],
        &["hist", "a:f", "-o", "x.nsprobe"],
        &["stacks", "a:f", "-o", "x.nsprobe"],
    ] {
        let error = plan(words).unwrap_err().to_string();
        assert!(error.contains("which `"), "{words:?}: {error}");
    }
    for (name, is_json) in [
        ("x.json", true),
        ("x.jsonl", true),
        ("x.txt", false),
        ("x", false),
    ] {
        assert_eq!(trace(&["a:f", "-o", name]).unwrap().printing.json, is_json);
    }
    let Plan::Aggregate(plan) = plan(&["count", "a:f", "-o", "x.json"]).unwrap() else {
        panic!("a plan that counts");
    };
    assert_eq!((plan.printing.json, plan.top), (true, usize::MAX));
}

#[test]
fn time_spans_may_have_fractions() {
    for half in ["0.5", "0.5s", "500ms"] {
        assert_eq!(time_span(half), Ok(Duration::from_millis(500)), "{half}");
    }
    for bad in ["", "x", "0", "-1", "NaN", "inf", "1e300", "1w", "0s", "s"] {
        assert!(time_span(bad).is_err(), "{bad}");
    }
}

#[test]
fn ring_sizes_are_refused_with_a_reason() {
    assert_eq!(ring_bytes("4096"), Ok(4096));
    assert_eq!(ring_bytes("1M"), Ok(1 << 20));
    for bad in [
        "0",
        "1000",
        "2048",
        "99999999999999999999",
        "1024M",
        "K",
        "-1",
    ] {
        assert!(ring_bytes(bad).is_err(), "{bad}");
    }
}
