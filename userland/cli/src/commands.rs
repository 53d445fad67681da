// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verbs of the command line, a module each. `run` of a module does what a plan says, and
//! returns the exit code.
//!
//! | modules | what they need |
//! |---|---|
//! | `trace`, `aggregate` (`count`, `hist`, `stacks`, `profile`), `leak`, `record`, `verify` | probes that they attach |
//! | `script`, `report`, `info`, `export` | a capsule |
//! | `list`, `symbolize` | files |
//! | `ps`, `tree`, `top`, `containers`, `status` | this machine |

pub(crate) mod aggregate;
pub(crate) mod containers;
pub(crate) mod export;
pub(crate) mod info;
pub(crate) mod leak;
pub(crate) mod list;
pub(crate) mod ps;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod script;
pub(crate) mod status;
pub(crate) mod symbolize;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod tree;
pub(crate) mod verify;
