// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names against the host's own tools, and damage against everything.

use super::*;
use crate::{Error, FunctionKind};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

/// A folder that goes when the test does.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("nsprobe-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const PROGRAM: &str = r#"
#include <cstdio>
namespace shop { struct Basket { int add(int price, const char *name); }; }
static inline __attribute__((always_inline)) int twice(int x) { std::puts("t"); return 2 * x; }
__attribute__((noinline)) int shop::Basket::add(int price, const char *name) {
    std::puts(name);
    return twice(price) + 1;
}
extern "C" __attribute__((noinline)) int plain(int x) { return twice(x) + 3; }
int main(int argc, char **argv) { shop::Basket b; return b.add(argc, argv[0]) + plain(argc); }
"#;

/// The program above, compiled; `None` (with a word) when there is no compiler.
fn compile(folder: &Folder, flags: &[&str]) -> Option<PathBuf> {
    let source = folder.file("shop.cc", PROGRAM.as_bytes());
    let program = folder.0.join("shop");
    let built = Command::new("c++")
        .args(["-O1", "-g", "-o"])
        .arg(&program)
        .arg(&source)
        .args(flags)
        .status();
    match built {
        Ok(status) if status.success() => Some(program),
        other => {
            println!("skipped: no C++ compiler ({other:?})");
            None
        }
    }
}

fn open(path: &Path) -> Result<Binary> {
    Binary::open(File::open(path).unwrap(), path)
}

#[test]
fn functions_are_found_by_each_of_their_names() {
    let folder = Folder::new("names");
    let Some(path) = compile(&folder, &[]) else {
        return;
    };
    let binary = open(&path).unwrap();
    let mangled = "_ZN4shop6Basket3addEiPKc";
    for name in [
        mangled,
        "shop::Basket::add",
        "shop::Basket::add(int, char const*)",
        "shop::*::a?d",
    ] {
        let found = binary.find_functions(name);
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(found[0].name, mangled);
        assert_eq!(found[0].kind, FunctionKind::Function);
        assert!(binary.is_function_entry(found[0].file_offset));
    }
    assert!(binary.find_functions("shop::Basket").is_empty());
    assert!(binary
        .nearest("shop::Basket::ad", 3)
        .contains(&"shop::Basket::add".to_owned()));
    assert_eq!(binary.nearest("plian", 1), ["plain"]);
}

#[test]
fn frames_are_those_of_addr2line() {
    let folder = Folder::new("frames");
    let Some(path) = compile(&folder, &[]) else {
        return;
    };
    if Command::new("addr2line").arg("--version").output().is_err() {
        println!("skipped: no addr2line");
        return;
    }
    let binary = open(&path).unwrap();
    let mut inlined = 0;
    for name in ["plain", "shop::Basket::add", "main"] {
        let function = binary.find_functions(name)[0].clone();
        for step in 0..function.size {
            let address = format!("{:#x}", function.address.0 + step);
            let output = Command::new("addr2line")
                .args(["-i", "-f", "-C", "-e"])
                .arg(&path)
                .arg(&address)
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let lines: Vec<_> = text.lines().collect();
            let offset = FileOffset(function.file_offset.0 + step);
            let resolution = binary.resolve(offset, Lookup::Instruction).unwrap();
            assert_eq!(resolution.source, Source::Dwarf);
            assert_eq!(
                resolution.frames.len() * 2,
                lines.len(),
                "{address}\n{text}"
            );
            for (frame, expected) in resolution.frames.iter().zip(lines.chunks(2)) {
                // For the innermost frame addr2line gives the symbol's name, which is
                // that of the function it was inlined into.
                let name = if frame.inlined { "twice" } else { expected[0] };
                assert_eq!(frame.function, name, "{address}");
                let place = expected[1].split(' ').next().unwrap();
                let line = place.rsplit(':').next().unwrap();
                assert_eq!(frame.line.map_or("?".to_owned(), |l| l.to_string()), line);
            }
            inlined += usize::from(resolution.frames.len() > 1);
        }
    }
    assert!(inlined > 0);
}

#[test]
fn return_addresses_belong_to_their_calls() {
    let folder = Folder::new("returns");
    let Some(path) = compile(&folder, &[]) else {
        return;
    };
    let binary = open(&path).unwrap();
    let main = binary.find_functions("main")[0];
    let after_calls = (1..=main.size)
        .map(|step| FileOffset(main.file_offset.0 + step))
        .filter(|&offset| binary.is_after_call(offset) == Some(true))
        .count();
    assert!((2..=6).contains(&after_calls), "{after_calls}");
    // The byte behind the function belongs to it as a return address only.
    let end = FileOffset(main.file_offset.0 + main.size);
    let frame = binary.resolve(end, Lookup::ReturnAddress).unwrap();
    assert_eq!(frame.frames.last().unwrap().function, "main");
    assert_eq!(
        frame.frames.last().unwrap().function_offset,
        Some(main.size)
    );
}

