// SPDX-License-Identifier: MIT OR Apache-2.0
//! A place in a file where a probe reports.

use anyhow::bail;
use nsprobe_spec::dwarf;
use nsprobe_symbolize::demangle::demangle_without_parameters;
use nsprobe_symbolize::{Address, AtOffset, Binary, FileOffset, Function, Usdt};
use std::path::Path;

/// A place in a file, and the function that it is in.
pub(crate) struct Spot {
    /// Where in the file.
    pub(crate) offset: FileOffset,
    /// The same, by the file's own count.
    pub(crate) address: Address,
    /// The function's readable name, and the distance when that is not its beginning.
    pub(crate) function: String,
    /// Whether that is the function's beginning.
    pub(crate) at_function: bool,
    /// The inlined function whose names are meant; several may begin at one address.
    pub(crate) inlined: Option<dwarf::DebugFunction>,
    /// The static probe that is there.
    pub(crate) usdt: Option<Usdt>,
}

impl Spot {
    /// Where the semaphore of the static probe is.
    pub(crate) fn semaphore(&self) -> Option<FileOffset> {
        self.usdt.as_ref()?.semaphore
    }

    /// `distance` bytes after the beginning of a function of the file.
    pub(crate) fn of(binary: &Binary, function: &Function, distance: u64) -> Spot {
        let name = demangle_without_parameters(&function.name);
        Spot {
            offset: FileOffset(function.file_offset.0.saturating_add(distance)),
            address: Address(function.address.0.saturating_add(distance)),
            function: match distance {
                0 => name,
                distance => format!("{name}+{distance:#x}"),
            },
            at_function: distance == 0 && !binary.is_jumped_to(function),
            inlined: None,
            usdt: None,
        }
    }
}

/// The place at an offset of the file.
pub(crate) fn spot_at(binary: &Binary, path: &Path, offset: u64) -> anyhow::Result<Spot> {
    let place = FileOffset(offset);
    let address = binary.segment_of(place).and_then(|s| s.address_of(place));
    let spot = match (binary.code_at(place), address) {
        (AtOffset::Function(function), Some(address)) => {
            let into = address.0.saturating_sub(function.address.0);
            Spot::of(binary, function, into)
        }
        (_, address) => Spot {
            offset: place,
            address: address.unwrap_or_default(),
            function: format!("{offset:#x}"),
            at_function: false,
            inlined: None,
            usdt: None,
        },
    };
    check(binary, path, &spot)?;
    Ok(spot)
}

/// A symbol may lie about where code is; a breakpoint in data corrupts it.
pub(crate) fn check(binary: &Binary, path: &Path, spot: &Spot) -> anyhow::Result<()> {
    let why = match binary.code_at(spot.offset) {
        AtOffset::Code | AtOffset::Function(_) => return Ok(()),
        AtOffset::OutsideFile => "lies behind the end of the file",
        AtOffset::NotLoaded => "is in no part of the file that is loaded",
        AtOffset::Data => "is in data, not in code",
    };
    bail!(
        "{} in {} cannot be probed: its offset {} {why}",
        spot.function,
        path.display(),
        spot.offset
    )
}
