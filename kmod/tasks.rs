// SPDX-License-Identifier: GPL-2.0-only
//! What sessions record of tasks: their events, a dump of all tasks, and their CPU times.

pub(crate) mod counters;
pub(crate) mod cpu_times;
pub(crate) mod dump;
pub(crate) mod events;
pub(crate) mod record;
pub(crate) mod subscription;
