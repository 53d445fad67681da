// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a file, for the code that requests its names.

use crate::names::named::Placed;
use crate::names::origin::PinnedObject;
use nsprobe_unwind::UnwindTable;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// The unwind rows of a file.
#[derive(Clone, Debug)]
pub(crate) enum FileRows {
    Table(Arc<UnwindTable>),
    /// The file has no rows.
    None,
    /// The file cannot be had.
    Unavailable,
}

/// A file, as far as it is known here.
#[derive(Debug)]
pub(super) struct FileState {
    pub(super) thread: usize,
    pub(super) state: Stage,
    /// For its reader; `None` if it is closed.
    pub(super) pinned: Option<Arc<PinnedObject>>,
    /// Places that were asked for.
    pub(super) asked: HashSet<(u64, u8)>,
    /// Whether any name was ever needed.
    pub(super) is_needed: bool,
    /// Whether its unwind rows were requested.
    pub(super) asked_table: bool,
    pub(super) table: Option<FileRows>,
    /// Since when it is waited for, without an answer.
    pub(super) waits: Option<Instant>,
    /// Timed out; its frames print unnamed until it answers.
    pub(super) is_late: bool,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// A thread opens it, or has not begun.
    Opening,
    Open(Box<Placed>),
    Closed(Option<Box<Placed>>),
    Unusable(String),
}
