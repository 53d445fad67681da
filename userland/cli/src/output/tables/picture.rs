// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of stacks as profiles.

use super::style::Style;
use super::waits::is_counterpart;
use super::TablePrinter;
use crate::output::fields;
use crate::output::pictures::{About, Numbers, RowsProfile};
use libnsprobe::TableRow;
use nsprobe_profile::Profile;
use nsprobe_trace::hits::lookup::NameFrames;
use std::time::Duration;

impl TablePrinter {
    /// All rows, however many are printed.
    pub(crate) fn profile(
        &self,
        names: &mut impl NameFrames,
        rows: &[TableRow],
        about: &About,
    ) -> Profile {
        let rows = rows.iter().map(|row| (self.labels_of(row), row));
        self.labelled_profile(names, rows, about)
    }

    /// The same, of rows with labels.
    pub(crate) fn labelled_profile<'r>(
        &self,
        names: &mut impl NameFrames,
        rows: impl Iterator<Item = (Vec<(String, String)>, &'r TableRow)>,
        about: &About,
    ) -> Profile {
        let mut profile = RowsProfile::new(about, self.style.numbers());
        for (mut labels, row) in rows.filter(|(_, row)| row.count > 0) {
            labels.retain(|(name, _)| !is_counterpart(name));
            profile.add(labels, &self.with_counterpart(names, row), row);
        }
        profile.finish()
    }

    /// The same, for tables of functions: of each row the stack of its own.
    pub(super) fn own_profile(&self, names: &mut impl NameFrames, rows: &[TableRow]) -> Profile {
        let about = About::this_command(Duration::ZERO);
        let mut profile = RowsProfile::new(&about, self.style.numbers());
        for row in rows.iter().filter(|row| row.count > 0) {
            profile.add(self.labels_of(row), &names.views(&row.stack), row);
        }
        profile.finish()
    }

    /// The parts of a row's key, with what they are called.
    pub(crate) fn labels_of(&self, row: &TableRow) -> Vec<(String, String)> {
        let values = self.key(row);
        let named = self.keys.iter().zip(&values);
        named
            .map(|(field, value)| (field.name.clone(), fields::bare(value)))
            .collect()
    }
}

impl Style {
    fn numbers(&self) -> Numbers {
        match (self.period_ns, &self.summed) {
            _ if self.are_waits => Numbers::Waits,
            (Some(period_ns), _) => Numbers::Cpu { period_ns },
            (None, Some(summed)) => Numbers::Sum(summed.clone()),
            (None, None) => Numbers::Calls,
        }
    }
}
