// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a profile is, whatever its format.

use crate::text::plain;
use std::borrow::Cow;

/// The outermost frame of a stack that lacks its outer frames.
pub(crate) const TRUNCATED: &str = "[truncated]";
/// The only frame of a stack of which nothing is known.
pub(crate) const UNKNOWN: &str = "[unknown]";

/// Stacks, and how often each was there.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// What it is called, for people.
    pub title: String,
    /// What the values of each sample are, in their order. The last one is what pictures show.
    pub measures: Vec<Measure>,
    /// Time between two samples, in nanoseconds, when they were taken at even times.
    pub period_ns: Option<u64>,
    /// When it began, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// How long it took, in nanoseconds.
    pub duration_ns: u64,
    /// The files of locations.
    pub mappings: Vec<CodeFile>,
    /// The places that stacks go through.
    pub locations: Vec<CodePlace>,
    /// The stacks.
    pub samples: Vec<Sample>,
}

/// What a value is: `calls` and `count`, or `cpu` and `nanoseconds`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// What is measured.
    pub kind: String,
    /// Its unit.
    pub unit: String,
}

/// A file with code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeFile {
    /// Its path.
    pub path: String,
    /// Its build-id, in hexadecimal; empty when it has none.
    pub build_id: String,
}

/// A place in code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodePlace {
    /// The index of its file in `mappings`; none for code without a file.
    pub mapping: Option<usize>,
    /// The offset in that file in bytes, or the address of code without one.
    pub offset: u64,
    /// The functions there, the innermost inlined one first. One without a name says where it
    /// is; never empty.
    pub lines: Vec<SourcePoint>,
}

/// A function, and a line of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourcePoint {
    /// What it is called.
    pub name: String,
    /// The name before it was shortened for people.
    pub system_name: String,
    /// Whether that is a function's name, and not where the place is.
    pub is_named: bool,
    /// Its source file.
    pub file: Option<String>,
    /// The line in that file, from 1.
    pub line: Option<u32>,
}

/// A stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Distinguishes it from others with the same stack, beside the values: names and values, such
    /// as `container` and `web`.
    pub keys: Vec<(String, String)>,
    /// Indices of `locations`, the innermost first.
    pub stack: Vec<usize>,
    /// Whether its outer frames are missing.
    pub truncated: bool,
    /// One for each of the profile's measures.
    pub values: Vec<i64>,
}

/// A frame as pictures show it.
#[derive(Debug)]
pub(crate) struct ShownFrame<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) source: Option<&'a SourcePoint>,
}

impl Profile {
    /// The number of a sample that pictures show. Sums may be less than zero: nothing to show.
    pub(crate) fn weight(sample: &Sample) -> u64 {
        let value = sample.values.last().copied().unwrap_or(0);
        u64::try_from(value).unwrap_or(0)
    }

    /// The frame around a stack that is no place in code.
    pub(crate) fn around(sample: &Sample) -> Option<&'static str> {
        match (sample.truncated, sample.stack.is_empty()) {
            (true, _) => Some(TRUNCATED),
            (false, true) => Some(UNKNOWN),
            (false, false) => None,
        }
    }

    /// The functions at the locations of a sample, the outermost first.
    fn lines<'a>(&'a self, sample: &'a Sample) -> impl Iterator<Item = &'a SourcePoint> {
        let outermost_first = sample.stack.iter().rev();
        let locations = outermost_first.filter_map(|at| self.locations.get(*at));
        locations.flat_map(|location| location.lines.iter().rev())
    }

    /// What pictures show of a sample, from the outermost frame on: its keys, and its stack.
    pub(crate) fn shown<'a>(&'a self, sample: &'a Sample) -> Vec<ShownFrame<'a>> {
        let keys = sample.keys.iter().map(|(name, value)| ShownFrame {
            name: Cow::Owned(plain(&format!("{name}={value}")).into_owned()),
            source: None,
        });
        let around = Profile::around(sample).map(|name| ShownFrame {
            name: Cow::Borrowed(name),
            source: None,
        });
        let lines = self.lines(sample).map(|line| ShownFrame {
            name: plain(&line.name),
            source: Some(line),
        });
        keys.chain(around).chain(lines).collect()
    }
}
