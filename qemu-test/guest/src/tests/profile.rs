// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a profile has the shares of the CPU that a program's functions take, as perf sees them,
//! with whole stacks; and no sample is lost without a word.

use crate::command::{self, Output, Running, FILE};
use crate::container::Container;
use crate::debug_files::strip;
use crate::go_calls::{GoCalls, GoFrame};
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::processes::Killed;
use crate::records::Records;
use crate::session::{probe_at, Session};
use crate::victim::Victim;
use crate::witness::KernelCalls;
use crate::{sys, victim};
use nsprobe_common::abi::{self, Probe, Refusal};
use nsprobe_common::record::{Frame, HIT_KERNEL};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The victims, with what stands around the number of a function that takes a part.
const VICTIMS: [(&str, &str, &str); 3] = [
    ("shares", "share_", ""),
    ("shares_inlined", "share<", ">"),
    ("shares_go", "main.share", ""),
];

/// The rows of a total, and the summary.
fn parsed(output: &Output) -> (Vec<Value>, Value) {
    let lines = output.lines().map(serde_json::from_str::<Value>);
    let mut rows: Vec<Value> = lines.map(|line| line.expect("JSON")).collect();
    let summary = rows.pop().expect("a summary");
    assert_eq!(summary["type"], "summary");
    (rows, summary)
}

/// The names of a row's functions, the innermost first; those of the victim's file have one,
/// unless the frame may be none.
fn functions<'a>(row: &'a Value, victim: &str) -> Vec<&'a str> {
    let mut all = Vec::new();
    for frame in row["stack"].as_array().expect("a stack") {
        let functions = frame["functions"].as_array().expect("a list");
        let path = frame["path"].as_str().unwrap_or_default();
        let is_named = !functions.is_empty() || frame["doubtful"] == true;
        assert!(is_named || !path.ends_with(victim), "{row:#}");
        all.extend(functions.iter().filter_map(|one| one["name"].as_str()));
    }
    all
}

/// A name without result and parameters.
fn plain(name: &str) -> &str {
    let name = name.strip_prefix("void ").unwrap_or(name);
    name.strip_suffix("()").unwrap_or(name)
}

/// The parts that a victim's functions have in a profile, in percent; each is as the victim says.
fn parts(profile: &Output, (comm, before, behind): (&str, &str, &str)) -> Vec<f64> {
    let name = |part: u32| format!("{before}{part}{behind}");
    let (rows, summary) = parsed(profile);
    assert_eq!(summary["balanced"], true, "{summary}");
    let mut parts = [0; 10];
    for row in rows.iter().filter(|row| row["key"]["comm"] == comm) {
        let (names, count) = (functions(row, comm), row["count"].as_u64().expect("one"));
        let is_part = |n: &u32| names.iter().any(|at| plain(at) == name(*n));
        if let Some(part) = (1..=10).find(is_part) {
            parts[part as usize - 1] += count;
        }
    }
    let all: u64 = parts.iter().sum();
    assert!(all > 200, "{comm}: {all}");
    let parts: Vec<f64> = parts
        .iter()
        .map(|part| 100.0 * *part as f64 / all as f64)
        .collect();
    println!("{comm}: {parts:.1?}");
    for (part, n) in parts.iter().zip(1..) {
        let truth = 100.0 * f64::from(n) / 55.0;
        let deviation = (truth * (100.0 - truth) / all as f64).sqrt();
        let is_near = (part - truth).abs() <= 1.0 + 4.0 * deviation;
        assert!(is_near, "{comm} {n}: {part} of {truth} ± {deviation}");
    }
    parts
}

test! { core, a_profile_has_the_shares_that_functions_take, cpus = 2, seconds = 180 }
fn a_profile_has_the_shares_that_functions_take() {
    let _module = Module::load();
    let script = "until test -e /go; do sleep 0.1; done; \
                  for name in shares shares_inlined shares_go; do /usr/local/bin/$name 8000 & done; wait";
    let container = Container::run("shares", &["sh", "-c", script]);
    for (name, ..) in VICTIMS {
        container.copy(&victim::path(name), &format!("/usr/local/bin/{name}"));
    }
    let words = [
        "profile", "-c", "shares", "-F", "999", "--by", "comm", "--json",
    ];
    let mut running = Running::start(&words);
    running.attached(1);
    container.copy(Path::new("/etc/hostname"), "/go");
    // The container ends, and nsprobe with it.
    let profile = running.ended().succeeded();
    println!("{}", profile.stderr);
    for victim in VICTIMS {
        parts(&profile, victim);
    }
}

