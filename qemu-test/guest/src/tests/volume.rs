// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what is much is as exact as what is little: hundreds of thousands of
//! records at full speed, tens of thousands of functions by one wildcard.

use crate::command::{self, Running};
use crate::container::Container;
use crate::figures;
use crate::module::Module;
use crate::oracle::within;
use crate::session::Session;
use crate::tasks::Kept;
use crate::victim::{self, Victim};
use nix::sched::{sched_setaffinity, CpuSet};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const SECONDS_60: Duration = Duration::from_secs(60);

fn attached(count: u32) -> bool {
    within(SECONDS_60, || Session::open().info().probes == count)
}

test! { full, lines_come_in_the_order_of_time, seconds = 120 }
/// Writers are interrupted between a hit's time and its record, and threads change CPUs.
fn lines_come_in_the_order_of_time() {
    const CALLS: usize = 20_000;
    let _module = Module::load();
    let _hogs = [(); 2].map(|()| Kept::start("sh", &["-c", "while :; do :; done"]));
    let program = victim::path("leaves").display().to_string();
    let spec = format!("{program}:via_threads");
    let times = CALLS.to_string();
    for first in [None, Some(CALLS / 10)] {
        let count = first.unwrap_or(CALLS).to_string();
        let words = ["trace", "--json", "--ring-size", "4M", "-n", &count, &spec];
        let more = ["--", &program, "threads", &times];
        let got = command::run(&[&words[..], &more].concat()).succeeded();
        let lines = got.lines();
        let lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let hits: Vec<(u64, u64)> = lines
            .filter(|line| line["type"] == "hit")
            .map(|line| ["tid", "time_ns"].map(|key| line[key].as_u64().expect("a number")))
            .map(|[tid, time_ns]| (tid, time_ns))
            .collect();
        assert_eq!(hits.len(), first.unwrap_or(CALLS), "{}", got.stderr);
        // What is promised: those of one thread, whatever CPU it was on.
        let mut threads: BTreeMap<u64, u64> = BTreeMap::new();
        for (tid, time_ns) in &hits {
            let before = threads.insert(*tid, *time_ns).unwrap_or(0);
            assert!(before < *time_ns, "{tid}: {before} before {time_ns}");
        }
        // And all, unless a writer was away for too long.
        let late = hits.windows(2).filter(|two| two[0].1 > two[1].1).count();
        println!("{late} of {} come late", hits.len());
        assert_eq!(late, 0);
    }
}

/// Ends it; its last line.
fn summary(running: &mut Running) -> Value {
    kill(Pid::from_raw(running.pid() as i32), Signal::SIGINT).expect("it runs");
    let line = running.wait_for("\"summary\"", SECONDS_60);
    serde_json::from_str(&line).expect("an object")
}

test! { core, records_at_full_speed_are_recorded_or_counted_as_lost, seconds = 240 }
fn records_at_full_speed_are_recorded_or_counted_as_lost() {
    let calls = 350_000 / figures::parts(12) as u64;
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let spec = format!("{}:begins_with_push(arg1)", victim.file().display());
    let pid = victim.pid().to_string();
    let output = format!("/tmp/volume-{pid}");
    let mut shell = std::process::Command::new("sh");
    // To a file, as who records much does.
    let script = format!("exec {} \"$@\" > {output}", command::FILE);
    shell.args(["-c", &script, "sh", "trace", "--json", "-p", &pid, &spec]);
    let running = Running::start_command(&mut shell);
    assert!(attached(1));
    let start = Instant::now();
    assert_eq!(victim.call(calls), calls);
    let elapsed = start.elapsed();
    let (code, errors) = running.interrupt();
    let text = std::fs::read_to_string(&output).expect("it was written");
    let _ = std::fs::remove_file(&output);
    let printed = text
        .lines()
        .filter(|line| line.contains("\"type\":\"hit\""));
    let printed = printed.count() as u64;
    let last = text.lines().last().expect("a summary");
    let summary: Value = serde_json::from_str(last).expect("an object");
    let number = |name: &str| {
        let number = summary[name].as_u64();
        number.unwrap_or_else(|| panic!("no {name}: {summary}"))
    };
    let (hits, recorded, lost) = (number("hits"), number("recorded"), number("lost_full"));
    println!("{calls} calls in {elapsed:?}: {hits} hits = {recorded} recorded + {lost} lost");
    println!("{printed} lines; exit status {code:?}: {errors}");
    assert_eq!(hits, calls);
    assert_eq!(recorded + lost, calls);
    assert_eq!(printed, recorded);
    assert_eq!(summary["balanced"], true);
}

