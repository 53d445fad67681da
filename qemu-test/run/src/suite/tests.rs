// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::results::Judgement;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// In the place of scripts/qemu.sh: what the guest called `$guest` would do.
const AS_A_GUEST: &str = r##"#!/bin/sh
folder=${3%/*} guest=${3%/*} command=$(cat "${3%/*}/out/command")
guest=${guest##*/} queue=$folder/../queue
say() { printf '%s\n' "$@" >>"$folder/kernel.log"; }
crash() {
    say 'Oops: int3: 0000 [#1] SMP' 'RIP: 0010:f+0x1/0x2' 'Code: 0f 1f 44 <00> 00'
    exit 0
}
pass() { printf '%s\n' "# begins: $2" "ok $1 $2"; }
end() { echo "1..$1"; say "nsprobe-guest: exit ${2:-0}"; exit 0; }
say 'nsprobe-guest: running'
echo 'KTAP version 1'
"##;

/// Makes a script. In a process of its own: what another thread starts meanwhile would hold
/// ours open for writing, and a file that is written cannot be run.
fn write_program(path: &Path, text: &str) {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(path);
    let mut writer = shell.stdin(Stdio::piped()).spawn().expect("a shell");
    let mut pipe = writer.stdin.take().expect("piped");
    pipe.write_all(text.as_bytes()).expect("it reads");
    drop(pipe);
    assert!(writer.wait().expect("ours").success(), "{}", path.display());
}

/// A stage of one guest, whose boots are this script.
struct Staged {
    folder: PathBuf,
    judgement: Judgement,
}

impl Staged {
    fn run(label: &str, tests: &[&str], script: &str) -> Staged {
        Staged::with(label, tests, script, |_| {})
    }

    /// The same with another stage.
    fn with(label: &str, tests: &[&str], script: &str, change: fn(&mut Stage)) -> Staged {
        let name = format!("nsprobe-stage-{label}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let qemu = folder.join("scripts/qemu.sh");
        fs::create_dir_all(folder.join("scripts")).expect("it is writable");
        write_program(&qemu, &format!("{AS_A_GUEST}{script}"));
        let test = |name: &&str| Test {
            name: (*name).to_owned(),
            limit_s: 60,
            tags: BTreeSet::new(),
        };
        let mut stage = Stage {
            prefix: "",
            tests: tests.iter().map(test).collect(),
            guests: 1,
            guest: Guest::in_folder(&folder),
            seed: 1,
            shows_all: false,
            script: None,
        };
        change(&mut stage);
        let run = Run::quiet();
        run.plan(&stage);
        stage.run(&run).expect("the script can be run");
        let judgement = run.results().judge();
        Staged { folder, judgement }
    }

    /// What the guest of this name was told to do.
    fn command(&self, guest: &str) -> String {
        let file = self.folder.join(guest).join("out/command");
        fs::read_to_string(file).unwrap_or_default()
    }

    fn is_good(&self) -> bool {
        self.judgement.counts.failed == 0
    }

    fn has_problem(&self, part: &str) -> bool {
        let mut problems = self.judgement.problems.iter();
        problems.any(|problem| problem.contains(part))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_guest_that_dies_of_qemu_is_followed_by_another_one() {
    let script = "[ $guest = a ] && { pass 1 one; echo '# begins: two'; crash; }
        pass 1 two; pass 2 two; end 2";
    let staged = Staged::run("follows", &["one", "two"], script);
    assert!(staged.is_good(), "{:?}", staged.judgement);
    let remark = &staged.judgement.remarks[0];
    assert!(
        remark.contains("died of QEMU's own doing (two)"),
        "{remark}"
    );
    assert!(staged
        .command("a-2")
        .ends_with("--first 'two' --first 'two'"));
}

/// The verdicts on what an earlier guest had been interrupted in were too many.
#[test]
fn what_has_run_again_is_owed_no_more() {
    let script = "case $guest in
        a) echo '# begins: one'; crash ;;
        a-2) pass 1 one; pass 2 one; echo '# begins: two'; crash ;;
        esac
        pass 1 two; pass 2 two; end 2";
    let staged = Staged::run("owed", &["one", "two"], script);
    let command = staged.command("a-3");
    assert!(
        command.ends_with("'a-3' --first 'two' --first 'two'"),
        "{command}"
    );
    assert!(staged.is_good(), "{:?}", staged.judgement);
}

#[test]
fn whatever_goes_wrong_in_a_guest_is_a_failed_run() {
    for (label, script, part) in [
        (
            "midst",
            "pass 1 one; echo '# begins: two'; end 1",
            "ended in the midst of two",
        ),
        (
            "status",
            "pass 1 one; pass 2 two; end 2 127",
            "the tests ended with 127",
        ),
        (
            "plan",
            "pass 1 one; pass 2 two; end 3",
            "3 tests planned, 2 verdicts",
        ),
        (
            "silent",
            "pass 1 one; pass 2 two; exit 0",
            "without a verdict",
        ),
        ("qemu", "pass 1 one; pass 2 two; exit 3", "QEMU failed"),
        (
            "warns",
            "say 'WARNING: x'; pass 1 one; pass 2 two; end 2",
            "the kernel warned",
        ),
    ] {
        let staged = Staged::run(label, &["one", "two"], script);
        assert!(staged.has_problem(part), "{label}: {:?}", staged.judgement);
        assert_eq!(staged.judgement.status(), 1, "{label}");
    }
    for (label, script, reason) in [
        (
            "fails",
            "pass 1 one; echo '# begins: two'; echo not ok 2 two; end 2",
            "failed in",
        ),
        ("queue", "pass 1 one; end 1", "0 verdicts"),
        (
            "skips",
            "pass 1 one; echo '# begins: two'; echo 'ok 2 two # SKIP x'; end 2",
            "skipped",
        ),
    ] {
        let staged = Staged::run(label, &["one", "two"], script);
        let failed = &staged.judgement.failed;
        assert!(
            failed[0].1.contains(reason),
            "{label}: {:?}",
            staged.judgement
        );
        assert_eq!(staged.judgement.status(), 1, "{label}");
    }
}

#[test]
fn a_fresh_guest_goes_on_behind_a_test_that_did_not_end() {
    let script = "[ $guest = a-6 ] || {
            printf '%s\\n' '# begins: one' 'not ok 1 one' '# hands over: one'
            rm -f $queue/taken/one
            end 1 1
        }
        pass 1 two; end 1";
    let staged = Staged::run("over", &["two"], script);
    // As often as it takes: each boot is one test less.
    assert_eq!(staged.judgement.remarks.len(), 5, "{:?}", staged.judgement);
    assert!(staged.judgement.remarks[0].contains("ended behind one"));
    assert_eq!(staged.judgement.counts.passed, 1);
}

