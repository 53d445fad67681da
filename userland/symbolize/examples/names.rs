// SPDX-License-Identifier: MIT OR Apache-2.0
//! What names cost: `names addresses FILE COUNT` prints distinct pseudo-random addresses of
//! a file's code, and `names name FILE` names those on standard input, a frame a line, and
//! tells on standard error `FILE ADDRESSES FRAMES OPENED_MS NAMED_MS ADDRESSES_A_SECOND PEAK_MB`.

use nsprobe_symbolize::{Address, AtOffset, Binary, Lookup};
use std::collections::HashSet;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["addresses", file, count] => addresses(Path::new(file), count.parse()?),
        ["name", file] => name(Path::new(file)),
        _ => Err("names addresses FILE COUNT | names name FILE".into()),
    }
}

/// Distinct addresses in known functions, the same ones in each run.
fn addresses(path: &Path, count: usize) -> Result<(), Box<dyn Error>> {
    let binary = Binary::open(File::open(path)?, path)?;
    let ranges: Vec<(u64, u64)> = binary.code_ranges().collect();
    let bytes: u64 = ranges.iter().map(|(from, to)| to - from).sum();
    if bytes < 8 * count as u64 {
        return Err("so many addresses are not in its code".into());
    }
    let mut found = HashSet::new();
    let mut state = 1u64;
    let mut out = io::stdout().lock();
    while found.len() < count {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let mut into = (state >> 16) % bytes;
        for (from, to) in &ranges {
            if into < to - from {
                let at = from + into;
                let offset = binary
                    .offset_of(Address(at))
                    .ok_or("it is not in the file")?;
                let known = matches!(binary.code_at(offset), AtOffset::Function(_));
                if known && found.insert(at) {
                    writeln!(out, "{at:#x}")?;
                }
                break;
            }
            into -= to - from;
        }
    }
    Ok(())
}

fn name(path: &Path) -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let number = |line: &str| u64::from_str_radix(line.trim_start_matches("0x"), 16);
    let addresses: Vec<u64> = text.lines().map(number).collect::<Result<_, _>>()?;
    let start = Instant::now();
    let binary = Binary::open(File::open(path)?, path)?;
    let opened = start.elapsed();
    let mut frames = 0;
    let mut out = BufWriter::new(io::stdout().lock());
    for address in &addresses {
        let offset = binary
            .offset_of(Address(*address))
            .ok_or("it is not in the file")?;
        let Ok(found) = binary.resolve(offset, Lookup::Instruction) else {
            continue;
        };
        frames += found.frames.len();
        for frame in &found.frames {
            let (file, line) = (frame.file.as_deref().unwrap_or("?"), frame.line);
            writeln!(out, "{} {file}:{}", frame.function, line.unwrap_or(0))?;
        }
    }
    out.flush()?;
    let named = start.elapsed();
    eprintln!(
        "{} {} {frames} {} {} {:.0} {}",
        path.display(),
        addresses.len(),
        opened.as_millis(),
        named.as_millis(),
        addresses.len() as f64 / named.as_secs_f64(),
        peak_mb()?,
    );
    Ok(())
}

/// The most memory that this process has had, in megabytes.
fn peak_mb() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(number.unwrap_or(0) / 1024)
}
