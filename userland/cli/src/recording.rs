// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capsules: recording and reading them.
//!
//! `recorder` writes records and, afterwards, what they mean: `needed_names` lists what needs names,
//! `generated_code` names generated code, `containers` and `task_records` cover what tasks were
//! where; `destination` is the file. `capsule` reads one.

pub(crate) mod capsule;
pub(crate) mod containers;
pub(crate) mod destination;
pub(crate) mod generated_code;
pub(crate) mod needed_names;
pub(crate) mod recorder;
pub(crate) mod task_records;
