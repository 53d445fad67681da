// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: the times of `top` are those of the kernel, and it leaves the terminal and the file
//! systems of containers as they were.

use super::capsule::number;
use super::task_views::LIMIT;
use crate::command::{self, Running, FILE};
use crate::container::Container;
use crate::module::Module;
use crate::oracle::within;
use crate::processes::state_of;
use crate::tasks::{ran_by_kernel, TaskSession};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// An interval of `top --json --processes`, whose parts add up to the whole: how long, in
/// nanoseconds, the container `web` ran, and its process.
fn interval_of(line: &str, pid: u64) -> (u64, u64) {
    let interval: Value = serde_json::from_str(line).expect("JSON");
    let groups = interval["groups"].as_array().expect("groups");
    let sum: u64 = groups.iter().map(|group| number(&group["cpu_ns"])).sum();
    let all = number(&interval["cpu_ns"]);
    assert_eq!(sum + number(&interval["unaccounted_ns"]), all, "{interval}");
    let most = number(&interval["elapsed_ns"]) * number(&interval["cpus"]);
    assert!(all <= most + most / 50, "{interval}");
    let Some(web) = groups.iter().find(|group| group["container"] == "web") else {
        return (0, 0);
    };
    let ran = web["ran"].as_array().expect("--processes");
    let process = ran.iter().find(|process| process["pid"] == pid);
    let of_process = process.map_or(0, |process| number(&process["cpu_ns"]));
    (number(&web["cpu_ns"]), of_process)
}

test! { core, top_adds_up_to_what_the_kernel_has, seconds = 120 }
/// The container runs from some moment after `top` has begun to some moment before it ends:
/// all of that time is in the sum of the intervals, neither more nor less.
fn top_adds_up_to_what_the_kernel_has() {
    let _module = Module::load();
    let web = Container::run("web", &["sh", "-c", "while :; do :; done"]);
    let pid = u64::from(web.pid());
    let process = Pid::from_raw(web.pid() as i32);
    let is_stopped = || state_of(pid) == Some('T');
    let stop = || {
        kill(process, Signal::SIGSTOP).expect("it lives");
        assert!(within(LIMIT, is_stopped), "it does not stop");
    };
    stop();
    let mut top = Running::start(&["top", "--json", "--processes", "-n", "60", "-d", "0.7"]);
    let mut next = || top.next_line(LIMIT).expect("an interval");
    // It has looked twice now.
    let mut seen = interval_of(&next(), pid);
    let before = ran_by_kernel(pid);
    kill(process, Signal::SIGCONT).expect("it lives");
    while ran_by_kernel(pid).1 < before.1 + 2_000_000_000 {
        sleep(Duration::from_millis(20));
    }
    stop();
    let after = ran_by_kernel(pid);
    let wanted = (after.0 - before.0, after.1 - before.1);
    // Until it has run in none: the end of the last one is after its own.
    loop {
        let (group, process) = interval_of(&next(), pid);
        seen = (seen.0 + group, seen.1 + process);
        if seen.0 > 0 && (group, process) == (0, 0) {
            break;
        }
    }
    drop(top);
    println!("top: {seen:?}; the kernel: {wanted:?} (group, process)");
    let fits = |seen: u64, wanted: u64| seen.abs_diff(wanted) * 100 < wanted;
    assert!(fits(seen.0, wanted.0), "group: {seen:?}, {wanted:?}");
    assert!(fits(seen.1, wanted.1), "process: {seen:?}, {wanted:?}");
    kill(process, Signal::SIGCONT).expect("it lives");
    let table = command::run(&["top", "--batch", "-n", "1", "-d", "0.5"]).succeeded();
    println!("{}", table.stdout);
    assert!(
        table.lines().any(|line| line.contains("web (podman)")),
        "{table:#?}"
    );
    let refused = command::run(&["top"]);
    refused.refused(&["--batch"]);
}

