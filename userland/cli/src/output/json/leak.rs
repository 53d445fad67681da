// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is allocated, as lines.

use super::frames::FrameLine;
use super::line::line;
use super::words::end_name;
use crate::hits::view::{may_lack_frames, FrameView};
use crate::output::leaks::{Amount, Leak, Look};
use libnsprobe::common::record::StackEnd;
use serde::Serialize;
use std::io::{Result, Write};
use std::time::Duration;

/// The blocks of a stack with everything that their line shows.
pub(crate) struct LeakView<'a> {
    /// `interval` or `total`.
    pub(crate) of: &'static str,
    /// When it was looked at, since the begin.
    pub(crate) at: Duration,
    /// `running` or `ended`.
    pub(crate) process: &'static str,
    pub(crate) leak: &'a Leak,
    pub(crate) frames: &'a [FrameView],
}

#[derive(Serialize)]
struct LeakLine<'a> {
    r#type: &'static str,
    of: &'static str,
    time_s: f64,
    process: &'static str,
    bytes: i64,
    blocks: i64,
    oldest_s: f64,
    bytes_more: i64,
    blocks_more: i64,
    stack: Vec<FrameLine<'a>>,
    stack_end: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    may_lack_frames: bool,
}

#[derive(Serialize)]
struct AllocatedLine {
    r#type: &'static str,
    of: &'static str,
    time_s: f64,
    bytes: i64,
    blocks: i64,
    bytes_more: i64,
    blocks_more: i64,
    ended_bytes: i64,
    ended_blocks: i64,
    unknown_frees: u64,
    turned_away: u64,
}

/// Writes the blocks of a stack.
pub(crate) fn leak(out: &mut impl Write, view: &LeakView<'_>) -> Result<()> {
    let leak = view.leak;
    line(
        out,
        &LeakLine {
            r#type: "leak",
            of: view.of,
            time_s: view.at.as_secs_f64(),
            process: view.process,
            bytes: leak.amount.bytes,
            blocks: leak.amount.blocks,
            oldest_s: leak.oldest.as_secs_f64(),
            bytes_more: leak.growth.bytes,
            blocks_more: leak.growth.blocks,
            stack: FrameLine::all(view.frames),
            stack_end: end_name(StackEnd::from_u8(leak.stack_end)),
            may_lack_frames: may_lack_frames(view.frames),
        },
    )
}

/// Writes the sums of a look, behind its stacks.
pub(crate) fn allocated(
    out: &mut impl Write,
    look: &Look,
    at: Duration,
    of: &'static str,
) -> Result<()> {
    let (running, ended) = (Amount::of(&look.running), Amount::of(&look.ended));
    line(
        out,
        &AllocatedLine {
            r#type: "allocated",
            of,
            time_s: at.as_secs_f64(),
            bytes: running.bytes,
            blocks: running.blocks,
            bytes_more: look.growth.bytes,
            blocks_more: look.growth.blocks,
            ended_bytes: ended.bytes,
            ended_blocks: ended.blocks,
            unknown_frees: look.unknown_frees,
            turned_away: look.turned_away,
        },
    )
}
