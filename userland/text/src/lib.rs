// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text for people: names of others escaped, counts with their nouns, globs, similar names.

#![forbid(unsafe_code)]

mod counted;
mod escape;
mod glob;
mod nearest;

pub use counted::counted;
pub use escape::{escaped, Escaped};
pub use glob::{glob_fits, is_glob};
pub use nearest::nearest;
