// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of debug files. Paths that the parent opens are its own; those that a file
//! names come back as bytes, and are as hostile as the file.

use nsprobe_symbolize::{is_plain_name, FrameSource, SourceFrame};
use serde::{Deserialize, Serialize};

/// Longest path that a file names, in bytes.
const PATH_BYTES_MAX: usize = 4096;
/// Most units whose DWARF is elsewhere.
pub(crate) const UNITS_MAX: usize = 1 << 16;
/// Most bytes of their paths; what is beyond is skipped.
pub(crate) const UNITS_BYTES_MAX: usize = 16 << 20;
/// Most reasons why debug files could not be used.
pub(crate) const FAILURES_MAX: usize = 64;

/// As what a file is read.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Form {
    /// A program, with its functions.
    Program,
    /// One whose functions are not needed.
    Sections,
    /// One of what several debug files share.
    Supplementary,
}

/// What a debug file is for its program.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum DebugRole {
    /// It has what was stripped.
    Separate,
    /// It has what debug files share.
    Supplementary,
    /// It is a package of split DWARF.
    Package,
    /// It has the split DWARF of the unit with this id.
    Split(u64),
}

/// A debug file that comes with a request.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Attached {
    /// What it is.
    pub role: DebugRole,
    /// How errors call it: bytes of a path.
    pub label: Vec<u8>,
}

/// Which file names come from.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Holder {
    /// The program itself.
    Program,
    /// What it has compressed in `.gnu_debugdata`.
    DebugData,
    /// The debug file that was attached as the so-many-th, from 0.
    Attached(u32),
}

/// The source frames of a place.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct SourceFrames {
    /// The frames, the innermost inlined function first; never empty.
    pub frames: Vec<SourceFrame>,
    /// Where they come from.
    pub source: FrameSource,
    /// Which file has them.
    pub holder: Holder,
    /// Why DWARF was there but was not used.
    pub note: Option<String>,
}

/// A file of what several debug files share, as another names it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct SharedDebugFile {
    /// Its path.
    pub path: Vec<u8>,
    /// Its build-id.
    pub build_id: Vec<u8>,
}

/// A unit whose DWARF is in another file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct SplitUnitMessage {
    /// Its id.
    pub id: u64,
    /// That file's name.
    pub name: Vec<u8>,
    /// The folder in which the compiler ran; may be empty.
    pub folder: Vec<u8>,
}

impl SharedDebugFile {
    pub(super) fn is_sound(&self) -> bool {
        is_path(&self.path) && (1..=super::BUILD_ID_BYTES_MAX).contains(&self.build_id.len())
    }
}

impl SplitUnitMessage {
    pub(super) fn is_sound(&self) -> bool {
        is_path(&self.name) && (self.folder.is_empty() || is_path(&self.folder))
    }

    /// The bytes of its paths.
    pub(crate) fn bytes(&self) -> usize {
        self.name.len() + self.folder.len()
    }
}

/// Whether it may be the name of a debug link.
pub(super) fn is_link(name: &[u8]) -> bool {
    is_plain_name(name)
}

fn is_path(path: &[u8]) -> bool {
    (1..=PATH_BYTES_MAX).contains(&path.len()) && !path.contains(&0)
}
