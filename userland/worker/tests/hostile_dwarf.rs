// SPDX-License-Identifier: MIT OR Apache-2.0
//! ELF-05: debug information made to exhaust or to crash a parser. Each has an answer, or
//! loses its own child, in bounded time; the next file has its names.

use crate::support::dwarf::{self, named, referring, unit, FIRST};
use crate::support::elf::{compressed, section, zstd, TEXT};
use crate::support::endless;
use crate::support::trial::{assert_fatal, name, note, with, Outcome, Trial, MEMORY_BYTES_MAX};
use nsprobe_symbolize::FrameSource;

/// The outcome for a unit of all the code with these entries.
fn entries(trial: &Trial, entries: &[u8]) -> Outcome {
    trial.of(&with(dwarf::sections(unit(TEXT, 4096, entries))))
}

#[test]
fn elf_05_sound_debug_information_is_read() {
    let trial = Trial::new("sound-dwarf");
    let mut sound = named("by_dwarf", TEXT, 4096);
    sound.extend([0, 0]);
    let answers = entries(&trial, &sound).unwrap();
    let found = answers[1].found.as_ref().unwrap();
    assert_eq!(
        (found.source, &*found.frames[0].function),
        (FrameSource::Dwarf, "by_dwarf")
    );
}

#[test]
fn elf_05_origins_that_lead_in_a_circle() {
    let trial = Trial::new("circles");
    for number in [2, 4] {
        // To itself (Binary Ninja #4881), and to each other.
        let itself = referring(number, TEXT, 4096, FIRST);
        let length = itself.len() as u32;
        let mut both = referring(number, TEXT, 4096, FIRST + length + 1);
        both.push(0);
        both.extend(referring(number, TEXT, 4096, FIRST));
        // An inlined one whose origin is the function that it is in.
        let mut inside = named("outer", TEXT, 4096);
        inside.extend(referring(3, TEXT, 64, FIRST));
        // And one that is its own.
        let mut own = named("outer", TEXT, 4096);
        let at = FIRST + own.len() as u32;
        own.extend(referring(3, TEXT, 64, at));
        for circle in [itself, both, inside, own] {
            let circle = [circle, vec![0, 0, 0]].concat();
            let answers = entries(&trial, &circle).unwrap();
            assert!(!name(&answers[1]).is_empty());
        }
    }
    // To places outside of the unit, and into the middle of entries.
    for to in [0, 3, FIRST + 2, FIRST + 9, u32::MAX] {
        let answers = entries(&trial, &[referring(2, TEXT, 4096, to), vec![0, 0]].concat());
        assert!(!name(&answers.unwrap()[1]).is_empty());
    }
    assert!(trial.memory() < MEMORY_BYTES_MAX);
}

#[test]
fn elf_05_a_chain_of_a_million_origins() {
    let trial = Trial::new("chain");
    let one = referring(3, TEXT, 4096, 0).len() as u32 + 1;
    let begin = named("outer", TEXT, 4096);
    let first = FIRST + begin.len() as u32;
    let mut chain = begin;
    for number in 1..200_000 {
        chain.extend(referring(3, TEXT, 4096, first + number * one));
        chain.push(0);
    }
    chain.extend([0, 0]);
    match entries(&trial, &chain) {
        Ok(answers) => assert!(!name(&answers[1]).is_empty()),
        outcome => assert_fatal(&outcome),
    }
}

#[test]
fn elf_05_entries_nested_a_million_deep() {
    let trial = Trial::new("nested");
    let outcome = entries(&trial, &vec![5; 1_000_000]);
    assert!(
        note(&outcome).contains("nested too deeply"),
        "{}",
        note(&outcome)
    );
    let inlined = referring(3, TEXT, 4096, FIRST).repeat(1_000_000 / 21);
    let outcome = entries(&trial, &[named("outer", TEXT, 4096), inlined].concat());
    assert!(
        note(&outcome).contains("nested too deeply"),
        "{}",
        note(&outcome)
    );
}

