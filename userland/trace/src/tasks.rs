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

pub use clock::Clocks;
pub use describe::{command_line, is_there, state_letter, PlaceLine, TaskLine};
pub use hit_names::{full_notes, HitNames, RowContainer};
pub(crate) use live::name_of;
pub use live::LivePlaces;
pub(crate) use namer::{ContainerKey, FoundContainer, Namer, CONTAINERS_MAX};
pub use place::{space_of, NamedContainer, Place, Places};
pub use scope::SelectedTasks;
pub use source::{CpuReading, CpuRow, Dump, TaskSource};
