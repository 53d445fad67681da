// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's checks, which run beside the guests and leave them most of its time.

use crate::guest::Guest;
use crate::ktap::Verdict;
use crate::results::Results;
use anyhow::{Context, Result};
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const NAME: &str = "host.check";
const SCRIPT: &str = "scripts/check.sh";
const NICE: &str = "10";
const TICK: Duration = Duration::from_millis(100);
/// Lines of a failed check's log that are shown.
const SHOWN: usize = 60;

/// Runs the checks, until they are done or the run cannot go on.
pub(crate) fn check(guest: &Guest, results: &Results) -> Result<()> {
    let log = guest.folder.join("host.check.log");
    let begun = Instant::now();
    let file = File::create(&log).with_context(|| log.display().to_string())?;
    let mut command = Command::new("nice");
    command
        .args(["-n", NICE])
        .arg(guest.project.join(SCRIPT))
        .current_dir(&guest.project)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .process_group(0);
    let mut checks = Group(command.spawn().context(SCRIPT)?);
    let status = loop {
        if let Some(status) = checks.0.try_wait()? {
            break status;
        }
        if guest.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        thread::sleep(TICK);
    };
    let text = fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines[lines.len().saturating_sub(SHOWN)..].iter();
    results.take(
        "host",
        Verdict {
            name: NAME.to_owned(),
            has_passed: status.success(),
            seconds: begun.elapsed().as_secs_f64(),
            idle_percent: 0,
            notes: shown.map(|line| format!("# {line}")).collect(),
        },
    );
    Ok(())
}

/// A process with all that it starts, which end with the value.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.0.id() as i32), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}
