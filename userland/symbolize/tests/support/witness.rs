// SPDX-License-Identifier: MIT OR Apache-2.0
//! What other programs say of many addresses of a file.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// A function, its file and its line, as far as they are known; the name is raw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) function: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// A program that names addresses, and how it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Witness {
    /// addr2line of binutils.
    Binutils,
    /// llvm-symbolizer, which tells inlined functions by their own names.
    Llvm,
}

impl Witness {
    fn command(self, path: &Path) -> Command {
        let mut command = match self {
            Witness::Binutils => Command::new("addr2line"),
            Witness::Llvm => Command::new("llvm-symbolizer"),
        };
        command.args(match self {
            Witness::Binutils => &["-a", "-f", "-i", "-e"][..],
            Witness::Llvm => &[
                "--no-demangle",
                "--output-style=GNU",
                "-a",
                "-f",
                "-i",
                "-e",
            ],
        });
        command.arg(path);
        command
    }

    /// What it says of each address, the innermost function first; `None`, with a
    /// printed reason, if it cannot be run.
    pub(crate) fn ask(self, path: &Path, addresses: &[u64]) -> Option<Vec<Vec<Said>>> {
        let mut command = self.command(path);
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = nsprobe_testing::present(started, &command)?;
        let mut input = child.stdin.take().unwrap();
        let asked: String = addresses.iter().map(|at| format!("{at:#x}\n")).collect();
        // It answers while it is asked.
        let asking = thread::spawn(move || input.write_all(asked.as_bytes()));
        let output = child.wait_with_output().unwrap();
        asking.join().unwrap().unwrap();
        let said = parse(&String::from_utf8_lossy(&output.stdout));
        assert_eq!(said.len(), addresses.len(), "{self:?} left some out");
        Some(said)
    }
}

/// Answers begin with the address; then come two lines for each function.
fn parse(text: &str) -> Vec<Vec<Said>> {
    let mut all: Vec<Vec<Said>> = Vec::new();
    let mut lines = text.lines().filter(|line| !line.is_empty());
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            all.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap();
        let place = place.split(" (discriminator").next().unwrap();
        let (file, number) = place.rsplit_once(':').unwrap();
        all.last_mut().unwrap().push(Said {
            function: known(line),
            file: known(file),
            line: number.parse().ok().filter(|line| *line != 0),
        });
    }
    all
}

fn known(text: &str) -> Option<String> {
    (text != "??").then(|| text.to_owned())
}
