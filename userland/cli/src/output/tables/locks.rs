// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of locks: each with the stacks that waited for it, and who held it then.

use super::waits::{is_counterpart, HOLDER};
use super::TablePrinter;
use crate::output::fields::{self, duration};
use libnsprobe::TableRow;
use nsprobe_spec::decode::FieldValue;
use nsprobe_text::{counted, escaped};
use nsprobe_trace::hits::lookup::NameFrames;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The waits of some rows.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    ns: i64,
    longest_ns: i64,
}

impl Sum {
    fn add(&mut self, row: &TableRow) {
        self.count += row.count;
        self.ns = self.ns.saturating_add(row.sum);
        self.longest_ns = self.longest_ns.max(row.greatest);
    }

    fn text(self) -> String {
        let time = |ns: i64| duration(ns.max(0) as u64);
        let longest = match self.count {
            1 => String::new(),
            _ => format!(", the longest {}", time(self.longest_ns)),
        };
        format!(
            "{}, {}{longest}",
            counted(self.count, "wait"),
            time(self.ns)
        )
    }
}

impl TablePrinter {
    /// Prints locks, those that were waited for longest first.
    pub(super) fn locks(
        &mut self,
        names: &mut impl NameFrames,
        rows: &[TableRow],
    ) -> io::Result<()> {
        let mut locks: BTreeMap<String, (Sum, Vec<&TableRow>)> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.count > 0) {
            let (sum, of_it) = locks.entry(self.lock_of(row)).or_default();
            sum.add(row);
            of_it.push(row);
        }
        let mut locks: Vec<(String, (Sum, Vec<&TableRow>))> = locks.into_iter().collect();
        locks.sort_by_key(|(_, (sum, _))| Reverse(sum.ns));
        for (lock, (sum, rows)) in locks.iter_mut().take(self.style.top) {
            writeln!(self.out, "{}: {}\n", escaped(&*lock), sum.text())?;
            rows.sort_by_key(|row| Reverse(row.sum));
            for row in rows.iter().take(self.style.top) {
                self.waits_for_lock(names, row)?;
            }
            if let Some(left @ 1..) = rows.len().checked_sub(self.style.top) {
                writeln!(self.out, "... and {left} more stacks, with less time\n")?;
            }
        }
        if let Some(left @ 1..) = locks.len().checked_sub(self.style.top) {
            writeln!(self.out, "... and {left} more locks, with less time")?;
        }
        self.out.flush()
    }

    /// All of a row's key but the holder.
    fn lock_of(&self, row: &TableRow) -> String {
        let values = self.key(row);
        let named = self.keys.iter().zip(&values);
        let named = named.filter(|(key, _)| !is_counterpart(&key.name));
        let parts: Vec<String> = named
            .map(|(key, value)| format!("{}={}", key.name, fields::bare(value)))
            .collect();
        parts.join(" ")
    }

    fn waits_for_lock(&mut self, names: &mut impl NameFrames, row: &TableRow) -> io::Result<()> {
        let mut sum = Sum::default();
        sum.add(row);
        let values = self.key(row);
        let mut named = self.keys.iter().zip(&values);
        let holder = named.find(|(key, _)| key.name == HOLDER);
        let holder = match holder.map(|(_, value)| value) {
            Some(FieldValue::Named(name, _)) if name != "-" => format!("held by {}", escaped(name)),
            _ => "holder unknown".to_owned(),
        };
        writeln!(self.out, "{}, {holder}", sum.text())?;
        self.frames_of_both(names, row)
    }
}
