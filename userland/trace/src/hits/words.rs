// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words that lines have for what is a number elsewhere.

use libnsprobe::common::record::{Method, StackEnd};
use nsprobe_symbolize::{FoundIn, FrameSource, NamesFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a stack ends.
pub fn end_name(end: Option<StackEnd>) -> &'static str {
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

/// How a frame was found, as JSON calls it.
pub fn method_name(method: u8) -> &'static str {
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

/// Output's word for the file that names come from; its path, if it is not the frame's own.
pub fn found_in(from: &NamesFrom) -> (&'static str, Option<&Path>) {
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

const SOURCES: [(FrameSource, &str); 6] = [
    (FrameSource::Dwarf, "dwarf"),
    (FrameSource::Go, "go"),
    (FrameSource::Symbols, "symbols"),
    (FrameSource::Plt, "plt"),
    (FrameSource::PerfMap, "perf-map"),
    (FrameSource::JitDump, "jitdump"),
];

/// Output's word for a source of names.
pub fn source_name(source: FrameSource) -> &'static str {
    let known = SOURCES.iter().find(|(known, _)| *known == source);
    known.map_or("unknown", |(_, name)| name)
}

/// The source that output calls so.
pub(crate) fn source_of(name: &str) -> Option<FrameSource> {
    let known = SOURCES.iter().find(|(_, known)| *known == name);
    known.map(|(source, _)| *source)
}
