// SPDX-License-Identifier: MIT OR Apache-2.0
//! The capsule: a recording in a file, with all that is needed to print it elsewhere.
//!
//! A capsule is a sequence of chunks, each with its length and its checksums. It has no
//! index: what was written before its writer was killed can be read. `docs/capsule.md` is
//! the reference of the format.
//!
//! [`Writer`] appends chunks; [`CapsuleReader`] walks over them, and past what is damaged;
//! [`Contents`] gathers all but the records, which are read one by one
//! ([`CapsuleReader::each_record`]).
//!
//! A capsule may come from anywhere: its bytes are hostile. All sizes are capped, nothing
//! that it says is opened or run, and names in it are to be escaped when they are shown.
#![forbid(unsafe_code)]

mod blocks;
mod chunk;
mod contents;
mod error;
mod generated;
pub mod model;
mod output;
mod read;
mod scan;
mod write;

pub use blocks::{each_body, Rest, RestKey, Stack};
pub use chunk::{ChunkHeader, ChunkKind, Preamble, CHUNK_BYTES_MAX, MAJOR, MAY_SKIP, MINOR};
pub use contents::{Contents, Tally};
pub use error::{CapsuleError, Damage, Reason};
pub use generated::{Generated, GeneratedPlace};
pub use output::{FileOutput, Output};
pub use read::{CapsuleReader, Chunk};
pub use scan::ReadAt;
pub use write::{Writer, Written};
