// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue of files whose unwind rows are requested, for the thread that compiles them.

use nsprobe_unwind::Cache;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which it checks whether to continue.
const LOOK: Duration = Duration::from_millis(50);

/// A file, and its path; none asks the thread to end.
pub(crate) type LoadJob = Option<(File, PathBuf)>;

/// Asks for the rows of files.
#[derive(Clone, Debug)]
pub(crate) struct LoadQueue {
    /// `None` asks the thread to end.
    pub(crate) jobs: Sender<LoadJob>,
    pub(crate) left: Arc<Left>,
    pub(crate) cache: Option<Arc<Cache>>,
}

/// Work that is left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    count: Mutex<usize>,
    is_done: Condvar,
}

impl LoadQueue {
    /// The cache that keeps rows for later runs.
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.cache.as_deref()
    }

    /// Asks for the rows of a file.
    pub(crate) fn give(&self, file: File, path: &Path) {
        self.left.add(1);
        if self.jobs.send(Some((file, path.to_owned()))).is_err() {
            self.left.done();
        }
    }
}

impl Left {
    pub(crate) fn add(&self, count: usize) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += count;
    }

    pub(crate) fn done(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.is_done.notify_all();
        }
    }

    pub(crate) fn wait(&self, limit: Duration, mut goes_on: impl FnMut(usize) -> bool) {
        let until = Instant::now() + limit;
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !goes_on(*count) {
                return;
            }
            let waited = self.is_done.wait_timeout(count, left.min(LOOK));
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
