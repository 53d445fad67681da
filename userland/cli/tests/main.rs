// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests of this crate as one program: each is linked with all of its libraries, which takes
//! longer than compiling it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod capsule;
mod capsule_tasks;
mod cli;
mod documents;
mod export;
mod pictures;
mod support;
