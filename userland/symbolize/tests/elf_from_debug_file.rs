// SPDX-License-Identifier: MIT OR Apache-2.0
//! Offsets in a program that is not there are named by its debug file alone, like those in the
//! program itself; where that is not certain, they are not.

use crate::support::frames::{found, run, text};
use crate::support::{open, Folder};
use nsprobe_symbolize::{DebugSet, Lookup, NamesFrom, OpenFiles};
use std::fs;
use std::path::{Path, PathBuf};

fn debug_file(folder: &Folder, whole: &Path) -> PathBuf {
    let debug = folder.0.join("debug");
    run("objcopy", &["--only-keep-debug", text(whole), text(&debug)]);
    debug
}

#[test]
fn a_debug_file_alone_names_what_its_program_does() {
    for flags in [
        &[][..],
        &["-Wl,-z,noseparate-code"],
        &["-no-pie"],
        &["-pie", "-Wl,-Ttext-segment=0x3e00000000"],
        &["-static-pie", "-Wl,-z,max-page-size=0x200000"],
        &["-shared", "-fPIC"],
        &["-fuse-ld=gold"],
    ] {
        let folder = Folder::new("stand-in");
        let Some(whole) = folder.fixture("whole", &[&["-g"], flags].concat()) else {
            return;
        };
        let debug = debug_file(&folder, &whole);
        let (program, alone) = (open(&whole).unwrap(), open(&debug).unwrap());
        let binary = alone.elf_from_debug_file().unwrap();
        let set = DebugSet::new(OpenFiles {
            separate: Some(found(&debug)),
            ..OpenFiles::default()
        });
        let mut named = 0;
        for function in program.functions() {
            let Ok(wanted) = program.resolve(function.file_offset, Lookup::Instruction) else {
                continue;
            };
            let got = binary.resolve_with(&set, function.file_offset, Lookup::Instruction);
            let got = got.unwrap_or_else(|why| panic!("{flags:?} {function:?}: {why}"));
            assert_eq!(got.frames, wanted.frames, "{flags:?} {function:?}");
            assert!(matches!(got.from, NamesFrom::File(..)), "{got:?}");
            named += 1;
        }
        assert!(named > 5, "{flags:?}: {named}");
    }
}

/// What other tools have moved about is not where linkers put it.
#[test]
fn headers_that_tell_of_no_order_are_refused() {
    let folder = Folder::new("stand-in-refused");
    let Some(whole) = folder.fixture("whole", &["-g"]) else {
        return;
    };
    let bytes = fs::read(debug_file(&folder, &whole)).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let headers = word(32) as usize;
    let loads = (headers..).step_by(56);
    let loads: Vec<usize> = loads.filter(|at| bytes[*at] == 1).take(2).collect();
    // Of the first segment's header: flags, offset; of the second's: address, alignment.
    for (at, value) in [
        (loads[0] + 4, 6),
        (loads[0] + 8, 0x1000),
        (loads[1] + 16, 0x40),
        (loads[1] + 48, 3),
    ] {
        let mut changed = bytes.clone();
        changed[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
        let alone = open(&folder.file("changed", &changed)).unwrap();
        let why = alone.elf_from_debug_file().unwrap_err();
        assert!(why.starts_with("its headers"), "{why}");
    }
    // A file without code has none.
    let object = open(&folder.file("empty", &header())).unwrap();
    assert_eq!(
        object.elf_from_debug_file().unwrap_err(),
        "its headers tell of no code"
    );
}

/// The header of a file with nothing else.
fn header() -> Vec<u8> {
    let mut file = vec![0; 64];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    (file[16], file[18], file[54]) = (3, 62, 56);
    file
}
