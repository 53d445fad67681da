// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests of this crate as one program: each is linked with all of its libraries, which takes
//! longer than compiling it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod changing;
mod debug_files;
mod exits;
mod generated;
mod hostile_dwarf;
mod hostile_elf;
mod misled;
mod names;
mod places;
mod probes;
mod sandbox;
mod support;