test! { core, no_function_of_go_has_a_caller_that_did_not_call_it, cpus = 2 }
/// What Go's runtime runs on the stack of the thread had callers by what older calls have left
/// there, and a third to a half of the stacks were cut.
fn no_function_of_go_has_a_caller_that_did_not_call_it() {
    let stripped = PathBuf::from(format!("/var/tmp/mixed_go-{}", std::process::id()));
    strip(&victim::path("mixed_go"), &stripped);
    callers_have_called(&stripped, "0.8");
    fs::remove_file(stripped).expect("it is ours");
}

test! { full, no_function_of_go_with_symbols_has_a_wrong_caller, cpus = 2, seconds = 120 }
fn no_function_of_go_with_symbols_has_a_wrong_caller() {
    callers_have_called(&victim::path("mixed_go"), "12");
}

/// Profiles a program that has the code of `mixed_go` for some seconds.
fn callers_have_called(file: &Path, seconds: &str) {
    let _module = Module::load();
    let calls = GoCalls::of(&victim::path("mixed_go"));
    let file = file.to_str().expect("a plain name");
    let words = ["profile", "-F", "1999", "--json", "--", file, seconds];
    let (rows, summary) = parsed(&command::run(&words).succeeded());
    assert_eq!(summary["balanced"], true, "{summary}");
    let (mut all, mut cut) = (0, BTreeMap::new());
    for row in &rows {
        let count = row["count"].as_u64().expect("one");
        let is_whole = row["stack_end"] == "outermost";
        all += count;
        if !is_whole {
            *cut.entry(row["stack_end"].to_string()).or_insert(0) += count;
        }
        let wrong = calls.wrong(&go_frames(row, file), is_whole);
        assert_eq!(wrong, None, "{:?}", functions(row, file));
    }
    println!("{file}: {all}, cut: {cut:?}");
    assert!(all > 200, "{all}");
    // Besides, some of threads that are being made, of which there are few.
    assert!(cut.values().sum::<u64>() <= all * 2 / 100 + 10, "{cut:?}");
}

/// The frames of a row from the innermost one on that is in a program; none for those of others.
fn go_frames(row: &Value, program: &str) -> Vec<Option<GoFrame>> {
    let frame = |frame: &Value| {
        let path = frame["path"].as_str()?;
        let hex = frame["file_offset"].as_str()?.strip_prefix("0x")?;
        assert_eq!(frame["doubtful"], false, "{row:#}");
        path.ends_with(program).then(|| GoFrame {
            offset: u64::from_str_radix(hex, 16).expect("a number"),
            is_exact: matches!(frame["how"].as_str(), Some("registers" | "signal")),
        })
    };
    let frames = row["stack"].as_array().expect("a stack").iter();
    frames.map(frame).skip_while(Option::is_none).collect()
}

test! { core, a_profile_is_whole_and_without_nsprobe, seconds = 120 }
/// Other sessions and the parsers of files are nsprobe, too.
fn a_profile_is_whole_and_without_nsprobe() {
    let _module = Module::load();
    let file = victim::path("chain").display().to_string();
    let busy = format!("while :; do {FILE} list {file} >/dev/null; done");
    let mut shell = Command::new("sh");
    let busy = Killed(shell.args(["-c", &busy]).spawn().expect("there is a shell"));
    let words = ["profile", "-F", "999", "--by", "comm,tid", "--json"];
    let mut profile = Running::start(&words);
    profile.attached(1);
    let filtered = || {
        let sessions = libnsprobe::sessions().expect("/proc is mounted");
        let probes = sessions.iter().flat_map(|session| &session.probes);
        probes.map(|probe| probe.counters.filtered).sum::<u64>()
    };
    assert!(within(SOON, || filtered() > 100), "{}", filtered());
    drop(busy);
    let (code, lines, errors) = profile.finish();
    assert_eq!(code, Some(0), "{errors}");
    let output = Output {
        code: 0,
        stdout: lines.join("\n"),
        stderr: errors,
    };
    let (rows, summary) = parsed(&output);
    let comm = |row: &Value| row["key"]["comm"].as_str().unwrap_or_default().to_owned();
    // The program of the tests is called so, too.
    let is_nsprobe =
        |row: &&Value| comm(row).starts_with("nsprobe") && comm(row) != "nsprobe-guest-t";
    let of_nsprobe: Vec<_> = rows.iter().filter(is_nsprobe).collect();
    assert!(of_nsprobe.is_empty(), "{of_nsprobe:?}");
    let shown: u64 = rows.iter().filter_map(|row| row["count"].as_u64()).sum();
    let counters = &summary["probes"][0];
    let counter = |name: &str| counters[name].as_u64().expect("a number");
    assert_eq!(
        shown,
        counter("recorded") + counter("aggregated"),
        "{summary}"
    );
    assert!(rows.len() > 20, "{summary}");
}

