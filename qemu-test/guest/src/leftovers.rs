// SPDX-License-Identifier: MIT OR Apache-2.0
//! What uprobes have left in the text of processes: what is written there when one is put in,
//! and was not taken out. It would end the process with SIGTRAP, or lead it astray.

use crate::sys;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What an uprobe writes over an instruction: a breakpoint; or over a nop of ten bytes, once
/// it was hit, a call after a step over the red zone (`lea -0x80(%rsp),%rsp; call`,
/// arch/x86/kernel/uprobes.c).
const WRITTEN: [&[u8]; 2] = [&[0xcc], &[0x48, 0x8d, 0x64, 0x24, 0x80, 0xe8]];

const PAGE: usize = 4096;
/// What begins on a page may end on the next one.
pub(crate) const WINDOW: usize = PAGE + 5;

/// Where a process's text has what an uprobe writes and its file has not, in words.
pub(crate) fn breakpoints() -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of = |pid| found_in(pid, &format!("process {pid}"));
    pids.flat_map(of).collect()
}

/// The same in a new process of each of these programs, which runs no instruction: probes that
/// are still there are put into it, also when all that were traced have ended.
pub(crate) fn breakpoints_in_new(programs: Vec<PathBuf>) -> Vec<String> {
    let of = |program: PathBuf| {
        let name = program.display();
        match sys::Unborn::of(&mut Command::new(&program)) {
            Ok(process) => found_in(process.pid(), &format!("a new process of {name}")),
            Err(error) if is_no_program(&error) => Vec::new(),
            Err(error) => vec![format!("{name} cannot be looked at: {error}")],
        }
    };
    programs.into_iter().flat_map(of).collect()
}

/// Tests have files of which there can be no process.
fn is_no_program(error: &io::Error) -> bool {
    use nix::libc::{EACCES, ENOENT, ENOEXEC};
    let number = error.raw_os_error();
    number.is_some_and(|number| [EACCES, ENOENT, ENOEXEC].contains(&number))
}

/// Those of one process; none of one that has ended meanwhile.
fn found_in(pid: u32, process: &str) -> Vec<String> {
    let folder = Path::new("/proc").join(pid.to_string());
    let mut found = Vec::new();
    for mapping in changed_text(&folder) {
        let (range, path) = (mapping.range(), &mapping.path);
        match mapping.breakpoints(&folder) {
            Ok(places) => found.extend(
                places
                    .into_iter()
                    .map(|at| format!("in {process}: {path} {range}+{at:#x}")),
            ),
            Err(error) if changed_text(&folder).contains(&mapping) => found.push(format!(
                "in {process}: {path} {range} cannot be looked at: {error}"
            )),
            // Gone meanwhile, or all of the process.
            Err(_) => {}
        }
    }
    found
}

/// A mapping of a file's text with pages that are the process's own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    start: u64,
    end: u64,
    pub(crate) offset: u64,
    pub(crate) path: String,
}

/// Those of a process, by its folder of /proc.
fn changed_text(folder: &Path) -> Vec<Mapping> {
    // Names of files are no text of a certain kind.
    let smaps = fs::read(folder.join("smaps")).unwrap_or_default();
    parse(&String::from_utf8_lossy(&smaps))
}

/// Those that a text of smaps tells of.
pub(crate) fn parse(smaps: &str) -> Vec<Mapping> {
    let mut all = Vec::new();
    let mut last = None;
    for line in smaps.lines() {
        if let Some(mapping) = parse_begin(line) {
            last = mapping;
        } else if let Some(("Anonymous" | "Swap", size)) = line.split_once(':') {
            if size.trim() != "0 kB" {
                all.extend(last.take());
            }
        }
    }
    all
}

/// A line that begins a mapping; its inside is none unless it is text of a file.
fn parse_begin(line: &str) -> Option<Option<Mapping>> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let rights = words.next()?;
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let path = words.nth(2).unwrap_or_default();
    let is_text = rights.as_bytes().get(2) == Some(&b'x') && path.starts_with('/');
    Some(is_text.then(|| Mapping {
        start,
        end,
        offset,
        path: path.to_owned(),
    }))
}

impl Mapping {
    /// As `map_files` names it: without the zeroes in front that smaps has.
    pub(crate) fn range(&self) -> String {
        format!("{:x}-{:x}", self.start, self.end)
    }

    /// Offsets in the mapping.
    fn breakpoints(&self, folder: &Path) -> io::Result<Vec<u64>> {
        let memory = File::open(folder.join("mem"))?;
        let file = File::open(folder.join("map_files").join(self.range()))?;
        let mut found = Vec::new();
        for at in (0..self.end - self.start).step_by(PAGE) {
            let (mut mapped, mut filed) = ([0; WINDOW], [0; WINDOW]);
            // Less where the mapping ends, or the file; past its end there is no text.
            let filed_bytes = file.read_at(&mut filed, self.offset + at).unwrap_or(0);
            if filed_bytes == 0 {
                continue;
            }
            let mapped_bytes = memory.read_at(&mut mapped, self.start + at)?;
            let places = written(&mapped[..mapped_bytes], &filed[..filed_bytes]);
            found.extend(places.into_iter().map(|place| at + place as u64));
        }
        Ok(found)
    }
}

/// Where, in the first page of both, the mapped bytes are what an uprobe writes and those of
/// the file are not.
pub(crate) fn written(mapped: &[u8], filed: &[u8]) -> Vec<usize> {
    let length = mapped.len().min(filed.len());
    if mapped[..length] == filed[..length] {
        return Vec::new();
    }
    let is_new = |at: &usize| {
        let is_new =
            |what: &&[u8]| mapped[*at..].starts_with(what) && !filed[*at..].starts_with(what);
        WRITTEN.iter().any(is_new)
    };
    (0..length.min(PAGE)).filter(is_new).collect()
}
