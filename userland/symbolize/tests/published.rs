// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inputs that others have published, which crashed or exhausted the libraries that are used
//! here, or their like: they cost a name.

use crate::support::frames::{run, text};
use crate::support::{open, output_of, Folder};
use nsprobe_symbolize::demangle::{demangle, demangle_without_parameters, READABLE_BYTES_MAX};
use nsprobe_symbolize::Lookup;
use std::fs;

/// Mangled names, each with where it was published; more are in `src/demangle.rs`.
const NAMES: &[(&str, &str)] = &[
    ("rust-lang/rustc-demangle#9", "_ZN2222222222222222222222EE"),
    (
        "gimli-rs/cpp_demangle#185",
        "_ZNSt3__116forward_as_tupleIJRKZN11tconcurrent6detail6sharedIFvvEEC1IZNS1_7yielder13\
         await_suspendINS1_12task_promiseIvEEEEvNSt12experimental13coroutines_v116coroutine_handle\
         IT_EEEUlvE_EEbNS_10shared_ptrINS1_17cancelation_tokenEEEOSE_PvEUlRSI_DpOT_E_EEENS_5tuple\
         IJSP_EEESP_",
    ),
    ("radareorg/radare2#26758", "_ZmmDwv"),
];

/// The families of gimli-rs/cpp_demangle#215, and others that nest: a beginning, what is
/// repeated, an end.
const FAMILIES: &[(&str, &str, &str)] = &[
    (
        "_ZAn",
        "w4Lf9Knwnw4_f9_4_f9q1R4Lf9Knwnw4_f9_4_f9_1RT_4__9K",
        "",
    ),
    ("_ZAn", "ananatt", "agttananagtti"),
    ("_ZtE", "o", ""),
    ("_Z1f", "P", "i"),
    ("_Z1f", "IS_", ""),
    ("_Z1fIJ", "S_S0_S1_", "EEvv"),
    ("_ZN", "1aI", "E1bE"),
    ("_RINv", "C1aINvC1b", "E"),
    ("_RYYY", "NtB2_", "E"),
];

#[test]
fn published_names_cost_neither_time_nor_memory() {
    for (from, name) in NAMES {
        check(from, name);
    }
    for (start, part, end) in FAMILIES {
        for count in [1, 10, 90, 400, 4000] {
            check(start, &format!("{start}{}{end}", part.repeat(count)));
        }
    }
}

fn check(from: &str, name: &str) {
    for readable in [demangle(name), demangle_without_parameters(name)] {
        assert!(
            readable == name || readable.len() <= READABLE_BYTES_MAX,
            "{from}"
        );
    }
}

/// gimli-rs/object#950: 64 bytes are declared, and 200 MB come of a few thousand.
#[test]
fn a_stream_that_holds_more_than_was_declared_is_refused() {
    let folder = Folder::new("published-zstd");
    let Some(program) = folder.fixture("program", &["-g"]) else {
        return;
    };
    let zeros = folder.0.join("zeros");
    fs::File::create(&zeros)
        .unwrap()
        .set_len(200 << 20)
        .unwrap();
    if output_of("zstd", &["-q", text(&zeros)]).is_none() {
        return;
    }
    let mut bomb = vec![0; 24];
    (bomb[0], bomb[8], bomb[16]) = (2, 64, 1);
    bomb.extend(fs::read(folder.0.join("zeros.zst")).unwrap());
    assert!(bomb.len() < 1 << 20);
    let section = folder.file("section", &bomb);
    let update = format!(".debug_info={}", text(&section));
    let damaged = folder.0.join("damaged");
    let words = ["--update-section", &update, text(&program), text(&damaged)];
    run("objcopy", &words);
    mark_compressed(&damaged);
    let binary = open(&damaged).unwrap();
    let plain = binary.find_functions("plain")[0].file_offset;
    let named = binary.resolve(plain, Lookup::Instruction).unwrap();
    assert_eq!(named.frames[0].function, "plain");
    assert!(named.note.is_some(), "{named:?}");
}

/// Gives `.debug_info` the flag of compressed sections, which objcopy does not.
fn mark_compressed(path: &std::path::Path) {
    use object::{Object, ObjectSection};
    let mut bytes = fs::read(path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let elf = object::File::parse(&*bytes).unwrap();
    let index = elf.section_by_name(".debug_info").unwrap().index().0;
    let flags = word(40) as usize + 64 * index + 8;
    bytes[flags + 1] |= 8;
    fs::write(path, bytes).unwrap();
}

/// gimli-rs/gimli#778 and gimli-rs/addr2line#326: lines whose addresses go down, or over the
/// end of all addresses.
#[test]
fn lines_that_go_backwards_cost_lines_alone() {
    let source = "
        .text
        .globl _start, behind
        .type _start, @function
        .type behind, @function
        _start: nop
        nop
        .size _start, . - _start
        behind: ret
        .size behind, . - behind
    ";
    let folder = Folder::new("published-lines");
    let file = folder.file("lines.s", source.as_bytes());
    let program = folder.0.join("program");
    let words = [
        "-g",
        "-nostdlib",
        "-static",
        "-o",
        text(&program),
        text(&file),
    ];
    if !nsprobe_testing::success(nsprobe_testing::compiler("cc").args(words)) {
        return;
    }
    let bytes = fs::read(&program).unwrap();
    let first = open(&program).unwrap().find_functions("_start")[0].clone();
    let behind = open(&program).unwrap().find_functions("behind")[0].clone();
    // DW_LNE_set_address, in its extended form.
    let set: Vec<u8> = [&[0, 9, 2][..], &first.address.0.to_le_bytes()].concat();
    let at = bytes.windows(set.len()).position(|window| window == set);
    let at = at.expect("the line program sets the address") + 3;
    for address in [u64::MAX - 1, first.address.0 + 0x1000, 0] {
        let mut changed = bytes.clone();
        changed[at..at + 8].copy_from_slice(&address.to_le_bytes());
        let binary = open(&folder.file("changed", &changed)).unwrap();
        for function in [&first, &behind] {
            let named = binary.resolve(function.file_offset, Lookup::Instruction);
            assert_eq!(named.unwrap().frames[0].function, function.name);
        }
    }
}
