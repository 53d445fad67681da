// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capsules: recording and reading them.
//!
//! `recorder` writes records and, afterwards, what they mean: `needed_names` lists what needs names,
//! `generated_code` names generated code, `containers` and `task_records` cover what tasks were
//! where; `destination` is the file. `capsule` reads one.

pub mod capsule;
pub mod containers;
pub mod destination;
pub(crate) mod generated_code;
pub(crate) mod needed_names;
pub mod recorder;
pub mod task_records;