#[test]
fn without_debug_info_symbols_answer_and_without_symbols_a_reason() {
    let folder = Folder::new("stripped");
    let Some(path) = compile(&folder, &["-g0"]) else {
        return;
    };
    let binary = open(&path).unwrap();
    let plain = binary.find_functions("plain")[0].clone();
    let at = FileOffset(plain.file_offset.0 + 1);
    let resolution = binary.resolve(at, Lookup::Instruction).unwrap();
    assert_eq!(resolution.source, Source::Symbols);
    assert_eq!(resolution.frames[0].function, "plain");
    assert_eq!(resolution.frames[0].function_offset, Some(1));
    assert_eq!(binary.code_at(FileOffset(0)), Place::Data);
    assert_eq!(binary.code_at(FileOffset(1 << 40)), Place::OutsideFile);
    assert!(matches!(binary.code_at(at), Place::Function(f) if f.name == "plain"));

    let stripped = folder.0.join("stripped");
    let strip = Command::new("strip")
        .arg("-o")
        .arg(&stripped)
        .arg(&path)
        .status();
    if strip.is_ok_and(|status| status.success()) {
        let binary = open(&stripped).unwrap();
        assert!(binary.find_functions("plain").is_empty());
        let unnamed = binary.resolve(at, Lookup::Instruction).unwrap_err();
        assert_eq!(unnamed, Unresolved::NoSymbols);
    }
}

#[test]
fn calls_into_libraries_are_named_by_the_linkage_table() {
    let folder = Folder::new("plt");
    let Some(path) = compile(&folder, &["-g0", "-Wl,-z,lazy"]) else {
        return;
    };
    let binary = open(&path).unwrap();
    let names: Vec<_> = (0..binary.image.bytes())
        .step_by(16)
        .filter_map(|at| binary.resolve(FileOffset(at), Lookup::Instruction).ok())
        .filter(|resolution| resolution.source == Source::Plt)
        .map(|resolution| resolution.frames[0].function.clone())
        .collect();
    assert!(names.contains(&"puts@plt".to_owned()), "{names:?}");
}

#[test]
fn what_is_no_program_is_told_what_it_is() {
    let folder = Folder::new("refused");
    for (content, expected) in [
        (&b""[..], "empty"),
        (b"#!/bin/sh\n", "a script"),
        (b"just words\n", "a text file"),
        (b"\x00\x01\x02", "something else"),
    ] {
        let path = folder.file("file", content);
        let error = open(&path).unwrap_err();
        assert!(
            matches!(error, Error::NotElf { what, .. } if what == expected),
            "{error}"
        );
    }
    let path = folder.file("file", b"\x7fELF\x02\x01\x01");
    assert!(matches!(open(&path).unwrap_err(), Error::Malformed { .. }));
}

#[test]
fn no_damage_makes_it_panic() {
    let folder = Folder::new("damage");
    let Some(path) = compile(&folder, &["-gz"]) else {
        return;
    };
    let whole = fs::read(&path).unwrap();
    let damaged = folder.0.join("damaged");
    fs::write(&damaged, &whole).unwrap();
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&damaged)
        .unwrap();
    // A fixed sequence: a failure repeats.
    let mut state = 1u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 33
    };
    for _ in 0..400 {
        // Half of the damage goes to the headers, where it matters most.
        let range = if next() % 2 == 0 {
            0x400
        } else {
            whole.len() as u64
        };
        let at = next() % range;
        let bytes = next().to_le_bytes();
        file.write_all_at(&bytes[..4], at).unwrap();
        if let Ok(binary) = open(&damaged) {
            for offset in (0..whole.len() as u64).step_by(509) {
                let _ = binary.resolve(FileOffset(offset), Lookup::ReturnAddress);
                let _ = binary.is_after_call(FileOffset(offset));
            }
        }
        let end = (at as usize + 4).min(whole.len());
        file.write_all_at(&whole[at as usize..end], at).unwrap();
        file.set_len(whole.len() as u64).unwrap();
    }
}

#[test]
fn globs_fit_as_a_shell_has_it() {
    for (glob, name, fits) in [
        ("*", "", true),
        ("a*c", "abc", true),
        ("a*c", "abcd", false),
        ("a?c", "ac", false),
        ("*b*b*", "abab", true),
        ("**x", "yx", true),
    ] {
        assert_eq!(glob_fits(glob, name), fits, "{glob} {name}");
    }
}
