// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of children have in common.

pub(crate) mod dwarf;
pub(crate) mod elf;
pub(crate) mod endless;
#[path = "../../../symbolize/tests/support/package.rs"]
pub(crate) mod package;
pub(crate) mod trial;

use nsprobe_worker::{ChildLimits, Options};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The program that children are.
pub(crate) const CHILD: &str = env!("CARGO_BIN_EXE_nsprobe-worker-test");

/// Children of this kind, with less patience than usual.
pub(crate) fn options() -> Options {
    Options {
        program: CHILD.into(),
        limits: ChildLimits {
            load: Duration::from_secs(20),
            query: Duration::from_secs(5),
            probes: Duration::from_secs(20),
        },
        ..Options::default()
    }
}

/// Waits for something that is about to happen.
pub(crate) fn soon(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < until, "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a process does, as `/proc/PID/stat` says it; none when it is gone.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Whether a process is gone, or nobody has asked for its status yet.
pub(crate) fn is_dead(pid: u32) -> bool {
    state(pid).is_none_or(|state| state == 'Z')
}

/// A folder that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// A folder of that name.
    pub(crate) fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("nsprobe-worker-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// A file with this in it.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A program of a few lines of C, compiled like this; `None`, with a printed
    /// reason, without a compiler.
    pub(crate) fn program(&self, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
        let path = self.0.join(name);
        let source = self.file(&format!("{name}.c"), source.as_bytes());
        let mut gcc = nsprobe_testing::compiler("gcc");
        gcc.args(flags).arg("-o").arg(&path).arg(source);
        nsprobe_testing::success(&mut gcc).then_some(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Opens a file by its path.
pub(crate) fn file(path: &Path) -> fs::File {
    fs::File::open(path).unwrap()
}
