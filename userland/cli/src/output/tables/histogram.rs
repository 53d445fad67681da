// SPDX-License-Identifier: MIT OR Apache-2.0
//! Histograms as text.

use super::TablePrinter;
use libnsprobe::common::histogram::Scale;
use libnsprobe::TableRow;
use nsprobe_text::counted;
use std::io::{self, Write};

/// Characters of the longest bar of a histogram.
const BAR: usize = 50;

impl TablePrinter {
    pub(super) fn histogram(&mut self, row: &TableRow, scale: Scale) -> io::Result<()> {
        let title = self.title(row);
        writeln!(
            self.out,
            "{title}: {}, mean {}, least {}, greatest {}",
            counted(row.count, "call"),
            self.mean(row),
            self.value(row.least),
            self.value(row.greatest)
        )?;
        if let Scale::Log { .. } = scale {
            let percentiles = [50, 90, 99].map(|percent| {
                let value = percentile(row, scale, percent).min(row.greatest);
                format!("p{percent} <= {}", self.value(value))
            });
            writeln!(self.out, "  {}", percentiles.join(", "))?;
        }
        let bars = bars(&row.buckets, scale);
        let most = bars.iter().map(|bar| bar.count).max().unwrap_or(1).max(1);
        for bar in bars {
            let length = (bar.count as usize * BAR).div_ceil(most as usize);
            let range = match (bar.least, bar.greatest) {
                (i64::MIN, greatest) => format!("up to {}", self.value(greatest)),
                (least, i64::MAX) => format!("from {}", self.value(least)),
                (least, greatest) if least == greatest => self.value(least),
                (least, greatest) => {
                    format!("{} .. {}", self.value(least), self.value(greatest))
                }
            };
            let marks = "@".repeat(length);
            writeln!(self.out, "  {range:>28} {:>10} |{marks:<BAR$}|", bar.count)?;
        }
        writeln!(self.out)
    }

    fn mean(&self, row: &TableRow) -> String {
        match self.style.timed {
            true => self.value(row.sum.checked_div(row.count as i64).unwrap_or(0)),
            false => mean(row.sum, row.count),
        }
    }
}

/// A mean, rounded to a tenth.
fn mean(sum: i64, count: u64) -> String {
    let (sum, count) = (i128::from(sum), i128::from(count.max(1)));
    let tenths = (10 * sum + sum.signum() * count / 2) / count;
    let sign = if tenths < 0 { "-" } else { "" };
    match (tenths.abs() / 10, tenths.abs() % 10) {
        (whole, 0) => format!("{sign}{whole}"),
        (whole, tenth) => format!("{sign}{whole}.{tenth}"),
    }
}

/// A line of a histogram.
struct Bar {
    least: i64,
    greatest: i64,
    count: u64,
}

/// The lines from the first that is not empty to the last; those of a power of two
/// are one.
fn bars(buckets: &[u64], scale: Scale) -> Vec<Bar> {
    let coarse = match scale {
        Scale::Log { .. } => Scale::Log { bits: 0 },
        linear => linear,
    };
    let mut counts = vec![0u64; coarse.count()];
    for (bucket, count) in buckets.iter().enumerate() {
        let Some((least, _)) = scale.range(bucket) else {
            continue;
        };
        let place = match scale {
            Scale::Log { .. } => coarse.bucket(least),
            Scale::Linear { .. } => bucket,
        };
        if let Some(sum) = counts.get_mut(place) {
            *sum += count;
        }
    }
    let first = counts.iter().position(|count| *count > 0);
    let last = counts.iter().rposition(|count| *count > 0);
    let (Some(first), Some(last)) = (first, last) else {
        return Vec::new();
    };
    (first..=last)
        .filter_map(|bucket| {
            let (least, greatest) = coarse.range(bucket)?;
            let count = counts.get(bucket).copied().unwrap_or(0);
            Some(Bar {
                least,
                greatest,
                count,
            })
        })
        .collect()
}

/// A value that a percentage of all values does not exceed: the upper end of the
/// bucket in which they are reached.
fn percentile(row: &TableRow, scale: Scale, percent: u64) -> i64 {
    let total: u64 = row.buckets.iter().sum();
    let wanted = (u128::from(total) * u128::from(percent)).div_ceil(100) as u64;
    let mut sum = 0u64;
    for (bucket, count) in row.buckets.iter().enumerate() {
        sum += count;
        if sum >= wanted && *count > 0 {
            return scale
                .range(bucket)
                .map_or(i64::MAX, |(_, greatest)| greatest);
        }
    }
    row.greatest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_have_a_tenth() {
        for (sum, count, text) in [
            (35, 2, "17.5"),
            (-35, 2, "-17.5"),
            (-1, 4, "-0.3"),
            (199, 20, "10"),
            (34, 2, "17"),
            (i64::MAX, 1, "9223372036854775807"),
            (0, 0, "0"),
        ] {
            assert_eq!(mean(sum, count), text, "{sum} / {count}");
        }
    }

    #[test]
    fn powers_of_two_are_one_line() {
        let scale = Scale::Log { bits: 2 };
        let mut buckets = vec![0; scale.count()];
        for value in [5, 6, 7, 20] {
            buckets[scale.bucket(value)] += 1;
        }
        let bars = bars(&buckets, scale);
        let lines: Vec<_> = bars
            .iter()
            .map(|bar| (bar.least, bar.greatest, bar.count))
            .collect();
        assert_eq!(lines, [(4, 7, 3), (8, 15, 0), (16, 31, 1)]);
        let row = TableRow {
            buckets,
            ..TableRow::default()
        };
        assert_eq!(percentile(&row, scale, 50), 6);
        assert_eq!(percentile(&row, scale, 99), 23);
    }
}