#[test]
fn what_a_crash_took_from_the_terminal_is_not_lost() {
    // Its failure is in the record alone; what was taken and not begun runs once.
    let script = "[ $guest = a ] && {
            ln -s a $queue/taken/one; ln -s a $queue/taken/two; ln -s a $queue/taken/three
            printf '%s\\n' '# begins: one' 'not ok 1 one' '# begins: two' >$queue/a.ktap
            echo '# begins: one'; printf 'not o'; crash
        }
        pass 1 two; pass 2 two; pass 3 three; end 3";
    let staged = Staged::run("lost", &["one", "two", "three"], script);
    let command = staged.command("a-2");
    let wanted = "--first 'two' --first 'two' --first 'three'";
    assert!(command.ends_with(wanted), "{command}");
    let failed: Vec<_> = staged
        .judgement
        .failed
        .iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(failed, ["one"], "{:?}", staged.judgement);
    assert_eq!(staged.judgement.counts.passed, 2);
}

#[test]
fn races_without_cpus_at_once_are_no_success() {
    let of =
        |label, change: fn(&mut Stage)| Staged::with(label, &["one"], "pass 1 one; end 1", change);
    let one_cpu = of("one-cpu", |stage| {
        stage.tests[0].tags.insert(TWO_CPUS.into());
        stage.guest.cpus = Some(1);
    });
    assert!(
        one_cpu.has_problem("at the same time"),
        "{:?}",
        one_cpu.judgement
    );
    let two_cpus = of("two-cpus", |stage| {
        stage.tests[0].tags.insert(TWO_CPUS.into());
        stage.guest.cpus = Some(2);
    });
    assert!(two_cpus.is_good(), "{:?}", two_cpus.judgement);
}

#[test]
fn the_capsules_of_each_boot_are_looked_at() {
    let script = format!(
        "[ $guest = a ] && {{ pass 1 {}; crash; }}; pass 1 one; end 1",
        carried::WRITER
    );
    let staged = Staged::run("carried", &["one", carried::WRITER], &script);
    assert!(staged.has_problem("no capsule"), "{:?}", staged.judgement);
}