/// `top` on a terminal of script(1)'s making.
struct OnTerminal {
    child: Child,
    text: std::sync::mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl OnTerminal {
    fn start() -> OnTerminal {
        let line = format!("stty rows 24 cols 80; exec {FILE} top -d 0.3");
        let mut child = Command::new("script")
            .args(["-qefc", &line, "/dev/null"])
            .env("TERM", "linux")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script is in the guest");
        let mut out = child.stdout.take().expect("piped");
        let (sender, text) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        OnTerminal {
            child,
            text,
            seen: String::new(),
        }
    }

    fn wait_for(&mut self, part: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.seen.contains(part) {
            let left = until.saturating_duration_since(Instant::now());
            match self.text.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("no {part:?} in {:?}", self.seen),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.seen.clear();
        let input = self.child.stdin.as_mut().expect("piped");
        input.write_all(keys.as_bytes()).expect("it lives");
    }

    /// Waits until it has ended: its exit code.
    fn end(mut self) -> Option<i32> {
        // The alternate screen is left, and the cursor is shown.
        self.wait_for("\x1b[?1049l");
        self.wait_for("\x1b[?25h");
        self.child.wait().expect("ours").code()
    }
}

test! { full, top_gives_the_terminal_back, seconds = 120 }
fn top_gives_the_terminal_back() {
    let _module = Module::load();
    let _web = Container::run("web", &["sleep", "1000"]);
    let mut top = OnTerminal::start();
    top.wait_for("\x1b[?1049h");
    // Blanks are not drawn where there are some.
    top.wait_for("(podman)");
    top.press("?");
    top.wait_for("unfold");
    top.press("x");
    top.press("/web\r");
    top.wait_for("only:");
    top.press("q");
    assert_eq!(top.end(), Some(0));

    // Told to end by somebody else.
    let mut top = OnTerminal::start();
    top.wait_for("(podman)");
    let pids = Command::new("pidof").arg("nsprobe").output();
    let pids = String::from_utf8(pids.expect("pidof is in the guest").stdout).expect("numbers");
    let killed = Command::new("kill").args(pids.split_whitespace()).status();
    assert!(killed.expect("kill is in the guest").success());
    assert_eq!(top.end(), Some(0));
}

/// A file system of its own, which programs have as their root; nothing of it may be left.
struct OwnRoot(&'static str);

impl OwnRoot {
    fn new(folder: &'static str) -> OwnRoot {
        fs::create_dir_all(folder).expect("/var/tmp is writable");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "none", folder])
            .status();
        assert!(mount.expect("mount is there").success());
        // It is static, and needs nothing else.
        let program = format!("{folder}/nsprobe");
        fs::copy("/payload/nsprobe", program).expect("there is room");
        OwnRoot(folder)
    }

    /// Starts a program in it, which ends at once.
    fn run(&self) {
        let words = [self.0, "/nsprobe", "--version"];
        let run = Command::new("chroot").args(words).output();
        assert!(run.expect("chroot is there").status.success());
    }

    fn is_free(&self) -> bool {
        let unmount = Command::new("umount").arg(self.0).output();
        unmount.expect("umount is there").status.success()
    }
}

test! { full, top_keeps_no_file_system_busy, seconds = 120 }
/// Where programs are started while `top` runs, containers' file systems are let go of.
fn top_keeps_no_file_system_busy() {
    let _module = Module::load();
    // A session keeps what the kernel holds for it until it asks for that.
    let root = OwnRoot::new("/var/tmp/own-root");
    let holder = TaskSession::of_lives();
    root.run();
    assert!(!root.is_free());
    drop(holder);
    assert!(within(Duration::from_secs(10), || root.is_free()));

    let mut top = Running::start(&["top", "--batch", "-d", "1", "-n", "60"]);
    assert!(top.next_line(Duration::from_secs(30)).is_some());
    let root = OwnRoot::new("/var/tmp/own-root");
    root.run();
    assert!(within(Duration::from_secs(20), || root.is_free()));
    assert!(
        top.next_line(Duration::from_secs(20)).is_some(),
        "it has ended"
    );
    let (code, errors) = top.interrupt();
    assert_eq!(code, Some(0), "{errors}");
}
