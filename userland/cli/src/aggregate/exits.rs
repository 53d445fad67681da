// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of a function's exits as rows of the function, and those of one function in
//! several containers as of one.

use crate::run::Role;
use crate::summary::ProbeLabel;
use libnsprobe::Rows;
use nsprobe_plan::decode::FieldFormat;
use nsprobe_symbolize::FileOffset;
use std::collections::HashMap;

/// How rows of exits come together.
#[derive(Debug, Default)]
pub(super) struct ExitRows {
    /// The words of a key that name a probe.
    places: Vec<usize>,
    /// The probe in whose place another one is shown: the first exit of a function, or
    /// the one that was there first.
    first: HashMap<u64, u64>,
    /// The first probe of each function at an offset.
    known: HashMap<(String, FileOffset), u64>,
}

impl ExitRows {
    /// For keys of these parts; `by_probe` tells that a key is a probe and nothing else.
    pub(super) fn new(keys: &[FieldFormat], by_probe: bool, labels: &[ProbeLabel]) -> ExitRows {
        let mut places = Vec::new();
        let mut at = 0;
        for key in keys {
            if key.name == "func" {
                places.push(at);
            }
            at += key.shape.key_words();
        }
        if by_probe {
            places.push(0);
        }
        let mut all = ExitRows {
            places,
            ..ExitRows::default()
        };
        all.note(labels);
        all
    }

    /// There are more probes, of other files.
    pub(super) fn add(&mut self, labels: &[ProbeLabel]) {
        let before = self.known.clone();
        self.note(labels);
        for label in labels.iter().filter(|label| label.role != Role::Begin) {
            if let Some(known) = before.get(&(label.label.clone(), label.offset)) {
                self.first.insert(label.id.0.into(), *known);
            }
        }
    }

    fn note(&mut self, labels: &[ProbeLabel]) {
        let mut firsts: HashMap<usize, u64> = HashMap::new();
        for label in labels.iter().filter(|label| label.role != Role::Begin) {
            let id = u64::from(label.id.0);
            let first = *firsts.entry(label.planned).or_insert(id);
            if first != id {
                self.first.insert(id, first);
            }
            let place = (label.label.clone(), label.offset);
            self.known.entry(place).or_insert(first);
        }
    }

    /// Adds up the rows of one function's exits.
    pub(super) fn join(&self, mut rows: Rows) -> Rows {
        if self.first.is_empty() || self.places.is_empty() {
            return rows;
        }
        for row in &mut rows.rows {
            for place in &self.places {
                if let Some(word) = row.key.get_mut(*place) {
                    *word = self.first.get(word).copied().unwrap_or(*word);
                }
            }
        }
        rows.added_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libnsprobe::TableRow;

    fn row(key: &[u64], count: u64, least: i64) -> TableRow {
        TableRow {
            key: key.to_vec(),
            count,
            least,
            greatest: least,
            buckets: vec![count, 0],
            ..TableRow::default()
        }
    }

    #[test]
    fn exits_of_one_function_are_one_row() {
        let exits = ExitRows {
            places: vec![1],
            first: HashMap::from([(5, 4)]),
            ..ExitRows::default()
        };
        let rows = vec![
            row(&[9, 4], 1, 30),
            row(&[9, 5], 2, 10),
            row(&[9, 7], 4, 0),
            row(&[8, 5], 8, 0),
        ];
        let joined = exits.join(Rows {
            rows,
            turned_away: 3,
            ..Rows::default()
        });
        assert_eq!(joined.turned_away, 3);
        let mut rows = joined.rows;
        rows.sort_by_key(|row| row.count);
        let keys: Vec<&[u64]> = rows.iter().map(|row| row.key.as_slice()).collect();
        assert_eq!(keys, [&[9, 4][..], &[9, 7], &[8, 4]]);
        let first = &rows[0];
        assert_eq!((first.count, first.least, first.greatest), (3, 10, 30));
        assert_eq!(first.buckets, [3, 0]);
    }
}
