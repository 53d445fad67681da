// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where functions begin that have no name.

use crate::Frames;
use nsprobe_symbolize::{Address, Binary, FileOffset, Lookup};
use std::cell::OnceCell;

/// Where the functions of a file begin, by what describes their frames. Programs that are linked
/// statically have no index of that: it is read whole, when it is first needed.
#[derive(Debug, Default)]
pub struct FunctionStarts(OnceCell<Option<Frames>>);

impl FunctionStarts {
    /// Where in `binary`, of which these always are, the function begins that holds an offset.
    pub fn of(&self, binary: &Binary, offset: FileOffset, lookup: Lookup) -> Option<FileOffset> {
        let address = binary.code_address(offset, lookup)?;
        let frames = self.0.get_or_init(|| Frames::of(binary).ok()).as_ref()?;
        binary.offset_of(Address(frames.covering(address.0)?.start))
    }
}
