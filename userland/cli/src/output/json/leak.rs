// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is allocated, as lines.

use super::frames::FrameLine;
use super::line::line;
use crate::output::leaks::{Amount, Leak, Look};
use libnsprobe::common::record::StackEnd;
use nsprobe_trace::hits::view::{may_lack_frames, FrameView};
use nsprobe_trace::hits::words::end_name;
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
    /// Whether the amount is an estimate.
    pub(crate) is_sampled: bool,
    pub(crate) frames: &'a [FrameView],
}

#[derive(Serialize)]
struct LeakLine<'a> {
    r#type: &'static str,
    of: &'static str,
    time_s: f64,
    process: &'static str,
    #[serde(flatten)]
    amount: AmountLine,
    oldest_s: f64,
    bytes_more: i64,
    blocks_more: i64,
    stack: Vec<FrameLine<'a>>,
    stack_end: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    may_lack_frames: bool,
}

/// How much: with its error, where it is an estimate.
#[derive(Serialize)]
struct AmountLine {
    bytes: i64,
    blocks: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_error: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks_error: Option<i64>,
}

impl AmountLine {
    fn new(amount: Amount, is_sampled: bool) -> AmountLine {
        let (blocks, bytes) = amount.error();
        let error = |error: f64| is_sampled.then_some(error.ceil() as i64);
        AmountLine {
            bytes: whole(amount.bytes),
            blocks: whole(amount.blocks),
            bytes_error: error(bytes),
            blocks_error: error(blocks),
        }
    }
}

/// An estimate as a whole number.
fn whole(number: f64) -> i64 {
    number.round() as i64
}

#[derive(Serialize)]
struct AllocatedLine {
    r#type: &'static str,
    of: &'static str,
    time_s: f64,
    #[serde(flatten)]
    amount: AmountLine,
    bytes_more: i64,
    blocks_more: i64,
    ended_bytes: i64,
    ended_blocks: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_frees: Option<u64>,
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
            amount: AmountLine::new(leak.amount, view.is_sampled),
            oldest_s: leak.oldest.as_secs_f64(),
            bytes_more: whole(leak.growth.bytes),
            blocks_more: whole(leak.growth.blocks),
            stack: FrameLine::all(view.frames),
            stack_end: end_name(StackEnd::from_u8(leak.stack_end)),
            may_lack_frames: may_lack_frames(view.frames),
        },
    )
}

/// Writes the sums of a look, after its stacks.
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
            amount: AmountLine::new(running, look.is_sampled),
            bytes_more: whole(look.growth.bytes),
            blocks_more: whole(look.growth.blocks),
            ended_bytes: whole(ended.bytes),
            ended_blocks: whole(ended.blocks),
            // Most frees are of blocks that were not sampled.
            unknown_frees: (!look.is_sampled).then_some(look.unknown_frees),
            turned_away: look.turned_away,
        },
    )
}
