// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions of Debian's files, which have no symbols: taken at random from the
//! functions that their `.eh_frame` names, the same ones in each run.

pub(crate) mod go;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::{Object, ObjectSection, ObjectSegment};
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Numbers that look random (Steele, Lea, Flood: splitmix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// One of `0..below`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below.max(1) as u64) as usize
    }
}

/// A function: its address, and its code.
type Function<'a> = (u64, &'a [u8]);

/// Offsets in a file of so many instructions, or of fewer when it is small: each function
/// is as likely as any other, and so is each of its instructions.
pub(crate) fn choose(file: &Path, count: usize, dice: &mut Dice) -> BTreeSet<u64> {
    let bytes = read(file);
    let elf = object::File::parse(&*bytes).expect("Debian's files are ELF");
    let functions = functions(&elf);
    assert!(!functions.is_empty(), "{}: no frames", file.display());
    let mut chosen = BTreeSet::new();
    // Some are drawn twice.
    for _ in 0..2 * count {
        let (address, code) = functions[dice.below(functions.len())];
        let starts = starts(address, code);
        if let Some(at) = starts.get(dice.below(starts.len())) {
            chosen.extend(offset(&elf, *at));
        }
        if chosen.len() == count {
            break;
        }
    }
    chosen
}

fn read(file: &Path) -> Vec<u8> {
    fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The offsets of all code that a file has unwind rows for in its `.eh_frame`, if it has one.
pub(crate) fn with_rows(file: &Path) -> Vec<Range<u64>> {
    let bytes = read(file);
    let elf = object::File::parse(&*bytes).expect("Debian's files are ELF");
    let ranges = functions(&elf).into_iter().filter_map(|(address, code)| {
        let start = offset(&elf, address)?;
        Some(start..start + code.len() as u64)
    });
    ranges.collect()
}

/// The functions that the file tells the frames of.
fn functions<'a>(elf: &object::File<'a>) -> Vec<Function<'a>> {
    let Some(section) = elf.section_by_name(".eh_frame") else {
        return Vec::new();
    };
    let data = section.data().expect("in the file");
    let mut frames = EhFrame::new(data, LittleEndian);
    frames.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let mut entries = frames.entries(&bases);
    let mut functions = Vec::new();
    while let Some(entry) = entries.next().expect("Debian's are sound") {
        if let CieOrFde::Fde(partial) = entry {
            let fde = partial.parse(EhFrame::cie_from_offset).expect("sound");
            let code = code(elf, fde.initial_address(), fde.len());
            functions.extend(code.map(|code| (fde.initial_address(), code)));
        }
    }
    functions
}

fn code<'a>(elf: &object::File<'a>, address: u64, length: u64) -> Option<&'a [u8]> {
    let mut segments = elf.segments();
    segments.find_map(|segment| segment.data_range(address, length).ok().flatten())
}

/// Where the function's instructions begin that a breakpoint may be put on.
fn starts(address: u64, code: &[u8]) -> Vec<u64> {
    let starts = decode(address, code).map(|instruction| instruction.ip());
    let starts = starts.filter(|at| takes_breakpoint(address, code, *at));
    starts.collect()
}

/// Whether the kernel takes a breakpoint there.
fn takes_breakpoint(address: u64, code: &[u8], at: u64) -> bool {
    nsprobe_probes::breakpoint::cost(&code[(at - address) as usize..], at).is_some()
}

/// The instructions of a function, up to something that is none: after it nobody knows
/// where the next one begins.
fn decode(address: u64, code: &[u8]) -> impl Iterator<Item = Instruction> + '_ {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let next = std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()));
    next.take_while(|instruction| !instruction.is_invalid())
}

fn offset(elf: &object::File<'_>, address: u64) -> Option<u64> {
    elf.segments().find_map(|segment| {
        let (start, length) = segment.file_range();
        let inside = address.checked_sub(segment.address())?;
        (inside < length).then_some(start + inside)
    })
}
