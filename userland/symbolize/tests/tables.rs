// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names by each table that a file may have: with symbols that say little, with versions, and
//! without section headers.

use crate::support::{open, Folder};
use nsprobe_symbolize::{Binary, FileOffset, Function, Lookup, NamesFrom};
use std::fs;
use std::path::{Path, PathBuf};

/// The library of the fixture.
fn library(folder: &Folder, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture/tables.map");
    let script = format!("-Wl,--version-script={}", map.display());
    let flags = [&["-O1", "-shared", "-fPIC", "-g0", script.as_str()], flags].concat();
    folder.built(name, "cc", &flags, "tables.c")
}

/// A copy without section headers, as sstrip and `llvm-strip --strip-sections` leave it.
fn without_headers(folder: &Folder, path: &Path) -> PathBuf {
    let mut bytes = fs::read(path).unwrap();
    let at = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    bytes.truncate(at);
    bytes[40..48].fill(0);
    bytes[58..64].fill(0);
    folder.file("without-headers", &bytes)
}

fn name_at(binary: &Binary, offset: u64) -> Option<String> {
    let found = binary.resolve(FileOffset(offset), Lookup::Instruction);
    Some(found.ok()?.frames[0].function.clone())
}

fn one<'a>(binary: &'a Binary, name: &str) -> &'a Function {
    let found = binary.find_functions(name);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found[0]
}

#[test]
fn symbols_without_type_or_size_name_the_code_that_is_theirs() {
    let folder = Folder::new("sizeless");
    let Some(path) = library(&folder, "library", &[]) else {
        return;
    };
    let binary = open(&path).unwrap();
    for (name, into, shown) in [
        ("no_type", 5, Some("no_type")),
        ("no_size", 5, Some("no_size")),
        ("hidden_after", 5, Some("hidden_after")),
        ("no_size_either", 5, Some("no_size_either")),
        // What follows has a description of its frame, and no name.
        ("no_size_either", 14, None),
        ("with_size", 1, Some("with_size")),
        // A label that no other frame begins at is in the middle of a function.
        ("marked", 2, Some("marked")),
        ("no_frame", 1, Some("no_frame")),
    ] {
        let start = one(&binary, name).file_offset.0;
        let found = name_at(&binary, start + into);
        assert_eq!(found.as_deref(), shown, "{name}+{into:#x}");
    }
    assert!(binary.find_functions("within").is_empty());
    assert!(binary.find_functions("marked.loop").is_empty());
    assert!(binary.find_functions("no_typ*").is_empty());
    assert_eq!(binary.find_functions("no_size*").len(), 2);
    // Only what is said to be a function is known to begin with an instruction.
    for (name, is_entry) in [("no_type", false), ("no_size", true)] {
        let offset = one(&binary, name).file_offset;
        assert_eq!(binary.is_function_entry(offset), is_entry, "{name}");
    }
}

#[test]
fn symbol_versions_tell_functions_of_one_name_apart() {
    let folder = Folder::new("versions");
    for flags in [&[][..], &["-s"]] {
        let Some(path) = library(&folder, "library", flags) else {
            return;
        };
        let binary = open(&path).unwrap();
        let versions = |name: &str| {
            let found = binary.find_functions(name).into_iter();
            let mut found: Vec<&str> = found.filter_map(|f| f.version.as_deref()).collect();
            found.sort_unstable();
            found.join(" ")
        };
        assert_eq!(versions("f"), "@@VER_3 @VER_1 @VER_2", "{flags:?}");
        for (name, version) in [
            ("f@VER_1", "@VER_1"),
            ("f@VER_3", "@@VER_3"),
            ("f@@VER_3", "@@VER_3"),
            ("f@@VER_1", ""),
            ("f@VER", ""),
            ("f@", ""),
        ] {
            assert_eq!(versions(name), version, "{name}");
        }
        let offset = |name: &str| one(&binary, name).file_offset;
        assert_ne!(offset("f@VER_1"), offset("f@VER_2"));
        assert_eq!(one(&binary, "api").version.as_deref(), Some("@@VER_3"));
    }
}

