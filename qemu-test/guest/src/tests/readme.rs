// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: the README's command lines, run as they stand there, print what they should.

use crate::command::{Output, Running};
use crate::container::Container;
use crate::module::Module;
use crate::oracle::within;
use crate::processes::has_ended;
use crate::session::Session;
use crate::victim;
use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const README: &str = include_str!("../../../../README.md");

/// Verbs that end when they are asked to.
const ENDLESS: [&str; 7] = ["trace", "count", "hist", "stacks", "leak", "set", "record"];

/// What some of the lines print, by a part of the line.
const PRINTED: [(&str, &str); 13] = [
    ("nsprobe profile ", "FUNCTION"),
    ("nsprobe leak ", " allocated"),
    ("nsprobe list ", "setCommand"),
    ("libc.so.6:write --count 100", "libc.so.6:write"),
    ("-- curl", "getaddrinfo"),
    ("request->user", "user=\"ada\""),
    ("open(path=arg1:string)", "path=\"/etc/passwd\""),
    ("--by comm --sum arg1", "server"),
    ("nsprobe script ", "  #1  call+0x"),
    ("nsprobe export ", ""),
    ("nsprobe verify ", "SSL_read"),
    ("nsprobe ps ", "redis-server"),
    ("nsprobe record ", ""),
];

/// Lines that come to nothing here, and what they say: no such container comes.
const COME_TO_NOTHING: [(&str, &str); 1] = [("-c 'web-*'", "waiting for one")];

/// What a line says that comes to nothing here.
fn comes_to_nothing(line: &str) -> Option<&'static str> {
    let mut all = COME_TO_NOTHING.iter();
    all.find(|(part, _)| line.contains(part))
        .map(|(_, why)| *why)
}

/// What a line prints.
fn wanted(line: &str) -> impl Iterator<Item = &'static str> + '_ {
    let wanted = PRINTED.iter().filter(|(part, _)| line.contains(part));
    wanted.map(|(_, text)| *text)
}

/// How long a line runs at most after its first probe.
const TIME_TO_PRINT: Duration = Duration::from_secs(15);

/// The program of process 1234.
const SERVER: &str = "/srv/server";

/// The lines of the README's shell code that run the program, each ended by a newline.
fn lines() -> Vec<String> {
    let blocks = README.split("```").skip(1).step_by(2);
    let code: String = blocks
        .filter_map(|block| block.strip_prefix("sh\n"))
        .collect();
    let lines = code.replace("\\\n", " ");
    let lines = lines.lines().filter_map(|line| {
        let line = line.trim_start_matches("sudo ");
        line.starts_with("nsprobe ").then(|| format!("{line}\n"))
    });
    lines.collect()
}

/// Where the lines are run: what they name is there.
struct Place {
    folder: PathBuf,
    server: Child,
    _web: Container,
}

impl Place {
    fn new() -> Place {
        let folder = PathBuf::from(format!("/var/tmp/readme-{}", std::process::id()));
        fs::create_dir(&folder).expect("/var/tmp is writable");
        let curl = folder.join("curl");
        symlink("/payload/nsprobe", folder.join("nsprobe")).expect("the folder is new");
        fs::write(&curl, "#!/bin/sh\nexec getent ahosts localhost\n").expect("ours");
        fs::set_permissions(&curl, fs::Permissions::from_mode(0o755)).expect("ours");
        fs::copy(victim::path("server"), SERVER).expect("root");
        let web = Container::redis("web");
        let load = "(while :; do redis-benchmark -s /tmp/r.sock -q -t set -c 1 -n 20; sleep 0.2; \
                    done) >/dev/null 2>&1 &";
        web.exec(&["sh", "-c", load]).expect("it runs in there");
        let server = Command::new(SERVER).spawn();
        Place {
            server: server.expect("it was copied"),
            folder,
            _web: web,
        }
    }

    /// Starts a line.
    fn start(&self, line: &str) -> Running {
        let line = line.replace("-p 1234", &format!("-p {}", self.server.id()));
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.folder.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {line}")]);
        Running::start_command(shell.env("PATH", path).current_dir(&self.folder))
    }

    /// Runs a line to its end, or to where it has had something to print.
    fn run(&self, line: &str) -> Output {
        let mut running = self.start(line);
        let verb = line.split(' ').nth(1).expect("a verb");
        if !ENDLESS.contains(&verb) || line.contains(" -- ") {
            return running.ended();
        }
        let watcher = Session::open();
        let is_on = || watcher.info().probes > 0 || has_ended(running.pid());
        let limit = if comes_to_nothing(line).is_some() {
            3
        } else {
            120
        };
        within(Duration::from_secs(limit), is_on);
        // Some print when they end alone: they have had time for it.
        let wanted: Vec<&str> = wanted(line).collect();
        let until = Instant::now() + TIME_TO_PRINT;
        let mut lines = Vec::new();
        while let Some(line) = running.next_line(until.saturating_duration_since(Instant::now())) {
            lines.push(line);
            let has = |text: &&str| lines.iter().any(|line| line.contains(text));
            if !wanted.is_empty() && wanted.iter().all(has) {
                break;
            }
        }
        let (code, rest, stderr) = running.finish();
        lines.extend(rest);
        Output {
            code: code.unwrap_or(-1),
            stdout: lines.join("\n"),
            stderr,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = fs::remove_file(SERVER);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Whether a line came to what it should.
fn check(line: &str, got: &Output) -> Result<(), String> {
    if let Some(why) = comes_to_nothing(line) {
        let is_said = got.stderr.contains(why);
        return is_said.then_some(()).ok_or(format!("{line}{got:#?}"));
    }
    if got.code != 0 {
        return Err(format!("{line}{got:#?}"));
    }
    match wanted(line).find(|text| !got.stdout.contains(text)) {
        Some(missing) => Err(format!("{line}no {missing:?} in {got:#?}")),
        None => Ok(()),
    }
}

test! { full, the_readmes_command_lines_do_what_they_say, seconds = 600 }
fn the_readmes_command_lines_do_what_they_say() {
    let _module = Module::load_with("allow_modify=1");
    let lines = lines();
    for (part, _) in PRINTED.iter().chain(&COME_TO_NOTHING) {
        let has = |line: &String| line.contains(part);
        assert!(lines.iter().any(has), "no line has {part:?}");
    }
    let place = Place::new();
    let mut wrong = Vec::new();
    let mut last = None;
    for line in &lines {
        let begun = Instant::now();
        let got = place.run(line);
        println!("{:.1?} {}", begun.elapsed(), line.trim_end());
        wrong.extend(check(line, &got).err());
        last = Some(got);
    }
    assert!(place.folder.join("web.ctf").is_dir(), "nothing is exported");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The last line's is not what the first one prints.
    let last = last.expect("there are lines");
    let other = check(&lines[0], &last);
    assert!(other.is_err(), "what another line prints is taken");
}
