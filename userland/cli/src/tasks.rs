// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks as the kernel reports them, and their containers: what `ps`, `tree`, `top` and capsules
//! have in common.

mod clock;
mod describe;
mod hit_names;
mod live;
mod namer;
mod place;
mod scope;
mod source;

pub(crate) use clock::Clocks;
pub(crate) use describe::{command_line, is_there, state_letter, PlaceLine, TaskLine};
pub(crate) use hit_names::{full_notes, HitNames};
pub(crate) use live::LivePlaces;
pub(crate) use namer::{Found, Key, Namer};
pub(crate) use place::{space_of, Known, Place, Places};
pub(crate) use scope::Scope;
pub(crate) use source::{CpuReading, CpuRow, Dump, Source};
