// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of the functions in stacks.

use super::waits::is_counterpart;
use super::TablePrinter;
use crate::output::fields::duration;
use libnsprobe::TableRow;
use nsprobe_profile::{FunctionShare, FunctionShares};
use nsprobe_text::{counted, escaped};
use nsprobe_trace::hits::lookup::NameFrames;
use std::io::{self, Write};

/// Most callers of a function.
const CALLERS: usize = 8;

impl TablePrinter {
    /// Prints the cost of functions, and their callers.
    pub(super) fn functions(
        &mut self,
        names: &mut impl NameFrames,
        rows: &[TableRow],
        callers: bool,
    ) -> io::Result<()> {
        let mut profile = self.own_profile(names, rows);
        if self.style.are_keys_of_picture {
            profile
                .samples
                .iter_mut()
                .for_each(|sample| sample.keys.retain(|(name, _)| is_counterpart(name)));
        }
        let groups = profile.functions(self.style.are_waits.into());
        for (number, group) in groups.iter().take(self.style.top).enumerate() {
            if number > 0 {
                writeln!(self.out)?;
            }
            self.group(group, callers)?;
        }
        if let Some(left @ 1..) = groups.len().checked_sub(self.style.top) {
            writeln!(self.out, "... and {left} more, with fewer")?;
        }
        self.out.flush()
    }

    /// The time of what functions are counted by.
    fn time(&self, value: u64) -> Option<String> {
        if self.style.are_waits {
            return Some(duration(value));
        }
        let period_ns = self.style.period_ns?;
        Some(duration(value.saturating_mul(period_ns)))
    }

    fn group(&mut self, group: &FunctionShares, callers: bool) -> io::Result<()> {
        let mut total = counted(group.count, self.style.unit);
        if let Some(time) = self.time(group.total) {
            total = format!("{total}, {time}");
        }
        let keys = group.keys.iter();
        let keys: Vec<String> = keys
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        match keys.as_slice() {
            [] => writeln!(self.out, "{total}")?,
            keys => writeln!(self.out, "{}: {total}", escaped(&keys.join(" ")))?,
        }
        let count = match self.style.are_waits {
            true => String::new(),
            false => format!("  {:>8}", self.style.unit.to_uppercase() + "S"),
        };
        let time = self.time(0).map_or("", |_| "       TIME");
        writeln!(self.out, "   SELF   TOTAL{count}{time}  FUNCTION")?;
        let share = |count: u64| 100.0 * count as f64 / group.total.max(1) as f64;
        for function in group.functions.iter().take(self.style.top) {
            let (own, total) = (share(function.own), share(function.total));
            let place = place(function);
            write!(self.out, "{own:>6.1}% {total:>6.1}%")?;
            if !self.style.are_waits {
                write!(self.out, "  {:>8}", function.own)?;
            }
            if let Some(time) = self.time(function.own) {
                write!(self.out, " {time:>10}")?;
            }
            writeln!(self.out, "  {place}")?;
            for (caller, count) in function.callers.iter().take(CALLERS).filter(|_| callers) {
                let share = share(*count);
                match caller.is_empty() {
                    true => writeln!(self.out, "{:>16}{share:>6.1}%  (outermost)", "")?,
                    false => writeln!(self.out, "{:>16}{share:>6.1}%  from {caller}", "")?,
                }
            }
        }
        if let Some(left @ 1..) = group.functions.len().checked_sub(self.style.top) {
            writeln!(self.out, "... and {left} more functions")?;
        }
        Ok(())
    }
}

/// A function and its file. Both are escaped already.
fn place(function: &FunctionShare) -> String {
    match function.path.is_empty() {
        true => function.name.clone(),
        false => format!("{}  ({})", function.name, function.path),
    }
}
