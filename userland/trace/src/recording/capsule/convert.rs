// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts between values in memory and their form in capsules.

use crate::hits::label::{ProbeLabel, ProbeRole};
use crate::hits::words::{found_in, found_of, source_name, source_of};
use crate::names::named::{NamedFrame, Placed};
use crate::names::NamesNote;
use crate::summary::{MissedCalls, ProbeSummary, Summary};
use libnsprobe::common::abi::ObjectIdentity;
use libnsprobe::{Counters, ProbeId};
use nsprobe_capsule::model::{
    self, FrameName, GeneratedName, KernelName, Object, RecordedFunction, RecordedProbe, Text,
};
use nsprobe_capsule::GeneratedPlace;
use nsprobe_symbolize::{FileOffset, KernelSymbol, SourceFrame};
use nsprobe_text::escaped;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The reason shown at a frame without a recorded name.
const NOT_NAMED: &str = "its name was not recorded; `nsprobe symbolize` finds it in the file";

const ROLES: [(ProbeRole, &str); 4] = [
    (ProbeRole::Whole, "whole"),
    (ProbeRole::Begin, "begin"),
    (ProbeRole::Exit, "exit"),
    (ProbeRole::Leave, "leave"),
];

pub(crate) fn probe(label: &ProbeLabel) -> RecordedProbe {
    let role = ROLES.iter().find(|(role, _)| *role == label.role);
    RecordedProbe {
        id: label.id.0,
        planned: label.planned as u64,
        role: role.map_or("", |(_, name)| name).to_owned(),
        label: label.label.clone(),
        binary: label.binary.clone(),
        function: label.function.clone(),
        offset: label.offset.0,
        fields: label.fields.to_vec(),
    }
}

/// The label of a probe. A recorder need not have escaped it.
pub fn label(probe: &RecordedProbe) -> ProbeLabel {
    let role = ROLES.iter().find(|(_, name)| *name == probe.role);
    let file = Path::new(&probe.binary)
        .file_name()
        .unwrap_or(OsStr::new("?"));
    let shown = match probe.binary.is_empty() {
        true => probe.function.clone(),
        false => format!("{}:{}", file.to_string_lossy(), probe.function),
    };
    ProbeLabel {
        id: ProbeId(probe.id),
        label: escaped(&shown).to_string(),
        binary: probe.binary.clone(),
        file: None,
        function: probe.function.clone(),
        offset: FileOffset(probe.offset),
        fields: probe.fields.clone().into(),
        symbols: None,
        planned: probe.planned as usize,
        role: role.map_or(ProbeRole::Whole, |(role, _)| *role),
    }
}

/// A mapped file, and where it was found; or why it is of no use.
pub(crate) fn object(
    id: u32,
    identity: &ObjectIdentity,
    place: Option<Result<&Placed, &str>>,
    path: Option<PathBuf>,
) -> Object {
    let build_id = crate::names::build_id::build_id(identity);
    let found = place.and_then(Result::ok);
    let own = found
        .map(|found| &found.build_id)
        .filter(|_| build_id.is_empty());
    Object {
        id,
        device: identity.dev,
        inode: identity.ino,
        generation: identity.generation,
        bytes: identity.file_bytes,
        changed_ns: identity.ctime_ns,
        build_id: crate::names::build_id::hex(build_id),
        file_build_id: own.map_or_else(String::new, |id| crate::names::build_id::hex(id)),
        pid: identity.pid,
        path: path.map(|path| text(path.as_os_str())),
        origin: found.map(|found| found.origin.to_string()),
        unusable: place.and_then(Result::err).map(str::to_owned),
    }
}

/// Bytes of the system's.
pub fn text(bytes: &OsStr) -> Text {
    Text(bytes.as_bytes().to_vec())
}

/// The path that a text of a capsule is.
pub fn path(text: &Text) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(text.0.clone()))
}

/// The name of a place, as capsules have it.
pub(crate) fn frame_name(object: u32, offset: u64, exact: bool, named: &NamedFrame) -> FrameName {
    FrameName {
        object,
        offset,
        exact,
        functions: named.functions.iter().map(function).collect(),
        source: named.source.map(|source| source_name(source).to_owned()),
        found_in: named.source.map(|_| found_in(&named.from).0.to_owned()),
        found_at: found_in(&named.from).1.map(|path| text(path.as_os_str())),
        function_start: named.function_start,
        unresolved: named.unresolved.clone(),
        doubtful: named.doubtful,
    }
}

/// The name of a place in generated code, from a time on.
pub(crate) fn generated_name(
    place: GeneratedPlace,
    from_ns: u64,
    named: &NamedFrame,
) -> GeneratedName {
    GeneratedName {
        pid: place.pid,
        address: place.address,
        exact: place.exact,
        from_ns,
        functions: named.functions.iter().map(function).collect(),
        source: named.source.map(|source| source_name(source).to_owned()),
        path: named.path.as_ref().map(|path| text(path.as_os_str())),
        unresolved: named.unresolved.clone(),
    }
}

/// Converts it back.
pub(crate) fn code_name(name: &GeneratedName) -> NamedFrame {
    NamedFrame {
        functions: name.functions.iter().map(source_frame).collect(),
        source: name.source.as_deref().and_then(source_of),
        path: name.path.as_ref().map(path),
        unresolved: name.unresolved.clone(),
        ..NamedFrame::default()
    }
}

