// SPDX-License-Identifier: MIT OR Apache-2.0
//! From specs to places: the files that are probed, and where. What a file has to be parsed
//! for is found by a process without privileges (`parsed`), one for each file.
//!
//! `planner` asks these and puts together what is `planned`; `refusal` is
//! the error where a file has not what a spec wants.

pub(crate) mod allocators;
pub(crate) mod parsed;
mod planned;
mod planner;
pub(crate) mod refusal;

pub(crate) use planned::{Planned, PlannedProbe};
