// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records as lines: hits, changes, what was lost, probes that were turned off.

use super::frames::{FrameLine, KernelLine};
use super::line::line;
use crate::output::fields;
use crate::output::text;
use libnsprobe::common::record::{Lost, OffRecord, StackEnd, WriteRecord};
use nsprobe_trace::hits::view::{may_lack_frames, HitView};
use nsprobe_trace::hits::words::end_name;
use serde::Serialize;
use std::io::{Result, Write};

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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    truncated: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Vec<FrameLine<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack_end: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    may_lack_frames: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_stack: Option<Vec<KernelLine<'a>>>,
}

pub(crate) fn hit(out: &mut impl Write, view: &HitView<'_>) -> Result<()> {
    let end = StackEnd::from_u8(view.hit.stack_end);
    let has_stack = end != Some(StackEnd::None);
    let fields = fields::Json {
        formats: view.formats,
        values: view.values,
    };
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
            truncated: fields.truncated(),
            fields: (!view.formats.is_empty()).then_some(fields),
            stack: has_stack.then(|| FrameLine::all(view.frames)),
            may_lack_frames: may_lack_frames(view.frames),
            stack_end: has_stack.then(|| end_name(end)),
            kernel_stack: (!view.kernel.is_empty())
                .then(|| view.kernel.iter().map(KernelLine::new).collect()),
        },
    )
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
