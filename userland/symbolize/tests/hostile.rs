// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are no programs, or claim too much: an error that says so.

use crate::support::{open, Folder};
use nsprobe_symbolize::{Lookup, SymbolizeError};
use std::fs;
use std::fs::OpenOptions;
use std::io::Write;

#[test]
fn files_that_are_no_programs_are_told_apart() {
    let folder = Folder::new("apart");
    for (bytes, says) in [
        (&b""[..], "an empty file"),
        (b"#!/bin/sh\n", "a script"),
        ("Grüße\n".as_bytes(), "a text file"),
        (b"!<arch>\n", "an archive of object files"),
        (b"\x1f\x8b\x08", "a gzip file"),
        (b"\0\0\0\0", "some other data"),
    ] {
        let error = open(&folder.file("file", bytes)).unwrap_err();
        assert!(
            matches!(&error, SymbolizeError::NotElf { what, .. } if *what == says),
            "{error}"
        );
    }
}

/// A file header that is right but for what `change` does to it.
fn header(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut file = vec![0; 64];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16] = 3;
    file[18] = 62;
    change(&mut file);
    file
}

#[test]
fn other_machines_and_kinds_are_told() {
    let folder = Folder::new("machines");
    let fails = |bytes: &[u8]| open(&folder.file("file", bytes)).unwrap_err().to_string();
    assert!(open(&folder.file("file", &header(|_| ()))).is_ok());
    for (at, value, says) in [
        (18, 183, "64-bit Arm"),
        (18, 3, "32-bit x86"),
        (18, 200, "machine number 200"),
        (4, 1, "x32"),
        (5, 2, "byte order"),
        (16, 1, "an object file"),
        (16, 4, "a core dump"),
        (57, 255, "program headers"),
        (39, 255, "behind the end"),
        (47, 255, "another size"),
    ] {
        let message = fails(&header(|file| {
            file[at] = value;
            match at {
                39 => (file[54], file[56]) = (56, 1),
                // All of the header has the other byte order then.
                5 => file.swap(18, 19),
                _ => {}
            }
        }));
        assert!(message.contains(says), "{message}");
    }
    assert!(fails(&header(|_| ())[..20]).contains("cut short"));
}

#[test]
fn sizes_beyond_the_caps_are_refused_before_memory_is_taken() {
    let folder = Folder::new("caps");
    let path = folder.file("sparse", &header(|_| ()));
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(8 << 40).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(error, SymbolizeError::TooBig { .. }), "{error}");
    // A section of 3 GiB, which the (sparse) file really has.
    file.set_len(4 << 30).unwrap();
    drop(file);
    let mut start = header(|file| {
        file[40] = 64;
        (file[58], file[60]) = (64, 1);
    });
    let mut section = vec![0; 64];
    section[4] = 2;
    section[32..40].copy_from_slice(&(3u64 << 30).to_le_bytes());
    start.extend(section);
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all(&start).unwrap();
    let error = open(&path).unwrap_err();
    assert!(
        matches!(
            error,
            SymbolizeError::TooBig {
                what: "a section",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_compressed_section_that_declares_too_much_is_refused() {
    let folder = Folder::new("bomb");
    let Some(path) = folder.fixture("bomb", &["-g", "-gz=zlib"]) else {
        return;
    };
    let mut bytes = fs::read(&path).unwrap();
    let declared = (16u64 << 30).to_le_bytes();
    let sections = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let mut bombs = 0;
    for at in (sections..bytes.len() - 63).step_by(64) {
        if bytes[at + 9] & 8 != 0 {
            let data = u64::from_le_bytes(bytes[at + 24..at + 32].try_into().unwrap()) as usize;
            bytes[data + 8..data + 16].copy_from_slice(&declared);
            bombs += 1;
        }
    }
    assert!(bombs > 0);
    let binary = open(&folder.file("bomb", &bytes)).unwrap();
    let entry = binary.find_functions("plain")[0].file_offset;
    let found = binary.resolve(entry, Lookup::Instruction).unwrap();
    assert_eq!(found.frames[0].function, "plain");
    assert!(found.note.unwrap().contains("too big"));
}

#[test]
fn a_file_that_is_cut_short_is_an_error_at_every_length() {
    let folder = Folder::new("cut");
    let Some(path) = folder.fixture("whole", &["-g"]) else {
        return;
    };
    let bytes = fs::read(&path).unwrap();
    for length in (0..bytes.len()).step_by(97) {
        open(&folder.file("cut", &bytes[..length])).unwrap_err();
    }
}
