// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of options.

use super::raw;
use libnsprobe::common::abi::LINEAR_MAX;
use libnsprobe::common::histogram::Scale;
use libnsprobe::{SetupOptions, StartGate};
use nsprobe_profile::Format;
use std::path::Path;
use std::time::Duration;

/// `LOW:STEP:COUNT`.
pub(super) fn linear(text: &str) -> Result<Scale, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [low, step, buckets] = parts.as_slice() else {
        return Err("not LOW:STEP:COUNT, such as 0:10:20".to_owned());
    };
    let scale = Scale::Linear {
        low: low.parse().map_err(|_| "LOW is no number")?,
        step: step.parse().map_err(|_| "STEP is no number from 1 on")?,
        buckets: buckets.parse().map_err(|_| "COUNT is no number")?,
    };
    match scale.is_valid() {
        true => Ok(scale),
        false => Err(format!(
            "STEP is at least 1, and COUNT from 1 to {LINEAR_MAX}"
        )),
    }
}

/// Rows that a table for people has without `--top`.
const TOP: usize = 20;

/// Most rows: those of `--top`, else a screen of them, or all where what is printed `is_whole`.
pub(super) fn rows(top: Option<u32>, is_whole: bool) -> usize {
    match top {
        Some(top) => top as usize,
        None if is_whole => usize::MAX,
        None => TOP,
    }
}

/// Checks the name of an output file: one that ends in `.json` or `.jsonl` gets JSON, and formats
/// that the verb does not write are refused.
pub(super) fn output_file(
    path: Option<&Path>,
    has_stacks: bool,
    json: &mut bool,
) -> Result<(), clap::Error> {
    let Some(path) = path else {
        return Ok(());
    };
    let ends = |ending: &str| path.extension().is_some_and(|one| one == ending);
    let is_profile = Format::of(path).is_ok();
    if is_profile && has_stacks {
        return Ok(());
    }
    if is_profile || ends("nsprobe") {
        let (shown, verbs) = match ends("nsprobe") {
            true => ("a recording", "`record` and `profile`"),
            false => ("stacks", "`profile`, `stacks`, `leak` and `export`"),
        };
        return Err(raw(&format!(
            "-o {}: a file of that name has {shown}, which {verbs} write; this is text, or JSON \
             in a file that ends in .json or .jsonl",
            path.display()
        )));
    }
    *json |= ends("json") || ends("jsonl");
    Ok(())
}

/// How long a wait takes at least.
pub(super) fn wait(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        text => time_span(text),
    }
}

/// How long a program may wait before it begins.
pub(super) fn hold_time(text: &str) -> Result<Duration, String> {
    let time = wait(text)?;
    match time <= StartGate::LIMIT_MAX {
        true => Ok(time),
        false => Err(format!("at most {} s", StartGate::LIMIT_MAX.as_secs())),
    }
}

/// A time span in seconds, or with a unit, such as 30, 1.5s, 200ms, 5m, 2h or 7d.
pub(super) fn time_span(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 6] = [
        ("us", 1e-6),
        ("ms", 0.001),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
        ("d", 86400.0),
    ];
    const TEN_YEARS: f64 = 10.0 * 365.0 * 86400.0;
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
    let (number, factor) = match unit {
        Some((unit, factor)) => (text.strip_suffix(unit).unwrap_or(text), *factor),
        None => (text, 1.0),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "not a time span, such as 5, 0.5s, 200ms or 5m")?;
    let seconds = number * factor;
    if seconds > 0.0 && seconds <= TEN_YEARS {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("not a time span: it must be more than 0 and less than ten years".to_owned())
    }
}

/// A number of bytes, with K, M or G after it or without.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes() {
        [digits @ .., b'K' | b'k'] => (digits.len(), 1 << 10),
        [digits @ .., b'M' | b'm'] => (digits.len(), 1 << 20),
        [digits @ .., b'G' | b'g'] => (digits.len(), 1 << 30),
        digits => (digits.len(), 1u64),
    };
    let number: Option<u64> = text.get(..digits).and_then(|digits| digits.parse().ok());
    let number = number.ok_or("not a number of bytes, such as 262144 or 256K")?;
    Ok(number.saturating_mul(unit))
}

/// A ring size that a session can have.
pub(super) fn ring_bytes(text: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    let options = SetupOptions::with_ring_bytes(bytes);
    options.check().map_err(|error| error.to_string())?;
    Ok(bytes)
}
