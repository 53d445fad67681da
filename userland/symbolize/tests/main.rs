// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests of this crate as one program: each is linked with all of its libraries, which takes
//! longer than compiling it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agreement;
mod copies;
mod debug_files;
mod debug_set;
mod elf_from_debug_file;
mod go;
mod hostile;
mod huge;
mod layouts;
mod names;
mod published;
mod support;
mod tables;
