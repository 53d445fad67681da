// SPDX-License-Identifier: MIT OR Apache-2.0
//! All that is printed or written for others to read.
//!
//! `records` prints a trace, `tables` what was counted, and `leaks` what is allocated, as text (`text`, `fields`,
//! `columns`) or as JSON (`json`); `pictures` writes profiles, `summary` is the end of a run.
//! `lines` hands whole lines on.

pub(crate) mod columns;
pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod leaks;
pub(crate) mod lines;
pub(crate) mod pictures;
pub(crate) mod records;
pub(crate) mod summary;
pub(crate) mod tables;
pub(crate) mod text;
