// SPDX-License-Identifier: GPL-2.0-only
//! nsprobe: probes on user-space programs, across namespaces.
//!
//! `device` takes the requests of user space, `session` is one open file and owns everything made
//! through it, `probe` is what runs when a breakpoint is hit, `stack` walks the stack there, and
//! `tasks` records what tasks do. `sys` is the only one that may say `unsafe`, and the compiler
//! keeps that rule.

use kernel::prelude::*;

#[path = "../common/src/lib.rs"]
#[forbid(unsafe_code)]
pub mod common;

#[forbid(unsafe_code)]
mod context;
#[forbid(unsafe_code)]
mod device;
#[forbid(unsafe_code)]
mod filter;
#[forbid(unsafe_code)]
mod session;
#[forbid(unsafe_code)]
mod totals;

#[forbid(unsafe_code)]
mod object;
#[forbid(unsafe_code)]
mod probe;
#[forbid(unsafe_code)]
mod ring;
#[forbid(unsafe_code)]
mod stack;
#[forbid(unsafe_code)]
mod table;

#[forbid(unsafe_code)]
mod tasks;
#[forbid(unsafe_code)]
mod used_rows;

mod sys;

module! {
    type: Nsprobe,
    name: "nsprobe",
    authors: ["the nsprobe contributors"],
    description: "Probes on user-space programs across namespaces",
    license: "GPL v2",
}

/// The loaded module. Drop order: first the device, then the leftovers of its jobs.
struct Nsprobe {
    _device: sys::fops::Registration<device::Device>,
    _samplers: sys::sampler::Ready,
    _task_points: sys::task_points::Ready,
    _tails: sys::task_work::Tails,
}

impl kernel::Module for Nsprobe {
    fn init(module: &'static ThisModule) -> Result<Self> {
        // Set up before there is a device.
        let task_points = sys::task_points::Ready::new();
        let samplers = sys::sampler::Ready::new()?;
        Ok(Nsprobe {
            _device: sys::fops::Registration::new(module, c"nsprobe")?,
            _samplers: samplers,
            _task_points: task_points,
            _tails: sys::task_work::Tails::new(),
        })
    }
}
