// SPDX-License-Identifier: MIT OR Apache-2.0
//! The chunks whose bodies are words: records, stacks, and what stacks lacked.

use crate::error::CapsuleError;
use nsprobe_common::record::{Header, Record, BUSY, KIND_HIT, KIND_STACK_COPY, LENGTH, WORDS_MAX};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most words of frames in one stack.
const STACK_WORDS_MAX: usize = 2 * WORDS_MAX;

/// What the frames of a stack begin with; the words follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StackHead {
    id: U32,
    words: U32,
}

/// What the missing frames of a hit begin with; the words follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RestHead {
    time_ns: U64,
    tid: U32,
    probe: U32,
    words: U32,
    end: u8,
    reserved: u8,
    unused: U16,
}
const _: () = assert!(size_of::<RestHead>() == 24);

/// The frames of a stack that records name by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The id.
    pub id: u32,
    /// The frames' words, as in a hit.
    pub words: Vec<u64>,
}

/// Which hit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RestKey {
    /// When, CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// The thread, as in the hit.
    pub tid: u32,
    /// The probe.
    pub probe: u32,
}

/// The frames of a hit that its record lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The hit.
    pub of: RestKey,
    /// Why there are no more: a `StackEnd`.
    pub end: u8,
    /// The frames' words.
    pub words: Vec<u64>,
}

impl Stack {
    /// Appends it to the body of a chunk.
    pub fn push_to(&self, body: &mut Vec<u8>) {
        let head = StackHead {
            id: U32::new(self.id),
            words: U32::new(self.words.len() as u32),
        };
        body.extend(head.as_bytes());
        push_words(body, &self.words);
    }

    /// Reads those of a chunk; an error says what makes no sense.
    pub(crate) fn all(body: &[u8], mut take: impl FnMut(Stack)) -> Result<(), String> {
        let mut rest = body;
        while !rest.is_empty() {
            let (head, words) = StackHead::read_from_prefix(rest).map_err(|_| too_short())?;
            let (words, behind) = take_words(words, head.words.get())?;
            rest = behind;
            take(Stack {
                id: head.id.get(),
                words,
            });
        }
        Ok(())
    }
}

impl Rest {
    /// Appends it to the body of a chunk.
    pub fn push_to(&self, body: &mut Vec<u8>) {
        let head = RestHead {
            time_ns: U64::new(self.of.time_ns),
            tid: U32::new(self.of.tid),
            probe: U32::new(self.of.probe),
            words: U32::new(self.words.len() as u32),
            end: self.end,
            reserved: 0,
            unused: U16::new(0),
        };
        body.extend(head.as_bytes());
        push_words(body, &self.words);
    }

    /// Reads those of a chunk; an error says what makes no sense.
    pub(crate) fn all(body: &[u8], mut take: impl FnMut(Rest)) -> Result<(), String> {
        let mut rest = body;
        while !rest.is_empty() {
            let (head, words) = RestHead::read_from_prefix(rest).map_err(|_| too_short())?;
            let (words, behind) = take_words(words, head.words.get())?;
            rest = behind;
            take(Rest {
                of: RestKey {
                    time_ns: head.time_ns.get(),
                    tid: head.tid.get(),
                    probe: head.probe.get(),
                },
                end: head.end,
                words,
            });
        }
        Ok(())
    }
}

fn push_words(body: &mut Vec<u8>, words: &[u64]) {
    for word in words {
        body.extend(word.to_le_bytes());
    }
}

fn take_words(bytes: &[u8], count: u32) -> Result<(Vec<u64>, &[u8]), String> {
    let count = count as usize;
    if count > STACK_WORDS_MAX {
        return Err(format!("a stack of {count} words"));
    }
    let split = bytes.split_at_checked(count * size_of::<u64>());
    let (words, rest) = split.ok_or_else(too_short)?;
    let words = words.chunks_exact(size_of::<u64>());
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    Ok((words.map(word).collect(), rest))
}

fn too_short() -> String {
    "it ends in the middle of a stack".to_owned()
}

/// Has `take` look at each record of a body. Gives what of it made no sense, in place of an
/// error: what came before was taken.
pub(crate) fn records<E: From<CapsuleError>>(
    body: &[u8],
    take: &mut impl FnMut(Record<'_>) -> Result<(), E>,
) -> Result<Option<String>, E> {
    let mut rest = body;
    loop {
        match Record::parse(rest) {
            Ok(Some((record, length))) => {
                if let Some(record) = record {
                    take(record)?;
                }
                rest = rest.get(length..).unwrap_or_default();
            }
            Ok(None) if rest.is_empty() => return Ok(None),
            Ok(None) => return Ok(Some("a record is not finished".to_owned())),
            Err(why) => return Ok(Some(format!("a record is wrong: {why:?}"))),
        }
    }
}

/// Divides records, as a ring has them, into bodies of chunks; `take` gets each with the
/// number of its hits. Copies of stacks are not in it: what is found by them is a [`Rest`].
pub fn each_body<E>(
    records: &[u8],
    most: usize,
    mut take: impl FnMut(&[u8], u32) -> Result<(), E>,
) -> Result<(), E> {
    let mut body = Vec::with_capacity(records.len().min(most));
    let (mut hits, mut rest) = (0, records);
    while let Ok((header, _)) = Header::read_from_prefix(rest) {
        let length = (header.word & LENGTH) as usize;
        let record = rest.split_at_checked(length);
        let Some((record, behind)) = record.filter(|_| length > 0 && header.word & BUSY == 0)
        else {
            break;
        };
        rest = behind;
        if header.kind == KIND_STACK_COPY {
            continue;
        }
        if body.len() + record.len() > most && !body.is_empty() {
            take(&body, hits)?;
            body.clear();
            hits = 0;
        }
        hits += u32::from(header.kind == KIND_HIT);
        body.extend(record);
    }
    match body.is_empty() {
        true => Ok(()),
        false => take(&body, hits),
    }
}
