// SPDX-License-Identifier: MIT OR Apache-2.0
//! The seams at which nsprobe takes bytes that others have made: each is a function of
//! these bytes, which asks all that the program asks, and panics where a promise is broken.
//!
//! `fuzz/` gives them to a fuzzer that looks for new code, `tests/corpus.rs` replays what
//! it has found.
#![forbid(unsafe_code)]

mod capsule;
mod dwarf;
mod elf;
mod image;
mod jit;
mod program;
mod records;
mod rows;
mod text;

pub use image::split;

/// A seam: its name, and what is done with the bytes.
pub type Seam = (&'static str, fn(&[u8]));

/// All of them. Their names are those of the folders in `fuzz/corpus`.
pub const SEAMS: &[Seam] = &[
    ("elf", elf::elf),
    ("notes", elf::notes),
    ("debuglink", elf::debug_link),
    ("compressed", elf::compressed),
    ("go", elf::go),
    ("dwarf", dwarf::frames),
    ("types", dwarf::types),
    ("rows", rows::compile),
    ("table", rows::table),
    ("demangle", text::demangle),
    ("maps", text::maps),
    ("spec", text::spec),
    ("perf_map", jit::perf_map),
    ("jitdump", jit::dump),
    ("records", records::records),
    ("capsule", capsule::capsule),
    ("program", program::program),
];

/// Gives the bytes to the seam of that name.
///
/// # Panics
/// There is none, or a promise is broken.
pub fn run(name: &str, bytes: &[u8]) {
    let seam = SEAMS.iter().find(|(known, _)| *known == name);
    let (_, seam) = seam.unwrap_or_else(|| panic!("there is no seam {name}"));
    seam(bytes);
}
