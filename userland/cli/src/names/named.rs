// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name of a frame, and the file that it is in.

use crate::names::origin::Origin;
use libnsprobe::common::record::{Frame, Method, Unmapped};
use nsprobe_symbolize::{NamesFrom, Source, SourceFrame};
use std::path::{Path, PathBuf};

/// A place in an object: its id, the offset in its file, and how the frame was found.
pub(crate) type FramePlace = (u32, u64, u8);

/// The name of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// The functions there, the innermost inlined one first; empty when there
    /// is no name.
    pub(crate) functions: Vec<SourceFrame>,
    /// Source of the names.
    pub(crate) source: Option<Source>,
    /// File that has them.
    pub(crate) from: NamesFrom,
    /// Where in its file the function begins that has no name, if that is known.
    pub(crate) function_start: Option<u64>,
    /// Why there is no name.
    pub(crate) unresolved: Option<String>,
    pub(crate) path: Option<PathBuf>,
    /// Its build-id, in hexadecimal; empty when it has none.
    pub(crate) build_id: String,
    /// The address in front is no call: the frame may be wrong.
    pub(crate) doubtful: bool,
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

/// The address of a frame in generated code, and whether it is that of the instruction itself.
pub(crate) fn generated_address(frame: &Frame) -> Option<(u64, bool)> {
    match *frame {
        Frame::Address {
            address,
            why,
            method,
        } if why == Unmapped::Anonymous as u8 => Some((address, Method::is_exact(method))),
        _ => None,
    }
}

/// The result for a frame that is in no file.
pub(crate) fn without_object(why: u8) -> Named {
    let reasons = [
        (Unmapped::Anonymous, "not in a file: generated code"),
        (Unmapped::TableFull, "the session has too many files"),
        (Unmapped::NoMapping, "the mapping could not be looked up"),
        (Unmapped::HugeOffset, "too far into its file"),
        (Unmapped::Kernel, "the kernel hides its addresses"),
    ];
    let reason = reasons.iter().find(|(known, _)| *known as u8 == why);
    Named {
        unresolved: Some(match reason {
            Some((_, text)) => (*text).to_owned(),
            None => format!("unknown reason {why}"),
        }),
        ..Named::default()
    }
}

/// The last part of a path that a compiler was given.
pub(crate) fn file_name(path: &str) -> &str {
    Path::new(path)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or(path)
}
