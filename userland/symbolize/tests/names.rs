// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of real files, against what binutils says of them.

use crate::support::{addr2line, open, output_of, Folder};
use nsprobe_symbolize::{AtOffset, Binary, FileOffset, FrameSource, Lookup, Unresolved};
use std::path::{Path, PathBuf};

/// Whether the machine's libc is where Debian has it.
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

fn function(binary: &Binary, name: &str) -> (FileOffset, u64) {
    let found = binary.find_functions(name);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    (found[0].file_offset, found[0].size)
}

/// Every offset of the function at which an instruction may end or begin.
fn offsets((start, size): (FileOffset, u64)) -> impl Iterator<Item = FileOffset> {
    (0..size).map(move |into| FileOffset(start.0 + into))
}

/// Innermost first: function and `file:line` (`?` where unknown).
fn ours(binary: &Binary, offset: FileOffset) -> Vec<(String, String)> {
    let found = binary.resolve(offset, Lookup::Instruction).unwrap();
    assert_eq!(found.source, FrameSource::Dwarf);
    let text = |frame: &nsprobe_symbolize::SourceFrame| {
        let file = Path::new(frame.file.as_deref().unwrap_or("?"));
        let line = frame.line.map_or("?".to_owned(), |line| line.to_string());
        let file = file.file_name().unwrap().to_string_lossy();
        (frame.function.clone(), format!("{file}:{line}"))
    };
    found.frames.iter().map(text).collect()
}

fn agrees_with_binutils(name: &str, flags: &[&str]) {
    let folder = Folder::new(name);
    let Some(path) = folder.fixture(name, flags) else {
        return;
    };
    let binary = open(&path).unwrap();
    assert!(binary.has_debug_info());
    let mut with_inlined = 0;
    for name in ["shop::Basket::add", "shop::Basket::remove", "plain", "main"] {
        let offsets: Vec<FileOffset> = offsets(function(&binary, name)).collect();
        let segment = *binary.segment_of(offsets[0]).unwrap();
        let address = |offset: &FileOffset| segment.address_of(*offset).unwrap().0;
        let addresses: Vec<u64> = offsets.iter().map(address).collect();
        let Some(theirs) = addr2line(&path, &addresses) else {
            return;
        };
        for (offset, address) in offsets.iter().zip(addresses) {
            let ours = ours(&binary, *offset);
            let mut theirs = theirs[&address].clone();
            if ours.len() > 1 {
                // binutils calls the innermost frame by the symbol of the code,
                // even where DWARF says that it was inlined.
                theirs[0].0 = ours[0].0.clone();
            }
            assert_eq!(ours, theirs, "{name} at {address:#x}");
            with_inlined += usize::from(ours.len() == 3);
        }
    }
    assert!(with_inlined > 0, "nothing was inlined twice");
}

#[test]
fn inlined_frames_are_those_of_binutils() {
    agrees_with_binutils("dwarf5", &["-g", "-gdwarf-5"]);
    agrees_with_binutils("dwarf4", &["-g", "-gdwarf-4"]);
    agrees_with_binutils("no-pie", &["-g", "-no-pie"]);
    agrees_with_binutils("compressed", &["-g", "-gz=zlib"]);
}

#[test]
fn return_addresses_are_after_calls_and_inside_their_caller() {
    let folder = Folder::new("returns");
    let Some(path) = folder.fixture("returns", &["-g"]) else {
        return;
    };
    let binary = open(&path).unwrap();
    let Some(code) = output_of(
        "objdump",
        &["-d", "--no-show-raw-insn", path.to_str().unwrap()],
    ) else {
        return;
    };
    let instructions: Vec<(u64, &str)> = code
        .lines()
        .filter_map(|line| line.split_once(":\t"))
        .filter_map(|(at, text)| Some((u64::from_str_radix(at.trim(), 16).ok()?, text)))
        .collect();
    let mut calls = 0;
    for pair in instructions.windows(2) {
        let (address, text) = pair[0];
        let next = pair[1].0;
        if !text.starts_with("call") || next - address > 7 {
            continue;
        }
        // The fixture's text lies where its addresses say.
        let offset = FileOffset(next);
        assert_eq!(
            binary.is_after_call(offset),
            Some(true),
            "{address:#x} {text}"
        );
        calls += 1;
    }
    assert!(calls > 5, "{calls}");
    let (start, size) = function(&binary, "plain");
    assert_eq!(binary.is_after_call(start), Some(false));
    let behind = FileOffset(start.0 + size);
    let last = binary.resolve(behind, Lookup::ReturnAddress).unwrap();
    assert_eq!(last.frames.last().unwrap().function, "plain");
    assert_eq!(last.frames.last().unwrap().function_offset, Some(size));
}

