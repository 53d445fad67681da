// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is allocated, by stack, as text and as JSON.

use super::pictures::{About, Numbers, RowsProfile};
use crate::output::json;
use crate::output::lines::Output;
use crate::output::text;
use libnsprobe::TableRow;
use nsprobe_profile::Profile;
use nsprobe_text::counted;
use nsprobe_trace::hits::lookup::NameFrames;
use nsprobe_trace::summary::Summary;
use std::io::{self, Write};
use std::time::Duration;

/// Blocks and their bytes: numbers of blocks, or estimates by samples of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Amount {
    pub(crate) blocks: f64,
    pub(crate) bytes: f64,
    /// Variances of both.
    variance: (f64, f64),
}

/// The blocks of one stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leak {
    /// Words of the stack.
    pub(crate) stack: Vec<u64>,
    /// Why the stack ends.
    pub(crate) stack_end: u8,
    pub(crate) amount: Amount,
    /// More than at the last look.
    pub(crate) growth: Amount,
    /// Age of the oldest block.
    pub(crate) oldest: Duration,
}

/// What is allocated at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// Of processes that run, those with the most bytes first.
    pub(crate) running: Vec<Leak>,
    /// Of all of these, more than at the last look.
    pub(crate) growth: Amount,
    /// Of processes that ended, or started another program, since.
    pub(crate) ended: Vec<Leak>,
    /// Whether amounts are estimates, by samples of blocks.
    pub(crate) is_sampled: bool,
    /// Blocks that the kernel had no row for.
    pub(crate) turned_away: u64,
    /// Frees of blocks that were allocated before the start, or had no row.
    pub(crate) unknown_frees: u64,
}

/// The output of `leak`.
pub(crate) struct LeakPrinter {
    out: Output,
    json: bool,
    top: usize,
    /// Whether an earlier look was printed.
    is_later: bool,
}

impl Amount {
    /// The sum of those of all stacks.
    pub(crate) fn of(leaks: &[Leak]) -> Amount {
        let amounts = leaks.iter().map(|leak| leak.amount);
        amounts.fold(Amount::default(), Amount::plus)
    }

    /// Adds a block that was sampled with the probability p of its size in `sample` bytes, weighted
    /// by 1/p.
    pub(crate) fn add_block(&mut self, bytes: f64, sample: f64) {
        let weight = match bytes < sample {
            true => sample / bytes.max(1.0),
            false => 1.0,
        };
        // (1 - p) / p², where p is 1 / weight.
        let variance = weight * (weight - 1.0);
        *self = self.plus(Amount {
            blocks: weight,
            bytes: bytes * weight,
            variance: (variance, bytes * bytes * variance),
        });
    }

    pub(crate) fn plus(self, other: Amount) -> Amount {
        Amount {
            blocks: self.blocks + other.blocks,
            bytes: self.bytes + other.bytes,
            variance: (
                self.variance.0 + other.variance.0,
                self.variance.1 + other.variance.1,
            ),
        }
    }

    /// These less those.
    pub(crate) fn less(self, other: Amount) -> Amount {
        self.plus(Amount {
            blocks: -other.blocks,
            bytes: -other.bytes,
            ..other
        })
    }

    /// Half the width of the 95 % confidence intervals of blocks and bytes: two standard errors.
    pub(crate) fn error(self) -> (f64, f64) {
        (2.0 * self.variance.0.sqrt(), 2.0 * self.variance.1.sqrt())
    }

    fn sentence(self, is_sampled: bool) -> String {
        let (blocks, bytes) = (self.blocks.round(), self.bytes.round());
        if is_sampled {
            let (of_blocks, of_bytes) = self.error();
            return format!(
                "about {bytes} bytes (±{:.0}) in {blocks} blocks (±{:.0})",
                of_bytes.ceil(),
                of_blocks.ceil()
            );
        }
        let count = |number: f64, what| counted(number as u64, what);
        format!("{} in {}", count(bytes, "byte"), count(blocks, "block"))
    }
}

impl LeakPrinter {
    pub(crate) fn new(json: bool, top: usize, out: Output) -> LeakPrinter {
        LeakPrinter {
            out,
            json,
            top,
            is_later: false,
        }
    }

    /// Sends what comes from now on elsewhere.
    pub(crate) fn redirect(&mut self, out: Output) {
        self.out = out;
    }

