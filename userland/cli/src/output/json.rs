// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output for machines: one JSON object a line, in ASCII. The keys are
//! documented in `docs/json.md`; they are added to, never changed.
//!
//! Each kind of line has a module; `line` writes one, `words` are what stands for numbers.

mod counters;
mod frames;
mod leak;
mod line;
mod records;
mod row;
mod summary;

pub(crate) use counters::CountersLine;
pub(crate) use frames::FunctionLine;
pub(crate) use leak::{allocated, leak, LeakView};
pub(crate) use line::line;
pub(crate) use records::{hit, lost, off, write};
pub(crate) use row::{row, OtherSide, RowView};
pub(crate) use summary::summary;

#[cfg(test)]
mod tests;
