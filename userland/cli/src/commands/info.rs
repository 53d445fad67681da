// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe info`: what a capsule is.

use crate::args::InfoPlan;
use crate::commands::tree::{Detail, NamespaceLine, TreeView};
use crate::output::fields::duration;
use crate::output::json;
use nsprobe_capsule::model::{Container, Object, RecordedProbe, RecordingHeader, Summary, Text};
use nsprobe_capsule::{ChunkKind, Contents};
use nsprobe_text::{counted, escaped};
use nsprobe_trace::placeless::Placeless;
use nsprobe_trace::recording::capsule::{convert, Capsule};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use time::format_description::well_known::Rfc3339;
use time::OffsetDateTime;

/// Probes, and files, that are listed one by one.
const SHOWN: usize = 50;

pub(crate) fn run(plan: &InfoPlan) -> anyhow::Result<ExitCode> {
    let capsule = Capsule::open(&plan.file)?;
    let mut out = BufWriter::new(io::stdout());
    match plan.json {
        true => json::line(&mut out, &InfoLine::new(&capsule))?,
        false => write(&mut out, &capsule)?,
    }
    out.flush()?;
    Ok(ExitCode::from(u8::from(!capsule.is_whole())))
}

#[derive(Serialize)]
struct InfoLine<'a> {
    r#type: &'static str,
    format: String,
    orderly: bool,
    hits: u64,
    record_bytes: u64,
    bytes: u64,
    lost_full: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    unwritten: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<&'a RecordingHeader>,
    probes: Vec<RecordedProbeLine<'a>>,
    objects: Vec<&'a Object>,
    containers: &'a [Container],
    task_records: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tree: Vec<NamespaceLine>,
    places: usize,
    named: usize,
    generated: usize,
    chunks: Vec<ChunkLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a Summary>,
    damages: Vec<DamageLine>,
}

#[derive(Serialize)]
struct RecordedProbeLine<'a> {
    probe: u32,
    role: &'a str,
    binary: &'a str,
    function: &'a str,
    file_offset: String,
    fields: Vec<&'a str>,
}

#[derive(Serialize)]
struct ChunkLine {
    kind: &'static str,
    number: u16,
    chunks: u64,
    bytes: u64,
    items: u64,
}

#[derive(Serialize)]
struct DamageLine {
    at: u64,
    bytes: u64,
    why: String,
}

