// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where instructions of the machine's libc begin, compared with objdump.

use nsprobe_probes::breakpoint::{boundary, Boundary, FunctionCode};
use std::path::Path;
use std::process::Command;

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// Longest function that is looked at: each place is found from its beginning.
const BYTES_MAX: usize = 4096;
/// One function of this many is looked at.
const ONE_OF: usize = 8;

/// A function, and where its instructions begin.
#[derive(Default)]
struct Disassembled {
    name: String,
    address: u64,
    bytes: Vec<u8>,
    starts: Vec<usize>,
    /// objdump cannot read some of it.
    is_bad: bool,
}

impl Disassembled {
    /// `ADDRESS <NAME>:`
    fn begun(line: &str) -> Option<Disassembled> {
        let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
        Some(Disassembled {
            name: name.to_owned(),
            address: u64::from_str_radix(address, 16).ok()?,
            ..Disassembled::default()
        })
    }

    /// `  ADDRESS:<tab>BYTES<tab>INSTRUCTION`
    fn add(&mut self, line: &str) {
        let mut parts = line.split('\t');
        let Some(bytes) = parts.nth(1) else {
            return;
        };
        let instruction = parts.next().unwrap_or("(bad)");
        self.is_bad |= instruction.contains("(bad)");
        self.starts.push(self.bytes.len());
        let bytes = bytes.split_whitespace();
        self.bytes
            .extend(bytes.filter_map(|byte| u8::from_str_radix(byte, 16).ok()));
    }
}

/// The functions of a file as `objdump --disassemble --wide` writes them.
fn functions(text: &str) -> Vec<Disassembled> {
    let mut all: Vec<Disassembled> = Vec::new();
    for line in text.lines() {
        match (Disassembled::begun(line), all.last_mut()) {
            (Some(begun), _) => all.push(begun),
            (None, Some(last)) => last.add(line),
            (None, None) => {}
        }
    }
    all
}

/// The places that are said to be what they are not.
fn wrong(of: &Disassembled) -> Vec<String> {
    let function = FunctionCode {
        address: of.address,
        bytes: &of.bytes,
        elsewhere: &[],
    };
    let mut start = 0;
    let places = (0..of.bytes.len()).filter_map(|place| {
        let wanted = match of.starts.contains(&place) {
            true => Boundary::Instruction,
            false => Boundary::Inside(start),
        };
        if wanted == Boundary::Instruction {
            start = place;
        }
        let got = boundary(&function, place);
        let name = &of.name;
        (got != wanted).then(|| format!("{name}+{place:#x}: {got:?}, objdump: {wanted:?}"))
    });
    places.collect()
}

#[test]
fn instructions_of_libc_begin_where_objdump_says() {
    if !nsprobe_testing::file(Path::new(LIBC)) {
        return;
    }
    let mut objdump = Command::new("objdump");
    objdump.args(["--disassemble", "--wide", "--section=.text", LIBC]);
    let Some(got) = nsprobe_testing::output(&mut objdump) else {
        return;
    };
    let all = functions(&String::from_utf8_lossy(&got.stdout));
    let sound = all
        .iter()
        .filter(|of| !of.is_bad && of.bytes.len() <= BYTES_MAX);
    let chosen: Vec<&Disassembled> = sound.step_by(ONE_OF).collect();
    let places: usize = chosen.iter().map(|of| of.bytes.len()).sum();
    println!("{places} places of {} functions", chosen.len());
    assert!(chosen.len() >= 200, "{} functions", chosen.len());
    let wrong: Vec<String> = chosen.iter().flat_map(|of| wrong(of)).collect();
    assert!(wrong.is_empty(), "{} wrong: {wrong:#?}", wrong.len());
}
