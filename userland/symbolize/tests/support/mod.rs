// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fixture, built by the machine's own compiler.

pub(crate) mod frames;
pub(crate) mod package;
pub(crate) mod symbols;
pub(crate) mod witness;

use nsprobe_symbolize::Binary;
use std::collections::HashMap;
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
        let flags: Vec<&str> = ["-O2", "-fno-plt"]
            .into_iter()
            .chain(flags.iter().copied())
            .collect();
        self.built(name, "c++", &flags, "inlined.cc")
    }

    /// A fixture, built by a compiler; `None`, with a printed reason, without it.
    pub(crate) fn built(
        &self,
        name: &str,
        compiler: &str,
        flags: &[&str],
        source: &str,
    ) -> Option<PathBuf> {
        let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixture"));
        let out = self.0.join(name);
        let mut command = nsprobe_testing::compiler(compiler);
        command.args(flags).arg("-o").arg(&out);
        nsprobe_testing::success(command.arg(fixtures.join(source))).then_some(out)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn open(path: &Path) -> Result<Binary, nsprobe_symbolize::SymbolizeError> {
    Binary::open(File::open(path).unwrap(), path)
}

/// What a program prints; `None`, with a printed reason, if it cannot be run.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = nsprobe_testing::output(Command::new(program).args(arguments))?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What `addr2line -a -f -i -C` says of addresses, innermost first: function and
/// `file:line` (`?` where unknown).
pub(crate) fn addr2line(
    path: &Path,
    addresses: &[u64],
) -> Option<HashMap<u64, Vec<(String, String)>>> {
    let numbers: Vec<String> = addresses.iter().map(|a| format!("{a:#x}")).collect();
    let mut arguments = vec!["-a", "-f", "-i", "-C", "-e", path.to_str().unwrap()];
    arguments.extend(numbers.iter().map(String::as_str));
    let text = output_of("addr2line", &arguments)?;
    let mut found: HashMap<u64, Vec<(String, String)>> = HashMap::new();
    let (mut lines, mut address) = (text.lines(), 0);
    while let Some(line) = lines.next() {
        if let Some(digits) = line.strip_prefix("0x") {
            address = u64::from_str_radix(digits, 16).unwrap();
            continue;
        }
        let place = lines
            .next()
            .unwrap()
            .split(" (discriminator")
            .next()
            .unwrap();
        let place = place.rsplit('/').next().unwrap().to_owned();
        found
            .entry(address)
            .or_default()
            .push((line.to_owned(), place));
    }
    Some(found)
}