impl<'a> InfoLine<'a> {
    fn new(capsule: &'a Capsule) -> InfoLine<'a> {
        let contents = &capsule.contents;
        let (major, minor) = capsule.reader.version();
        let damage = |damage: &nsprobe_capsule::Damage| DamageLine {
            at: damage.at,
            bytes: damage.bytes,
            why: damage.to_string(),
        };
        InfoLine {
            r#type: "capsule",
            format: format!("{major}.{minor}"),
            orderly: contents.end.is_some(),
            hits: contents.hits,
            record_bytes: contents.record_bytes,
            bytes: capsule.reader.position(),
            lost_full: lost(contents),
            unwritten: contents.summary.as_ref().map(|summary| summary.unwritten),
            header: contents.header.as_ref(),
            probes: contents.probes.iter().map(RecordedProbeLine::new).collect(),
            objects: contents.objects.values().collect(),
            containers: &contents.containers,
            task_records: contents.task_records,
            tree: TreeView::of_capsule(contents).lines(
                Detail {
                    tasks: true,
                    threads: true,
                },
                None,
            ),
            places: contents.places.len(),
            named: named(contents),
            generated: generated(contents),
            chunks: chunks(contents),
            summary: contents.summary.as_ref(),
            damages: contents.damages.iter().map(damage).collect(),
        }
    }
}

impl<'a> RecordedProbeLine<'a> {
    fn new(probe: &'a RecordedProbe) -> RecordedProbeLine<'a> {
        let fields = probe.fields.iter();
        RecordedProbeLine {
            probe: probe.id,
            role: &probe.role,
            binary: &probe.binary,
            function: &probe.function,
            file_offset: format!("{:#x}", probe.offset),
            fields: fields.map(|field| field.name.as_str()).collect(),
        }
    }
}

/// Hits that found no room in the rings: the final count, or else the losses announced until then.
fn lost(contents: &Contents) -> u64 {
    let Some(summary) = &contents.summary else {
        return contents.lost;
    };
    let of_probe = |counters: &std::collections::BTreeMap<String, u64>| {
        counters.get("lost_full").copied().unwrap_or(0)
    };
    summary
        .probes
        .iter()
        .map(|probe| of_probe(&probe.counters))
        .sum()
}

/// Events of tasks that found no room in the rings: the final count, or else the losses announced
/// until then.
fn lost_tasks(contents: &Contents) -> u64 {
    match &contents.summary {
        Some(summary) => summary.tasks.values().map(|total| total.lost).sum(),
        None => contents.lost,
    }
}

/// Places that have a name.
fn named(contents: &Contents) -> usize {
    let has_name = |place: &&(u32, u64, bool)| {
        let name = contents.names.get(place);
        name.is_some_and(|name| !name.functions.is_empty())
    };
    contents.places.iter().filter(has_name).count()
}

/// Names of generated code.
fn generated(contents: &Contents) -> usize {
    let all = contents.generated.all();
    all.filter(|name| !name.functions.is_empty()).count()
}

fn chunks(contents: &Contents) -> Vec<ChunkLine> {
    let tallies = contents.tallies.iter();
    let line = |(&number, tally): (&u16, &nsprobe_capsule::Tally)| ChunkLine {
        kind: ChunkKind::from_u16(number).map_or("unknown", ChunkKind::name),
        number,
        chunks: tally.chunks,
        bytes: tally.bytes,
        items: tally.items,
    };
    tallies.map(line).collect()
}

fn shown(text: &Text) -> String {
    escaped(&text.0).to_string()
}

fn write(out: &mut impl Write, capsule: &Capsule) -> io::Result<()> {
    let contents = &capsule.contents;
    if let Some(header) = &contents.header {
        write_header(out, header)?;
    }
    write_state(out, capsule)?;
    write_lists(out, contents)?;
    write_tasks(out, contents)?;
    for chunk in chunks(contents) {
        writeln!(
            out,
            "chunks:    {:<10} {:>8} of {:>12} bytes with {}",
            chunk.kind,
            chunk.chunks,
            chunk.bytes,
            counted(chunk.items, "item")
        )?;
    }
    for damage in &contents.damages {
        writeln!(out, "damage:    {}", escaped(&damage.to_string()))?;
    }
    Ok(())
}

/// Writes how the recording ended and how large it is.
fn write_state(out: &mut impl Write, capsule: &Capsule) -> io::Result<()> {
    let contents = &capsule.contents;
    let ((major, minor), bytes) = (capsule.reader.version(), capsule.reader.position());
    writeln!(out, "format:    {major}.{minor}, {bytes} bytes")?;
    let ended = match (&contents.end, &contents.summary) {
        (Some(_), Some(summary)) => format!(
            "orderly, after {:.3} s: {}",
            summary.elapsed_ns as f64 / 1e9,
            escaped(&summary.ended_by)
        ),
        (Some(_), None) => "orderly".to_owned(),
        (None, _) => "NOT orderly: what came last may be missing".to_owned(),
    };
    writeln!(out, "ended:     {ended}")?;
    let (hits, bytes) = (contents.hits, counted(contents.record_bytes, "byte"));
    let summary = contents.summary.as_ref();
    if capsule.is_of_tasks() {
        let unwritten = summary.map_or(0, |summary| summary.unwritten_tasks);
        writeln!(out, "hits:      none: it was recorded without a PROBE")?;
        writeln!(out, "events:    of tasks, in {bytes} of records")?;
        return writeln!(
            out,
            "losses:    {} (ring full), {unwritten} (no room in the file)",
            lost_tasks(contents)
        );
    }
    writeln!(out, "hits:      {hits} in {bytes} of records")?;
    let unwritten = summary.map_or(0, |summary| summary.unwritten);
    let lost = lost(contents);
    writeln!(
        out,
        "losses:    {lost} (ring full), {unwritten} (no room in the file)"
    )?;
    let (named, places) = (named(contents), contents.places.len());
    write!(out, "names:     {named} of {places} places have one")?;
    match generated(contents) {
        0 => writeln!(out),
        generated => writeln!(out, "; {generated} more are of generated code"),
    }
}

fn write_header(out: &mut impl Write, header: &RecordingHeader) -> io::Result<()> {
    let words: Vec<String> = header.command.iter().map(shown).collect();
    writeln!(out, "command:   {}", words.join(" "))?;
    writeln!(out, "target:    {}", escaped(&header.target))?;
    let cpus = match header.cpus {
        0 => String::new(),
        cpus => format!(", {}", counted(cpus, "CPU")),
    };
    writeln!(
        out,
        "machine:   {} ({}{cpus}), Linux {}",
        shown(&header.host),
        escaped(&header.machine),
        escaped(&header.kernel)
    )?;
    if !header.boot_id.is_empty() {
        let suspended = header.suspended_ns as f64 / 1e9;
        let id = escaped(&header.boot_id);
        writeln!(out, "boot:      {id}, {suspended:.3} s of it suspended")?;
    }
    writeln!(
        out,
        "recorder:  nsprobe {}, module {}, interface {}",
        escaped(&header.nsprobe),
        escaped(&header.module),
        header.abi
    )?;
    writeln!(
        out,
        "begun:     {}, {:.6} s of CLOCK_MONOTONIC",
        date(header.start_real_ns),
        header.start_ns as f64 / 1e9
    )
}

/// A moment in nanoseconds since 1970, as RFC 3339 has it, in UTC.
fn date(unix_ns: u64) -> String {
    let date = OffsetDateTime::from_unix_timestamp_nanos(unix_ns.into());
    let date = date.ok().and_then(|date| date.format(&Rfc3339).ok());
    date.unwrap_or_else(|| "?".to_owned())
}

fn write_lists(out: &mut impl Write, contents: &Contents) -> io::Result<()> {
    for container in containers(&contents.containers) {
        let name = escaped(container.name.as_deref().unwrap_or("?"));
        match container.pid_namespace {
            0 => write!(out, "container: {name} cgroup {}", container.cgroup)?,
            inum => write!(out, "container: {name} pid:[{inum}]")?,
        }
        match &container.runtime {
            Some(runtime) => writeln!(out, " ({})", escaped(runtime))?,
            None => writeln!(out)?,
        }
    }
    for probe in contents.probes.iter().take(SHOWN) {
        match convert::label(probe).placeless() {
            Some(Placeless::Samples { hz }) => {
                writeln!(out, "samples:   {hz} a second of each CPU")?;
                continue;
            }
            Some(Placeless::Waits { min_ns }) => {
                writeln!(out, "waits:     of {} and more", duration(min_ns))?;
                continue;
            }
            Some(Placeless::Wakes { .. }) => continue,
            None => {}
        }
        writeln!(
            out,
            "probe:     {} {}:{} at {:#x}",
            probe.id,
            escaped(&probe.binary),
            escaped(&probe.function),
            probe.offset
        )?;
    }
    write_more(out, "probe", contents.probes.len())?;
    for object in contents.objects.values().take(SHOWN) {
        let path = object.path.as_ref().map(convert::path);
        let path = path.map_or_else(|| "(no file)".to_owned(), |path| path.display().to_string());
        let id = [&object.build_id, &object.file_build_id];
        let id = id.iter().find(|id| !id.is_empty());
        write!(
            out,
            "file:      {} {}",
            escaped(id.map_or("(no build-id)", |id| id.as_str())),
            escaped(&path)
        )?;
        match &object.unusable {
            Some(why) => writeln!(out, ": {}", escaped(why))?,
            None => writeln!(out)?,
        }
    }
    write_more(out, "file", contents.objects.len())
}

/// Containers, each once: the later word on one counts.
fn containers(all: &[Container]) -> Vec<&Container> {
    let mut shown: Vec<&Container> = Vec::new();
    for container in all {
        let key = |one: &Container| (one.pid_namespace_id, one.name.clone());
        match shown.iter_mut().find(|one| key(one) == key(container)) {
            Some(known) if container.runtime.is_some() => *known = container,
            Some(_) => {}
            None => shown.push(container),
        }
    }
    shown
}

fn write_tasks(out: &mut impl Write, contents: &Contents) -> io::Result<()> {
    let totals = contents.summary.as_ref().map(|summary| &summary.tasks);
    for (kind, total) in totals.into_iter().flatten() {
        writeln!(
            out,
            "tasks:     {:<10} {:>8} seen, {} recorded, {} filtered, {} lost",
            escaped(kind),
            total.seen,
            total.recorded,
            total.filtered,
            total.lost
        )?;
    }
    let mut text = Vec::new();
    TreeView::of_capsule(contents).text(&mut text, Detail::default(), None)?;
    // Each of its lines is escaped.
    for line in String::from_utf8_lossy(&text).lines() {
        writeln!(out, "tree:      {line}")?;
    }
    Ok(())
}

fn write_more(out: &mut impl Write, what: &str, count: usize) -> io::Result<()> {
    match count.checked_sub(SHOWN) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(out, "{what}:     and {more} more (--json has all)"),
    }
}
