// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `nsprobe`, as a user runs it.

use crate::oracle::{within, SOON};
use crate::session::Session;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// The program's file.
pub(crate) const FILE: &str = "/payload/nsprobe";

/// What a run of the program gave.
#[derive(Debug)]
pub(crate) struct Output {
    /// Its exit status; 128 + the signal when one ended it.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A command line of the program.
pub(crate) fn nsprobe(arguments: &[&str]) -> Command {
    let mut command = Command::new(FILE);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    output(&mut nsprobe(arguments))
}

/// Runs a prepared command line to its end.
pub(crate) fn output(command: &mut Command) -> Output {
    use std::os::unix::process::ExitStatusExt;
    let output = command.output().expect("the program is in the payload");
    let status = output.status;
    Output {
        code: status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Output {
    /// Panics with all of it unless the program succeeded.
    pub(crate) fn succeeded(self) -> Output {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// Panics unless it failed with a message that holds all of `parts`, and
    /// nothing on stdout.
    pub(crate) fn refused(self, parts: &[&str]) -> Output {
        assert!(self.code > 0 && self.code < 128, "exit code: {self:#?}");
        for part in parts {
            assert!(self.stderr.contains(part), "no {part:?}: {self:#?}");
        }
        assert!(self.stderr.starts_with("nsprobe: "), "{self:#?}");
        assert_eq!(self.stdout, "", "on stdout: {self:#?}");
        self
    }

    /// Lines of stdout.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.stdout.lines()
    }
}

/// The program running beside the test; killed with the value.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    stderr: Option<ChildStderr>,
}

impl Running {
    /// Starts it.
    pub(crate) fn start(arguments: &[&str]) -> Running {
        Running::start_command(&mut nsprobe(arguments))
    }

    /// Starts a prepared command, which need not be the program.
    pub(crate) fn start_command(command: &mut Command) -> Running {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it is in the payload");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let stderr = child.stderr.take();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Running {
            child,
            lines,
            stderr,
        }
    }

    /// The next line of stdout that holds a text.
    pub(crate) fn wait_for(&mut self, part: &str, limit: Duration) -> String {
        let mut seen = Vec::new();
        let until = std::time::Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => seen.push(line),
                Err(_) => {
                    let _ = self.child.kill();
                    let mut errors = String::new();
                    if let Some(stderr) = &mut self.stderr {
                        let _ = stderr.read_to_string(&mut errors);
                    }
                    panic!("no line with {part:?} in {limit:?}; seen {seen:#?}, errors {errors}")
                }
            }
        }
    }

    /// Waits until it has this number of probes; there are no others then.
    pub(crate) fn attached(&mut self, probes: u32) {
        let watcher = Session::open();
        let mut ended = None;
        let is_there = within(SOON, || {
            ended = self.child.try_wait().expect("the child is ours");
            ended.is_some() || watcher.info().probes == probes
        });
        if !is_there || ended.is_some() {
            let _ = self.child.kill();
            let mut errors = String::new();
            if let Some(stderr) = &mut self.stderr {
                let _ = stderr.read_to_string(&mut errors);
            }
            let there = watcher.info().probes;
            panic!("{there} of {probes} probes are there ({ended:?}): {errors}");
        }
    }

    /// The next line of stdout, unless none comes in time.
    pub(crate) fn next_line(&mut self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, as Ctrl-C does, and waits; its exit status and stderr.
    pub(crate) fn interrupt(self) -> (Option<i32>, String) {
        let (code, _, errors) = self.finish();
        (code, errors)
    }

    /// The same, with the lines of stdout that were not waited for.
    pub(crate) fn finish(self) -> (Option<i32>, Vec<String>, String) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
        self.rest()
    }

    /// Waits until it ends by itself; of stdout the lines that were not waited for.
    pub(crate) fn ended(self) -> Output {
        let (code, lines, stderr) = self.rest();
        Output {
            code: code.unwrap_or(-1),
            stdout: lines.iter().map(|line| format!("{line}\n")).collect(),
            stderr,
        }
    }

    fn rest(mut self) -> (Option<i32>, Vec<String>, String) {
        // To its end first: whoever has much to say waits for the reader.
        let mut errors = String::new();
        if let Some(mut stderr) = self.stderr.take() {
            let _ = stderr.read_to_string(&mut errors);
        }
        let status = self.child.wait().expect("the child is ours");
        (status.code(), self.lines.iter().collect(), errors)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a running program says on stderr: a file, printed and removed with the value.
pub(crate) struct Notes(PathBuf);

impl Notes {
    /// Starts the program, which writes them.
    pub(crate) fn of(words: &[&str]) -> (Running, Notes) {
        let notes = Notes(format!("/var/tmp/notes-{}", std::process::id()).into());
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$@\" 2>\"$0\""])
            .arg(&notes.0)
            .arg(FILE)
            .args(words)
            .stdin(Stdio::null());
        (Running::start_command(&mut command), notes)
    }

    /// What it has said so far.
    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }

    /// Waits until it has said this.
    pub(crate) fn wait_for(&self, part: &str, limit: Duration) {
        let is_there = within(limit, || self.text().contains(part));
        assert!(is_there, "no {part:?}: {}", self.text());
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        println!("{}", self.text());
        let _ = fs::remove_file(&self.0);
    }
}
