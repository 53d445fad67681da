// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The buckets of a histogram: the bucket of a value, and the range of a bucket.
//!
//! Bucket 0 holds the values below the scale. On the logarithmic scale those are the negative ones;
//! then come one bucket for each value below `1 << log_bits`, and `1 << log_bits` buckets of equal
//! width for each power of two above, up to `i64::MAX`. On the linear scale `buckets` of width
//! `step` follow, and a last one for the values above.

use super::abi::{LINEAR_MAX, LOG_BITS_MAX};

/// How values are spread over buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// `1 << bits` buckets for each power of two.
    Log {
        /// 0 to [`LOG_BITS_MAX`].
        bits: u32,
    },
    /// Equal buckets.
    Linear {
        /// Where the first bucket begins.
        low: i64,
        /// The width of a bucket, at least 1.
        step: u64,
        /// The number of buckets, 1 to [`LINEAR_MAX`].
        buckets: u32,
    },
}

impl Scale {
    /// Whether the numbers are within their limits.
    pub const fn is_valid(self) -> bool {
        match self {
            Scale::Log { bits } => bits <= LOG_BITS_MAX,
            Scale::Linear { step, buckets, .. } => {
                step != 0 && buckets != 0 && buckets <= LINEAR_MAX
            }
        }
    }

    /// The number of buckets.
    pub const fn count(self) -> usize {
        match self {
            // Below, single values, and the powers from `bits` to 62.
            Scale::Log { bits } => {
                let powers = 64usize.saturating_sub(bits as usize);
                powers.wrapping_shl(bits).saturating_add(1)
            }
            Scale::Linear { buckets, .. } => (buckets as usize).saturating_add(2),
        }
    }

    /// The bucket of a value: below [`count`](Self::count) on a valid scale.
    pub fn bucket(self, value: i64) -> usize {
        match self {
            Scale::Log { bits } => match u64::try_from(value) {
                Ok(value) => log_bucket(bits, value).wrapping_add(1),
                Err(_) => 0,
            },
            Scale::Linear { low, step, buckets } => {
                if value < low {
                    return 0;
                }
                let distance = (value as u64).wrapping_sub(low as u64);
                let index = distance.checked_div(step).unwrap_or(0);
                (index.min(buckets.into()) as usize).saturating_add(1)
            }
        }
    }

    /// The least and the greatest value of a bucket; `None` after the last.
    pub fn range(self, bucket: usize) -> Option<(i64, i64)> {
        if bucket >= self.count() {
            return None;
        }
        match self {
            Scale::Log { bits } => Some(match bucket.checked_sub(1) {
                None => (i64::MIN, -1),
                Some(index) => log_range(bits, index),
            }),
            Scale::Linear { low, step, buckets } => {
                let edge = |index: u64| {
                    let distance = i128::from(step).saturating_mul(index.into());
                    let edge = i128::from(low).saturating_add(distance);
                    i64::try_from(edge).unwrap_or(i64::MAX)
                };
                Some(match bucket.checked_sub(1) {
                    None => (i64::MIN, low.saturating_sub(1)),
                    Some(index) if index as u64 == u64::from(buckets) => {
                        (edge(index as u64), i64::MAX)
                    }
                    Some(index) => {
                        let next = edge((index as u64).saturating_add(1));
                        (edge(index as u64), next.saturating_sub(1))
                    }
                })
            }
        }
    }
}

fn log_bucket(bits: u32, value: u64) -> usize {
    let Some(power) = value.checked_ilog2().filter(|power| *power >= bits) else {
        return value as usize;
    };
    let shift = power.wrapping_sub(bits);
    // The bits after the highest one say which part of the power it is.
    let part = value.wrapping_shr(shift) as usize;
    (shift as usize).wrapping_shl(bits).wrapping_add(part)
}

fn log_range(bits: u32, index: usize) -> (i64, i64) {
    let index = index as u64;
    let parts = 1u64.wrapping_shl(bits);
    if index < parts {
        return (index as i64, index as i64);
    }
    let shift = (index.wrapping_shr(bits) as u32).wrapping_sub(1);
    let part = parts | (index & parts.wrapping_sub(1));
    let least = part.wrapping_shl(shift);
    let width = 1u64.wrapping_shl(shift);
    (
        least as i64,
        least.wrapping_add(width).wrapping_sub(1) as i64,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scales() -> impl Strategy<Value = Scale> {
        prop_oneof![
            (0..=LOG_BITS_MAX).prop_map(|bits| Scale::Log { bits }),
            (any::<i64>(), 1u64.., 1..=LINEAR_MAX).prop_map(|(low, step, buckets)| Scale::Linear {
                low,
                step,
                buckets
            }),
            (-100i64..100, 1u64..50, 1u32..50).prop_map(|(low, step, buckets)| Scale::Linear {
                low,
                step,
                buckets
            }),
        ]
    }

    #[test]
    fn powers_of_two_are_what_others_print() {
        let scale = Scale::Log { bits: 0 };
        let range = |value| scale.range(scale.bucket(value)).unwrap();
        assert_eq!(range(0), (0, 0));
        assert_eq!(range(1), (1, 1));
        assert_eq!(range(5), (4, 7));
        assert_eq!(range(1024), (1024, 2047));
        assert_eq!(range(-3), (i64::MIN, -1));
        assert_eq!(range(i64::MAX).1, i64::MAX);
        assert_eq!(scale.bucket(i64::MAX) + 1, scale.count());
    }

    #[test]
    fn buckets_are_in_order_without_gaps() {
        let scale = Scale::Log { bits: 2 };
        let mut next = 0;
        for bucket in 1..scale.count() {
            let (least, greatest) = scale.range(bucket).unwrap();
            assert_eq!(least, next);
            assert!(greatest >= least);
            next = greatest.wrapping_add(1);
        }
        assert_eq!(next, i64::MIN);
    }

    proptest! {
        #[test]
        fn a_value_lies_in_the_range_of_its_bucket(scale in scales(), value in any::<i64>()) {
            prop_assert!(scale.is_valid());
            for value in [value, value >> 32, value >> 56] {
                let bucket = scale.bucket(value);
                prop_assert!(bucket < scale.count());
                let (least, greatest) = scale.range(bucket).unwrap();
                // An edge beyond i64 has no value above it.
                prop_assert!(least <= value && value <= greatest || greatest < least,
                    "{least} {value} {greatest}");
            }
        }
    }
}
