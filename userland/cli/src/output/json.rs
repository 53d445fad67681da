// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output for machines: one JSON object a line, in ASCII. The keys are
//! documented in `docs/json.md`; they are added to, never changed.

mod summary;

pub(crate) use summary::summary;

use crate::hits::view::{is_doubtful, may_lack_frames, FrameView, HitView, KernelFrame};
use crate::names::named::Named;
use crate::output::fields;
use crate::output::text::{self};
use libnsprobe::common::histogram::Scale;
use libnsprobe::common::record::{Frame, Lost, Method, OffRecord, StackEnd, WriteRecord};
use libnsprobe::{Counters, TableRow};
use nsprobe_symbolize::{FoundIn, NamesFrom, Source, SourceFrame};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Writes `value` as one line. Everything beyond ASCII is escaped, so that no
/// name can play tricks on a terminal, and every reader gets it back unchanged.
pub(crate) fn line(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    let mut serializer = Serializer::with_formatter(&mut *out, Ascii);
    value.serialize(&mut serializer).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> Result<()> {
        if fragment.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return out.write_all(fragment.as_bytes());
        }
        for char in fragment.chars() {
            match char {
                ' '..='~' => out.write_all(&[char as u8])?,
                char => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        write!(out, "\\u{unit:04x}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct HitLine<'a> {
    r#type: &'static str,
    time_s: f64,
    time_ns: u64,
    probe: u32,
    binary: &'a str,
    function: &'a str,
    comm: String,
    pid: u32,
    tid: u32,
    container_pid: u32,
    container_tid: u32,
    pid_namespace: u32,
    pid_namespace_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<&'a str>,
    cpu: u16,
    sequence: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    r#return: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    elapsed_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<fields::Json<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Vec<FrameLine<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack_end: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    may_lack_frames: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_stack: Option<Vec<KernelLine<'a>>>,
}

#[derive(Serialize)]
struct KernelLine<'a> {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<&'a str>,
}

impl<'a> KernelLine<'a> {
    fn new(frame: &'a KernelFrame<'_>) -> KernelLine<'a> {
        let symbol = frame.symbol;
        KernelLine {
            address: format!("{:#x}", frame.address),
            name: symbol.map(|symbol| symbol.name.as_str()),
            offset: symbol.map(|symbol| frame.address.wrapping_sub(symbol.address)),
            module: symbol.and_then(|symbol| symbol.module.as_deref()),
        }
    }
}

#[derive(Serialize)]
struct FrameLine<'a> {
    how: &'static str,
    doubtful: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_offset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    build_id: &'a str,
    functions: Vec<FunctionLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    names_from: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SourceLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unresolved: Option<&'a str>,
}

#[derive(Serialize)]
struct SourceLine {
    r#in: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct FunctionLine<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    inlined: bool,
}

/// Writes one hit.
pub(crate) fn hit(out: &mut impl Write, view: &HitView<'_>) -> Result<()> {
    let end = StackEnd::from_u8(view.hit.stack_end);
    let has_stack = end != Some(StackEnd::None);
    line(
        out,
        &HitLine {
            r#type: "hit",
            time_s: view.seconds(),
            time_ns: view.hit.time_ns,
            probe: view.hit.probe,
            binary: view.binary,
            function: view.function,
            comm: String::from_utf8_lossy(view.comm()).into_owned(),
            pid: view.hit.pid,
            tid: view.hit.tid,
            container_pid: view.hit.ns_pid,
            container_tid: view.hit.ns_tid,
            pid_namespace: view.hit.pidns_inum,
            pid_namespace_id: view.hit.pidns_id,
            container: view.container,
            cpu: view.hit.cpu,
            sequence: view.hit.sequence,
            r#return: view.is_return(),
            elapsed_ns: view.elapsed_ns,
            fields: (!view.formats.is_empty()).then_some(fields::Json {
                formats: view.formats,
                values: view.values,
            }),
            stack: has_stack.then(|| FrameLine::all(view.frames)),
            may_lack_frames: may_lack_frames(view.frames),
            stack_end: has_stack.then(|| end_name(end)),
            kernel_stack: (!view.kernel.is_empty())
                .then(|| view.kernel.iter().map(KernelLine::new).collect()),
        },
    )
}

