// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe report`: counts what a capsule has, by stacks.

use crate::args::{Aggregate, Detail, HitKey, ReportKey, ReportPlan, StackOutput};
use crate::output::summary;
use crate::output::tables::{Style, TablePrinter};
use anyhow::bail;
use libnsprobe::common::abi::KERNEL_FRAMES_MAX;
use libnsprobe::common::record::{Details, Frame, Hit, Method, Unmapped, HIT_KERNEL};
use libnsprobe::{Rows, TableRow};
use nsprobe_capsule::CapsuleReader;
use nsprobe_spec::decode::{self, FieldFormat, FieldValue, WordShape};
use nsprobe_trace::hits::assembler::{HitAssembler, Ready};
use nsprobe_trace::hits::label::ProbeLabel;
use nsprobe_trace::hits::lookup::{kernel_addresses, whole_stack, words_of};
use nsprobe_trace::names::address_names::name_addresses;
use nsprobe_trace::recording::capsule::{Capsule, Offline};
use nsprobe_trace::summary::Summary;
use nsprobe_trace::tasks::Place;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

pub(crate) fn run(plan: &ReportPlan) -> anyhow::Result<ExitCode> {
    let mut capsule = Capsule::open(&plan.file)?;
    capsule.require_hits(&plan.file)?;
    let summary = summary(&capsule);
    let style = Style {
        json: plan.json,
        top: plan.top,
        ..style(&capsule, plan.shown)
    };
    let mut counted = Counted::read(&mut capsule, &plan.by, style)?;
    let elapsed = summary.as_ref().map_or(Duration::ZERO, |s| s.elapsed);
    let Counted {
        offline,
        printer,
        rows,
    } = &mut counted;
    printer.total(offline, rows, elapsed)?;
    if let Some(summary) = &summary {
        printer.summary(summary)?;
    }
    tell(&capsule, &plan.file, summary, plan.detail)
}

/// Table style for a capsule.
pub(crate) fn style(capsule: &Capsule, shown: Option<StackOutput>) -> Style {
    let placeless = capsule.placeless();
    let usual = match placeless {
        Some(_) => StackOutput::Functions { callers: false },
        None => StackOutput::Frames,
    };
    Style {
        what: match capsule.has_stacks() {
            true => Aggregate::Stacks {
                max_frames: 0,
                shown: shown.unwrap_or(usual),
            },
            false => Aggregate::Count,
        },
        ..Style::counting(placeless)
    }
}

/// Totals of the recording; `None` if it was cut off.
pub(crate) fn summary(capsule: &Capsule) -> Option<Summary> {
    let mut summary = capsule.summary()?;
    summary.printed = capsule.contents.hits;
    Some(summary)
}

/// Reports the totals of a recording and what is missing from it.
pub(crate) fn tell(
    capsule: &Capsule,
    path: &Path,
    summary: Option<Summary>,
    detail: Detail,
) -> anyhow::Result<ExitCode> {
    let code = match summary {
        Some(summary) => summary::tell(&summary, detail)?,
        None => ExitCode::SUCCESS,
    };
    if capsule.has_stacks() {
        capsule.tell_unrecorded(path, detail == Detail::Quiet);
    }
    Ok(match capsule.tell_missing() {
        true => code,
        false => ExitCode::FAILURE,
    })
}

/// The hits of a capsule, counted.
pub(crate) struct Counted<'a> {
    /// Looks up the names of frames.
    pub(crate) offline: Offline<'a>,
    /// Prints the rows; knows the values of their keys.
    pub(crate) printer: TablePrinter,
    pub(crate) rows: Rows,
}

impl Counted<'_> {
    pub(crate) fn read<'a>(
        capsule: &'a mut Capsule,
        by: &[ReportKey],
        style: Style,
    ) -> anyhow::Result<Counted<'a>> {
        let (labels, has_stacks) = (capsule.labels(), capsule.has_stacks());
        let Capsule { reader, contents } = capsule;
        let mut offline = Offline::new(contents);
        let mut counts = Counts::new(&labels, by, has_stacks)?;
        counts.take_all(&mut offline, reader)?;
        let formats: Vec<FieldFormat> = counts.by.iter().map(format).collect();
        let mut printer = TablePrinter::new(style, &formats, false, labels);
        printer.name_containers(counts.containers.names());
        for (name, values) in &counts.values {
            printer.name_values(name, values.names());
        }
        let rows = Rows {
            rows: counts.rows(),
            ..Rows::default()
        }
        .added_up();
        Ok(Counted {
            offline,
            printer,
            rows,
        })
    }
}

