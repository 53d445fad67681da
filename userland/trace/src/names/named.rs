// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name of a frame, and the file that it is in.

use crate::names::origin::Origin;
use libnsprobe::common::record::{Frame, Method, Unmapped};
use nsprobe_symbolize::demangle::demangle;
use nsprobe_symbolize::{FrameSource, KernelSymbol, NamesFrom, SourceFrame};
use std::path::{Path, PathBuf};

/// A place in an object: its id, the offset in its file, and how the frame was found.
pub(crate) type FramePlace = (u32, u64, u8);

/// The name of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedFrame {
    /// The functions there, the innermost inlined one first; empty when there
    /// is no name.
    pub functions: Vec<SourceFrame>,
    /// Source of the names.
    pub source: Option<FrameSource>,
    /// File that has them.
    pub from: NamesFrom,
    /// Where in its file the function begins that has no name, if that is known.
    pub function_start: Option<u64>,
    /// Why there is no name.
    pub unresolved: Option<String>,
    /// The file, as the process that mapped it sees it.
    pub path: Option<PathBuf>,
    /// Its build-id, in hexadecimal; empty when it has none.
    pub build_id: String,
    /// The address in front is no call: the frame may be wrong.
    pub doubtful: bool,
}

/// Where an object's file was found.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) path: PathBuf,
    /// How it was found.
    pub(crate) origin: Origin,
    /// The build-id that it has itself.
    pub(crate) build_id: Vec<u8>,
}

/// The address of a frame that is a bare one for this reason, and whether it is that of the
/// instruction itself.
pub(crate) fn bare_address(frame: &Frame, reason: Unmapped) -> Option<(u64, bool)> {
    match *frame {
        Frame::Address {
            address,
            why,
            method,
        } if why == reason as u8 => Some((address, Method::is_exact(method))),
        _ => None,
    }
}

/// A place in a function of the kernel, if that is known.
pub(crate) fn in_kernel(address: u64, symbol: Option<&KernelSymbol>) -> NamedFrame {
    let Some(symbol) = symbol else {
        return without_object(Unmapped::Kernel as u8);
    };
    let file = symbol.module.as_deref().unwrap_or("kernel");
    NamedFrame {
        functions: vec![SourceFrame {
            function: demangle(&symbol.name),
            function_offset: Some(address.wrapping_sub(symbol.address)),
            file: None,
            line: None,
            inlined: false,
        }],
        path: Some(PathBuf::from(format!("[{file}]"))),
        ..NamedFrame::default()
    }
}

/// The result for a frame that is in no file.
pub(crate) fn without_object(why: u8) -> NamedFrame {
    let reasons = [
        (Unmapped::Anonymous, "not in a file: generated code"),
        (Unmapped::TableFull, "the session has too many files"),
        (Unmapped::NoMapping, "the mapping could not be looked up"),
        (Unmapped::HugeOffset, "too far into its file"),
        (Unmapped::Kernel, "the kernel hides its addresses"),
    ];
    let reason = reasons.iter().find(|(known, _)| *known as u8 == why);
    NamedFrame {
        unresolved: Some(match reason {
            Some((_, text)) => (*text).to_owned(),
            None => format!("unknown reason {why}"),
        }),
        ..NamedFrame::default()
    }
}

/// The last part of a path that a compiler was given.
pub fn file_name(path: &str) -> &str {
    Path::new(path)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or(path)
}
