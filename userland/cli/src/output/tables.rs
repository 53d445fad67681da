// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables as text and as JSON.

mod functions;
mod histogram;
mod locks;
mod picture;
mod style;
mod waits;

pub(crate) use style::Style;
pub(crate) use waits::{Counterpart, HOLDER, KIND, LOCK, WAKER};

use crate::args::{Aggregate, StackOutput};
use crate::output::fields::{self, duration};
use crate::output::json;
use crate::output::lines::Output;
use crate::output::pictures::About;
use crate::output::text;
use libnsprobe::common::record::OffRecord;
use libnsprobe::{Rows, TableRow};
use nsprobe_profile::Format;
use nsprobe_spec::decode::{self, FieldFormat, FieldValue, WordShape};
use nsprobe_text::{counted, escaped};
use nsprobe_trace::hits::label::{probe_id, ProbeLabel};
use nsprobe_trace::hits::lookup::NameFrames;
use nsprobe_trace::summary::Summary;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::time::Duration;
pub(crate) use style::CONTAINER;

/// The output of a verb that counts.
pub(crate) struct TablePrinter {
    out: Output,
    style: Style,
    keys: Vec<FieldFormat>,
    labels: HashMap<u32, ProbeLabel>,
    /// Meaning of the numbers of containers in keys.
    containers: HashMap<u64, FieldValue>,
    /// Meaning of the numbers of other keys, by the keys' names.
    values: HashMap<String, HashMap<u64, FieldValue>>,
    /// The other sides of waits, by their numbers in keys.
    counterparts: Vec<Counterpart>,
}

impl TablePrinter {
    pub(crate) fn new(
        style: Style,
        keys: &[FieldFormat],
        one_each: bool,
        labels: Vec<ProbeLabel>,
    ) -> TablePrinter {
        let keys = match keys {
            [] if one_each || style.what == Aggregate::Count => {
                vec![FieldFormat::new("func", WordShape::Word)]
            }
            keys => keys.to_vec(),
        };
        let values = match style.are_waits {
            true => waits::key_values(),
            false => HashMap::new(),
        };
        TablePrinter {
            out: Output::to_stdout(),
            style,
            keys,
            labels: labels
                .into_iter()
                .map(|label| (label.id.0, label))
                .collect(),
            containers: HashMap::new(),
            values,
            counterparts: Vec::new(),
        }
    }

    /// Where rows are printed.
    pub(crate) fn out(&mut self) -> &mut Output {
        &mut self.out
    }

    /// Sends what comes from now on elsewhere.
    pub(crate) fn redirect(&mut self, out: Output) {
        self.out = out;
    }

    /// The ids of pid namespaces in these rows that stand for containers.
    pub(crate) fn containers_in(&self, rows: &[TableRow]) -> BTreeSet<u64> {
        let mut places = self.keys.iter().enumerate();
        let place = places.find(|(_, field)| field.name == CONTAINER);
        let Some((place, _)) = place.filter(|_| self.style.by_container) else {
            return BTreeSet::new();
        };
        let number = |row: &TableRow| match decode::key(&self.keys, &row.key).get(place) {
            Some(FieldValue::Unsigned(id)) => Some(*id),
            _ => None,
        };
        rows.iter().filter_map(number).collect()
    }

    /// The word of keys that is a container's.
    pub(crate) fn container_word(&self) -> Option<usize> {
        let before = self.keys.iter().take_while(|key| key.name != CONTAINER);
        let at = before.map(|key| key.shape.key_words()).sum();
        self.style.by_container.then_some(at)
    }

    /// Sets the meaning of the numbers of containers in keys.
    pub(crate) fn name_containers(&mut self, names: HashMap<u64, FieldValue>) {
        self.containers = names;
    }

    /// Sets the meaning of the numbers of a key.
    pub(crate) fn name_values(&mut self, key: &str, names: HashMap<u64, FieldValue>) {
        self.values.insert(key.to_owned(), names);
    }

    /// There are more probes.
    pub(crate) fn add(&mut self, labels: &[ProbeLabel]) {
        let labels = labels.iter().cloned();
        self.labels.extend(labels.map(|label| (label.id.0, label)));
    }