/// A function at a place.
pub fn function(frame: &SourceFrame) -> RecordedFunction {
    RecordedFunction {
        name: frame.function.clone(),
        offset: frame.function_offset,
        file: frame.file.clone(),
        line: frame.line,
        inlined: frame.inlined,
    }
}

fn source_frame(function: &RecordedFunction) -> SourceFrame {
    SourceFrame {
        function: function.name.clone(),
        function_offset: function.offset,
        file: function.file.clone(),
        line: function.line,
        inlined: function.inlined,
    }
}

/// Converts the name of a place for output.
pub(crate) fn named(object: Option<&Object>, name: Option<&FrameName>) -> NamedFrame {
    let unusable = object.and_then(|object| object.unusable.clone());
    let mut named = NamedFrame {
        path: object.and_then(|object| object.path.as_ref()).map(path),
        build_id: object.map_or_else(String::new, known_build_id),
        unresolved: Some(unusable.unwrap_or_else(|| NOT_NAMED.to_owned())),
        ..NamedFrame::default()
    };
    if let Some(name) = name {
        named.functions = name.functions.iter().map(source_frame).collect();
        named.source = name.source.as_deref().and_then(source_of);
        let at = name.found_at.as_ref().map(path);
        named.from = found_of(name.found_in.as_deref().unwrap_or_default(), at);
        named.function_start = name.function_start;
        named.unresolved = name.unresolved.clone();
        named.doubtful = name.doubtful;
    }
    named
}

/// A file's build-id, as its process mapped it, or as the file has it: a program's object is
/// announced when it starts, before its notes are in memory.
fn known_build_id(object: &Object) -> String {
    match object.build_id.is_empty() {
        true => object.file_build_id.clone(),
        false => object.build_id.clone(),
    }
}

/// A function of the kernel.
pub(crate) fn kernel_name(address: u64, symbol: &KernelSymbol) -> KernelName {
    KernelName {
        address,
        start: symbol.address,
        name: symbol.name.clone(),
        module: symbol.module.clone(),
    }
}

/// Converts it back.
pub(crate) fn kernel_symbol(name: &KernelName) -> KernelSymbol {
    KernelSymbol {
        address: name.start,
        name: name.name.clone(),
        module: name.module.clone(),
    }
}

/// Converts the totals of a recording.
pub(crate) fn summary_model(summary: &Summary, unwritten: u64) -> model::Summary {
    let total = |probe: &ProbeSummary| model::ProbeTotal {
        id: probe.id,
        counters: counters(&probe.counters),
        left_by_jump: probe.missed.left_by_jump,
        unreturned: probe.missed.unreturned,
        cpus: probe
            .cpus
            .iter()
            .map(|(cpu, all)| (*cpu, counters(all)))
            .collect(),
    };
    model::Summary {
        elapsed_ns: summary.elapsed.as_nanos() as u64,
        ended_by: summary.ended_by.clone(),
        received: summary.received,
        unwritten,
        overwritten: summary.overwritten,
        probes: summary.probes.iter().map(total).collect(),
        names: summary
            .names
            .iter()
            .map(|line| line.whole.clone())
            .collect(),
        tasks: summary.tasks.clone(),
        unwritten_tasks: 0,
        rows: summary.rows.as_ref().map(|rows| serde_json::json!(rows)),
    }
}

/// The counters that are not zero.
fn counters(counters: &Counters) -> BTreeMap<String, u64> {
    let value = serde_json::to_value(counters).and_then(serde_json::from_value);
    let mut all: BTreeMap<String, u64> = value.unwrap_or_default();
    all.retain(|_, count| *count > 0);
    all
}

/// Converts them back.
fn counters_of(all: &BTreeMap<String, u64>) -> Counters {
    let value = serde_json::to_value(all).and_then(serde_json::from_value);
    value.unwrap_or_default()
}

/// The totals of a recording, before anything is printed.
pub(crate) fn summary(model: &model::Summary, labels: &[ProbeLabel], has_stacks: bool) -> Summary {
    let probe = |total: &model::ProbeTotal| {
        let label = labels.iter().find(|label| label.id.0 == total.id);
        let text = |part: fn(&ProbeLabel) -> &String| {
            label.map_or_else(|| "?".to_owned(), |label| part(label).clone())
        };
        let cpus = total.cpus.iter();
        ProbeSummary {
            id: total.id,
            binary: text(|label| &label.binary),
            function: text(|label| &label.function),
            label: text(|label| &label.label),
            offset: label.map_or(FileOffset(0), |label| label.offset),
            counters: counters_of(&total.counters),
            missed: MissedCalls {
                left_by_jump: total.left_by_jump,
                unreturned: total.unreturned,
            },
            cpus: cpus.map(|(cpu, all)| (*cpu, counters_of(all))).collect(),
        }
    };
    let rows = model.rows.clone().map(serde_json::from_value);
    Summary {
        elapsed: Duration::from_nanos(model.elapsed_ns),
        ended_by: model.ended_by.clone(),
        printed: 0,
        received: model.received,
        overwritten: model.overwritten,
        untraced: None,
        has_stacks,
        probes: model.probes.iter().map(probe).collect(),
        tasks: model.tasks.clone(),
        names: model.names.iter().cloned().map(NamesNote::plain).collect(),
        finished: 0,
        late: 0,
        rows: rows.and_then(Result::ok),
        held: None,
        failure: None,
    }
}
