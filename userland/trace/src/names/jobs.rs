// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to the threads that look up names, and their answers.

use super::line::NamesNote;
use crate::names::file_state::FileRows;
use crate::names::load_queue::LoadQueue;
use crate::names::named::{NamedFrame, Placed};
use crate::names::origin::PinnedObject;
use crate::names::search::{DebugSearch, Owner};
use libnsprobe::common::abi::ObjectIdentity;
use std::collections::HashSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The parts of the trace that the threads need.
#[derive(Debug)]
pub(crate) struct NameContext {
    /// Looks for debug files.
    pub(crate) search: Arc<DebugSearch>,
    /// Queue of requests for the unwind rows of files.
    pub(crate) rows: Option<LoadQueue>,
}

/// A request to the threads. All but the first are about a file that was opened.
#[derive(Debug)]
pub(super) enum Job {
    /// To find the file of an object, and to have it read.
    Open {
        id: u32,
        identity: Box<ObjectIdentity>,
        pinned: Arc<PinnedObject>,
        context: Arc<NameContext>,
        /// The process that had it mapped.
        owner: Option<Box<Owner>>,
    },
    /// The names of places.
    Name {
        id: u32,
        places: Vec<(u64, u8)>,
    },
    Table {
        id: u32,
    },
    /// To ask for the rows once more, of the file that the kernel gave, or else of the open one.
    GiveRows {
        id: u32,
        claimed: Option<File>,
    },
    /// Requests the sources of names.
    SumUp(Sender<Vec<(u32, NamesNote)>>),
}

impl Job {
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Job::Open { .. })
    }

    pub(super) fn id(&self) -> Option<u32> {
        match self {
            Job::Open { id, .. } | Job::Name { id, .. } => Some(*id),
            Job::Table { id } | Job::GiveRows { id, .. } => Some(*id),
            Job::SumUp(_) => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum Answer {
    /// To [`Job::Open`]: where the file was found, or why it is of no use.
    Opened {
        id: u32,
        opened: Result<Placed, String>,
    },
    /// Answers [`Job::Name`].
    Named {
        id: u32,
        named: Vec<((u64, u8), NamedFrame)>,
    },
    /// To [`Job::Table`].
    Table { id: u32, rows: FileRows },
    /// To anything, or by itself: the file is closed, as it was of no use for long.
    Closed { id: u32 },
}

impl Answer {
    /// The object that it is about.
    pub(super) fn id(&self) -> u32 {
        match self {
            Answer::Opened { id, .. } | Answer::Named { id, .. } => *id,
            Answer::Table { id, .. } | Answer::Closed { id } => *id,
        }
    }
}

/// What a thread is doing.
#[derive(Clone, Debug)]
pub(super) struct Busy {
    /// The object.
    pub(super) id: u32,
    /// When it started.
    pub(super) since: Instant,
    /// The file whose debug information is read, as far as it is known.
    pub(super) path: PathBuf,
    /// Size in bytes.
    pub(super) bytes: u64,
}

/// State that a thread shares with its callers.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    pub(super) busy: Mutex<Option<Busy>>,
    /// Objects whose ids were reused.
    pub(super) forgotten: Mutex<HashSet<u32>>,
    /// Jobs that are not done.
    pub(super) left: AtomicUsize,
}

impl SharedState {
    pub(super) fn busy(&self) -> MutexGuard<'_, Option<Busy>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forgotten(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.forgotten
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Records which file's debug information is being read.
    pub(super) fn reads(&self, path: PathBuf, bytes: u64) {
        if let Some(busy) = &mut *self.busy() {
            busy.path = path;
            busy.bytes = bytes;
        }
    }
}
