// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs tests, each in a child process, and prints their verdicts as KTAP.

use crate::oracle::Oracle;
use crate::tests::Test;
use crate::{cpu, sys};
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// First argument of a child that is to run one test.
pub(crate) const CHILD: &str = "--child";
/// First argument of a helper process that a test starts.
pub(crate) const ROLE: &str = "--role";

/// How a child says that its test cannot be run here.
const SKIPPED: u8 = 4;

/// The payload of the panic with which a test ends early.
struct Skip(String);

/// Ends the test: it cannot be run here, and why.
pub(crate) fn skip(reason: &str) -> ! {
    std::panic::panic_any(Skip(reason.to_string()))
}

/// Runs one test in this process.
pub(crate) fn child(name: &str) -> ExitCode {
    let hidden = crate::tests::harness::HIDDEN.iter();
    let Some(test) = crate::tests::all()
        .chain(hidden)
        .chain(crate::soak::PARTS)
        .find(|test| test.name == name)
    else {
        return ExitCode::from(2);
    };
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<Skip>().is_none() {
            told(info);
        }
    }));
    match std::panic::catch_unwind(test.run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(payload) => match payload.downcast_ref::<Skip>() {
            Some(Skip(reason)) => {
                println!("{reason}");
                ExitCode::from(SKIPPED)
            }
            None => ExitCode::FAILURE,
        },
    }
}

/// Runs all of them; fails when one did. `planned` is how many there are, where that is known
/// before. `shows_all` is for who looks at a few: else only tests that do not pass show what
/// they printed.
pub(crate) fn all(
    tests: impl Iterator<Item = &'static Test>,
    planned: Option<usize>,
    shows_all: bool,
) -> ExitCode {
    println!("KTAP version 1");
    if let Some(count) = planned {
        println!("1..{count}");
    }
    let mut oracle = Oracle::new();
    let mut failed = 0;
    let mut count = 0;
    for test in tests {
        count += 1;
        let name = test.name;
        println!("# begins: {name}");
        // The host shows it live; a pipe that is gone ends the run elsewhere.
        let _ = std::io::stdout().flush();
        let started = Instant::now();
        let idle = cpu::idle();
        let Run { mut verdict, told } = run(test);
        let troubles = oracle.troubles();
        if shows_all || verdict != Verdict::Passed || !troubles.is_empty() {
            told.iter().for_each(|line| println!("# {line}"));
        }
        if !troubles.is_empty() {
            for trouble in troubles {
                println!("# {name}: left behind: {trouble}");
            }
            verdict = Verdict::Failed;
        }
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "# took: {seconds:.2} s, {} % idle",
            cpu::idle_percent(idle, seconds)
        );
        match verdict {
            Verdict::Passed => println!("ok {count} {name}"),
            Verdict::Skipped(reason) => println!("ok {count} {name} # SKIP {reason}"),
            Verdict::Failed => {
                failed += 1;
                println!("not ok {count} {name}");
                oracle.undo();
            }
        }
    }
    if planned.is_none() {
        println!("1..{count}");
    }
    println!("# {count} tests, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// How a test ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    Skipped(String),
}

/// What came of one test.
pub(crate) struct Run {
    pub(crate) verdict: Verdict,
    /// The lines it printed.
    told: Vec<String>,
}

/// One test in a child.
pub(crate) fn run(test: &Test) -> Run {
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
    let (sender, lines) = mpsc::channel();
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
    let limit = Instant::now() + Duration::from_secs(test.limit_s);
    let mut told = Vec::new();
    let status = loop {
        match lines.recv_timeout(Duration::from_millis(20)) {
            Ok(line) => {
                told.push(line);
                continue;
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if let Some(status) = child.try_wait().expect("the child is ours") {
            break Some(status);
        }
        if Instant::now() > limit {
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // Nothing of the test's may outlive it, whatever its verdict.
    let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
    // All of it, also what a reader has not come to; a daemon may hold the pipe longer.
    let until = Instant::now() + Duration::from_secs(2);
    while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
        told.push(line);
    }
    let verdict = match status.map(|status| status.code()) {
        Some(Some(0)) => Verdict::Passed,
        Some(Some(code)) if code == i32::from(SKIPPED) => {
            Verdict::Skipped(told.last().cloned().unwrap_or_default())
        }
        _ => Verdict::Failed,
    };
    match status {
        Some(status) if verdict == Verdict::Failed => {
            told.push(format!("{}: {status}", test.name));
        }
        Some(_) => {}
        None => {
            told.push(format!("{}: not done after {} s", test.name, test.limit_s));
            let _ = child.wait();
        }
    }
    Run { verdict, told }
}
