// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of how many functions of files the exits are known: for each file a line with how many, how
//! many of them go on where they cannot be followed, and why the others are not known. Usage:
//! exits SEED NUMBER FILE...; so many functions of each file are taken.

use nsprobe_placement::{exits, Code, Exits, Function, Unclear};
use nsprobe_symbolize::{Address, Binary};
use nsprobe_unwind::Frames;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::path::Path;

struct Read<'a>(&'a Binary, Frames);

impl Code for Read<'_> {
    fn piece(&self, address: u64) -> Option<(u64, Cow<'_, [u8]>)> {
        let Read(binary, frames) = self;
        let held = || {
            let of = binary.function_holding(Address(address))?;
            Some(of.address.0..of.address.0 + of.size)
        };
        let range = frames.covering(address).or_else(held)?;
        let code = binary.code(range.start, range.end - range.start);
        Some((range.start, Cow::Owned(code)))
    }

    fn is_at_top(&self, address: u64) -> Option<bool> {
        self.1.is_at_top(address)
    }

    fn data(&self, address: u64, bytes: usize) -> Option<Cow<'_, [u8]>> {
        let data = self.0.read_only(address, bytes as u64)?;
        Some(Cow::Owned(data))
    }
}

fn of(read: &Read<'_>, function: &nsprobe_symbolize::Function) -> Result<Exits, Unclear> {
    let whole = Function {
        address: function.address.0,
        bytes: &read.0.code_of(function),
        // Found by their frames.
        elsewhere: &[],
    };
    exits(&whole, read)
}

fn survey(path: &Path, seed: u64, number: usize) -> Result<(), Box<dyn Error>> {
    let binary = Binary::open(File::open(path)?, path)?;
    let read = Read(&binary, Frames::of(&binary)?);
    let all = binary.functions().iter();
    let mut chosen: Vec<_> = all
        .filter(|of| of.size > 0 && !binary.is_piece(of))
        .collect();
    chosen.dedup_by_key(|of| of.address);
    chosen.sort_by_cached_key(|of| (of.address.0 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    chosen.truncate(number);
    let (mut known, mut left, mut reasons) = (0, 0, BTreeMap::<String, usize>::new());
    for function in &chosen {
        match of(&read, function) {
            Ok(exits) => {
                known += 1;
                left += usize::from(!exits.left.is_empty());
            }
            Err(why) => {
                let kind = format!("{why:?}").split('(').next().map(str::to_owned);
                *reasons.entry(kind.unwrap_or_default()).or_default() += 1;
            }
        }
    }
    let (path, all) = (path.display(), chosen.len());
    println!("exits {path} {known} of {all}, {left} followed in part; {reasons:?}");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [seed, number, files @ ..] = words.as_slice() else {
        return Err("usage: exits SEED NUMBER FILE...".into());
    };
    let (seed, number) = (seed.parse()?, number.parse()?);
    let mut files = files.iter();
    files.try_for_each(|file| survey(Path::new(file), seed, number))
}