/// Hits by what they are counted by.
struct Counts {
    by: Vec<ReportKey>,
    /// For each probe, the first probe of its function.
    functions: HashMap<u32, u32>,
    /// Each probe, for what its fields are.
    labels: HashMap<u32, ProbeLabel>,
    containers: ContainerNames,
    /// The values of fields that are counted by, by the name of the field.
    values: BTreeMap<String, Values>,
    /// By key, stack and its end; in order, so that equal counts are always printed alike.
    rows: BTreeMap<(Vec<u64>, Vec<u64>, u8), u64>,
}

impl Counts {
    /// Starts empty. Several functions are kept apart, unless they are counted by something else.
    fn new(labels: &[ProbeLabel], by: &[ReportKey], has_stacks: bool) -> anyhow::Result<Counts> {
        let functions = functions(labels);
        let mut by = by.to_vec();
        let first = functions.values().next();
        let several = functions.values().any(|function| Some(function) != first);
        if by.is_empty() && (several || !has_stacks) {
            by.push(ReportKey::Known(HitKey::Func));
        }
        for key in &by {
            if let ReportKey::Field(name) = key {
                check_recorded(name, labels)?;
            }
        }
        Ok(Counts {
            by,
            functions,
            labels: labels
                .iter()
                .map(|label| (label.id.0, label.clone()))
                .collect(),
            containers: ContainerNames::default(),
            values: BTreeMap::new(),
            rows: BTreeMap::new(),
        })
    }

    /// Counts all hits of a capsule.
    fn take_all(
        &mut self,
        offline: &mut Offline<'_>,
        reader: &mut CapsuleReader<File>,
    ) -> anyhow::Result<()> {
        let mut waiting = HitAssembler::default();
        reader.each_record(|record| -> anyhow::Result<()> {
            if let Some(ready) = waiting.receive(record) {
                self.add(offline, &ready);
            }
            Ok(())
        })?;
        while let Some(hit) = waiting.pop() {
            self.add(offline, &Ready::Waited(hit));
        }
        Ok(())
    }

    fn add(&mut self, offline: &mut Offline<'_>, ready: &Ready<'_>) {
        // A capsule knows what it knows at once.
        let Some((hit, frames)) = whole_stack(offline, ready.hit(), &ready.details()) else {
            return;
        };
        let mut key = Vec::new();
        for at in 0..self.by.len() {
            match self.by.get(at).cloned() {
                Some(ReportKey::Known(known)) => key.extend(self.words(known, offline, &hit)),
                Some(ReportKey::Field(name)) => key.push(self.field(name, &hit, &ready.details())),
                None => {}
            }
        }
        let mut stack = Vec::new();
        if hit.flags & HIT_KERNEL != 0 {
            stack.extend(kernel_frames(&hit, ready.details().kernel));
        }
        let frames = frames.into_iter();
        stack.extend(frames.map(|frame| offline.settled(frame, &hit)));
        let stack = words_of(&stack);
        *self.rows.entry((key, stack, hit.stack_end)).or_default() += 1;
    }

    /// The number that stands for the value of a field in a hit; a probe without such a field
    /// has none.
    fn field(&mut self, name: String, hit: &Hit, details: &Details<'_>) -> u64 {
        let mut value = FieldValue::Absent;
        if let Some(label) = self.labels.get(&hit.probe) {
            let mut values = decode::fields(&label.fields, details.fields);
            if let Some(functions) = label.symbols.as_deref() {
                name_addresses(&mut values, functions);
            }
            let named = label.fields.iter().zip(values);
            let mut named = named.filter(|(field, _)| field.name == name);
            value = named.next().map_or(FieldValue::Absent, |(_, value)| value);
        }
        self.values.entry(name).or_default().number(value)
    }

    /// The part of a key that a hit has, in the words that `format` reads.
    fn words(&mut self, key: HitKey, offline: &Offline<'_>, hit: &Hit) -> Vec<u64> {
        let number = match key {
            HitKey::Func => *self.functions.get(&hit.probe).unwrap_or(&hit.probe),
            HitKey::Pid => hit.pid,
            HitKey::Tid => hit.tid,
            HitKey::Nspid => hit.ns_pid,
            HitKey::Nstid => hit.ns_tid,
            HitKey::Cpu => hit.cpu.into(),
            HitKey::Container => return vec![self.containers.number(offline, hit)],
            HitKey::Comm => {
                let words = hit.comm.chunks_exact(size_of::<u64>());
                let word = |b: &[u8]| b.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
                return words.map(word).collect();
            }
        };
        vec![number.into()]
    }

