// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: however a recording ends, what was written is readable, and what was not is
//! counted; what cannot be written is refused before it begins.

use super::{hits, info, lines, number, path, Folder};
use crate::command::{self, nsprobe, output};
use crate::figures;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::session::Session;
use crate::victim::Victim;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

test! { full, a_killed_recorder_leaves_what_it_wrote, seconds = 180 }
fn a_killed_recorder_leaves_what_it_wrote() {
    let _module = Module::load();
    let folder = Folder::new("killed");
    let victim = Victim::start("call_in_loop", &["begins_with_push", "0", "100"]);
    let spec = path("call_in_loop") + ":begins_with_push";
    let pid = victim.pid().to_string();
    let watcher = Session::open();
    for round in 0..12 / figures::parts(12) as u64 {
        let capsule = folder.path(&format!("{round}.nsprobe"));
        let words = [
            "record", "-o", &capsule, "-p", &pid, "--stack", "-t", "60", &spec,
        ];
        let mut child = nsprobe(&words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it is in the payload");
        let grown = || fs::metadata(&capsule).is_ok_and(|file| file.len() > 60_000);
        assert!(within(SOON, grown), "nothing is recorded");
        std::thread::sleep(Duration::from_millis(61 * round % 200));
        kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL).expect("it runs");
        child.wait().expect("ours");
        assert!(within(SOON, || watcher.info().probes == 0));
        check_killed(&capsule);
        fs::remove_file(&capsule).expect("it is there");
    }
}

/// Every hit that the file has is printed with its stack, and on each CPU none is missing
/// but those that the rings told of.
fn check_killed(capsule: &str) {
    let got = command::run(&["script", "--json", capsule]);
    assert_eq!(got.code, 1, "{}", got.stderr);
    assert!(got.stderr.contains("did not end orderly"), "{}", got.stderr);
    let lines = lines(&got.stdout);
    let hits = hits(&lines);
    let (info, _) = info(capsule);
    assert_eq!(hits.len() as u64, number(&info["hits"]));
    assert_eq!(info["orderly"], false);
    let lost: u64 = lines
        .iter()
        .filter(|line| line["type"] == "lost")
        .map(|line| number(&line["count"]))
        .sum();
    let (mut last, mut gaps) = (std::collections::BTreeMap::new(), 0);
    for hit in &hits {
        let sequence = number(&hit["sequence"]);
        let before = last.insert(number(&hit["cpu"]), sequence).unwrap_or(0);
        assert!(sequence > before, "{hit}");
        gaps += sequence - before - 1;
        assert_eq!(
            hit["stack"].as_array().map(Vec::is_empty),
            Some(false),
            "{hit}"
        );
    }
    let damages = info["damages"].as_array().expect("an array");
    println!("{} hits, {gaps} gaps, {lost} lost, {damages:?}", hits.len());
    assert!(gaps <= lost, "{gaps} are missing, {lost} were lost");
    // At most the chunk that was being written.
    assert!(damages.len() <= 1, "{damages:?}");
}

test! { full, a_full_disk_costs_what_comes_then_and_is_told, seconds = 120 }
fn a_full_disk_costs_what_comes_then_and_is_told() {
    let _module = Module::load();
    let folder = Folder::with_tmpfs("full", 1 << 20);
    let capsule = folder.path("full.nsprobe");
    let program = path("exit_soon");
    let spec = format!("{program}:short_work");
    let words = [
        "record",
        "-o",
        &capsule,
        "--ring-size",
        "8M",
        "--stack",
        &spec,
    ];
    let got = output(nsprobe(&words).args(["--", &program, "20000"]));
    println!("{}", got.stderr);
    assert_eq!(got.code, 1, "{got:#?}");
    for part in ["there is no room for more", "hits not written to"] {
        assert!(got.stderr.contains(part), "no {part:?}");
    }
    let (info, code) = info(&capsule);
    let (there, unwritten) = (number(&info["hits"]), number(&info["unwritten"]));
    println!("{there} are there, {unwritten} are not");
    // It ended orderly: the room for its end was kept.
    assert_eq!((code, &info["orderly"]), (0, &Value::Bool(true)), "{info}");
    assert!(there > 1000 && unwritten > 0, "{info}");
    assert_eq!(number(&info["summary"]["received"]), there + unwritten);
    let recorded = number(&info["summary"]["probes"][0]["counters"]["recorded"]);
    assert_eq!(recorded, there + unwritten);
    let got = command::run(&["script", "-v", &capsule]).succeeded();
    let calls = got
        .lines()
        .filter(|line| line.contains("exit_soon:short_work"));
    assert_eq!(calls.count() as u64, there);
    // The room for names was kept, too.
    let mains = got.lines().filter(|line| line.contains("#1  main+0x"));
    assert_eq!(mains.count() as u64, there);
    let more = format!("{unwritten} more recorded hits not printed");
    assert!(got.stderr.contains(&more), "{}", got.stderr);
    // With no room at all nothing begins.
    fs::write(folder.path("filler"), vec![0; 1 << 20]).expect_err("there is no room");
    let nothing = folder.path("nothing.nsprobe");
    let words = ["record", "-o", &nothing, &spec, "--", &program];
    output(&mut nsprobe(&words)).refused(&["cannot write to", &nothing]);
    assert!(!Path::new(&nothing).exists());
}

test! { full, what_cannot_be_written_is_refused_before_anything_is_probed }
fn what_cannot_be_written_is_refused_before_anything_is_probed() {
    let _module = Module::load();
    let folder = Folder::new("refused");
    let program = path("exit_soon");
    let spec = format!("{program}:short_work");
    let exists = folder.path("exists");
    fs::write(&exists, "dear").expect("writable");
    let fifo = folder.path("fifo");
    nix::unistd::mkfifo(fifo.as_str(), nix::sys::stat::Mode::S_IRWXU).expect("writable");
    let record = |file: &str, more: &[&str]| {
        let mut command = nsprobe(&["record", "-o", file]);
        output(command.args(more).args([&spec, "--", "/bin/sleep", "100"]))
    };
    record(&exists, &[]).refused(&[&exists, "exists", "--replace"]);
    assert_eq!(fs::read_to_string(&exists).expect("it is there"), "dear");
    record(&folder.path(""), &[]).refused(&["is a directory"]);
    record(&folder.path(""), &["--replace"]).refused(&["is a directory"]);
    record(&folder.path("no/such/file"), &[]).refused(&["cannot open", "no/such/file"]);
    record(&fifo, &["--replace"]).refused(&[&fifo]);
    record("/proc/nsprobe", &[]).refused(&["/proc/nsprobe"]);
    // A spec that cannot be attached leaves no file.
    let new = folder.path("new");
    let wrong = format!("{program}:no_such_function");
    command::run(&["record", "-o", &new, &wrong]).refused(&["no_such_function"]);
    assert!(!Path::new(&new).exists());
    let session = Session::open().info();
    assert_eq!((session.sessions, session.probes), (1, 0));
    // And --replace does.
    let words = [
        "record",
        "--replace",
        "-o",
        &exists,
        &spec,
        "--",
        &program,
        "3",
    ];
    command::run(&words).succeeded();
    assert_eq!(number(&info(&exists).0["hits"]), 3);
}
