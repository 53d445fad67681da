// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs that tests trace.

use crate::binary::{self, Function};
use crate::processes::code_of;
use nix::sched::{sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Where the host put them.
const PAYLOAD: &str = "/payload/victims";
/// Where they are run from: a local file system, as programs usually are.
const FOLDER: &str = "/var/tmp/victims";
/// Has the names of those that were used since they were last forgotten.
const USED: &str = "/run/nsprobe-victims-used";

/// The path of a victim that can be run and probed.
pub(crate) fn path(name: &str) -> PathBuf {
    // A test that cannot write there, as it is somebody else, has come here as root before.
    let _ = fs::create_dir_all(USED).and_then(|()| File::create(Path::new(USED).join(name)));
    let path = Path::new(FOLDER).join(name);
    if !path.exists() {
        fs::create_dir_all(FOLDER).expect("/var/tmp is writable");
        // By a rename, in case another process starts it meanwhile.
        let new = path.with_extension(std::process::id().to_string());
        let from = Path::new(PAYLOAD).join(name);
        fs::copy(&from, &new).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        fs::rename(&new, &path).expect("the same folder");
    }
    path
}

/// The files of those that were used since they were last forgotten.
pub(crate) fn used() -> Vec<PathBuf> {
    let names = fs::read_dir(USED).into_iter().flatten().flatten();
    let files = names.map(|entry| Path::new(FOLDER).join(entry.file_name()));
    files.collect()
}

/// Forgets which were used.
pub(crate) fn forget_used() {
    let _ = fs::remove_dir_all(USED);
}

/// A running victim; killed with the value.
pub(crate) struct Victim {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    file: PathBuf,
}

impl Victim {
    /// Starts one that says when it is ready, and waits for that.
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Victim {
        Victim::start_command(Command::new(path(name)).args(arguments), &path(name))
    }

    /// The same for a command that ends in running `file`.
    pub(crate) fn start_command(command: &mut Command, file: &Path) -> Victim {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut victim = Victim {
            child,
            stdin,
            stdout,
            file: file.to_path_buf(),
        };
        let line = victim.line();
        assert!(line.starts_with("ready "), "{}: {line:?}", file.display());
        victim
    }

    /// A victim that calls a function as often as it is told.
    pub(crate) fn caller(function: &str) -> Victim {
        Victim::start("call_in_loop", &[function])
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the victim lives");
        line.trim_end().to_string()
    }

    /// Has it do `count` calls and waits for their end; how many it has done
    /// in all.
    pub(crate) fn call(&mut self, count: u64) -> u64 {
        self.begin(count);
        self.finish()
    }

    /// Has it do what a line says and waits for the end; how many calls it has done
    /// in all.
    pub(crate) fn order(&mut self, line: &str) -> u64 {
        let stdin = self.stdin.as_mut().expect("it is not ended");
        writeln!(stdin, "{line}").expect("the victim reads");
        self.finish()
    }

    /// Has it do `count` calls.
    pub(crate) fn begin(&mut self, count: u64) {
        let stdin = self.stdin.as_mut().expect("it is not ended");
        writeln!(stdin, "{count}").expect("the victim reads");
    }

    /// Waits for the end of what was begun.
    pub(crate) fn finish(&mut self) -> u64 {
        let line = self.line();
        line.strip_prefix("called ")
            .and_then(|count| count.parse().ok())
            .unwrap_or_else(|| panic!("{}: {line:?}", self.file.display()))
    }

    /// Closes its stdin and waits until it has ended.
    pub(crate) fn end(&mut self) {
        self.stdin = None;
        self.child.wait().expect("the victim is ours");
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// From now on its first thread runs on this CPU only.
    pub(crate) fn stay_on(&self, cpu: usize) {
        let mut cpus = CpuSet::new();
        cpus.set(cpu).expect("a small number");
        sched_setaffinity(Pid::from_raw(self.pid() as i32), &cpus).expect("it lives");
    }

    /// One of its functions.
    pub(crate) fn function(&self, name: &str) -> Function {
        binary::function(&self.file, name)
    }

    /// Its file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Whether its memory at a file offset is as it is in the file: no
    /// breakpoint is there.
    pub(crate) fn text_is_restored(&self, offset: u64) -> bool {
        text(self.pid(), &self.file, offset) == from_file(&self.file, offset)
    }

    /// How many bytes of its code, from a file offset on, are not as in the file.
    pub(crate) fn changed_bytes(&self, offset: u64, length: u64) -> u64 {
        self.changed_places(offset, length).len() as u64
    }

    /// The offsets in its file of those bytes.
    pub(crate) fn changed_places(&self, offset: u64, length: u64) -> Vec<u64> {
        let mut now = vec![0; length as usize];
        let mut then = now.clone();
        read_text(self.pid(), &self.file, offset, &mut now);
        let file = File::open(&self.file).expect("the victim's file is there");
        file.read_exact_at(&mut then, offset).expect("in the file");
        let pairs = (offset..).zip(now.iter().zip(&then));
        pairs
            .filter(|(_, (now, then))| now != then)
            .map(|(place, _)| place)
            .collect()
    }

    /// Whether the ten-byte nop there is one again. The kernel leaves the call that
    /// it had become in the nop's operand bytes on purpose: a task may be about to
    /// run it (`int3_update_unoptimize` in arch/x86/kernel/uprobes.c).
    pub(crate) fn nop10_is_restored(&self, offset: u64) -> bool {
        let now = text(self.pid(), &self.file, offset);
        now[..5] == from_file(&self.file, offset)[..5]
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const TEXT_BYTES: usize = 10;

pub(crate) fn from_file(file: &Path, offset: u64) -> [u8; TEXT_BYTES] {
    let mut bytes = [0; TEXT_BYTES];
    let file = File::open(file).expect("the victim's file is there");
    file.read_exact_at(&mut bytes, offset).expect("in the file");
    bytes
}

/// What a process has in its memory at an offset of a file that it maps as
/// code.
pub(crate) fn text(pid: u32, file: &Path, offset: u64) -> [u8; TEXT_BYTES] {
    let mut bytes = [0; TEXT_BYTES];
    read_text(pid, file, offset, &mut bytes);
    bytes
}

fn read_text(pid: u32, file: &Path, offset: u64, bytes: &mut [u8]) {
    let code = code_of(pid);
    let name = file.to_str().expect("a plain name");
    let address = code
        .iter()
        .filter(|code| code.path == name)
        .find_map(|code| {
            let address = code.addresses.start + offset.checked_sub(code.offset)?;
            code.addresses.contains(&address).then_some(address)
        });
    let address = address.unwrap_or_else(|| panic!("{pid} does not map {name}: {code:?}"));
    let memory = File::open(format!("/proc/{pid}/mem")).expect("tests run as root");
    memory
        .read_exact_at(bytes, address)
        .expect("the text is mapped");
}
