// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts of functions that have no name.

use crate::Frames;
use nsprobe_symbolize::{Address, Binary, FileOffset, Lookup};
use std::cell::OnceCell;

/// Starts of a file's functions, by its frame descriptions. Static programs have no index of these,
/// so all are read at the first use.
#[derive(Debug, Default)]
pub struct FunctionStarts(OnceCell<Option<Frames>>);

impl FunctionStarts {
    /// Start of the function that holds an offset of `binary`, which is the same file at each call.
    pub fn of(&self, binary: &Binary, offset: FileOffset, lookup: Lookup) -> Option<FileOffset> {
        let address = binary.code_address(offset, lookup)?;
        let frames = self.0.get_or_init(|| Frames::of(binary).ok()).as_ref()?;
        binary.offset_of(Address(frames.covering(address.0)?.start))
    }
}