    fn rows(self) -> Vec<TableRow> {
        let row = |((key, stack, stack_end), count)| TableRow {
            key,
            stack,
            stack_end,
            count,
            ..TableRow::default()
        };
        self.rows.into_iter().map(row).collect()
    }
}

/// The kernel's part of a sample's stack, as the module has it in the rows of a table.
fn kernel_frames<'a>(hit: &Hit, addresses: &'a [u64]) -> impl Iterator<Item = Frame> + 'a {
    let addresses = kernel_addresses(hit, addresses).take(KERNEL_FRAMES_MAX);
    addresses.map(|(address, exact)| Frame::Address {
        address,
        why: Unmapped::Kernel as u8,
        method: match exact {
            true => Method::Registers as u8,
            false => Method::Row as u8,
        },
    })
}

/// Containers, and the numbers that stand for them in keys.
#[derive(Default)]
struct ContainerNames {
    /// By what people call it, and its id, or without one that of its pid namespace.
    numbers: BTreeMap<(String, Option<String>, u64), u64>,
}

impl ContainerNames {
    /// The number that represents the hit's container.
    fn number(&mut self, offline: &Offline<'_>, hit: &Hit) -> u64 {
        let key = match offline.place(hit) {
            Some(Place::Container(known)) if known.id.is_some() => {
                (known.name.clone(), known.id.clone(), 0)
            }
            Some(place) => (place.name(), None, hit.pidns_id),
            None => (format!("pid:[{}]", hit.pidns_inum), None, hit.pidns_id),
        };
        let next = self.numbers.len() as u64;
        *self.numbers.entry(key).or_insert(next)
    }

    /// The container of each number.
    fn names(&self) -> HashMap<u64, FieldValue> {
        let value = |((name, ..), number): (&(String, _, _), &u64)| {
            (*number, FieldValue::Named(name.clone(), 0))
        };
        self.numbers.iter().map(value).collect()
    }
}

/// Values of a field, and the numbers that stand for them in keys.
#[derive(Default)]
struct Values {
    /// Numbers by everything that distinguishes their keys.
    numbers: HashMap<String, u64>,
    values: Vec<FieldValue>,
}

impl Values {
    fn number(&mut self, value: FieldValue) -> u64 {
        let next = self.values.len() as u64;
        let number = *self.numbers.entry(format!("{value:?}")).or_insert(next);
        if number == next {
            self.values.push(value);
        }
        number
    }

    /// The value of each number.
    fn names(&self) -> HashMap<u64, FieldValue> {
        (0..).zip(self.values.iter().cloned()).collect()
    }
}

/// Fails when no probe has recorded a field of this name.
fn check_recorded(name: &str, labels: &[ProbeLabel]) -> anyhow::Result<()> {
    let fields = labels.iter().flat_map(|label| label.fields.iter());
    let names: BTreeSet<&str> = fields.map(|field| field.name.as_str()).collect();
    if names.contains(name) {
        return Ok(());
    }
    let recorded = match names.is_empty() {
        true => "none was".to_owned(),
        false => names.into_iter().collect::<Vec<_>>().join(", "),
    };
    bail!("--by {name}: no such field was recorded ({recorded})")
}

/// How the words of a key are decoded.
fn format(key: &ReportKey) -> FieldFormat {
    let known = match key {
        ReportKey::Known(known) => known,
        ReportKey::Field(name) => return FieldFormat::new(name, WordShape::Word),
    };
    let (name, shape) = match known {
        HitKey::Func => ("func", WordShape::Word),
        HitKey::Pid => ("pid", WordShape::Word),
        HitKey::Tid => ("tid", WordShape::Word),
        HitKey::Nspid => ("nspid", WordShape::Word),
        HitKey::Nstid => ("nstid", WordShape::Word),
        HitKey::Comm => ("comm", WordShape::Comm),
        HitKey::Cpu => ("cpu", WordShape::Word),
        HitKey::Container => ("container", WordShape::Word),
    };
    FieldFormat::new(name, shape)
}

/// For each probe, the first probe of its function: its exits count as one.
fn functions(labels: &[ProbeLabel]) -> HashMap<u32, u32> {
    let mut firsts = HashMap::new();
    let counting = labels.iter().filter(|label| label.role.counts());
    counting
        .map(|label| {
            let first = firsts.entry(label.planned).or_insert(label.id.0);
            (label.id.0, *first)
        })
        .collect()
}
