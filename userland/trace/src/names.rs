// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names for frames: the file of an object, its debug files, and the names of its places.
//!
//! `frames` is the interface for output, and `named` the result. `threads` run the `jobs` with
//! `files`; `file_state`, `cache`, `sources` and `line` keep the results, and `progress` shows what
//! output waits for.
//!
//! `origin` finds the file of an object (`probed_file`: those that are probed), `search` its debug
//! files, `debuginfod` those of servers; `build_id` reads the id of a mapping. `jit` knows
//! generated code. `load_queue` takes files whose unwind rows are needed, `address_names` names
//! values that are addresses of functions.

pub mod address_names;
pub mod build_id;
mod cache;
pub mod debuginfod;
mod file_state;
mod files;
mod frames;
pub(crate) mod jit;
mod jobs;
mod line;
pub(crate) mod load_queue;
pub mod named;
pub(crate) mod origin;
pub mod probed_file;
mod progress;
pub mod search;
mod sources;
mod threads;

pub(crate) use file_state::FileRows;
pub(crate) use frames::FrameNames;
pub use line::NamesNote;
pub(crate) use progress::Progress;
pub(crate) use threads::Threads;
