// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of containers that have no name yet.

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
    pub(super) fn keep(&mut self, row: TableRow, container: &RowContainer) -> Option<TableRow> {
        if *container != RowContainer::Unknown {
            self.since.remove(&row.key);
            return Some(row);
        }
        if self.rows.len() >= ROWS_MAX || self.since.len() >= KEYS_MAX {
            self.since.retain(|_, since| since.elapsed() < PATIENCE);
            return Some(row);
        }
        let since = self.since.entry(row.key.clone());
        if since.or_insert_with(Instant::now).elapsed() >= PATIENCE {
            return Some(row);
        }
        self.rows.push(row);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_wait_for_a_name_and_are_added_up_meanwhile() {
        let row = |count| TableRow {
            key: vec![7],
            count,
            ..TableRow::default()
        };
        let mut unnamed = Unnamed::default();
        assert_eq!(unnamed.keep(row(1), &RowContainer::Unknown), None);
        assert_eq!(unnamed.keep(row(2), &RowContainer::Unknown), None);
        let waiting = unnamed.take();
        assert_eq!(waiting, [row(3)]);
        assert_eq!(unnamed.keep(row(3), &RowContainer::Own), Some(row(3)));
        assert!(unnamed.take().is_empty());
    }
}
