// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control groups of the tests' own.

use crate::oracle::within;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A control group; what runs in it is killed, and it is removed with the value.
pub(crate) struct Group {
    pub(crate) folder: PathBuf,
    /// Those that were made on the way to it, and itself.
    made: Vec<PathBuf>,
}

impl Group {
    /// Makes it, and those on the way that are not there.
    pub(crate) fn new(path: &str) -> Group {
        let mut folder = PathBuf::from("/sys/fs/cgroup");
        let mut made = Vec::new();
        for part in Path::new(path) {
            folder.push(part);
            match fs::create_dir(&folder) {
                Ok(()) => made.push(folder.clone()),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{path}: {error}"),
            }
        }
        Group { folder, made }
    }

    /// Its number.
    pub(crate) fn id(&self) -> u64 {
        fs::metadata(&self.folder).expect("it is there").ino()
    }

    /// Moves a process there.
    pub(crate) fn take(&self, pid: u32) {
        let file = self.folder.join("cgroup.procs");
        fs::write(file, pid.to_string()).unwrap_or_else(|error| panic!("{pid}: {error}"));
    }

    /// A command that runs a program in it, from the first instruction on. Further arguments
    /// are the program's.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]);
        shell.arg(self.folder.join("cgroup.procs")).arg(program);
        shell
    }

    /// How long its tasks ran, in nanoseconds, as the kernel has it.
    pub(crate) fn usage_ns(&self) -> u64 {
        usage_ns(&self.folder)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join("cgroup.kill"), "1");
        for folder in self.made.iter().rev() {
            // What was killed may not have been counted out yet.
            within(Duration::from_secs(10), || {
                fs::remove_dir(folder).is_ok() || !folder.exists()
            });
        }
    }
}

/// How long the tasks of a control group ran, in nanoseconds, as the kernel has it.
pub(crate) fn usage_ns(folder: &Path) -> u64 {
    let stat = fs::read_to_string(folder.join("cpu.stat")).expect("cpu.stat");
    let line = stat
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "));
    line.and_then(|value| value.parse::<u64>().ok())
        .expect("usage_usec")
        * 1000
}
