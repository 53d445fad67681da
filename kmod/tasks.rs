// SPDX-License-Identifier: GPL-2.0-only
//! Requests about tasks: their events, a dump of all tasks, their CPU times, and the wait of programs
//! that start.

pub(crate) mod counters;
pub(crate) mod cpu_times;
pub(crate) mod dump;
pub(crate) mod events;
pub(crate) mod record;
pub(crate) mod start_gate;
pub(crate) mod subscription;