test! { full, a_profile_agrees_with_perf, cpus = 2, seconds = 180 }
fn a_profile_agrees_with_perf() {
    const DATA: &str = "/tmp/shares.perf";
    let _module = Module::load();
    let program = victim::path("shares");
    let _victim = Killed(
        Command::new(&program)
            .arg("1000000")
            .spawn()
            .expect("it is in the payload"),
    );
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "-q",
        "-a",
        "-e",
        "cpu-clock",
        "-F",
        "999",
        "-o",
        DATA,
        "--",
    ]);
    // In the same seconds.
    let words = [
        "profile", "-F", "999", "-t", "5", "--by", "comm", "--json", "--top", "100000",
    ];
    let both = perf.arg(command::FILE).args(words);
    let profile = command::output(both).succeeded();
    let mut report = Command::new("perf");
    report.args([
        "report",
        "-i",
        DATA,
        "--no-children",
        "--stdio",
        "-q",
        "-F",
        "overhead,comm,sym",
    ]);
    let report = command::output(&mut report).succeeded();
    let _ = fs::remove_file(DATA);
    let line = |line: &str| {
        let (percent, rest) = line.trim().split_once("%  shares ")?;
        let symbol = rest.trim().strip_prefix("[.] ")?.trim().to_owned();
        Some((symbol, percent.parse::<f64>().ok()?))
    };
    let by_perf: BTreeMap<String, f64> = report.lines().filter_map(line).collect();
    let all: f64 = by_perf.values().sum();
    let parts = parts(&profile, VICTIMS[0]);
    for (part, n) in parts.iter().zip(1..).skip(5) {
        let by_perf = 100.0 * by_perf[&format!("share_{n}")] / all;
        println!("{n}: {part:.1}, perf {by_perf:.1}");
        assert!((part - by_perf).abs() <= 4.0, "{n}: {part}, {by_perf}");
    }
}

