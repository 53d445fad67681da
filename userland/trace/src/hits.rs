// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assembles hits: records, the stacks that come later, and names.
//!
//! `assembler` holds hits until their stacks come, `offline_unwind` continues stacks that the
//! module could not finish. `lookup` requests stacks and names, which `live` supplies for a session
//! and `recording::capsule` for a capsule. `views` joins it all into a `view`; `label` is the name
//! of a probe.

pub mod assembler;
pub mod label;
pub mod live;
pub mod lookup;
pub mod offline_unwind;
pub mod view;
pub mod views;
pub mod words;