    /// Prints what is allocated; `of` is `interval` or `total`.
    pub(crate) fn look(
        &mut self,
        names: &mut impl NameFrames,
        look: &Look,
        at: Duration,
        of: &'static str,
    ) -> io::Result<()> {
        match self.json {
            true => self.json(names, look, at, of)?,
            false => self.text(names, look, at)?,
        }
        self.is_later = true;
        self.out.flush()
    }

    fn text(&mut self, names: &mut impl NameFrames, look: &Look, at: Duration) -> io::Result<()> {
        let (running, ended) = (Amount::of(&look.running), Amount::of(&look.ended));
        let stacks = counted(look.running.len() as u64, "stack");
        write!(
            self.out,
            "at {:.3} s: {} of {stacks} allocated",
            at.as_secs_f64(),
            running.sentence(look.is_sampled)
        )?;
        if self.is_later {
            write!(self.out, ", {} since the last time", change(look.growth))?;
        }
        writeln!(self.out, "\n")?;
        self.leaks(names, &look.running, (self.is_later, look.is_sampled))?;
        if ended.blocks > 0.0 {
            let stacks = counted(look.ended.len() as u64, "stack");
            writeln!(
                self.out,
                "allocated when their process ended or started another program: {} of {stacks}\n",
                ended.sentence(look.is_sampled)
            )?;
            self.leaks(names, &look.ended, (false, look.is_sampled))?;
        }
        Ok(())
    }

    fn leaks(
        &mut self,
        names: &mut impl NameFrames,
        leaks: &[Leak],
        (has_growth, is_sampled): (bool, bool),
    ) -> io::Result<()> {
        for leak in leaks.iter().take(self.top) {
            let oldest = leak.oldest.as_secs_f64();
            write!(
                self.out,
                "{}, the oldest {oldest:.1} s",
                leak.amount.sentence(is_sampled)
            )?;
            if has_growth && leak.growth.bytes != 0.0 {
                write!(self.out, ", {}", change(leak.growth))?;
            }
            writeln!(self.out)?;
            let frames = names.views(&leak.stack);
            text::stack(&mut self.out, &frames, leak.stack_end)?;
        }
        if let Some(left @ 1..) = leaks.len().checked_sub(self.top) {
            writeln!(self.out, "... and {left} more, with fewer bytes\n")?;
        }
        Ok(())
    }

    fn json(
        &mut self,
        names: &mut impl NameFrames,
        look: &Look,
        at: Duration,
        of: &'static str,
    ) -> io::Result<()> {
        for (process, leaks) in [("running", &look.running), ("ended", &look.ended)] {
            for leak in leaks.iter().take(self.top) {
                let frames = names.views(&leak.stack);
                let view = json::LeakView {
                    of,
                    at,
                    process,
                    leak,
                    is_sampled: look.is_sampled,
                    frames: &frames,
                };
                json::leak(&mut self.out, &view)?;
            }
        }
        json::allocated(&mut self.out, look, at, of)
    }

    /// All stacks as a profile, however many are printed.
    pub(crate) fn profile(
        &self,
        names: &mut impl NameFrames,
        look: &Look,
        about: &About,
    ) -> Profile {
        let mut profile = RowsProfile::new(about, Numbers::Allocated);
        let has_both = !look.running.is_empty() && !look.ended.is_empty();
        for (process, leaks) in [("running", &look.running), ("ended", &look.ended)] {
            for leak in leaks {
                let key = ("process".to_owned(), process.to_owned());
                let keys = has_both.then_some(key).into_iter().collect();
                let row = TableRow {
                    count: leak.amount.blocks.round() as u64,
                    sum: leak.amount.bytes.round() as i64,
                    stack_end: leak.stack_end,
                    ..TableRow::default()
                };
                profile.add(keys, &names.views(&leak.stack), &row);
            }
        }
        profile.finish()
    }

    /// The last line, for machines.
    pub(crate) fn summary(&mut self, summary: &Summary) -> io::Result<()> {
        if self.json {
            json::summary(&mut self.out, summary)?;
        }
        self.out.flush()
    }
}

/// A change since the last look, with its sign.
fn change(growth: Amount) -> String {
    let blocks = counted(growth.blocks.abs().round() as u64, "block");
    let sign = if growth.blocks < 0.0 { '-' } else { '+' };
    format!("{:+.0} bytes and {sign}{blocks}", growth.bytes)
}
