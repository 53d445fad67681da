// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a capsule cannot be read, and which parts of one could not.

use crate::chunk::{MAJOR, MINOR};
use std::fmt;
use std::io;

/// Why a capsule cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CapsuleError {
    /// There is nothing in it.
    #[error("the file is empty: it is no capsule")]
    Empty,
    /// It is something else.
    #[error("it is no capsule: it does not begin as `nsprobe record` writes them")]
    NotCapsule,
    /// The recorder was stopped before it wrote anything of use.
    #[error("it ends after {0} bytes, before anything was recorded")]
    Short(u64),
    /// It is of another major version.
    #[error(
        "it has the format {major}.{minor}, and this version reads {MAJOR}.*: it needs {}",
        advice(*major)
    )]
    Major {
        /// The file's major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// It has a chunk that must be understood, and is not.
    #[error(
        "it needs an nsprobe that reads the format {major}.{minor}: this one reads {MAJOR}.{MINOR} \
         and does not know chunks of kind {kind}, which may not be skipped"
    )]
    NeedsLater {
        /// The kind of the chunk.
        kind: u16,
        /// The file's major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// A body is larger than a chunk may be.
    #[error("a chunk of {0} bytes is too large")]
    TooLarge(usize),
    /// The system's reason.
    #[error("{0}")]
    Io(#[from] io::Error),
}

fn advice(major: u16) -> &'static str {
    match major > MAJOR {
        true => "a later nsprobe",
        false => "an older nsprobe",
    }
}

/// A part of a capsule that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins, in bytes from the file's beginning.
    pub at: u64,
    /// How many bytes were skipped.
    pub bytes: u64,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What is wrong with a part of a capsule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The first bytes are not as they should be, but chunks follow.
    Preamble,
    /// No chunk begins there.
    NoChunk,
    /// A chunk's body is not what its writer has written.
    Checksum,
    /// The file ends inside of a chunk.
    Cut,
    /// This number of chunks is missing.
    Missing(u32),
    /// A chunk is whole, but its body makes no sense.
    Content(String),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { at, bytes, reason } = self;
        match reason {
            Reason::Preamble => write!(f, "its first {bytes} bytes are damaged"),
            Reason::NoChunk => write!(f, "at {at:#x}, {bytes} bytes are no chunk"),
            Reason::Checksum => write!(f, "at {at:#x}, a chunk is damaged: {bytes} bytes"),
            Reason::Cut => write!(
                f,
                "at {at:#x}, its last chunk is cut off after {bytes} bytes"
            ),
            Reason::Missing(1) => write!(f, "at {at:#x}, a chunk is missing"),
            Reason::Missing(count) => write!(f, "at {at:#x}, {count} chunks are missing"),
            Reason::Content(why) => write!(f, "at {at:#x}, a chunk makes no sense: {why}"),
        }
    }
}
