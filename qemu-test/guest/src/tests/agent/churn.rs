// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: while containers and processes come and go, the agent's memory and files stay as large as
//! they are, and its numbers add up.

use super::{Agent, Sink, LIMIT};
use crate::command::output;
use crate::container::Root;
use crate::figures;
use crate::lab::Lab;
use crate::oracle::within;
use crate::victim;
use serde_json::{json, Value};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

const PROGRAM: &str = "/bin/comes_and_goes";
const PROCESSES: u64 = 20;
const CALLS: u64 = 50;
const PAUSE_MS: u64 = 2000;
/// Containers that run at a time.
const AT_ONCE: usize = 4;
const PARTS: usize = 10;
const RECORDING_BYTES: u64 = 4 << 20;

/// A bundle for crun, of which several containers run; removed with the value.
struct Bundles {
    folder: PathBuf,
}

impl Bundles {
    fn new(name: &str, root: &Path) -> Bundles {
        let folder = PathBuf::from(format!("/var/tmp/churn-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("/var/tmp is writable");
        output(Command::new("crun").arg("spec").current_dir(&folder)).succeeded();
        let path = folder.join("config.json");
        let text = fs::read_to_string(&path).expect("it was just made");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        let words = [PROCESSES, CALLS, PAUSE_MS].map(|word| word.to_string());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!([&[PROGRAM], words.as_slice()].concat());
        config["root"] = json!({ "path": root, "readonly": false });
        fs::write(path, config.to_string()).expect("ours");
        Bundles { folder }
    }

    /// Runs a container to its end.
    fn run(&self, id: &str) {
        let mut run = Command::new("crun");
        run.args(["run", id]).current_dir(&self.folder);
        let status = run.stdin(Stdio::null()).status();
        assert!(status.expect("it is installed").success(), "crun run {id}");
    }
}

impl Drop for Bundles {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Runs containers, some at a time. Those of the first lane run a file that no other does; returns how
/// many ran the common one.
fn come_and_go(from: usize, to: usize, root: &Root, own: &Root) -> u64 {
    let (common, own_files) = (
        Bundles::new("common", &root.folder),
        Bundles::new("own", &own.folder),
    );
    let (next, of_common) = (AtomicUsize::new(from), AtomicU64::new(0));
    thread::scope(|scope| {
        for lane in 0..AT_ONCE {
            let (next, of_common) = (&next, &of_common);
            let (common, own_files) = (&common, &own_files);
            scope.spawn(move || loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= to {
                    return;
                }
                let id = format!("churn-{number}");
                if lane == 0 {
                    let file = own.folder.join(&PROGRAM[1..]);
                    let _ = fs::remove_file(&file);
                    fs::copy(victim::path("comes_and_goes"), file).expect("it is there");
                    own_files.run(&id);
                } else {
                    common.run(&id);
                    of_common.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    of_common.into_inner()
}

/// What the series of a metric add up to, and how many there are.
fn sum(lines: &[String], metric: &str, part: &str) -> (f64, usize) {
    let is_of_it = |line: &&String| {
        let rest = line.strip_prefix(metric);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(part))
    };
    let of_it = lines.iter().filter(is_of_it);
    let values = of_it.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1))
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum()
}

test! { full, an_agent_stays_as_it_is_while_containers_come_and_go, cpus = 2, seconds = 300 }
fn an_agent_stays_as_it_is_while_containers_come_and_go() {
    let containers = 500 / figures::parts(25);
    let _lab = Lab::new();
    let root = Root::called("churn", "comes_and_goes", PROGRAM);
    let own = Root::called("churn-own", "comes_and_goes", PROGRAM);
    let file = root.folder.join(&PROGRAM[1..]);
    let file = file.display();
    let recordings = PathBuf::from("/var/tmp/churn-recordings");
    let _ = fs::remove_dir_all(&recordings);
    let sink = Sink::start();
    let address = &sink.address;
    // The first container of a boot changes the kernel's text.
    come_and_go(0, 1, &root, &own);
    let agent = Agent::start(&format!(
        "[[metric]]\nname = \"calls\"\ncommand = \"count --by container {file}:passes\"\n\
         [[metric]]\nname = \"by_pid\"\ncommand = \"count --by container,pid {file}:passes\"\n\
         [[metric]]\nname = \"all\"\n\
         command = \"count --follow --by container -c 'churn-*' {PROGRAM}:passes\"\n\
         [[profile]]\nname = \"cpu\"\ninterval = \"5s\"\n\
         [[recording]]\nname = \"record\"\ncommand = \"record {file}:passes\"\n\
         directory = {recordings:?}\nrotate = \"20s\"\nmax_bytes = \"4M\"\n\
         [pprof]\nurl = \"http://{address}/ingest\"\n"
    ));
    for job in ["calls", "by_pid", "cpu", "record"] {
        agent.wait_for(&format!("nsprobe_job_up{{job={job:?}}}"), 1.0);
    }
    let (mut done, mut of_common, mut memory) = (1, 0, Vec::new());
    for part in 1..=PARTS {
        let until = 1 + containers * part / PARTS;
        of_common += come_and_go(done, until, &root, &own);
        done = until;
        // What has no name yet waits for it for some seconds.
        let calls = (of_common * PROCESSES * CALLS) as f64;
        for job in ["calls", "by_pid"] {
            let counted = || sum(&agent.scrape(), &format!("{job}_total"), "").0;
            let are_all = within(LIMIT, || counted() == calls);
            assert!(are_all, "{job}: {} of {calls}", counted());
            assert_eq!(agent.outcomes(job), calls, "{job}");
        }
        let lines = agent.scrape();
        let own = |name| sum(&lines, name, "").0;
        memory.push(own("nsprobe_agent_memory_bytes") / 1e6);
        println!(
            "{done} containers: {:.1} MB, {:.1} s of CPU; {:?} calls, {:?} without a name, {:?} of followed",
            own("nsprobe_agent_memory_bytes") / 1e6,
            own("nsprobe_agent_cpu_seconds_total"),
            sum(&lines, "calls_total", ""),
            sum(&lines, "calls_total", "(pid namespace"),
            sum(&lines, "all_total", ""),
        );
        let bytes = bytes_in(&recordings);
        assert!(bytes <= RECORDING_BYTES, "{bytes} bytes of recordings");
    }
    let lines = agent.scrape();
    let nameless = sum(&lines, "calls_total", "(pid namespace").1;
    let names = sum(&lines, "calls_total", "").1 - nameless;
    assert!(names > nameless, "{names} names, {nameless} without");
    let is_flat = memory[PARTS - 1] <= memory[PARTS / 2] * 1.1;
    assert!(is_flat, "{memory:?}");
    if figures::parts(2) == 1 {
        // Of a followed target it is said when a run begins.
        let notes = agent.notes.text();
        let begins = |line: &&str| line.contains("tracing ") && line.contains(" churn-");
        let runs = notes.lines().filter(begins).count();
        assert!(runs >= 2, "it never began anew: {notes}");
        // It takes more of an emulated CPU than it may.
        let divisor = agent.value("nsprobe_agent_rate_divisor");
        assert!(divisor > Some(1.0), "{divisor:?}");
    }
    agent.end();
    let _ = fs::remove_dir_all(&recordings);
}