test! { core, every_sample_is_accounted_for, module, cpus = 2, seconds = 120 }
fn every_sample_is_accounted_for() {
    const CPU: &str = "/sys/devices/system/cpu/cpu1/online";
    let module = Module::load();
    let session = Session::with_rings(1 << 20);
    let flags = abi::PROBE_STACK | abi::PROBE_STACK_IDS | abi::PROBE_COPIES | abi::PROBE_LATE;
    let sampler = Probe {
        fd: -1,
        kind: abi::PROBE_SAMPLE,
        ..probe_at(2000, flags)
    };
    for (wrong, reason) in [
        (
            Probe {
                offset: 0,
                ..sampler
            },
            Refusal::BadFrequency,
        ),
        (
            Probe {
                offset: abi::SAMPLE_HZ_MAX + 1,
                ..sampler
            },
            Refusal::BadFrequency,
        ),
        (Probe { fd: 0, ..sampler }, Refusal::UnknownValue),
        (Probe { rate: 5, ..sampler }, Refusal::UnknownValue),
    ] {
        let (_, reply) = session.attach_all(&mut [wrong]).expect_err("it is wrong");
        assert_eq!(reply.reason, reason as u32, "{wrong:?}");
    }
    let mut attached = [sampler];
    session.attach_all(&mut attached).expect("CPUs are sampled");
    let (_, reply) = session
        .attach_all(&mut [sampler])
        .expect_err("one is enough");
    assert_eq!(reply.reason, Refusal::Twice as u32);
    // Programs that are started again and again, and a CPU that goes and comes.
    let storm = "while :; do for i in 1 2 3 4 5 6 7 8; do /bin/true & done; wait; done";
    let storm = Killed(
        Command::new("sh")
            .args(["-c", storm])
            .spawn()
            .expect("a shell"),
    );
    for _ in 0..3 {
        for state in ["0", "1"] {
            fs::write(CPU, state).expect("CPUs can be taken away");
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    let [Probe { id, .. }] = attached;
    session.detach(&[id]).expect("it is attached");
    let counters = session
        .counters_on(id, abi::CPU_ALL)
        .expect("they are kept");
    println!("{counters:?}");
    let ends: u64 = counters.outcomes().iter().map(|(_, count)| count).sum();
    assert_eq!(counters.hits, ends);
    assert!(counters.recorded > 100 && counters.in_kernel > 100);
    // Nothing can be read of a task within execve, or at its end.
    assert!(counters.missed > 0);
    let other = session.counters_on(id, 1).expect("it is a CPU");
    assert!(other.hits + other.idle + other.kernel_threads > 100);
    // With all that begins and ends meanwhile, nothing of the module is in use.
    drop(session);
    sys::unload_module("nsprobe").expect("it is not in use");
    std::mem::forget(module);
    drop(storm);
}

test! { core, a_hostile_program_costs_a_sample_little, module, cpus = 2 }
/// In an interrupt nothing is read but the stack, and elsewhere a bounded number of notes: 128
/// files of empty notes were read from end to end, and all mappings looked at twice, in each sample.
fn a_hostile_program_costs_a_sample_little() {
    let _module = Module::load();
    // Room for what comes while this gets no CPU for seconds: a copy takes 16 KB.
    let session = Session::with_rings(1 << 24);
    let hostile = Victim::start("many_notes", &[]);
    let neighbour = Killed(
        Command::new(victim::path("shares"))
            .arg("100000000")
            .spawn()
            .expect("it is in the payload"),
    );
    session
        .only(&[hostile.pid(), neighbour.0.id()])
        .expect("both run");
    let counters = ["copy_from_user_nofault", "find_vma"].map(KernelCalls::of);
    let flags = abi::PROBE_STACK | abi::PROBE_COPIES | abi::PROBE_LATE;
    let mut attached = [Probe {
        fd: -1,
        kind: abi::PROBE_SAMPLE,
        ..probe_at(199, flags)
    }];
    session.attach_all(&mut attached).expect("CPUs are sampled");
    let (rings, mut records) = (session.rings(), Records::default());
    // A sample may be interrupted by the next one, which is recorded first.
    let drain = |records: &mut Records| rings.iter().for_each(|ring| records.add(&ring.read(true)));
    let of = |records: &Records, pid: u32, flag: u8| {
        let hits = records.hits.iter().map(|(hit, _)| hit);
        hits.filter(|hit| hit.pid == pid && hit.flags & flag == flag)
            .count()
    };
    let are_there = within(SOON, || {
        drain(&mut records);
        of(&records, hostile.pid(), HIT_KERNEL) >= 100 && of(&records, neighbour.0.id(), 0) >= 50
    });
    session.detach(&[attached[0].id]).expect("it is attached");
    drain(&mut records);
    let calls = counters.map(|counter| counter.count());
    println!("{calls:?} in {} samples", records.hits.len());
    let most = records.hits.len() as u64;
    assert!(calls[0] < 100 * most && calls[1] < 400 * most, "{calls:?}");
    assert!(are_there);
    // Stacks of the kernel's samples are copied all the same: when interrupts are on again.
    let (late, copies) = (records.late.len(), records.copies.len());
    // One that was interrupted outside of its stack has none.
    assert!(
        late >= 50 && 10 * copies >= 9 * late,
        "{late} late, {copies} copies"
    );
    let whole = records.hits.iter().filter(|(hit, frames)| {
        hit.pid == neighbour.0.id()
            && frames
                .iter()
                .all(|frame| matches!(frame, Frame::Object { .. }))
    });
    assert!(whole.count() >= 50);
}
