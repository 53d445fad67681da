// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of stacks, within lines.

use libnsprobe::common::record::Frame;
use nsprobe_symbolize::{NamesFrom, SourceFrame};
use nsprobe_trace::hits::view::{is_doubtful, FrameView, KernelFrame};
use nsprobe_trace::hits::words::{found_in, method_name, source_name};
use nsprobe_trace::names::named::NamedFrame;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct KernelLine<'a> {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<&'a str>,
}

impl<'a> KernelLine<'a> {
    pub(super) fn new(frame: &'a KernelFrame<'_>) -> KernelLine<'a> {
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
pub(super) struct FrameLine<'a> {
    how: &'static str,
    doubtful: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_offset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_start: Option<String>,
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
pub(super) struct SourceLine {
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

impl<'a> FrameLine<'a> {
    /// Those of a stack.
    pub(super) fn all(frames: &'a [FrameView]) -> Vec<FrameLine<'a>> {
        let lines = frames.iter().enumerate();
        lines
            .map(|(number, view)| FrameLine::new(view, is_doubtful(frames, number)))
            .collect()
    }

    pub(super) fn new(view: &'a FrameView, doubtful: bool) -> FrameLine<'a> {
        let named: &NamedFrame = &view.named;
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
            function_start: named.function_start.map(|start| format!("{start:#x}")),
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

impl SourceLine {
    pub(super) fn new(from: &NamesFrom) -> SourceLine {
        let (r#in, path) = found_in(from);
        let path = path.map(|path| path.display().to_string());
        SourceLine { r#in, path }
    }
}
