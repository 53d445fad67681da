// SPDX-License-Identifier: MIT OR Apache-2.0
//! From specs to places: the files that are probed, and where. What a file has to be parsed
//! for is found by a process without privileges (`parsed`), one for each file.
//!
//! `planner` asks these and puts together what is `planned`; `refusal` is
//! the error where a file has not what a spec wants.

pub mod allocators;
pub mod parsed;
mod planned;
mod planner;
pub mod refusal;

pub use planned::{Planned, PlannedProbe};
