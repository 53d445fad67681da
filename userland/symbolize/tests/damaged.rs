// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug files with some bytes changed: they cost names, never a panic or the time of day.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use nsprobe_symbolize::{DebugSet, FoundIn, Lookup, OpenFile, OpenFiles};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{open, output_of, Folder};

/// How many damaged copies of each file are tried.
const COPIES: usize = 150;
/// Changed bytes of each.
const CHANGES: usize = 12;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn found(path: &Path) -> OpenFile {
    OpenFile {
        file: File::open(path).unwrap(),
        path: Arc::new(path.to_owned()),
        found_in: FoundIn::Host,
    }
}

/// Numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Names all functions of `program` with each damaged copy of `file` in the set.
fn survives(program: &Path, file: &Path, set: impl Fn(OpenFile) -> OpenFiles) {
    let bytes = fs::read(file).unwrap();
    let whole = open(program).unwrap();
    let copy = file.with_extension("damaged");
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for _ in 0..COPIES {
        let mut damaged = bytes.clone();
        for _ in 0..CHANGES {
            let at = numbers.below(damaged.len());
            damaged[at] = numbers.below(256) as u8;
        }
        fs::write(&copy, &damaged).unwrap();
        let set = DebugSet::new(set(found(&copy)));
        let begun = Instant::now();
        for function in whole.functions() {
            let _ = whole.resolve_with(&set, function.file_offset, Lookup::Instruction);
        }
        if let Ok(binary) = open(&copy) {
            let _ = (binary.split_units(), binary.supplementary());
            let _ = whole.check_debug_file(&binary);
        }
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            set.files()
        );
    }
}

#[test]
fn damaged_separate_files_cost_names_alone() {
    let folder = Folder::new("damaged-separate");
    let Some(whole) = folder.fixture("whole", &["-g"]) else {
        return;
    };
    let debug = folder.0.join("debug");
    output_of(
        "objcopy",
        &["--only-keep-debug", text(&whole), text(&debug)],
    );
    survives(&whole, &debug, |file| OpenFiles {
        separate: Some(file),
        ..OpenFiles::default()
    });
}

#[test]
fn damaged_shared_files_cost_names_alone() {
    let folder = Folder::new("damaged-dwz");
    let Some(whole) = folder.fixture("whole", &["-g"]) else {
        return;
    };
    let (other, shared) = (folder.0.join("other"), folder.0.join("shared"));
    fs::copy(&whole, &other).unwrap();
    let words = ["-m", text(&shared), text(&whole), text(&other)];
    if output_of("dwz", &words).is_none() {
        return;
    }
    survives(&whole, &shared, |file| OpenFiles {
        supplementary: Some(file),
        ..OpenFiles::default()
    });
}

#[test]
fn damaged_split_files_cost_names_alone() {
    let folder = Folder::new("damaged-split");
    let flags = ["-g", "-gdwarf-4", "-gsplit-dwarf"];
    let Some(program) = folder.fixture("program", &flags) else {
        return;
    };
    let units = open(&program).unwrap().split_units().unwrap();
    let file: PathBuf = units[0].folder.join(&units[0].name);
    survives(&program, &file, |file| OpenFiles {
        split: vec![(units[0].id, file)],
        ..OpenFiles::default()
    });
    let package = folder.0.join("package");
    if output_of("dwp", &["-o", text(&package), text(&file)]).is_some() {
        survives(&program, &package, |file| OpenFiles {
            packages: vec![file],
            ..OpenFiles::default()
        });
    }
}

#[test]
fn damaged_compressed_symbols_cost_names_alone() {
    let folder = Folder::new("damaged-debugdata");
    let Some(whole) = folder.fixture("whole", &["-g"]) else {
        return;
    };
    let mini = folder.0.join("mini");
    let words = ["-S", "--keep-symbol", "plain", text(&whole), text(&mini)];
    output_of("objcopy", &words);
    if output_of("xz", &[text(&mini)]).is_none() {
        return;
    }
    let packed = fs::read(folder.0.join("mini.xz")).unwrap();
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    for _ in 0..COPIES / 5 {
        let mut damaged = packed.clone();
        for _ in 0..CHANGES / 3 {
            let at = numbers.below(damaged.len());
            damaged[at] = numbers.below(256) as u8;
        }
        let section = folder.file("section", &damaged);
        let program = folder.0.join("program");
        let add = format!(".gnu_debugdata={}", text(&section));
        output_of(
            "objcopy",
            &[
                "--strip-all",
                "--add-section",
                &add,
                text(&whole),
                text(&program),
            ],
        );
        let binary = open(&program).unwrap();
        let plain = open(&whole).unwrap().find_functions("plain")[0].file_offset;
        let _ = binary.resolve(plain, Lookup::Instruction);
    }
}
