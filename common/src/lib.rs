// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Code that the module and user space both compile: the ABI and the pure logic that deserves tests
//! on a host.
//!
//! Rules of the folder: no `std`, no allocation, no `unsafe`, no I/O, nothing
//! that can panic; siblings are named by `super::` (the kernel build takes this
//! crate in as a module by `#[path]`); it compiles with rustc 1.85.1.
#![cfg_attr(not(MODULE), no_std)]

/// Enumerations whose items have numbers that are never reused.
macro_rules! numbered {
    ($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$item_doc:meta])* $item:ident = $number:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$item_doc])* $item = $number,)*
        }

        impl $name {
            /// The item with this number.
            #[inline]
            pub const fn from_u8(number: u8) -> Option<Self> {
                // A table, as each step of a hit looks one up.
                const ALL: [Option<$name>; 256] = {
                    let mut all = [None; 256];
                    $(all[$number] = Some($name::$item);)*
                    all
                };
                ALL[number as usize]
            }
        }
    };
}

pub mod abi;
pub mod elf_note;
pub mod frame;
pub mod histogram;
pub mod instruction;
pub mod limit;
pub mod pointer_set;
pub mod program;
pub mod record;
pub mod ring;
pub mod table;
pub mod task;
pub mod unwind;
pub mod wait;