    /// Prints what was added lately.
    pub(crate) fn interval(
        &mut self,
        names: &mut impl NameFrames,
        rows: &[TableRow],
        at: Duration,
    ) -> io::Result<()> {
        if !self.style.json {
            writeln!(
                self.out,
                "at {:.3} s, since the last time:",
                at.as_secs_f64()
            )?;
        }
        self.rows(names, rows, at, "interval")
    }

    pub(crate) fn total(
        &mut self,
        names: &mut impl NameFrames,
        rows: &Rows,
        at: Duration,
    ) -> io::Result<()> {
        self.rows(names, &rows.rows, at, "total")
    }

    fn rows(
        &mut self,
        names: &mut impl NameFrames,
        rows: &[TableRow],
        at: Duration,
        of: &'static str,
    ) -> io::Result<()> {
        if let (
            false,
            Aggregate::Stacks {
                shown: StackOutput::Functions { callers },
                ..
            },
        ) = (self.style.json, self.style.what)
        {
            return self.functions(names, rows, callers);
        }
        if let (
            false,
            Aggregate::Stacks {
                shown: StackOutput::Folded,
                ..
            },
        ) = (self.style.json, self.style.what)
        {
            return self.folded(names, rows);
        }
        if let (
            false,
            Aggregate::Stacks {
                shown: StackOutput::Locks,
                ..
            },
        ) = (self.style.json, self.style.what)
        {
            return self.locks(names, rows);
        }
        let mut rows: Vec<&TableRow> = rows.iter().filter(|row| row.count > 0).collect();
        let weight = |row: &TableRow| match self.style.are_waits {
            true => row.sum.max(0) as u64,
            false => row.count,
        };
        rows.sort_by_key(|row| (std::cmp::Reverse(weight(row)), row.key.clone()));
        let left = rows.len().saturating_sub(self.style.top);
        rows.truncate(self.style.top);
        if let (Aggregate::Count, false, false) =
            (self.style.what, self.style.json, rows.is_empty())
        {
            self.count_head()?;
        }
        for row in rows {
            match (self.style.json, self.style.what) {
                (true, _) => self.json(names, row, at, of)?,
                (false, Aggregate::Count) => self.count(row)?,
                (false, Aggregate::Histogram(scale)) => self.histogram(row, scale)?,
                (false, Aggregate::Stacks { .. }) => self.stack(names, row)?,
            }
        }
        if left > 0 && !self.style.json {
            writeln!(self.out, "... and {left} more, with smaller counts")?;
        }
        self.out.flush()
    }

    /// A probe was turned off: what is counted from here on lacks it.
    pub(crate) fn off(&mut self, off: &OffRecord, start_ns: u64) -> io::Result<()> {
        if self.style.json {
            return json::off(&mut self.out, off, start_ns);
        }
        let label = self.labels.get(&off.probe);
        let label = label.map_or("?", |label| &label.label);
        eprintln!("nsprobe: {}", text::turned_off(off, label));
        Ok(())
    }

    /// The parts of a row's key; a probe is called by its function.
    fn key(&self, row: &TableRow) -> Vec<FieldValue> {
        let mut values = decode::key(&self.keys, &row.key);
        for (field, value) in self.keys.iter().zip(&mut values) {
            let FieldValue::Unsigned(number) = *value else {
                continue;
            };
            let named = match field.name.as_str() {
                "func" => {
                    let label = self.labels.get(&probe_id(number).0);
                    label.map(|label| FieldValue::Named(label.label.clone(), number as i64))
                }
                CONTAINER => self.containers.get(&number).cloned(),
                name => self
                    .values
                    .get(name)
                    .and_then(|of| of.get(&number))
                    .cloned(),
            };
            *value = named.unwrap_or(FieldValue::Unsigned(number));
        }
        values
    }

    /// The key in a few words.
    fn title(&self, row: &TableRow) -> String {
        let values = self.key(row);
        let part = |(field, value): (&FieldFormat, &FieldValue)| match field.name.as_str() {
            "func" => fields::text(value),
            name => format!("{}={}", escaped(name), fields::text(value)),
        };
        let parts: Vec<String> = self.keys.iter().zip(&values).map(part).collect();
        parts.join(" ")
    }

