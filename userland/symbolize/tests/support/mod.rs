// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fixture, built by the machine's own compiler.

#![allow(dead_code, reason = "each test program uses its part")]

use nsprobe_symbolize::Binary;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder that is removed with everything in it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("nsprobe-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The fixture; `None`, with a printed reason, without a compiler.
    pub(crate) fn fixture(&self, name: &str, flags: &[&str]) -> Option<PathBuf> {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixture/inlined.cc");
        let out = self.0.join(name);
        let output = Command::new("c++")
            .args(["-O2", "-fno-plt", "-o"])
            .arg(&out)
            .args(flags)
            .arg(source)
            .output();
        match output {
            Ok(output) if output.status.success() => Some(out),
            Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => {
                println!("{name}: skipped, c++ cannot be run: {error}");
                None
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn open(path: &Path) -> nsprobe_symbolize::Result<Binary> {
    Binary::open(File::open(path).unwrap(), path)
}

/// What a program prints; `None`, with a printed reason, if it cannot be run.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            println!("skipped, {program} cannot be run: {error}");
            None
        }
    }
}
