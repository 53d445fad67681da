// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a capsule prints what a trace would have printed, wherever it is read; what was
//! written stays readable however the recording ends, and what was not is counted.

pub(super) mod endings;

use crate::command::{self, nsprobe, output, Output, Running};
use crate::container::Container;
use crate::figures;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::session::Session;
use crate::victim::{self, Victim};
use nix::mount::{mount, umount2, MntFlags, MsFlags};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A folder of a test's own, removed with the value.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let path = PathBuf::from(format!("/var/tmp/capsule-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("/var/tmp is writable");
        Folder(path)
    }

    /// The same with a file system of its own, of this size in bytes.
    pub(super) fn with_tmpfs(name: &str, bytes: u64) -> Folder {
        let folder = Folder::new(name);
        let options = format!("size={bytes}");
        let (none, kind) = (None::<&str>, Some("tmpfs"));
        let mounted = mount(
            none,
            &folder.0,
            kind,
            MsFlags::empty(),
            Some(options.as_str()),
        );
        mounted.expect("root mounts");
        folder
    }

    pub(super) fn path(&self, name: &str) -> String {
        let path = self.0.join(name);
        path.to_str().expect("a plain name").to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn path(name: &str) -> String {
    let path = victim::path(name);
    path.to_str().expect("a plain name").to_string()
}

pub(super) fn lines(text: &str) -> Vec<Value> {
    let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    text.lines().map(line).collect()
}

pub(super) fn hits(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line["type"] == "hit").collect()
}

/// What `info` says of a capsule, and its exit code.
pub(super) fn info(capsule: &str) -> (Value, i32) {
    let got = command::run(&["info", "--json", capsule]);
    let line =
        serde_json::from_str(&got.stdout).unwrap_or_else(|error| panic!("{error}: {got:#?}"));
    (line, got.code)
}

pub(super) fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// A hit without what two sessions that saw the same call do not share: when each of them
/// saw it, how long that took, and how it numbers files.
fn comparable(hit: &Value) -> Value {
    let mut hit = hit.clone();
    let fields = hit.as_object_mut().expect("an object");
    fields.remove("time_s");
    fields.remove("time_ns");
    fields.remove("elapsed_ns");
    for frame in hit["stack"].as_array_mut().into_iter().flatten() {
        frame.as_object_mut().expect("an object").remove("object");
    }
    hit
}

/// A line after its time, and without how long a call took.
fn without_times(line: &str) -> &str {
    let Some((time, rest)) = line.trim_start().split_once(' ') else {
        return line;
    };
    if time.parse::<f64>().is_err() {
        return line;
    }
    rest.rsplit_once(" (").map_or(rest, |(rest, _)| rest)
}

test! { core, a_capsule_prints_what_a_trace_prints, seconds = 120 }
fn a_capsule_prints_what_a_trace_prints() {
    let _module = Module::load();
    let folder = Folder::new("same");
    let capsule = folder.path("chain.nsprobe");
    let mut victim = Victim::start("chain", &[]);
    // Between the handlers of two sessions a thread may go to another CPU.
    victim.stay_on(0);
    let pid = victim.pid().to_string();
    let spec = path("chain") + ":bottom(n=arg1, $comm)";
    let also = path("chain") + ":level_03($retval)";
    let common = [
        "-p",
        &pid,
        "--stack",
        "--kernel-stack",
        "--timeout",
        "60",
        &spec,
        &also,
    ];
    let start = |first: &[&str]| {
        let words: Vec<&str> = first.iter().copied().chain(common).collect();
        Running::start(&words)
    };
    let watcher = Session::open();
    let json = start(&["trace", "--json"]);
    let text = start(&["trace"]);
    let record = start(&["record", "-o", &capsule]);
    // Of each an entry, and another one with its exit.
    assert!(within(SOON, || watcher.info().probes == 9));
    // Fewer than are copied of a file whose rows come late.
    assert_eq!(victim.call(100), 100);
    std::thread::sleep(Duration::from_millis(500));
    let (code, of_json, errors) = json.finish();
    assert_eq!(code, Some(0), "{errors}");
    let (_, of_text, trace_errors) = text.finish();
    let (code, errors) = record.interrupt();
    println!("{trace_errors}{errors}");
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains(": 200 hits, "), "{errors}");

    let got = command::run(&["script", "--json", &capsule]).succeeded();
    let (wanted, got) = (lines(&of_json.join("\n")), lines(&got.stdout));
    let (wanted_hits, got_hits) = (hits(&wanted), hits(&got));
    assert_eq!((wanted_hits.len(), got_hits.len()), (200, 200));
    for (wanted, got) in wanted_hits.iter().zip(&got_hits) {
        assert_eq!(comparable(wanted), comparable(got));
    }
    // The summary has the same keys, too.
    let keys = |lines: &[Value]| -> Vec<String> {
        let last = lines.last().and_then(Value::as_object).expect("a summary");
        last.keys().cloned().collect()
    };
    assert_eq!(keys(&wanted), keys(&got));

    let got = command::run(&["script", &capsule]).succeeded();
    let wanted: Vec<&str> = of_text.iter().map(|line| without_times(line)).collect();
    let printed: Vec<&str> = got.lines().map(without_times).collect();
    assert_eq!(wanted, printed);
    // What is told in the end.
    assert!(
        got.stderr.contains("200 hits = 200 recorded"),
        "{}",
        got.stderr
    );
    assert_eq!(info(&capsule).1, 0);
}

