// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row of a table as a line.

use super::frames::FrameLine;
use super::line::line;
use crate::output::fields;
use libnsprobe::common::histogram::Scale;
use libnsprobe::common::record::StackEnd;
use libnsprobe::TableRow;
use nsprobe_trace::hits::view::{may_lack_frames, FrameView};
use nsprobe_trace::hits::words::end_name;
use serde::Serialize;
use std::io::{Result, Write};
use std::time::Duration;

/// A row of a table with everything that its line shows.
pub(crate) struct RowView<'a> {
    /// `interval` or `total`.
    pub(crate) of: &'static str,
    /// When it was read, since the begin.
    pub(crate) at: Duration,
    /// Its key.
    pub(crate) key: fields::Json<'a>,
    pub(crate) row: &'a TableRow,
    /// Whether values were added up.
    pub(crate) has_values: bool,
    /// Set for a histogram.
    pub(crate) scale: Option<Scale>,
    /// Set for a stack.
    pub(crate) frames: Option<&'a [FrameView]>,
    /// The other side of waits.
    pub(crate) other: Option<&'a OtherSide>,
}

/// The stack of what ended a wait, or of what held the lock.
pub(crate) struct OtherSide {
    pub(crate) is_holder: bool,
    pub(crate) frames: Vec<FrameView>,
    pub(crate) stack_end: u8,
}

impl OtherSide {
    fn end(&self) -> &'static str {
        end_name(StackEnd::from_u8(self.stack_end))
    }
}

#[derive(Serialize)]
struct RowLine<'a> {
    r#type: &'static str,
    of: &'static str,
    time_s: f64,
    key: &'a fields::Json<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    truncated: Vec<&'a str>,
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    least: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    greatest: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<Vec<(i64, i64, u64)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Vec<FrameLine<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack_end: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    may_lack_frames: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    waker_stack: Option<Vec<FrameLine<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waker_stack_end: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder_stack: Option<Vec<FrameLine<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder_stack_end: Option<&'static str>,
}

/// Writes one row of a table.
pub(crate) fn row(out: &mut impl Write, view: &RowView<'_>) -> Result<()> {
    let row = view.row;
    let buckets = view.scale.map(|scale| {
        let ranges = row.buckets.iter().enumerate();
        let used = ranges.filter(|(_, count)| **count > 0);
        used.filter_map(|(bucket, count)| {
            let (least, greatest) = scale.range(bucket)?;
            Some((least, greatest, *count))
        })
        .collect()
    });
    let of_total = |value: i64| (view.has_values && view.of == "total").then_some(value);
    let end = StackEnd::from_u8(row.stack_end);
    let waker = view.other.filter(|one| !one.is_holder);
    let holder = view.other.filter(|one| one.is_holder);
    line(
        out,
        &RowLine {
            r#type: "row",
            of: view.of,
            time_s: view.at.as_secs_f64(),
            key: &view.key,
            truncated: view.key.truncated(),
            count: row.count,
            sum: view.has_values.then_some(row.sum),
            least: of_total(row.least),
            greatest: of_total(row.greatest),
            buckets,
            stack: view.frames.map(FrameLine::all),
            may_lack_frames: view.frames.is_some_and(may_lack_frames),
            stack_end: view.frames.map(|_| end_name(end)),
            waker_stack: waker.map(|one| FrameLine::all(&one.frames)),
            waker_stack_end: waker.map(OtherSide::end),
            holder_stack: holder.map(|one| FrameLine::all(&one.frames)),
            holder_stack_end: holder.map(OtherSide::end),
        },
    )
}
