// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of containers that have no name yet.

use crate::commands::aggregate::NamedRow;
use libnsprobe::{Rows, TableRow};
use nsprobe_trace::tasks::RowContainer;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a name is waited for: longer than it is looked for.
const PATIENCE: Duration = Duration::from_secs(7);
/// Most rows that wait.
const ROWS_MAX: usize = 10_000;
/// Most keys of which it is known since when they wait.
const KEYS_MAX: usize = 10_000;

/// Rows that wait for the name of their container.
#[derive(Default)]
pub(super) struct Unnamed {
    rows: Vec<TableRow>,
    /// When the first row of a key came.
    since: HashMap<Vec<u64>, Instant>,
}

impl Unnamed {
    /// The rows that wait, to be looked at anew.
    pub(super) fn take(&mut self) -> Vec<TableRow> {
        let rows = Rows {
            rows: std::mem::take(&mut self.rows),
            ..Rows::default()
        };
        rows.added_up().rows
    }

    /// Keeps a row whose container may get a name; else gives it back.
    pub(super) fn keep(&mut self, named: NamedRow) -> Option<NamedRow> {
        if named.container != RowContainer::Unknown {
            self.since.remove(&named.row.key);
            return Some(named);
        }
        if self.rows.len() >= ROWS_MAX || self.since.len() >= KEYS_MAX {
            self.since.retain(|_, since| since.elapsed() < PATIENCE);
            return Some(named);
        }
        let since = self.since.entry(named.row.key.clone());
        if since.or_insert_with(Instant::now).elapsed() >= PATIENCE {
            return Some(named);
        }
        self.rows.push(named.row);
        None
    }
}
