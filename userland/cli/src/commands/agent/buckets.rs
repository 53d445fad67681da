// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buckets of an exported histogram: some of the edges of those in the kernel, the same for as
//! long as the metric lives.

use libnsprobe::common::histogram::Scale;

/// The powers of two, in nanoseconds, that times are exported by: 1 us to 17 s.
const TIMES: std::ops::RangeInclusive<u32> = 10..=34;
/// Those of other values.
const VALUES: std::ops::RangeInclusive<u32> = 0..=40;
const NS: f64 = 1e-9;

/// Edges, and which of the kernel's buckets lie between them.
#[derive(Debug)]
pub(super) struct Buckets {
    scale: Scale,
    /// The greatest value of each bucket but the last.
    greatest: Vec<i64>,
    /// What one is, in the unit of the metric.
    unit: f64,
}

impl Buckets {
    /// For the values of a scale, which are `timed` or numbers.
    pub(super) fn new(scale: Scale, timed: bool) -> Buckets {
        let powers = if timed { TIMES } else { VALUES };
        let greatest = match scale {
            Scale::Log { .. } => powers.map(|power| (1 << power) - 1).collect(),
            Scale::Linear { .. } => {
                let last = scale.count() - 1;
                let ranges = (0..last).filter_map(|bucket| scale.range(bucket));
                ranges.map(|(_, greatest)| greatest).collect()
            }
        };
        Buckets {
            scale,
            greatest,
            unit: if timed { NS } else { 1.0 },
        }
    }

    /// The greatest value of each bucket but the last, in the unit of the metric.
    pub(super) fn bounds(&self) -> Vec<f64> {
        let greatest = self.greatest.iter();
        greatest.map(|value| *value as f64 * self.unit).collect()
    }

    /// A sum in the unit of the metric.
    pub(super) fn sum(&self, sum: i128) -> f64 {
        sum as f64 * self.unit
    }

    /// The kernel's counts as those of these buckets.
    pub(super) fn merged(&self, counts: &[u64]) -> Vec<u64> {
        let mut merged = vec![0; self.greatest.len() + 1];
        for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let Some((_, greatest)) = self.scale.range(bucket) else {
                continue;
            };
            let at = self.greatest.partition_point(|edge| *edge < greatest);
            if let Some(sum) = merged.get_mut(at) {
                *sum += count;
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(scale: Scale, values: &[i64]) -> Vec<u64> {
        let mut counts = vec![0; scale.count()];
        values
            .iter()
            .for_each(|value| counts[scale.bucket(*value)] += 1);
        counts
    }

    #[test]
    fn every_value_is_at_or_below_the_bound_of_its_bucket_and_above_the_one_before() {
        let linear = Scale::Linear {
            low: 10,
            step: 5,
            buckets: 3,
        };
        for (scale, timed) in [
            (Scale::Log { bits: 2 }, true),
            (Scale::Log { bits: 0 }, false),
            (linear, false),
        ] {
            let buckets = Buckets::new(scale, timed);
            let bounds = buckets.bounds();
            for value in [
                -5,
                0,
                1,
                9,
                10,
                14,
                15,
                24,
                25,
                1023,
                1024,
                1 << 34,
                i64::MAX,
            ] {
                let merged = buckets.merged(&counts(scale, &[value]));
                let at = merged.iter().position(|count| *count == 1).unwrap();
                let shown = value as f64 * buckets.unit;
                assert!(
                    bounds.get(at).is_none_or(|bound| shown <= *bound),
                    "{value} {scale:?}"
                );
                let below = at.checked_sub(1).and_then(|at| bounds.get(at));
                assert!(
                    below.is_none_or(|bound| shown > *bound),
                    "{value} {scale:?}"
                );
            }
        }
    }
}
