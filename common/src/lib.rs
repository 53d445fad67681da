// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! (Filled in by the commits that follow.)
#![no_std]
