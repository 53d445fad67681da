// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of a function's exits as rows of the function, those of one function in several
//! files as of one, and those of strings that are the same as far as they were asked for
//! as of one: the module takes whole words.

use libnsprobe::Rows;
use nsprobe_spec::decode::{FieldFormat, WordShape};
use nsprobe_trace::hits::label::ProbeLabel;
use nsprobe_trace::names::probed_file::FileId;
use std::collections::HashMap;

/// Merges the rows of exits.
#[derive(Debug, Default)]
pub(super) struct ExitRows {
    /// The words of a key that name a probe.
    places: Vec<usize>,
    /// The last words of strings in a key, and which bits of them count.
    ends: Vec<(usize, u64)>,
    /// The probe in whose place another one is shown: the first exit of a function, or
    /// the one that was there first.
    first: HashMap<u64, u64>,
    /// The first probe of each function by its label, as a file may have several of one.
    known: HashMap<(String, usize), u64>,
    /// The functions of a label in each file.
    of_file: HashMap<(String, Option<FileId>), Vec<usize>>,
}

impl ExitRows {
    /// For keys of these parts; `by_probe` means that a key is a probe and nothing else.
    pub(super) fn new(keys: &[FieldFormat], by_probe: bool, labels: &[ProbeLabel]) -> ExitRows {
        let (mut places, mut ends) = (Vec::new(), Vec::new());
        let mut at = 0;
        for key in keys {
            if key.name == "func" {
                places.push(at);
            }
            at += key.shape.key_words();
            if let WordShape::Text { most } = key.shape {
                let bits = u32::from(most % 8) * 8;
                if bits != 0 {
                    ends.push((at - 1, (1 << bits) - 1));
                }
            }
        }
        if by_probe {
            places.push(0);
        }
        let mut all = ExitRows {
            places,
            ends,
            ..ExitRows::default()
        };
        all.add(labels);
        all
    }

    /// There are probes of these files.
    pub(super) fn add(&mut self, labels: &[ProbeLabel]) {
        for label in labels.iter().filter(|label| label.role.counts()) {
            let id = u64::from(label.id.0);
            let own = self.of_file.entry((label.label.clone(), label.file));
            let own = own.or_default();
            let number = own.iter().position(|planned| *planned == label.planned);
            let number = number.unwrap_or_else(|| {
                own.push(label.planned);
                own.len() - 1
            });
            let first = *self
                .known
                .entry((label.label.clone(), number))
                .or_insert(id);
            if first != id {
                self.first.insert(id, first);
            }
        }
    }

    /// Adds up the rows that are of one function, and of one string.
    pub(super) fn join(&self, mut rows: Rows) -> Rows {
        if (self.first.is_empty() || self.places.is_empty()) && self.ends.is_empty() {
            return rows;
        }
        for row in &mut rows.rows {
            for (place, mask) in &self.ends {
                if let Some(word) = row.key.get_mut(*place) {
                    *word &= mask;
                }
            }
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
    use libnsprobe::{ProbeId, TableRow};
    use nsprobe_symbolize::FileOffset;
    use nsprobe_trace::hits::label::ProbeRole;
    use std::rc::Rc;

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
    fn strings_are_no_longer_than_they_were_asked_for() {
        let keys = [
            FieldFormat::new("pid", WordShape::Word),
            FieldFormat::new("name", WordShape::Text { most: 12 }),
            FieldFormat::new("whole", WordShape::Text { most: 8 }),
        ];
        let exits = ExitRows::new(&keys, false, &[]);
        let word = |text: &[u8; 8]| u64::from_le_bytes(*text);
        let of = |end, whole| [7, word(b"/srv/dat"), word(end), word(whole)];
        let joined = exits.join(Rows {
            rows: vec![
                row(&of(b"a/12.txt", b"abcdefgh"), 1, 1),
                row(&of(b"a/12.log", b"abcdefgh"), 2, 1),
                row(&of(b"a/12\0\0\0\0", b"abcdefgi"), 4, 1),
            ],
            ..Rows::default()
        });
        let mut counts: Vec<u64> = joined.rows.iter().map(|row| row.count).collect();
        counts.sort_unstable();
        assert_eq!(counts, [3, 4]);
        let shown = nsprobe_spec::decode::key(&keys, &joined.rows[0].key);
        assert_eq!(
            shown[1],
            nsprobe_spec::decode::FieldValue::Text {
                bytes: b"/srv/data/12".to_vec(),
                cut: true
            }
        );
    }

    #[test]
    fn a_function_of_several_files_is_one_row() {
        let label = |id: u32, planned: usize, ino: u64, name: &str| ProbeLabel {
            id: ProbeId(id),
            label: name.to_owned(),
            binary: String::new(),
            file: Some(FileId::of_stat(1, ino)),
            function: name.to_owned(),
            offset: FileOffset(id.into()),
            fields: Rc::from([]),
            symbols: None,
            planned,
            role: ProbeRole::Whole,
        };
        // The second file has the function at another place; the first has two of one name.
        let labels = [
            label(1, 0, 7, "malloc"),
            label(2, 1, 7, "init"),
            label(3, 2, 7, "init"),
            label(4, 3, 8, "malloc"),
        ];
        let exits = ExitRows::new(&[], true, &labels);
        let rows = [1, 2, 3, 4].map(|id| row(&[id], 1 << id, 0)).to_vec();
        let joined = exits.join(Rows {
            rows,
            ..Rows::default()
        });
        let rows = joined.rows.iter().map(|row| (row.key[0], row.count));
        assert_eq!(rows.collect::<Vec<_>>(), [(1, 18), (2, 4), (3, 8)]);
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
