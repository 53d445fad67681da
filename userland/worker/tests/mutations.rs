// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real programs with damage at random places: each question is answered or refused, and
//! whatever becomes of children, we go on.
//!
//! `NSPROBE_MUTATION_SECONDS` says how long; `NSPROBE_MUTATION_SEED` repeats a run.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use nsprobe_symbolize::{FileOffset, Lookup};
use nsprobe_worker::{Death, Error, Object, Query, Worker};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{file, options, Folder};

const SECONDS: u64 = 10;
/// Deaths of each of these kinds for each thousand files, at most; of all other kinds none.
/// In 17,000 files there was none of any kind; a busy machine may take the time away.
const DEATHS_MAX: [(&str, u64); 3] = [("panic", 1), ("time", 1), ("abort", 1)];

const SOURCE: &str = "
#include <stdio.h>
static inline int twice(int n) { return n * 2 + (n > 3 ? puts(\"\") : 0); }
int add(int a, int b) { for (int i = 0; i < b; i++) a += twice(i); return a; }
int main(int argc, char **argv) { return add(argc, argv[0][0]); }
";

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Numbers that look like chance (Knuth's MMIX generator).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    /// Damages a file: bits, bytes or numbers, anywhere or where the headers are.
    fn damage(&mut self, bytes: &mut [u8]) {
        let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        for _ in 0..=self.below(8) {
            let at = match self.below(4) {
                0 => self.below(1024),
                1 => table + self.below(bytes.len() - table),
                _ => self.below(bytes.len()),
            };
            let Some(byte) = bytes.get_mut(at) else {
                continue;
            };
            match self.below(4) {
                0 => *byte ^= 1 << self.below(8),
                1 => *byte = self.0 as u8,
                2 => *byte = 0xff,
                _ => {
                    let end = (at + 1 + self.below(8)).min(bytes.len());
                    let value = [0, 0xff, 0x7f, 0x80][self.below(4)];
                    bytes[at..end].fill(value);
                }
            }
        }
    }
}

/// What became of the files.
#[derive(Debug, Default)]
struct Counts {
    files: u64,
    opened: u64,
    named: u64,
    /// Deaths of the parser, by their kind.
    deaths: BTreeMap<&'static str, u64>,
}

/// Of what a parser died. Memory that runs out and stacks that overflow end in `abort`, as
/// Rust's runtime has it.
fn kind(death: Death) -> &'static str {
    match death {
        Death::Panicked => "panic",
        Death::Hung(_) => "time",
        Death::Signal(libc::SIGABRT) => "abort",
        Death::Signal(libc::SIGSYS) => "forbidden system call",
        Death::Signal(libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE) => "bad access",
        Death::Nonsense => "nonsense",
        _ => "another",
    }
}

impl Counts {
    /// Asks all about a file; true when the parser died of it.
    fn ask(&mut self, worker: &Worker, path: &Path) -> bool {
        self.files += 1;
        let asked = Object::open(worker, file(path), path).and_then(|object| {
            self.opened += 1;
            let starts = object
                .segments()
                .iter()
                .map(|segment| segment.file_offset.0);
            let offsets = starts.flat_map(|at| (0..40).map(move |n| at.wrapping_add(n * 29)));
            let queries: Vec<Query> = offsets
                .map(|offset| Query {
                    offset: FileOffset(offset),
                    lookup: [Lookup::Instruction, Lookup::ReturnAddress][offset as usize % 2],
                })
                .collect();
            let answers = object.resolve_all(&queries)?;
            self.named += answers.iter().filter(|answer| answer.found.is_ok()).count() as u64;
            let object = Object::open_sections(worker, file(path), path)?;
            object.rows(None).map(|_| ())
        });
        match asked {
            Ok(()) | Err(Error::Refused(_)) => {}
            Err(Error::Fatal(death)) => {
                println!("file {}: the parser {death}", self.files);
                *self.deaths.entry(kind(death)).or_default() += 1;
                return true;
            }
            Err(error) => panic!("{error}"),
        }
        false
    }
}

#[test]
fn damaged_programs_are_answered_or_refused() {
    let folder = Folder::new("mutations");
    let seed = number("NSPROBE_MUTATION_SEED").unwrap_or(u64::from(std::process::id()));
    println!("NSPROBE_MUTATION_SEED={seed}");
    let mut chance = Chance(seed);
    let kinds: [&[&str]; 3] = [&["-g", "-O2"], &["-g", "-gz=zlib", "-O1"], &["-s"]];
    let programs = kinds
        .iter()
        .filter_map(|flags| folder.program("sound", SOURCE, flags));
    let mut sound: Vec<Vec<u8>> = programs.map(|path| fs::read(path).unwrap()).collect();
    sound.push(fs::read("/bin/true").unwrap());
    let until =
        Instant::now() + Duration::from_secs(number("NSPROBE_MUTATION_SECONDS").unwrap_or(SECONDS));
    let mut counts = Counts::default();
    let mut worker = Worker::start(options()).unwrap();
    let path = folder.0.join("damaged");
    while Instant::now() < until {
        let mut bytes = sound[chance.below(sound.len())].clone();
        chance.damage(&mut bytes);
        let _ = fs::remove_file(&path);
        fs::write(&path, &bytes).unwrap();
        if counts.ask(&worker, &path) {
            worker = Worker::start(options()).unwrap();
        }
    }
    println!("{counts:?}");
    // Most damage leaves something to open, and most of what is opened has names.
    assert!(counts.opened * 2 > counts.files, "{counts:?}");
    assert!(counts.named > counts.opened, "{counts:?}");
    for (kind, count) in &counts.deaths {
        let bound = DEATHS_MAX.iter().find(|(name, _)| name == kind);
        let most = bound.map_or(0, |(_, most)| most * counts.files.div_ceil(1000));
        assert!(
            *count <= most,
            "{kind}: {count} of at most {most}: {counts:?}"
        );
    }
}
