// SPDX-License-Identifier: MIT OR Apache-2.0
//! What describes frames covers functions as their symbols do.

use nsprobe_symbolize::{Binary, Function};
use nsprobe_unwind::Frames;
use std::fs::File;
use std::path::{Path, PathBuf};

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

fn open(path: &Path) -> Binary {
    let file = File::open(path).expect("it is there");
    Binary::open(file, path).expect("it is a file of ours")
}

#[test]
fn a_function_of_this_program_is_covered_as_its_symbol_says() {
    let path = std::env::current_exe().expect("it runs");
    let binary = open(&path);
    let frames = Frames::of(&binary).expect("it can be read");
    let named = |function: &&Function| function.demangled().contains("frames::open");
    let mut functions = binary.functions().iter();
    let function = functions.find(named).expect("it is in this file");
    let start = function.address.0;
    let whole = start..start + function.size;
    assert_eq!(frames.covering(start), Some(whole.clone()));
    assert_eq!(frames.covering(whole.end - 1), Some(whole));
    // It calls others, so it moves the stack pointer.
    assert_eq!(frames.is_at_top(start), Some(true));
    let into = (start..start + function.size).filter_map(|address| frames.is_at_top(address));
    assert!(into.into_iter().any(|is_at_top| !is_at_top));
}

#[test]
fn functions_of_libc_are_covered_from_their_symbols_on() {
    let path = PathBuf::from(LIBC);
    if !nsprobe_testing::file(&path) {
        return;
    }
    let binary = open(&path);
    let frames = Frames::of(&binary).expect("it can be read");
    let functions = binary.functions().iter().filter(|of| of.size > 0);
    let (mut all, mut begin, mut at_top) = (0, 0, 0);
    for function in functions {
        all += 1;
        let start = function.address.0;
        let covers = frames.covering(start);
        begin += usize::from(covers.is_some_and(|covers| covers.start == start));
        at_top += usize::from(frames.is_at_top(start) == Some(true));
    }
    println!("{all} functions, {begin} begin an entry, {at_top} with their return address");
    assert!(all >= 1000, "{all}");
    assert!(begin * 100 >= all * 95, "{begin} of {all}");
    assert!(at_top * 100 >= all * 95, "{at_top} of {all}");
}
