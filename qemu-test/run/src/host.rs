// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs on the host beside the guests, which leave some of its time: checks and tests
//! that need none of them. One after the other, each a test of the run.

use crate::ktap::{Ending, Verdict};
use crate::results::NO_KERNEL;
use crate::shared::Run;
use anyhow::{Context, Result};
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

struct Part {
    name: &'static str,
    /// A script and its arguments.
    words: &'static [&'static str],
}

const PARTS: [Part; 2] = [
    Part {
        name: "host.check",
        words: &["scripts/check.sh"],
    },
    Part {
        name: "host.fuzz",
        words: &["scripts/fuzz.sh", "20"],
    },
];

/// From an empty cache on, with the guests before it.
const LIMIT_S: u64 = 3000;
const TICK: Duration = Duration::from_millis(100);
/// Lines of a failed part's log that are shown.
const SHOWN: usize = 40;

/// Parts that were chosen.
pub(crate) struct Parts {
    parts: Vec<&'static Part>,
    project: PathBuf,
    /// Where their logs go.
    folder: PathBuf,
}

impl Parts {
    /// None, of this project; their logs go into this folder.
    pub(crate) fn none(project: &Path, folder: &Path) -> Parts {
        Parts {
            parts: Vec::new(),
            project: project.to_owned(),
            folder: folder.to_owned(),
        }
    }

    /// Chooses those by their names.
    pub(crate) fn choose(&mut self, is_chosen: impl Fn(&str) -> bool) {
        self.parts = PARTS.iter().filter(|part| is_chosen(part.name)).collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Says which are to come.
    pub(crate) fn plan(&self, run: &Run) {
        for part in &self.parts {
            run.results().plan(part.name, LIMIT_S, NO_KERNEL);
        }
    }

    /// Runs them until all are done or `stop` is set.
    pub(crate) fn run(&self, run: &Run, stop: &AtomicBool) -> Result<()> {
        for part in &self.parts {
            let verdict = self.verdict(part, stop)?;
            run.take(part.name, "host", verdict, false);
        }
        Ok(())
    }

    fn verdict(&self, part: &Part, stop: &AtomicBool) -> Result<Verdict> {
        let log = self.folder.join(format!("{}.log", part.name));
        let begun = Instant::now();
        let failed = self.failure(part, &log, stop)?;
        let text = fs::read(&log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let shown = lines[lines.len().saturating_sub(SHOWN)..].iter().copied();
        let notes = shown.chain(failed.as_deref());
        Ok(Verdict {
            name: part.name.to_owned(),
            notes: notes.map(|line| format!("# {line}")).collect(),
            ending: match failed {
                None => Ending::Passed,
                Some(_) => Ending::Failed,
            },
            seconds: begun.elapsed().as_secs_f64(),
            idle_percent: 0,
        })
    }

    /// Runs one; why it failed, when it did.
    fn failure(&self, part: &Part, log: &Path, stop: &AtomicBool) -> Result<Option<String>> {
        let mut child = Group(self.start(part, log)?);
        let begun = Instant::now();
        loop {
            if let Some(status) = child.0.try_wait()? {
                return Ok((!status.success()).then(|| status.to_string()));
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(Some("the run has ended".into()));
            }
            if begun.elapsed().as_secs() > LIMIT_S {
                return Ok(Some(format!("not done after {LIMIT_S} s")));
            }
            thread::sleep(TICK);
        }
    }

    /// Behind the guests, whose clocks go on. It ends with this process, with all that it has
    /// started.
    fn start(&self, part: &Part, log: &Path) -> Result<Child> {
        const UNTIL: &str = "trap 'trap - TERM; kill 0' TERM; \"$@\" & wait $!";
        let output = File::create(log).with_context(|| log.display().to_string())?;
        let mut command = Command::new("nice");
        command
            .args(["-n", "5", "setpriv", "--pdeathsig", "TERM"])
            .args(["sh", "-c", UNTIL, "sh"])
            .args(part.words)
            .current_dir(&self.project)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        command
            .spawn()
            .with_context(|| format!("cannot start {}", part.name))
    }
}

/// A process and those that it has started; they end with the value.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = killpg(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
            let _ = self.0.wait();
        }
    }
}
