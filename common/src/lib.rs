// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the module and user space both compile: the ABI and the pure logic
//! that deserves tests on a host.
//!
//! Rules of the folder: no `std`, no allocation, no `unsafe`, no I/O, nothing
//! that can panic; siblings are named by `super::` (the kernel build takes this
//! crate in as a module by `#[path]`); it compiles with rustc 1.85.1.
#![cfg_attr(not(MODULE), no_std)]

pub mod abi;
pub mod elf_note;
pub mod histogram;
pub mod limit;
pub mod program;
pub mod record;
pub mod ring;
pub mod table;
pub mod text;
