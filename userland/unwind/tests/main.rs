// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests of this crate as one program: each is linked with all of its libraries, which takes
//! longer than compiling it.

mod agree;
mod frames;
mod sframe;
