// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the unwind rows of files cost: for each file a line
//!
//! ```text
//! rows NAME FILE_BYTES SECTION_BYTES TABLE_BYTES COMPILED_MS FROM_CACHE_MS
//! ```
//!
//! with the medians of some rounds, the file in the page cache. Usage: rows FOLDER FILE...;
//! the folder, a new one, is the cache.

use nsprobe_symbolize::Binary;
use nsprobe_unwind::{Cache, Input, UnwindTable};
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Rounds of which the median is taken.
const ROUNDS: usize = 7;

/// From the file's name to its table, as `nsprobe` does it.
fn once(path: &Path, cache: Option<&Cache>) -> Result<(f64, UnwindTable), Box<dyn Error>> {
    let begun = Instant::now();
    let binary = Binary::open_sections(File::open(path)?, path)?;
    let table = match cache {
        Some(cache) => match cache.table(&Input::of(&binary, None)?)? {
            (table, true) => table,
            (_, false) => return Err("it is not in the cache".into()),
        },
        None => UnwindTable::of(&binary)?,
    };
    Ok((begun.elapsed().as_secs_f64() * 1e3, table))
}

fn median(path: &Path, cache: Option<&Cache>) -> Result<(f64, UnwindTable), Box<dyn Error>> {
    let (_, table) = once(path, cache)?;
    let rounds = (0..ROUNDS).map(|_| Ok(once(path, cache)?.0));
    let mut times = rounds.collect::<Result<Vec<f64>, Box<dyn Error>>>()?;
    times.sort_by(f64::total_cmp);
    Ok((times[ROUNDS / 2], table))
}

fn measure(path: &Path, cache: &Cache) -> Result<(), Box<dyn Error>> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let input = Input::of(&Binary::open_sections(file, path)?, None)?;
    let (compiled, table) = median(path, None)?;
    cache.keep(input.digest(), &table)?;
    let (cached, again) = median(path, Some(cache))?;
    assert!(table == again, "the cache has another table");
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (sections, rows) = (input.bytes(), table.bytes());
    println!("rows {name} {bytes} {sections} {rows} {compiled:.2} {cached:.2}");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = words.next().ok_or("usage: rows FOLDER FILE...")?;
    let cache = Cache::open(&folder)?;
    words.try_for_each(|path| measure(&path, &cache))
}
