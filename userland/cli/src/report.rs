// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe report`: counts what a capsule has, by stacks.

use crate::aggregate::print::{Printer, Style};
use crate::args::{Aggregate, ReportKey, ReportPlan};
use crate::capsule::{Capsule, Offline};
use crate::lookup::{whole_stack, words_of};
use crate::run::Role;
use crate::summary::ProbeLabel;
use crate::tasks::Place;
use crate::waiting::{Ready, WaitingHits};
use libnsprobe::common::record::Hit;
use libnsprobe::{Rows, TableRow};
use nsprobe_capsule::Reader;
use nsprobe_plan::decode::{FieldFormat, FieldValue, Shape};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::process::ExitCode;
use std::time::Duration;

/// Reports.
pub(crate) fn run(plan: &ReportPlan) -> anyhow::Result<ExitCode> {
    let mut capsule = Capsule::open(&plan.file)?;
    let has_stacks = capsule.has_stacks();
    let labels = capsule.labels();
    let mut offline = Offline::new(&capsule.contents);
    let mut counts = Counts::new(&labels, &plan.by, has_stacks);
    counts.take_all(&mut offline, &mut capsule.reader)?;
    let style = Style {
        json: plan.json,
        what: match has_stacks {
            true => Aggregate::Stacks {
                max_frames: 0,
                folded: plan.folded,
            },
            false => Aggregate::Count,
        },
        timed: false,
        summed: None,
        top: plan.top,
    };
    let formats: Vec<FieldFormat> = counts.by.iter().map(|key| format(*key)).collect();
    let mut printer = Printer::new(style, &formats, false, labels);
    printer.name_containers(counts.containers.names());
    let rows = Rows {
        rows: counts.rows(),
        ..Rows::default()
    };
    let summary = capsule.summary();
    let elapsed = summary.as_ref().map_or(Duration::ZERO, |s| s.elapsed);
    printer.total(&mut offline, &rows, elapsed)?;
    let mut code = ExitCode::SUCCESS;
    if let Some(mut summary) = summary {
        summary.printed = capsule.contents.hits;
        printer.summary(&summary)?;
        code = summary.tell(plan.detail, None)?;
    }
    Ok(match capsule.tell_missing() {
        true => code,
        false => ExitCode::FAILURE,
    })
}

/// Hits by what they are counted by.
struct Counts {
    by: Vec<ReportKey>,
    /// For each probe the first one of its function.
    functions: HashMap<u32, u32>,
    containers: ContainerNames,
    /// By key, stack and its end; in order, so that equal counts are always printed alike.
    rows: BTreeMap<(Vec<u64>, Vec<u64>, u8), u64>,
}

impl Counts {
    /// None yet. Several functions are told apart, unless they are counted by something else.
    fn new(labels: &[ProbeLabel], by: &[ReportKey], has_stacks: bool) -> Counts {
        let functions = functions(labels);
        let mut by = by.to_vec();
        let first = functions.values().next();
        let several = functions.values().any(|function| Some(function) != first);
        if by.is_empty() && (several || !has_stacks) {
            by.push(ReportKey::Func);
        }
        Counts {
            by,
            functions,
            containers: ContainerNames::default(),
            rows: BTreeMap::new(),
        }
    }

    /// Counts all hits of a capsule.
    fn take_all(
        &mut self,
        offline: &mut Offline<'_>,
        reader: &mut Reader<File>,
    ) -> anyhow::Result<()> {
        let mut waiting = WaitingHits::default();
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
        let by = std::mem::take(&mut self.by);
        let words = by.iter().flat_map(|key| self.words(*key, offline, &hit));
        let key = words.collect();
        self.by = by;
        let frames = frames.into_iter();
        let frames: Vec<_> = frames.map(|frame| offline.settled(frame, &hit)).collect();
        let stack = words_of(&frames);
        *self.rows.entry((key, stack, hit.stack_end)).or_default() += 1;
    }

    /// The part of a key that a hit has, in the words that `format` reads.
    fn words(&mut self, key: ReportKey, offline: &Offline<'_>, hit: &Hit) -> Vec<u64> {
        let number = match key {
            ReportKey::Func => *self.functions.get(&hit.probe).unwrap_or(&hit.probe),
            ReportKey::Pid => hit.pid,
            ReportKey::Tid => hit.tid,
            ReportKey::Nspid => hit.ns_pid,
            ReportKey::Nstid => hit.ns_tid,
            ReportKey::Cpu => hit.cpu.into(),
            ReportKey::Container => return vec![self.containers.number(offline, hit)],
            ReportKey::Comm => {
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

/// Containers, and the numbers that stand for them in keys.
#[derive(Default)]
struct ContainerNames {
    /// By what people call it, its id, and, without a name, its pid namespace.
    numbers: BTreeMap<(String, Option<String>, u32), u64>,
}

impl ContainerNames {
    /// What stands for the container that a hit was in: by its name when there is one.
    fn number(&mut self, offline: &Offline<'_>, hit: &Hit) -> u64 {
        let key = match offline.place(hit) {
            Some(Place::Container(known)) => (known.name.clone(), known.id.clone(), 0),
            _ => (String::new(), None, hit.pidns_inum),
        };
        let next = self.numbers.len() as u64;
        *self.numbers.entry(key).or_insert(next)
    }

    /// What each number is.
    fn names(&self) -> HashMap<u64, FieldValue> {
        let value = |((name, _, inum), number): (&(String, Option<String>, u32), &u64)| {
            let value = match inum {
                0 => FieldValue::Named(name.clone(), 0),
                inum => FieldValue::Unsigned((*inum).into()),
            };
            (*number, value)
        };
        self.numbers.iter().map(value).collect()
    }
}

/// How the words of a key are read.
fn format(key: ReportKey) -> FieldFormat {
    let (name, shape) = match key {
        ReportKey::Func => ("func", Shape::Word),
        ReportKey::Pid => ("pid", Shape::Word),
        ReportKey::Tid => ("tid", Shape::Word),
        ReportKey::Nspid => ("nspid", Shape::Word),
        ReportKey::Nstid => ("nstid", Shape::Word),
        ReportKey::Comm => ("comm", Shape::Comm),
        ReportKey::Cpu => ("cpu", Shape::Word),
        ReportKey::Container => ("container", Shape::Word),
    };
    FieldFormat::new(name, shape)
}

/// For each probe the first one of its function: its exits count as one.
fn functions(labels: &[ProbeLabel]) -> HashMap<u32, u32> {
    let mut firsts = HashMap::new();
    let counting = labels.iter().filter(|label| label.role != Role::Begin);
    counting
        .map(|label| {
            let first = firsts.entry(label.planned).or_insert(label.id.0);
            (label.id.0, *first)
        })
        .collect()
}
