// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hits put together: records, the stacks that come later, and names.
//!
//! `assembler` holds hits until their stacks come, `offline_unwind` goes on with stacks that the
//! module could not finish. `lookup` asks for stacks and names, which `live` knows of a session
//! and `recording::capsule` of a capsule. `views` joins it all into a `view`; `label` is what a
//! probe is called.

pub(crate) mod assembler;
pub(crate) mod label;
pub(crate) mod live;
pub(crate) mod lookup;
pub(crate) mod offline_unwind;
pub(crate) mod view;
pub(crate) mod views;
