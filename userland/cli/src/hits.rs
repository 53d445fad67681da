// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hits put together: records, the stacks that come later, and names.
//!
//! `waiting` holds hits until their stacks come, `rest` goes on with stacks that the module
//! could not finish, `lookup` is who knows stacks and names, `views` joins it all for output.

pub(crate) mod label;
pub(crate) mod lookup;
pub(crate) mod rest;
pub(crate) mod views;
pub(crate) mod waiting;
