// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_main]

nsprobe_fuzz::target!("debuglink");
