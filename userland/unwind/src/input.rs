// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the rows of a file are computed from.

use crate::{build, cfi, frames, UnwindError, UnwindTable};
use nsprobe_common::unwind::Rule;
use nsprobe_symbolize::{
    Address, Binary, FileOffset, GoSections, LoadedSection, Segment, UnwindSections,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of this compiler. It must be raised when other rows come of the same input,
/// or an [`UnwindTable`] means something else: it distinguishes tables on disk.
const COMPILER: u32 = 3;

/// Least bytes that describe frames for which an entry is made: less is compiled in a few
/// milliseconds, and a process that compiles for an entry, and nothing else, takes as long to start.
const WORTH_BYTES: u64 = 128 << 10;

/// All that rows are computed from: with it, no file is needed. So its digest names the rows,
/// whatever the file says of itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Input {
    pub(crate) sections: UnwindSections,
    pub(crate) segments: Vec<Segment>,
    pub(crate) code_bytes: u64,
}

/// The BLAKE3 hash of an [`Input`] and of what compiles it: a container must not find another input
/// with the same one, and all sections are hashed whenever rows are looked for.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Digest(pub(crate) [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Input {
    /// Reads that of a file. The `.debug_frame` that was stripped from it is in its debug file.
    pub fn of(binary: &Binary, separate: Option<&Binary>) -> Result<Input, UnwindError> {
        let mut sections = binary.unwind_sections()?;
        if let (true, Some(separate)) = (sections.debug_frame.is_empty(), separate) {
            sections.debug_frame = separate.unwind_sections()?.debug_frame;
        }
        Ok(Input {
            sections,
            segments: binary.segments().to_vec(),
            code_bytes: binary.code_bytes(),
        })
    }

    /// Whether less than half of the code is described, by DWARF alone, so that the rest may be
    /// described in a debug file.
    pub fn is_sparse(&self) -> bool {
        let UnwindSections { sframe, go, .. } = &self.sections;
        let by_others = !sframe.data.is_empty() || !go.table.is_empty();
        !by_others && !frames::cover(&self.sections, self.code_bytes / 2)
    }

    /// Compiles the table.
    pub fn compile(&self) -> Result<UnwindTable, UnwindError> {
        let mut ranges = cfi::read(self)?;
        let left_out = ranges.left_out;
        build::build(ranges.in_file(self), self.code_bytes)
            .map(|table| UnwindTable { left_out, ..table })
    }

    /// Bytes that describe frames.
    pub fn bytes(&self) -> u64 {
        let UnwindSections {
            eh_frame,
            debug_frame,
            sframe,
            go,
            ..
        } = &self.sections;
        (eh_frame.data.len() + debug_frame.len() + sframe.data.len() + go.table.len()) as u64
    }

    /// Whether its table is kept on disk by a [`Cache`](crate::Cache).
    pub fn is_worth_keeping(&self) -> bool {
        self.bytes() >= WORTH_BYTES
    }

    /// Names the table. Every field of everything is in it, each with its length where that
    /// may differ: the patterns have no `..`, so that one more field is not forgotten.
    pub fn digest(&self) -> Digest {
        let Input {
            sections,
            segments,
            code_bytes,
        } = self;
        let UnwindSections {
            eh_frame,
            debug_frame,
            sframe,
            go,
            text,
            got,
            entry,
        } = sections;
        let mut hash = Hash(blake3::Hasher::new());
        hash.bytes(b"nsprobe unwind rows");
        hash.number(COMPILER.into());
        hash.number(size_of::<Rule>() as u64);
        hash.section(eh_frame);
        hash.bytes(debug_frame);
        hash.section(sframe);
        hash.go(go);
        hash.number(text.0);
        hash.number(got.0);
        hash.number(entry.0);
        hash.number(*code_bytes);
        hash.number(segments.len() as u64);
        for segment in segments {
            hash.segment(segment);
        }
        Digest(hash.0.finalize().into())
    }

    /// The offset of an address that the file loads.
    pub(crate) fn offset_of(&self, address: Address) -> Option<FileOffset> {
        let mut segments = self.segments.iter();
        segments.find_map(|segment| segment.offset_of(address))
    }
}

struct Hash(blake3::Hasher);

impl Hash {
    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn section(&mut self, LoadedSection { data, address }: &LoadedSection) {
        self.number(address.0);
        self.bytes(data);
    }

    fn go(&mut self, GoSections { table, text, code }: &GoSections) {
        self.bytes(table);
        self.number(text.0);
        self.number(code.len() as u64);
        code.iter().for_each(|function| self.section(function));
    }

    fn segment(&mut self, segment: &Segment) {
        let &Segment {
            file_offset,
            address,
            file_bytes,
            executable,
            // No row depends on it.
            writable: _,
        } = segment;
        for number in [file_offset.0, address.0, file_bytes, executable.into()] {
            self.number(number);
        }
    }
}

#[cfg(test)]
mod tests;