    fn count_head(&mut self) -> io::Result<()> {
        write!(self.out, "{:>12}", "COUNT")?;
        if let Some(summed) = &self.style.summed {
            write!(self.out, " {:>16}", format!("SUM({})", escaped(summed)))?;
        }
        let names: Vec<&str> = self.keys.iter().map(|field| field.name.as_str()).collect();
        writeln!(self.out, "  {}", escaped(&names.join(" ").to_uppercase()))
    }

    fn count(&mut self, row: &TableRow) -> io::Result<()> {
        write!(self.out, "{:>12}", row.count)?;
        if self.style.summed.is_some() {
            write!(self.out, " {:>16}", row.sum)?;
        }
        let values = self.key(row);
        let values: Vec<String> = values.iter().map(fields::text).collect();
        writeln!(self.out, "  {}", values.join(" "))
    }

    /// A value as it is measured.
    fn value(&self, value: i64) -> String {
        match u64::try_from(value) {
            Ok(ns) if self.style.timed => duration(ns),
            _ => value.to_string(),
        }
    }

    fn stack(&mut self, names: &mut impl NameFrames, row: &TableRow) -> io::Result<()> {
        write!(self.out, "{}", counted(row.count, self.style.unit))?;
        if let Some(summed) = &self.style.summed {
            write!(self.out, ", sum of {} {}", escaped(summed), row.sum)?;
        }
        if self.style.are_waits {
            write!(self.out, ", {}", duration(row.sum.max(0) as u64))?;
        }
        writeln!(self.out, " {}", self.title(row))?;
        self.frames_of_both(names, row)
    }

    /// The frames of a row, and of the other side of its waits.
    fn frames_of_both(&mut self, names: &mut impl NameFrames, row: &TableRow) -> io::Result<()> {
        let frames = names.views(&row.stack);
        let Some(other) = self.counterpart(row).filter(|one| !one.stack.is_empty()) else {
            return text::stack(&mut self.out, &frames, row.stack_end);
        };
        let (title, end) = (other.title(), other.stack_end);
        let of_other = names.views(&other.stack);
        text::frames(&mut self.out, &frames)?;
        text::cut_note(&mut self.out, row.stack_end)?;
        writeln!(self.out, "  {}", escaped(&title))?;
        text::stack(&mut self.out, &of_other, end)
    }

    /// All stacks, as a file of this format has them.
    fn folded(&mut self, names: &mut impl NameFrames, rows: &[TableRow]) -> io::Result<()> {
        let profile = self.profile(names, rows, &About::this_command(Duration::ZERO));
        match nsprobe_profile::write(Format::Folded, &profile, &mut self.out) {
            Ok(()) | Err(nsprobe_profile::ProfileError::Empty) => self.out.flush(),
            Err(nsprobe_profile::ProfileError::Io(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn json(
        &mut self,
        names: &mut impl NameFrames,
        row: &TableRow,
        at: Duration,
        of: &'static str,
    ) -> io::Result<()> {
        let (mut formats, mut values) = (Cow::Borrowed(&self.keys[..]), self.key(row));
        // Names come again, ids do not.
        for id in self.containers_in(std::slice::from_ref(row)) {
            let format = FieldFormat::new("pid_namespace_id", WordShape::Word);
            formats.to_mut().push(format);
            values.push(FieldValue::Unsigned(id));
        }
        let scale = match self.style.what {
            Aggregate::Histogram(scale) => Some(scale),
            _ => None,
        };
        let frames = match self.style.what {
            Aggregate::Stacks { .. } => Some(names.views(&row.stack)),
            _ => None,
        };
        let other = self.counterpart(row).filter(|one| !one.stack.is_empty());
        let other = other.map(|one| json::OtherSide {
            is_holder: one.is_holder,
            frames: names.views(&one.stack),
            stack_end: one.stack_end,
        });
        let key = fields::Json {
            formats: &formats,
            values: &values,
        };
        let has_values = self.style.summed.is_some() || self.style.are_waits || scale.is_some();
        let view = json::RowView {
            of,
            at,
            key,
            row,
            has_values,
            scale,
            frames: frames.as_deref(),
            other: other.as_ref(),
        };
        json::row(&mut self.out, &view)
    }

    /// The last line, for machines.
    pub(crate) fn summary(&mut self, summary: &Summary) -> io::Result<()> {
        if self.style.json {
            json::summary(&mut self.out, summary)?;
        }
        self.out.flush()
    }
}