test! { full, every_recorded_hit_is_in_the_capsule, seconds = 120 }
fn every_recorded_hit_is_in_the_capsule() {
    let calls = 100_000 / figures::parts(8) as u64;
    let _module = Module::load();
    let folder = Folder::new("count");
    let program = path("exit_soon");
    let spec = format!("{program}:short_work");
    for stack in [&[][..], &["--stack"]] {
        let capsule = folder.path(&format!("soon-{}.nsprobe", stack.len()));
        let words = ["record", "-o", &capsule, "--ring-size", "8M", &spec];
        let got = output(
            nsprobe(&words)
                .args(stack)
                .args(["--", &program, &calls.to_string()]),
        );
        let got = got.succeeded();
        println!("{}", got.stderr);
        let (info, code) = info(&capsule);
        assert_eq!((code, number(&info["hits"])), (0, calls), "{info}");
        let counters = &info["summary"]["probes"][0]["counters"];
        assert_eq!(number(&counters["recorded"]), calls, "{counters}");
        assert_eq!(info["orderly"], true);
        let (of_file, of_ring) = (number(&info["bytes"]), number(&info["record_bytes"]));
        let each = |bytes: u64| bytes as f64 / calls as f64;
        println!(
            "{stack:?}: {:.2} bytes a hit in the ring, {:.2} in the capsule",
            each(of_ring),
            each(of_file)
        );
        assert!(of_file < of_ring + of_ring / 50 + (64 << 10), "{info}");
        let printed = command::run(&["script", "-q", &capsule]).succeeded();
        let printed = printed.lines().filter(|line| line.contains(":short_work"));
        assert_eq!(printed.count() as u64, calls);
    }
}

/// Runs the program where nothing is but itself and a capsule: no other file, no `/proc`,
/// no device.
fn elsewhere(folder: &Folder, capsule: &str, words: &[&str]) -> Output {
    let root = folder.path("elsewhere");
    fs::create_dir_all(&root).expect("writable");
    fs::copy(command::FILE, Path::new(&root).join("nsprobe")).expect("there is room");
    fs::copy(capsule, Path::new(&root).join("capsule")).expect("there is room");
    let mut command = Command::new("chroot");
    command
        .args([&root, "/nsprobe"])
        .args(words)
        .arg("/capsule");
    output(command.stdin(Stdio::null()))
}

test! { core, a_real_program_is_reported_on_another_machine, seconds = 180 }
fn a_real_program_is_reported_on_another_machine() {
    let folder = Folder::new("redis");
    let capsule = folder.path("web.nsprobe");
    let module = Module::load();
    let container = Container::redis("web");
    let spec = "/usr/bin/redis-server:setCommand";
    // Room for all hits with a copy of each stack, however late the recorder comes to run.
    let size = ["--ring-size", "16M"];
    let words = ["record", "-o", &capsule, "-c", "web", "--stack", spec];
    let mut record = Running::start(&[&words[..], &size].concat());
    record.attached(1);
    container.set(500);
    let (code, errors) = record.interrupt();
    println!("{errors}");
    assert_eq!(code, Some(0), "{errors}");
    container.remove().expect("nobody holds it");
    drop(module);
    let got = elsewhere(&folder, &capsule, &["script", "-q"]).succeeded();
    let count = |part: &str| got.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count("redis-server:setCommand"), 500);
    for name in [
        "#0  setCommand+0x0",
        "call+0x",
        "processCommand+0x",
        "aeMain+0x",
        " main+0x",
    ] {
        assert_eq!(
            count(name),
            500,
            "{name}: {}",
            &got.stdout[..2000.min(got.stdout.len())]
        );
    }
    let folded = elsewhere(&folder, &capsule, &["report", "--folded", "-q"]).succeeded();
    let sum: u64 = folded.lines().map(count_of).sum();
    assert_eq!(sum, 500, "{}", folded.stdout);
    assert!(
        folded.lines().all(|line| line.contains(";main;aeMain;")),
        "{}",
        folded.stdout
    );
    // The build machine finds them there, and compares (`qemu-test/run/src/carried.rs`).
    let report = elsewhere(&folder, &capsule, &["report", "-q"]).succeeded();
    fs::write("/out/web.report", report.stdout).expect("there is room");
    fs::copy(&capsule, "/out/web.nsprobe").expect("there is room");
}

/// The number at the end of a folded line.
fn count_of(line: &str) -> u64 {
    let number = line.rsplit(' ').next().and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("no number: {line}"))
}