/// Why a stack ends.
pub(crate) fn end_name(end: Option<StackEnd>) -> &'static str {
    match end {
        Some(StackEnd::None) => "none",
        Some(StackEnd::Outermost) => "outermost",
        Some(StackEnd::Limit) => "limit",
        Some(StackEnd::Fault) => "fault",
        Some(StackEnd::BadFramePointer) => "bad-frame-pointer",
        Some(StackEnd::NotCode) => "not-code",
        Some(StackEnd::Unsupported) => "unsupported",
        Some(StackEnd::BadRow) => "bad-row",
        Some(StackEnd::CopyEnd) => "copy-end",
        Some(StackEnd::NoRow) => "no-row",
        Some(StackEnd::RowsNotReady) => "rows-not-ready",
        Some(StackEnd::Copied) => "copied",
        Some(StackEnd::Late) => "late",
        None => "unknown",
    }
}

impl<'a> FrameLine<'a> {
    /// Those of a stack.
    fn all(frames: &'a [FrameView]) -> Vec<FrameLine<'a>> {
        let lines = frames.iter().enumerate();
        lines
            .map(|(number, view)| FrameLine::new(view, is_doubtful(frames, number)))
            .collect()
    }

    fn new(view: &'a FrameView, doubtful: bool) -> FrameLine<'a> {
        let named: &Named = &view.named;
        let (address, object, file_offset, method) = match view.frame {
            Frame::Object { id, offset, method } => {
                (None, Some(id), Some(format!("{offset:#x}")), method)
            }
            Frame::Address {
                address, method, ..
            } => (Some(format!("{address:#x}")), None, None, method),
        };
        FrameLine {
            how: method_name(method),
            doubtful,
            address,
            object,
            file_offset,
            path: named.path.as_ref().map(|path| path.display().to_string()),
            build_id: &named.build_id,
            functions: named.functions.iter().map(FunctionLine::new).collect(),
            names_from: named.source.map(source_name),
            source: named.source.map(|_| SourceLine::new(&named.from)),
            unresolved: named.unresolved.as_deref(),
        }
    }
}

impl<'a> FunctionLine<'a> {
    pub(crate) fn new(frame: &'a SourceFrame) -> FunctionLine<'a> {
        FunctionLine {
            name: &frame.function,
            offset: frame.function_offset,
            file: frame.file.as_deref(),
            line: frame.line,
            inlined: frame.inlined,
        }
    }
}

fn method_name(method: u8) -> &'static str {
    let names = [
        (Method::Registers, "registers"),
        (Method::StackTop, "stack-top"),
        (Method::FramePointer, "frame-pointer"),
        (Method::Row, "unwind-row"),
        (Method::Signal, "signal"),
    ];
    let known = names.iter().find(|(known, _)| *known as u8 == method);
    known.map_or("unknown", |(_, name)| name)
}

const FOUND_IN: [(FoundIn, &str); 3] = [
    (FoundIn::Container, "container"),
    (FoundIn::Host, "host"),
    (FoundIn::Debuginfod, "debuginfod"),
];

/// What output calls the file that names come from; its path, when it is not the frame's own.
pub(crate) fn found_in(from: &NamesFrom) -> (&'static str, Option<&Path>) {
    match from {
        NamesFrom::Program => ("file", None),
        NamesFrom::DebugData => ("debugdata", None),
        NamesFrom::File(path, found) => {
            let known = FOUND_IN.iter().find(|(known, _)| known == found);
            (known.map_or("unknown", |(_, name)| name), Some(path))
        }
    }
}

/// The file that output calls so.
pub(crate) fn found_of(name: &str, path: Option<PathBuf>) -> NamesFrom {
    let known = FOUND_IN.iter().find(|(_, known)| *known == name);
    match (known, path) {
        (Some((found, _)), Some(path)) => NamesFrom::File(Arc::new(path), *found),
        _ if name == "debugdata" => NamesFrom::DebugData,
        _ => NamesFrom::Program,
    }
}

impl SourceLine {
    fn new(from: &NamesFrom) -> SourceLine {
        let (r#in, path) = found_in(from);
        let path = path.map(|path| path.display().to_string());
        SourceLine { r#in, path }
    }
}

const SOURCES: [(Source, &str); 6] = [
    (Source::Dwarf, "dwarf"),
    (Source::Go, "go"),
    (Source::Symbols, "symbols"),
    (Source::Plt, "plt"),
    (Source::PerfMap, "perf-map"),
    (Source::JitDump, "jitdump"),
];

/// What output calls a source of names.
pub(crate) fn source_name(source: Source) -> &'static str {
    let known = SOURCES.iter().find(|(known, _)| *known == source);
    known.map_or("unknown", |(_, name)| name)
}

/// The source that output calls so.
pub(crate) fn source_of(name: &str) -> Option<Source> {
    let known = SOURCES.iter().find(|(_, known)| *known == name);
    known.map(|(source, _)| *source)
}

#[derive(Serialize)]
struct LostLine {
    r#type: &'static str,
    time_s: f64,
    time_ns: u64,
    first_ns: u64,
    count: u64,
}

/// Writes what was lost.
pub(crate) fn lost(out: &mut impl Write, lost: &Lost, start_ns: u64) -> Result<()> {
    line(
        out,
        &LostLine {
            r#type: "lost",
            time_s: lost.time_ns.saturating_sub(start_ns) as f64 / 1e9,
            time_ns: lost.time_ns,
            first_ns: lost.first_ns,
            count: lost.count,
        },
    )
}

/// Writes where a probe is armed.
pub(crate) fn verified(
    out: &mut impl Write,
    report: &crate::commands::verify::Report,
) -> Result<()> {
    line(out, report)
}

#[derive(Serialize)]
struct OffLine {
    r#type: &'static str,
    time_s: f64,
    time_ns: u64,
    probe: u32,
    limit: u32,
}

/// Writes that a probe was turned off.
pub(crate) fn off(out: &mut impl Write, off: &OffRecord, start_ns: u64) -> Result<()> {
    line(
        out,
        &OffLine {
            r#type: "off",
            time_s: off.time_ns.saturating_sub(start_ns) as f64 / 1e9,
            time_ns: off.time_ns,
            probe: off.probe,
            limit: off.limit,
        },
    )
}

#[derive(Serialize)]
struct WriteLine {
    r#type: &'static str,
    time_s: f64,
    time_ns: u64,
    probe: u32,
    sequence: u32,
    pid: u32,
    tid: u32,
    place: String,
    before: String,
    after: String,
    done: bool,
}

/// Writes one change.
pub(crate) fn write(out: &mut impl Write, write: &WriteRecord, start_ns: u64) -> Result<()> {
    line(
        out,
        &WriteLine {
            r#type: "write",
            time_s: write.time_ns.saturating_sub(start_ns) as f64 / 1e9,
            time_ns: write.time_ns,
            probe: write.probe,
            sequence: write.sequence,
            pid: write.pid,
            tid: write.tid,
            place: text::place_of(write),
            before: format!("{:#x}", write.before),
            after: format!("{:#x}", write.after),
            done: write.done != 0,
        },
    )
}

/// The counters of a probe, as every kind of line that has them shows them.
#[derive(Serialize)]
pub(crate) struct CountersLine {
    hits: u64,
    recorded: u64,
    aggregated: u64,
    filtered: u64,
    rejected: u64,
    undecided: u64,
    lost_full: u64,
    turned_away: u64,
    written: u64,
    write_failed: u64,
    write_withheld: u64,
    skipped: u64,
    limited: u64,
    off: u64,
    too_deep: u64,
    frozen: u64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    samples: Option<SamplesLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stacks_cut: Option<u64>,
}

/// What only samples have.
#[derive(Debug, Serialize)]
struct SamplesLine {
    missed: u64,
    in_kernel: u64,
    idle: u64,
    kernel_threads: u64,
    by_clock: u64,
}

impl SamplesLine {
    /// None of a probe that is hit at a place.
    fn of(counters: &Counters) -> Option<SamplesLine> {
        let line = SamplesLine {
            missed: counters.missed,
            in_kernel: counters.in_kernel,
            idle: counters.idle,
            kernel_threads: counters.kernel_threads,
            by_clock: counters.by_clock,
        };
        counters.has_samples().then_some(line)
    }
}

impl From<Counters> for CountersLine {
    fn from(counters: Counters) -> CountersLine {
        CountersLine {
            hits: counters.hits,
            recorded: counters.recorded,
            aggregated: counters.aggregated,
            filtered: counters.filtered,
            rejected: counters.rejected,
            undecided: counters.undecided,
            lost_full: counters.lost_full,
            turned_away: counters.turned_away,
            written: counters.written,
            write_failed: counters.write_failed,
            write_withheld: counters.write_withheld,
            skipped: counters.skipped,
            limited: counters.limited,
            off: counters.off,
            too_deep: counters.too_deep,
            frozen: counters.frozen,
            samples: SamplesLine::of(&counters),
            stacks_cut: Some(counters.stacks_cut),
        }
    }
}

/// A row of a table with everything that its line tells.
pub(crate) struct RowView<'a> {
    /// `interval` or `total`.
    pub(crate) of: &'static str,
    /// When it was read, since the begin.
    pub(crate) at: Duration,
    /// What it is found by.
    pub(crate) key: fields::Json<'a>,
    /// The row.
    pub(crate) row: &'a TableRow,
    /// Whether values were added up.
    pub(crate) has_values: bool,
    /// Of a histogram.
    pub(crate) scale: Option<Scale>,
    /// Of a stack.
    pub(crate) frames: Option<&'a [FrameView]>,
}

#[derive(Serialize)]
struct RowLine<'a> {
    r#type: &'static str,
    of: &'static str,
    time_s: f64,
    key: &'a fields::Json<'a>,
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    least: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    greatest: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<Vec<(i64, i64, u64)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Vec<FrameLine<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack_end: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    may_lack_frames: bool,
}

/// Writes one row of a table.
pub(crate) fn row(out: &mut impl Write, view: &RowView<'_>) -> Result<()> {
    let row = view.row;
    let buckets = view.scale.map(|scale| {
        let ranges = row.buckets.iter().enumerate();
        let used = ranges.filter(|(_, count)| **count > 0);
        used.filter_map(|(bucket, count)| {
            let (least, greatest) = scale.range(bucket)?;
            Some((least, greatest, *count))
        })
        .collect()
    });
    let of_total = |value: i64| (view.has_values && view.of == "total").then_some(value);
    let end = StackEnd::from_u8(row.stack_end);
    line(
        out,
        &RowLine {
            r#type: "row",
            of: view.of,
            time_s: view.at.as_secs_f64(),
            key: &view.key,
            count: row.count,
            sum: view.has_values.then_some(row.sum),
            least: of_total(row.least),
            greatest: of_total(row.greatest),
            buckets,
            stack: view.frames.map(FrameLine::all),
            may_lack_frames: view.frames.is_some_and(may_lack_frames),
            stack_end: view.frames.map(|_| end_name(end)),
        },
    )
}

#[cfg(test)]
mod tests;
