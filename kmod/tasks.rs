// SPDX-License-Identifier: GPL-2.0-only
//! What sessions learn of tasks: their events, the state of all at once, and their CPU use.

pub(crate) mod counters;
pub(crate) mod cpu_times;
pub(crate) mod dump;
pub(crate) mod events;
pub(crate) mod record;
pub(crate) mod subscription;