#[test]
fn names_of_other_languages_are_found_as_they_are_shown() {
    let folder = Folder::new("languages");
    let Some(path) = library(&folder, "library", &[]) else {
        return;
    };
    let binary = open(&path).unwrap();
    for (symbol, shown, written) in [
        (
            "__shapes_MOD_area",
            "shapes::area",
            &["shapes::area", "shapes::a*"][..],
        ),
        (
            "_ZN2ns5greetB5cxx11Ei",
            "ns::greet[abi:cxx11](int)",
            &[
                "ns::greet",
                "ns::greet(int)",
                "ns::greet( int )",
                "ns::greet[abi:cxx11]",
                "ns::greet[abi:cxx11](int)",
                "*::greet",
            ],
        ),
    ] {
        assert_eq!(one(&binary, symbol).demangled(), shown);
        for name in written {
            assert_eq!(one(&binary, name).name, symbol, "{name}");
        }
    }
    assert!(binary.find_functions("ns::greet[abi:other]").is_empty());
}

#[test]
fn a_file_without_section_headers_has_its_dynamic_symbols_and_frames() {
    let folder = Folder::new("no-headers");
    for style in ["gnu", "sysv", "both"] {
        let flags = ["-s", &format!("-Wl,--hash-style={style}")];
        let Some(path) = library(&folder, "library", &flags) else {
            return;
        };
        let bare = without_headers(&folder, &path);
        let (whole, binary) = (open(&path).unwrap(), open(&bare).unwrap());
        assert_eq!(binary.functions(), whole.functions(), "{style}");
        assert!(binary.functions().len() >= 4, "{style}");
        let api = one(&binary, "api");
        let named = binary.resolve(FileOffset(api.file_offset.0 + 1), Lookup::Instruction);
        let named = named.unwrap();
        assert_eq!(
            (named.frames[0].function.as_str(), &named.from),
            ("api", &NamesFrom::Program)
        );
        assert_eq!(binary.needed(), whole.needed());
        let frames = |binary: &Binary| binary.unwind_sections().unwrap().eh_frame;
        let (ours, theirs) = (frames(&binary), frames(&whole));
        assert_eq!(ours.address, theirs.address);
        assert!(!theirs.data.is_empty() && ours.data.starts_with(&theirs.data));
    }
    let flags = ["-Wl,--dynamic-linker=/lib/ld-other.so"];
    if let Some(path) = folder.built("program", "cc", &flags, "copies.c") {
        let program = open(&without_headers(&folder, &path)).unwrap();
        assert_eq!(program.interpreter(), Some("/lib/ld-other.so".into()));
    }
}

/// The tables of a file without section headers are bounded by its segments, whatever it says.
#[test]
fn a_dynamic_section_that_lies_is_survived() {
    let folder = Folder::new("lying-dynamic");
    for style in ["gnu", "sysv"] {
        let flags = ["-s", &format!("-Wl,--hash-style={style}")];
        let Some(path) = library(&folder, "library", &flags) else {
            return;
        };
        let bytes = fs::read(without_headers(&folder, &path)).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let headers = (0..usize::from(bytes[56])).map(|number| 64 + number * 56);
        let header = |kind: u32| {
            let mut headers = headers.clone();
            headers.find(|at| bytes[*at..*at + 4] == kind.to_le_bytes())
        };
        let (dynamic, index) = (header(2).unwrap(), header(0x6474_e550).unwrap());
        let (start, length) = (word(dynamic + 8) as usize, word(dynamic + 32) as usize);
        let values = (start + 8..start + length).step_by(16);
        let places = values.chain([dynamic + 16, dynamic + 32, index + 16, index + 32]);
        for at in places {
            for value in [0, 1, 0x1000, word(at) + 1, u64::MAX, 1 << 40] {
                let mut bytes = bytes.clone();
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                let lying = folder.file("lying", &bytes);
                let Ok(binary) = open(&lying) else { continue };
                assert!(binary.functions().len() < 100);
                name_at(&binary, 0x1010);
            }
        }
    }
}