test! { full, losses_are_told_by_cpu, cpus = 2 }
/// Each CPU has a ring of its own: whose was too small is said.
fn losses_are_told_by_cpu() {
    const CALLS: u64 = 20_000;
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let mut second = CpuSet::new();
    second.set(1).expect("there are two");
    sched_setaffinity(Pid::from_raw(victim.pid() as i32), &second).expect("it lives");
    let spec = format!("{}:begins_with_push", victim.file().display());
    let pid = victim.pid().to_string();
    let words = ["trace", "--json", "--ring-size", "64K", "-p", &pid, &spec];
    let running = Running::start(&words);
    assert!(attached(1));
    let reader = Pid::from_raw(running.pid() as i32);
    kill(reader, Signal::SIGSTOP).expect("it runs");
    assert_eq!(victim.call(CALLS), CALLS);
    kill(reader, Signal::SIGCONT).expect("it runs");
    let (code, lines, errors) = running.finish();
    assert_eq!(code, Some(0), "{errors}");
    let summary: Value = serde_json::from_str(lines.last().expect("a summary")).expect("JSON");
    let probe = &summary["probes"][0];
    let lost = probe["lost_full"].as_u64().expect("a number");
    assert!(lost > CALLS / 2, "{summary}");
    let cpus = probe["cpus"].as_array().expect("there were losses");
    let [second] = cpus.as_slice() else {
        panic!("{summary}");
    };
    assert_eq!(second["cpu"], 1);
    for counter in ["hits", "recorded", "lost_full"] {
        assert_eq!(second[counter], probe[counter], "{summary}");
    }
    let told = format!("({lost} of {CALLS} on CPU 1): try a larger --ring-size");
    assert!(errors.contains(&told), "{errors}");
}

test! { full, one_wildcard_counts_ten_thousand_functions, seconds = 240 }
fn one_wildcard_counts_ten_thousand_functions() {
    const COUNT: u32 = 10_000;
    let _module = Module::load();
    let mut victim = Victim::start("many_functions", &[]);
    let first = victim.function("many_100000").offset;
    let spec = format!("{}:many_10????", victim.file().display());
    let pid = victim.pid().to_string();
    let start = Instant::now();
    let mut running = Running::start(&[
        "count",
        "--json",
        "--max-probes",
        "10000",
        "--rows",
        "16384",
        "-p",
        &pid,
        &spec,
    ]);
    assert!(attached(COUNT));
    let ready = start.elapsed();
    let length = u64::from(COUNT) * 16;
    assert_eq!(victim.changed_bytes(first, length), u64::from(COUNT));
    victim.call(2);
    let start = Instant::now();
    let summary = summary(&mut running);
    let (code, errors) = running.interrupt();
    let ended = start.elapsed();
    println!("{COUNT} functions: attached {ready:?} after the start, ended in {ended:?}");
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(summary["hits"], 2 * COUNT);
    assert_eq!(summary["aggregated"], 2 * COUNT);
    assert_eq!(victim.changed_bytes(first, length), 0);
    victim.call(1);
}

test! { full, a_wildcard_that_fits_too_much_is_refused_with_the_number }
fn a_wildcard_that_fits_too_much_is_refused_with_the_number() {
    let _module = Module::load();
    let path = victim::path("many_functions");
    let spec = format!("{}:many_*", path.display());
    for verb in ["trace", "count"] {
        let got = command::run(&[verb, &spec, "--", "/bin/true"]);
        println!("{}", got.stderr.trim_end());
        let got = got.refused(&["many_*", "100000", "--max-probes"]);
        assert_eq!(got.stdout, "");
        let info = Session::open().info();
        assert_eq!((info.sessions, info.probes), (1, 0), "left behind");
    }
}

