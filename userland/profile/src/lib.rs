// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes profiles, stacks with numbers, in the formats that others open: flame graphs, folded
//! stacks, pprof's `profile.proto`, OpenTelemetry's profiles and speedscope's JSON.
//!
//! [`Profile`] is the same for all of them, and so is what each shows: a sample's keys and
//! `[truncated]` are frames around its stack, and inlined functions are frames of their own; but
//! pprof, which has labels, has keys there. [`Profile::functions`] adds up what each function takes. Names come from traced programs: what a format or a
//! terminal would take for more than a name is escaped here.
#![forbid(unsafe_code)]

pub mod attributes;
mod flamegraph;
mod folded;
mod format;
mod functions;
mod model;
mod otlp;
mod pprof;
#[cfg(test)]
mod sample;
mod speedscope;
mod text;

pub use format::{write, Format, ProfileError, UnknownEnding};
pub use functions::{FunctionShare, FunctionShares};
pub use model::{CodeFile, CodePlace, Measure, Profile, Sample, SourcePoint};
pub use otlp::otlp_profiles;