#[test]
fn elf_05_lines_without_number() {
    let trial = Trial::new("lines");
    // A row for each byte: 500 million of 24 bytes.
    let count = 500 << 20;
    let header = dwarf::line_header(count);
    let lines = zstd(&header, 11, count);
    let mut sections = dwarf::sections(unit(TEXT, 4096, &[0]));
    sections[2] = compressed(".debug_line", 2, header.len() as u64 + count, &lines);
    let bytes = with(sections);
    assert!(bytes.len() < 64 << 10);
    assert_fatal(&trial.of(&bytes));
}

#[test]
#[ignore = "full run: waits until the parser has had its time"]
fn elf_05_more_units_and_abbreviations_than_time() {
    let trial = Trial::new("units");
    let abbreviations = endless::abbreviations(20_000);
    let none = vec![7, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8];
    let null = endless::UNIT.to_vec();
    for (unit, count) in [(&none, 1), (&null, 1), (&none, 200_000), (&null, 200_000)] {
        let outcome = trial.of(&with(vec![
            section(".debug_info", unit.repeat(count)),
            section(".debug_abbrev", abbreviations.clone()),
        ]));
        match outcome {
            Ok(answers) => assert_eq!(name(&answers[1]), "code"),
            outcome => {
                assert!(count > 1);
                assert_fatal(&outcome);
            }
        }
    }
}

#[test]
fn elf_05_functions_that_overlap_and_wrap_around() {
    let trial = Trial::new("overlap");
    let mut all = Vec::new();
    for number in 0..20_000 {
        all.extend(named(&format!("f{number}"), TEXT, 4096));
        all.push(0);
    }
    for (from, bytes) in [
        (0, u64::MAX),
        (u64::MAX, 1),
        (TEXT, u64::MAX),
        (u64::MAX - 1, 64),
    ] {
        all.extend(named("around", from, bytes));
        all.push(0);
    }
    all.push(0);
    match entries(&trial, &all) {
        Ok(answers) => assert!(!name(&answers[1]).is_empty()),
        outcome => assert_fatal(&outcome),
    }
    // A line program that goes over the end (gimli #778).
    let mut operations = vec![0, 9, 2];
    operations.extend((u64::MAX - 1).to_le_bytes());
    operations.extend([11, 2, 52, 1, 11, 0, 1, 1]);
    let mut lines = dwarf::line_header(operations.len() as u64);
    lines.extend(operations);
    let mut sections = dwarf::sections(unit(TEXT, 4096, &[0]));
    sections[2] = section(".debug_line", lines);
    assert_eq!(name(&trial.of(&with(sections)).unwrap()[1]), "code");
}

#[test]
fn elf_05_no_file_that_debug_information_names_is_opened() {
    let trial = Trial::new("split");
    // A skeleton unit: its folder, and the name of the file that has the rest.
    let mut abbreviations = vec![1, 0x11, 0, 0x1b, 8];
    abbreviations.extend([0xb0, 0x42, 8, 0xb1, 0x42, 7, 0x11, 1, 0x12, 7, 0, 0, 0]);
    let mut body = vec![4, 0, 0, 0, 0, 0, 8, 1];
    body.extend(b"/\0../../etc/passwd\0");
    body.extend(0x1234u64.to_le_bytes());
    body.extend(TEXT.to_le_bytes());
    body.extend(4096u64.to_le_bytes());
    let info = [(body.len() as u32).to_le_bytes().to_vec(), body].concat();
    let outcome = trial.of(&with(vec![
        section(".debug_info", info),
        section(".debug_abbrev", abbreviations),
        section(".gnu_debugaltlink", b"/etc/passwd\0\x01\x02\x03".to_vec()),
        section(
            ".gnu_debuglink",
            b"../../etc/passwd\0\0\0\0\0\0\0\0".to_vec(),
        ),
    ]));
    // A child that tried would be dead.
    assert_eq!(name(&outcome.unwrap()[1]), "code");
}
