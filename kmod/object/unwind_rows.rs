// SPDX-License-Identifier: GPL-2.0-only
//! Unwind rows that user space gave a session for its objects.
//!
//! They are checked once and never change; handlers find them by the object without a lock. Rows of
//! a session are used for that session only.

use crate::{
    common::{
        abi,
        unwind::{Defect, Row, Rule, Table}, //
    },
    device::user_struct::Array, //
};
use kernel::prelude::*;

/// The rows of a file.
pub(crate) struct Rows {
    first: u64,
    blocks: KVVec<u32>,
    rows: KVVec<Row>,
    rules: KVVec<Rule>,
}

/// Why rows are refused.
pub(crate) enum Refused {
    /// The request is wrong, or memory is short.
    Request(Error),
    /// The table of rows is wrong.
    Defect(Defect),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Request(error)
    }
}

impl Rows {
    /// Reads and checks the rows of a request. Task context.
    pub(crate) fn read(request: &abi::Unwind) -> Result<Self, Refused> {
        if request.flags & abi::UNWIND_NONE != 0 {
            return Rows::none(request);
        }
        let read_words = |at, count, max| Array::new(at, 4, count, max)?.read_plain::<u32>();
        let blocks = read_words(request.blocks, request.block_count, abi::UNWIND_BLOCKS_MAX)?;
        let all = read_words(request.rows, request.row_count, abi::UNWIND_ROWS_MAX)?;
        let rule_bytes = size_of::<Rule>() as u32;
        let rules = Array::new(
            request.rules,
            rule_bytes,
            request.rule_count,
            abi::UNWIND_RULES_MAX,
        )?;
        let rows = Rows {
            first: request.first,
            blocks,
            rows: all,
            rules: rules.read_plain()?,
        };
        match Table::check(rows.first, &rows.blocks, &rows.rows, &rows.rules) {
            Ok(_) => Ok(rows),
            Err(defect) => Err(Refused::Defect(defect)),
        }
    }

    /// Makes the rows of a file that has none.
    fn none(request: &abi::Unwind) -> Result<Self, Refused> {
        let counts = [request.block_count, request.row_count, request.rule_count];
        if counts != [0; 3] || request.first != 0 {
            return Err(Refused::Request(EINVAL));
        }
        Ok(Rows {
            first: 0,
            blocks: KVVec::new(),
            rows: KVVec::new(),
            rules: KVVec::new(),
        })
    }

    /// The rows as a table for lookups.
    #[inline(always)]
    pub(crate) fn table(&self) -> Table<'_> {
        Table::kept(self.first, &self.blocks, &self.rows, &self.rules)
    }

    /// Bytes of memory that the rows take.
    pub(crate) fn bytes(&self) -> u64 {
        let words = self.blocks.len().wrapping_add(self.rows.len());
        let rules = self.rules.len().wrapping_mul(size_of::<Rule>());
        words.wrapping_mul(4).wrapping_add(rules) as u64
    }
}
