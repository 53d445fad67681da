// SPDX-License-Identifier: MIT OR Apache-2.0
//! (Filled in by the commits that follow.)

fn main() {}
