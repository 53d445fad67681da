// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs tests, each in a child process, and prints their verdicts as KTAP.

use crate::oracle::Oracle;
use crate::tests::Test;
use crate::{cpu, figures, perf_event, sys};
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// First argument of a child that is to run one test.
pub(crate) const CHILD: &str = "--child";
/// First argument of a helper process that a test starts.
pub(crate) const ROLE: &str = "--role";

/// Runs one test in this process.
pub(crate) fn child(name: &str) -> ExitCode {
    let all = crate::tests::all().into_iter();
    let mut all = all.chain(crate::tests::harness::hidden_tests());
    let Some(test) = all.find(|test| test.name == name) else {
        return ExitCode::from(2);
    };
    // A panic's status is its own.
    (test.run)();
    ExitCode::SUCCESS
}

/// Runs all of them; fails when one did. Only tests that do not pass show what they printed,
/// unless all are to.
pub(crate) fn all(tests: &[&Test], shows_all: bool) -> ExitCode {
    println!("KTAP version 1\n1..{}", tests.len());
    let _event = perf_event::stays_switched_on();
    let mut oracle = Oracle::new();
    let mut failed = 0;
    for (number, test) in (1..).zip(tests) {
        tell(&format!("# begins: {}", test.name));
        let ran = judged(test, &mut oracle, shows_all);
        ran.told.iter().for_each(|line| println!("{line}"));
        if ran.verdict == Verdict::Failed {
            failed += 1;
            // Before the verdict: the host takes what follows it for the next test's.
            for left in oracle.undo() {
                println!("# cannot be undone: {left}");
            }
        }
        tell(&ran.verdict.line(number, test.name));
    }
    ExitCode::from(u8::from(failed > 0))
}

/// Prints a line that the host sees at once.
fn tell(line: &str) {
    println!("{line}");
    // A pipe that is gone ends the run elsewhere.
    let _ = std::io::stdout().flush();
}

/// Runs a test and looks at what it left behind; what is to be printed of it.
fn judged(test: &Test, oracle: &mut Oracle, shows_all: bool) -> Ran {
    let started = Instant::now();
    let idle = cpu::idle();
    let mut ran = run(test);
    let troubles = oracle.troubles();
    if !troubles.is_empty() {
        ran.verdict = Verdict::Failed;
    }
    if !shows_all && ran.verdict == Verdict::Passed {
        ran.told.clear();
    }
    let troubles = troubles.into_iter();
    ran.told
        .extend(troubles.map(|trouble| format!("{}: left behind: {trouble}", test.name)));
    let seconds = started.elapsed().as_secs_f64();
    let idle = cpu::idle_percent(idle, seconds);
    ran.told
        .push(format!("took: {seconds:.2} s, {idle} % idle"));
    for line in &mut ran.told {
        line.insert_str(0, "# ");
    }
    ran
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
}

impl Verdict {
    /// As KTAP has it.
    fn line(self, number: usize, name: &str) -> String {
        match self {
            Verdict::Passed => format!("ok {number} {name}"),
            Verdict::Failed => format!("not ok {number} {name}"),
        }
    }
}

/// What came of one test.
pub(crate) struct Ran {
    pub(crate) verdict: Verdict,
    /// The lines it printed.
    told: Vec<String>,
}

/// Lines of a test that wait for their reader, and those that are kept.
const WAITING: usize = 1000;
const KEPT: usize = 20_000;

/// One test in a child.
pub(crate) fn run(test: &Test) -> Ran {
    let this = std::env::current_exe().expect("/proc is mounted");
    let mut command = Command::new(this);
    command
        .args([CHILD, test.name])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // What a test starts is in its group, so that all of it can be ended.
    sys::in_own_group(&mut command);
    let mut child = command.spawn().expect("the test's process starts");
    let (sender, lines) = mpsc::sync_channel(WAITING);
    let streams: [Box<dyn std::io::Read + Send>; 2] = [
        Box::new(child.stdout.take().expect("piped")),
        Box::new(child.stderr.take().expect("piped")),
    ];
    for stream in streams {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut line = Vec::new();
            let mut stream = BufReader::new(stream);
            while stream.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_string();
                if sender.send(text).is_err() {
                    return;
                }
                line.clear();
            }
        });
    }
    drop(sender);
    let longest = figures::limit(test.limit_s());
    let limit = Instant::now() + longest;
    let mut told = VecDeque::new();
    let mut keep = |line| {
        if told.len() == KEPT {
            told.pop_front();
        }
        told.push_back(line);
    };
    // The clock is looked at in each round: a test may print without an end.
    let status = loop {
        match lines.recv_timeout(Duration::from_millis(20)) {
            Ok(line) => keep(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(5)),
        }
        if let Some(status) = child.try_wait().expect("the child is ours") {
            break Some(status);
        }
        if Instant::now() > limit {
            break None;
        }
    };
    // Nothing of the test's may outlive it, whatever its verdict.
    let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
    // All of it, also what a reader has not come to; a daemon may hold the pipe longer.
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => keep(line),
            Err(_) => break,
        }
    }
    let mut told: Vec<String> = told.into();
    let verdict = match status.map(|status| status.code()) {
        Some(Some(0)) => Verdict::Passed,
        _ => Verdict::Failed,
    };
    match status {
        Some(status) if verdict == Verdict::Failed => {
            told.push(format!("{}: {status}", test.name));
        }
        Some(_) => {}
        None => {
            told.push(format!(
                "{}: not done after {} s",
                test.name,
                longest.as_secs()
            ));
            let _ = child.wait();
        }
    }
    Ran { verdict, told }
}
