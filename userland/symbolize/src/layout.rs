// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a debug file was made for a program: whether both have code in the same places.
//!
//! A build-id is a claim, and the checksum of a debug file is rarely kept beside one. What is
//! compared here stays the same when a file is stripped, split by `objcopy
//! --only-keep-debug` or `eu-strip -f`, or dwz has been over it. A file that was made to
//! deceive, for this very program, still passes; it can deceive about names, and no more.

use crate::elf::{Elf, Section};

/// Fails, with the reason, when the code of `debug` is elsewhere than that of `program`.
pub(crate) fn check(program: &Elf, debug: &Elf) -> Result<(), String> {
    // Some tools leave debug files without program headers.
    if !debug.code.is_empty() && debug.code != program.code {
        return Err("its program headers have the code elsewhere".to_owned());
    }
    let mut compared = debug.code.len();
    for section in debug.sections.iter().filter(|section| section.is_code()) {
        let is_there = match program.sections.iter().any(Section::is_code) {
            false => is_inside(program, section),
            true => program.sections.iter().any(|own| is_same(own, section)),
        };
        if !is_there {
            return Err(format!(
                "its section {} is not where the program's is",
                section.name
            ));
        }
        compared += 1;
    }
    match compared {
        0 => Err("it does not say where the code is".to_owned()),
        _ => Ok(()),
    }
}

fn is_same(own: &Section, section: &Section) -> bool {
    let place = |section: &Section| (section.address, section.bytes);
    own.is_code() && own.name == section.name && place(own) == place(section)
}

fn is_inside(program: &Elf, section: &Section) -> bool {
    let end = section.address.saturating_add(section.bytes);
    let holds = |range: &std::ops::Range<u64>| range.start <= section.address && end <= range.end;
    program.code.iter().any(holds)
}