test! { full, a_packages_static_probe_is_traced_in_a_container, seconds = 120 }
/// libstdc++6 of Debian has the points; the program tells what it throws.
fn a_packages_static_probe_is_traced_in_a_container() {
    const INSIDE: &str = "/usr/local/bin/throws";
    const COUNT: usize = 5;
    let _module = Module::load();
    let container = Container::run("throws", &["sleep", "1000"]);
    container.copy(&victim::path("throws"), INSIDE);
    let folder = "/usr/lib/x86_64-linux-gnu";
    let library = format!("{folder}/libstdc++.so.6");
    if container.exec(&["test", "-e", &library]).is_err() {
        // The package's file, from the guest.
        let file = std::fs::canonicalize(&library).expect("gdb needs it");
        container.copy(&file, &library);
    }
    let spec = format!("{library}:libstdcxx:throw(arg1, thread=$tid)");
    let mut running = Running::start(&["trace", "-c", "throws", "--json", "-t", "60", &spec]);
    assert!(attached(1));
    let told = container
        .exec(&[INSIDE, &COUNT.to_string()])
        .expect("it is in the container");
    let thrown: BTreeSet<u64> = told
        .lines()
        .filter_map(|line| line.strip_prefix("thrown 0x"))
        .map(|hex| u64::from_str_radix(hex, 16).expect("an address"))
        .collect();
    let found: Vec<u64> = (0..COUNT)
        .map(|_| running.wait_for("\"hit\"", SECONDS_60))
        .map(|line| {
            let hit: Value = serde_json::from_str(&line).expect("an object");
            assert_eq!(hit["function"], "libstdcxx:throw", "{line}");
            let first = &hit["fields"]["arg1"];
            let text = first.as_str().map(|text| text.trim_start_matches("0x"));
            match text {
                Some(hex) => u64::from_str_radix(hex, 16).expect("an address"),
                None => first.as_u64().unwrap_or_else(|| panic!("{line}")),
            }
        })
        .collect();
    println!("thrown {thrown:x?}, traced {found:x?}");
    assert_eq!(thrown.len(), COUNT, "each at an address of its own");
    let summary = summary(&mut running);
    assert_eq!(summary["hits"], COUNT);
    assert_eq!(found.into_iter().collect::<BTreeSet<u64>>(), thrown);
}

test! { core, programs_in_a_sandbox_live_on }
/// Neither the trap nor the kernel's own system call for optimised entries is the program's.
fn programs_in_a_sandbox_live_on() {
    let _module = Module::load();
    for mode in ["strict", "list"] {
        let mut victim = Victim::start("sandboxed", &[mode]);
        let file = victim.file().display().to_string();
        let places = ["plain", "optimised"].map(|name| victim.function(name).offset);
        let pid = victim.pid().to_string();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let seccomp = status.lines().find(|line| line.starts_with("Seccomp:"));
        let wanted = if mode == "strict" { "1" } else { "2" };
        assert!(seccomp.is_some_and(|line| line.ends_with(wanted)));
        // A return is seen by two probes.
        for (suffix, probes) in [("", 2), ("%return", 4)] {
            let specs = ["plain", "optimised"].map(|name| format!("{file}:{name}{suffix}"));
            let count = ["count", "--fast-nops", "--json"];
            let mut running =
                Running::start(&[&count[..], &["-p", &pid, &specs[0], &specs[1]]].concat());
            assert!(attached(probes));
            let before = victim.call(0);
            let calls = victim.call(500) - before;
            let text =
                places.map(|place| victim::text(victim.pid(), victim.file(), place)[..5].to_vec());
            let summary = summary(&mut running);
            println!("{mode}{suffix}: {calls} calls of each, text {text:x?}");
            assert_eq!(summary["hits"], 2 * calls, "{summary}");
            assert_eq!(summary["aggregated"], 2 * calls, "{summary}");
            drop(running);
            assert_eq!(victim.call(10) - before, calls + 10);
            assert!(victim.text_is_restored(places[0]));
            assert!(victim.nop10_is_restored(places[1]));
        }
    }
}
