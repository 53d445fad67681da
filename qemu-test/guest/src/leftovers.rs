// SPDX-License-Identifier: MIT OR Apache-2.0
//! Breakpoints that are left in the text of processes: what an uprobe leaves there when it is
//! taken out wrongly, and what would end the process with SIGTRAP.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

const BREAKPOINT: u8 = 0xcc;
const PAGE: usize = 4096;

/// Where a process's text has a breakpoint that its file has not, in words.
pub(crate) fn breakpoints() -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.flat_map(breakpoints_of).collect()
}

/// Those of one process; none of one that has ended meanwhile.
fn breakpoints_of(pid: u32) -> Vec<String> {
    let folder = Path::new("/proc").join(pid.to_string());
    let Ok(maps) = fs::read_to_string(folder.join("smaps")) else {
        return Vec::new();
    };
    let Ok(memory) = File::open(folder.join("mem")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for mapping in changed_text(&maps) {
        let file = folder.join("map_files").join(&mapping.range);
        let Ok(file) = File::open(file) else {
            continue;
        };
        for at in mapping.breakpoints(&memory, &file) {
            let Mapping { range, path, .. } = &mapping;
            found.push(format!(
                "a breakpoint in process {pid}: {path} {range}+{at:#x}"
            ));
        }
    }
    found
}

/// A mapping of a file's text with pages that are the process's own.
struct Mapping {
    /// `START-END`, as `map_files` names it.
    range: String,
    start: u64,
    length: u64,
    offset: u64,
    path: String,
}

fn changed_text(smaps: &str) -> Vec<Mapping> {
    let mut all = Vec::new();
    let mut last = None;
    for line in smaps.lines() {
        if let Some(mapping) = parse(line) {
            last = mapping;
        } else if let Some(size) = line.strip_prefix("Anonymous:") {
            if size.trim() != "0 kB" {
                all.extend(last.take());
            }
        }
    }
    all
}

/// A line that begins a mapping; its inside is none unless it is text of a file.
fn parse(line: &str) -> Option<Option<Mapping>> {
    let mut words = line.split_whitespace();
    let range = words.next()?;
    let (start, end) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let rights = words.next()?;
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let path = words.nth(2).unwrap_or_default();
    let is_text = rights.starts_with("r-x") && path.starts_with('/');
    Some(is_text.then(|| Mapping {
        range: range.to_owned(),
        start,
        length: end - start,
        offset,
        path: path.to_owned(),
    }))
}

impl Mapping {
    /// Offsets in the mapping.
    fn breakpoints(&self, memory: &File, file: &File) -> Vec<u64> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.length {
            let (mut mapped, mut filed) = ([0; PAGE], [0; PAGE]);
            let is_read = memory.read_exact_at(&mut mapped, self.start + at).is_ok();
            let there = file.read_at(&mut filed, self.offset + at).unwrap_or(0);
            let pairs = mapped
                .iter()
                .zip(&filed)
                .take(if is_read { there } else { 0 });
            let is_new =
                |(mapped, filed): (&u8, &u8)| *mapped == BREAKPOINT && *filed != BREAKPOINT;
            let places = pairs.enumerate().filter(|(_, pair)| is_new(*pair));
            found.extend(places.map(|(place, _)| at + place as u64));
            at += PAGE as u64;
        }
        found
    }
}
