// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much is looked at for one function.

use super::table::Table;
use super::{undescribed, FileCode};
use std::borrow::Cow;

/// Most pieces that are looked through for a function.
const PIECES_MAX: usize = 64;
/// Most bytes of them.
const BYTES_MAX: usize = 4 << 20;
/// How often it is asked what is at an address.
const QUESTIONS_MAX: usize = 1024;
/// How often code that nothing describes is looked through.
const UNDESCRIBED_MAX: usize = 64;
/// Most bytes of tables.
const TABLE_BYTES_MAX: usize = 256 << 10;

/// What may still be looked at: files are hostile.
pub(super) struct Budget {
    pub(super) pieces: usize,
    pub(super) bytes: usize,
    questions: usize,
    undescribed: usize,
    table_bytes: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            pieces: PIECES_MAX,
            bytes: BYTES_MAX,
            questions: QUESTIONS_MAX,
            undescribed: UNDESCRIBED_MAX,
            table_bytes: TABLE_BYTES_MAX,
        }
    }
}

pub(super) fn take(left: &mut usize, wanted: usize) -> Option<()> {
    *left = left.checked_sub(wanted)?;
    Some(())
}

impl Budget {
    /// The piece of code that holds an address.
    pub(super) fn piece<'c>(
        &mut self,
        code: &'c dyn FileCode,
        address: u64,
    ) -> Option<(u64, Cow<'c, [u8]>)> {
        take(&mut self.questions, 1)?;
        let (start, bytes) = match code.piece(address) {
            Some(piece) => piece,
            None => {
                take(&mut self.undescribed, 1)?;
                (address, undescribed::piece(code, address)?.into())
            }
        };
        let is_in = address.checked_sub(start)? < bytes.len() as u64;
        is_in.then_some((start, bytes))
    }

    /// Where a jump goes that goes by a table.
    pub(super) fn targets(&mut self, code: &dyn FileCode, table: Table) -> Option<Vec<u64>> {
        let bytes = table.bytes();
        take(&mut self.table_bytes, bytes)?;
        let data = code.data(table.address, bytes)?;
        (data.len() == bytes).then(|| table.targets(&data))
    }
}