test! { full, names_are_added_by_their_build_ids, seconds = 120 }
fn names_are_added_by_their_build_ids() {
    let module = Module::load();
    let folder = Folder::new("names");
    let program = path("exit_soon");
    let spec = format!("{program}:short_work");
    let with = folder.path("with.nsprobe");
    let without = folder.path("without.nsprobe");
    for (capsule, more) in [(&with, &[][..]), (&without, &["--no-names"])] {
        let words = ["record", "-o", capsule, "--stack", &spec];
        let command = ["--", &program, "20"];
        output(nsprobe(&words).args(more).args(command)).succeeded();
    }
    drop(module);
    let stacks = |capsule: &str| -> Vec<Value> {
        let got = command::run(&["script", "--json", capsule]).succeeded();
        let lines = lines(&got.stdout);
        let stacks = hits(&lines).into_iter().map(|hit| hit["stack"].clone());
        let mut stacks: Vec<Value> = stacks.collect();
        for frame in stacks
            .iter_mut()
            .flat_map(|stack| stack.as_array_mut())
            .flatten()
        {
            frame.as_object_mut().expect("an object").remove("object");
        }
        stacks
    };
    let wanted = stacks(&with);
    assert_eq!(wanted.len(), 20);
    let unnamed = stacks(&without);
    let frame = &unnamed[0][0];
    assert_eq!(frame["functions"], Value::Array(Vec::new()), "{frame}");
    assert!(
        frame["unresolved"]
            .as_str()
            .is_some_and(|why| why.contains("symbolize")),
        "{frame}"
    );
    // A place by itself, and by a line of JSON.
    let build_id = frame["build_id"].as_str().expect("it has one");
    let place = format!(
        "{build_id}+{}\n",
        frame["file_offset"].as_str().expect("a place")
    );
    fs::write(folder.path("places"), &place).expect("there is room");
    let directory = victim::path("exit_soon");
    let directory = directory
        .parent()
        .and_then(Path::to_str)
        .expect("a plain name");
    let words = ["symbolize", "--debug-dir", directory];
    let input = fs::File::open(folder.path("places")).expect("it is there");
    let named = output(nsprobe(&words).stdin(input)).succeeded();
    assert!(named.stdout.contains(" short_work+0x0"), "{}", named.stdout);
    // And all of the capsule.
    let libraries = "/usr/lib/x86_64-linux-gnu";
    let words = ["symbolize", "--capsule", &without, "--debug-dir", directory];
    let got = output(nsprobe(&words).args(["--debug-dir", libraries])).succeeded();
    println!("{}", got.stderr);
    assert_eq!(stacks(&without), wanted);
}

test! { full, a_capsule_goes_through_a_pipe, seconds = 120 }
fn a_capsule_goes_through_a_pipe() {
    let _module = Module::load();
    let folder = Folder::new("pipe");
    let capsule = folder.path("piped.nsprobe");
    let mut victim = Victim::start("chain", &[]);
    let pid = victim.pid().to_string();
    let spec = path("chain") + ":bottom";
    let file = fs::File::create(&capsule).expect("writable");
    let mut cat = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(file)
        .spawn()
        .expect("it is there");
    let words = [
        "record", "-o", "-", "-p", &pid, "--stack", "-n", "100", "-t", "30", &spec,
    ];
    let mut record = nsprobe(&words)
        .stdout(cat.stdin.take().expect("piped"))
        .stderr(Stdio::null())
        .spawn()
        .expect("it is in the payload");
    let watcher = Session::open();
    assert!(within(SOON, || watcher.info().probes > 0));
    victim.call(100);
    assert!(record.wait().expect("ours").success());
    assert!(cat.wait().expect("ours").success());
    let got = command::run(&["script", &capsule]).succeeded();
    let count = |part: &str| got.lines().filter(|line| line.contains(part)).count();
    assert_eq!((count("chain:bottom"), count("level_07+0x")), (100, 100));
    // A command's output would get into it.
    let words = ["record", "-o", "-", &spec, "--", "/bin/true"];
    command::run(&words).refused(&["-o FILE"]);
}

test! { full, a_capsule_without_tasks_has_its_hits_alone }
fn a_capsule_without_tasks_has_its_hits_alone() {
    let _module = Module::load();
    let folder = Folder::new("no-tasks");
    let (program, spec) = (path("exit_soon"), path("exit_soon") + ":short_work");
    for (name, more, has_tasks) in [("all", &[][..], true), ("none", &["--no-tasks"], false)] {
        let capsule = folder.path(name);
        let words = [
            &["record", "-o", &capsule][..],
            more,
            &[&spec, "--", &program, "5"],
        ];
        command::run(&words.concat()).succeeded();
        let (info, code) = info(&capsule);
        assert_eq!(code, 0, "{info}");
        let seen = |kind: &str| info["summary"]["tasks"][kind]["seen"].as_u64().unwrap_or(0);
        assert_eq!(seen("exec") > 0, has_tasks, "{info}");
        let tree = info["tree"].as_array().map_or(0, Vec::len);
        assert_eq!(tree > 0, has_tasks, "{info}");
        let script = command::run(&["script", "--json", &capsule]).succeeded();
        assert_eq!(hits(&lines(&script.stdout)).len(), 5, "{script:#?}");
    }
}