#[test]
fn functions_are_found_by_every_kind_of_name() {
    let folder = Folder::new("kinds");
    let Some(path) = folder.fixture("kinds", &[]) else {
        return;
    };
    let binary = open(&path).unwrap();
    let raw = "_ZN4shop6Basket3addEiPKc";
    let names = [
        raw,
        "shop::Basket::add",
        "shop::Basket::add(int, char const*)",
        "shop::Basket::a*",
        "*Basket::add",
        "_ZN4shop6Basket3add*",
    ];
    for name in names {
        let found = binary.find_functions(name);
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(found[0].name, raw);
        assert_eq!(found[0].demangled(), "shop::Basket::add(int, char const*)");
        assert!(binary.is_function_entry(found[0].file_offset));
        let inside = FileOffset(found[0].file_offset.0 + 1);
        assert!(!binary.is_function_entry(inside));
        assert_eq!(binary.code_at(inside), AtOffset::Function(found[0]));
    }
    assert_eq!(binary.find_functions("shop::*").len(), 2);
    assert!(binary.find_functions("in_data").is_empty());
    assert!(binary.find_functions("puts").is_empty());
    assert_eq!(binary.nearest("shop::Basket::ad", 1), ["shop::Basket::add"]);
    assert_eq!(binary.nearest("plian", 3)[0], "plain");
    assert!(binary.build_id().is_some_and(|id| id.len() == 20));
    let by_symbol = binary
        .resolve(function(&binary, raw).0, Lookup::Instruction)
        .unwrap();
    assert_eq!(
        (by_symbol.source, by_symbol.note),
        (FrameSource::Symbols, None)
    );
}

#[test]
fn stubs_of_the_linkage_table_are_named() {
    for flag in ["-fcf-protection=full", "-fcf-protection=none"] {
        let folder = Folder::new("stubs");
        // -z lazy: with stubs, also where the compiler's default is none.
        let Some(path) = folder.fixture("stubs", &["-fplt", flag, "-Wl,-z,lazy"]) else {
            return;
        };
        let binary = open(&path).unwrap();
        let file_bytes = std::fs::metadata(&path).unwrap().len();
        let named: Vec<String> = (0..file_bytes)
            .step_by(16)
            .filter_map(|at| binary.resolve(FileOffset(at), Lookup::Instruction).ok())
            .filter(|found| found.source == FrameSource::Plt)
            .map(|found| found.frames[0].function.clone())
            .collect();
        for name in ["puts@plt", "rand@plt"] {
            assert!(named.iter().any(|stub| stub == name), "{flag}: {named:?}");
        }
    }
}

#[test]
fn slots_of_a_static_program_have_the_names_of_indirect_functions() {
    let folder = Folder::new("static-slots");
    let Some(path) = folder.fixture("stubs", &["-static", "-no-pie"]) else {
        return;
    };
    let binary = open(&path).unwrap();
    let slots = (0x40_0000..0x60_0000).step_by(8);
    let names: Vec<&str> = slots.flat_map(|slot| binary.linked_names(slot)).collect();
    assert!(names.contains(&"strlen"), "{names:?}");
}

#[test]
fn the_directories_of_libraries_are_those_of_the_file() {
    let folder = Folder::new("directories");
    let paths = "-Wl,-rpath,$ORIGIN/lib:/opt/lib::${ORIGIN}/../up";
    for tags in ["-Wl,--enable-new-dtags", "-Wl,--disable-new-dtags"] {
        let Some(path) = folder.fixture("stubs", &[paths, tags]) else {
            return;
        };
        let found = open(&path)
            .unwrap()
            .library_directories(Path::new("/srv/app"));
        let wanted = ["/srv/app/lib", "/opt/lib", "/srv/app/../up"];
        assert_eq!(found, wanted.map(PathBuf::from), "{tags}");
    }
}

#[test]
fn what_is_not_code_is_told() {
    let folder = Folder::new("places");
    let Some(path) = folder.fixture("places", &["-g", "-s"]) else {
        return;
    };
    let binary = open(&path).unwrap();
    assert!(!binary.has_symbols() && !binary.has_debug_info());
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert_eq!(binary.code_at(FileOffset(bytes)), AtOffset::OutsideFile);
    assert_eq!(binary.code_at(FileOffset(u64::MAX)), AtOffset::OutsideFile);
    assert_eq!(binary.code_at(FileOffset(bytes - 1)), AtOffset::NotLoaded);
    assert_eq!(binary.code_at(FileOffset(0)), AtOffset::Data);
    let reason = |at| {
        binary
            .resolve(FileOffset(at), Lookup::Instruction)
            .unwrap_err()
    };
    assert_eq!(
        reason(bytes - 1),
        Unresolved::NotLoaded(FileOffset(bytes - 1))
    );
    assert_eq!(reason(0), Unresolved::NotExecutable(FileOffset(0)));
    let code = (0..bytes)
        .find(|at| binary.code_at(FileOffset(*at)) == AtOffset::Code)
        .unwrap();
    assert_eq!(reason(code), Unresolved::NoSymbols);
    assert_eq!(binary.is_after_call(FileOffset(0)), None);
    assert!(binary
        .resolve(FileOffset(0), Lookup::ReturnAddress)
        .is_err());
}

#[test]
fn the_machines_libc_is_as_nm_says() {
    if !nsprobe_testing::file(Path::new(LIBC)) {
        return;
    }
    let libc = open(Path::new(LIBC)).unwrap();
    assert!(libc.functions().len() > 1000);
    for name in ["malloc", "free", "read", "pthread_create"] {
        assert!(!libc.find_functions(name).is_empty(), "{name}");
    }
    assert!(libc
        .functions()
        .windows(2)
        .all(|pair| pair[0].address <= pair[1].address));
    let Some(text) = output_of("nm", &["-D", "--defined-only", LIBC]) else {
        return;
    };
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[address, "T" | "W" | "i", name] = fields.as_slice() else {
            continue;
        };
        let (name, address) = (
            name.split('@').next().unwrap(),
            u64::from_str_radix(address, 16).unwrap(),
        );
        let found = libc.find_functions(name);
        assert!(found.iter().any(|f| f.address.0 == address), "{line}");
    }
}
