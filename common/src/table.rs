// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The layout of a table's rows in memory, and the places where a key may be.
//!
//! A row in the kernel is a word of state, then [`Row`] and what follows it in
//! [`Rows`](super::abi::Rows). A key has two sets of [`WAYS`] places: enough that a table is some
//! four fifths full before a key finds no place (a new one goes into the emptier set), few enough
//! that looking at all of them is quick. There is no further probing, so that places can be freed
//! again. A container that has all other places of a set does not get the last one: a table has
//! half as many rows again as were asked for, and where one floods it, an eighth is for others.

use super::{
    abi::{
        Row, Table, FRAMES_MAX, ROWS_MAX, SCALE_LINEAR, SCALE_LOG, TABLE_HISTOGRAM, TABLE_SPANS,
        TABLE_SUMS,
    },
    histogram::Scale,
    program::KEY_WORDS_MAX,
    record::WORDS_MAX,
};

/// Places in a set.
pub const WAYS: usize = 8;
/// Words of [`Row`].
pub const ROW_WORDS: usize = size_of::<Row>() / 8;

/// The kind of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Count, sum, least and greatest.
    Sums,
    /// Count, sum, least and greatest, and a histogram.
    Histogram(Scale),
    /// Spans that have begun and not ended.
    Spans,
}

/// The shape of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The kind of the table.
    pub kind: Kind,
    /// Words of a key.
    pub key_words: usize,
    /// Words of a stack.
    pub stack_words: usize,
    /// Most frames of a stack.
    pub max_frames: u32,
    /// The number of rows.
    pub rows: usize,
}

impl Shape {
    /// The shape that a request describes, on a machine with `cpus` CPUs; `None` if it is invalid.
    pub fn new(request: &Table, cpus: usize) -> Option<Shape> {
        let scale = scale(request)?;
        let kind = match (request.kind, scale) {
            (TABLE_SUMS, None) => Kind::Sums,
            (TABLE_SPANS, None) if request.key_words != 0 => Kind::Spans,
            (TABLE_HISTOGRAM, Some(scale)) => Kind::Histogram(scale),
            _ => return None,
        };
        let key_words = request.key_words as usize;
        let keyed = key_words != 0 || request.max_frames != 0;
        if key_words > KEY_WORDS_MAX
            || request.max_frames > FRAMES_MAX
            || keyed && !(1..=ROWS_MAX).contains(&request.rows)
        {
            return None;
        }
        // A frame may take two words.
        let stack_words = (request.max_frames as usize).saturating_mul(2);
        Some(Shape {
            kind,
            key_words,
            stack_words: stack_words.min(WORDS_MAX),
            max_frames: request.max_frames,
            rows: match keyed {
                // More than was asked for: see the module.
                true => {
                    let spare = (request.rows as usize).div_ceil(2);
                    (request.rows as usize)
                        .saturating_add(spare)
                        .next_multiple_of(WAYS)
                }
                false => cpus,
            },
        })
    }

    /// Whether rows are found by a key; otherwise there is one for each CPU.
    pub const fn is_keyed(&self) -> bool {
        self.key_words != 0 || self.stack_words != 0
    }

    /// Buckets of a row.
    pub const fn buckets(&self) -> usize {
        match self.kind {
            Kind::Histogram(scale) => scale.count(),
            _ => 0,
        }
    }

    /// Words of one row in the layout of the ABI.
    pub const fn row_words(&self) -> usize {
        ROW_WORDS
            .saturating_add(self.key_words)
            .saturating_add(self.stack_words)
            .saturating_add(self.buckets())
    }

    /// Words of one row with its state.
    pub const fn kept_words(&self) -> usize {
        self.row_words().saturating_add(1)
    }

    /// The first rows of the two sets that a key with this hash may be in.
    pub fn sets(&self, hash: u64) -> [usize; 2] {
        let sets = (self.rows / WAYS) as u64;
        let set = |part: u64| part.checked_rem(sets).unwrap_or(0) as usize;
        [
            set(hash & 0xffff_ffff).wrapping_mul(WAYS),
            set(hash >> 32).wrapping_mul(WAYS),
        ]
    }
}

/// The scale of a histogram; `None` if it is invalid.
fn scale(request: &Table) -> Option<Option<Scale>> {
    let scale = match request.scale {
        0 => None,
        SCALE_LOG => Some(Scale::Log {
            bits: request.log_bits,
        }),
        SCALE_LINEAR => Some(Scale::Linear {
            low: request.low,
            step: request.step,
            buckets: request.buckets,
        }),
        _ => return None,
    };
    let is_log = request.scale == SCALE_LOG;
    let is_linear = request.scale == SCALE_LINEAR;
    let stray = request.log_bits != 0 && !is_log
        || (request.low != 0 || request.step != 0 || request.buckets != 0) && !is_linear;
    let valid = !stray && scale.is_none_or(Scale::is_valid);
    valid.then_some(scale)
}

/// A hash of words that cannot be predicted without the seed: folded products, as in wyhash. Never
/// zero.
pub fn hash<'a>(seed: u64, words: impl Iterator<Item = &'a u64>) -> u64 {
    let mut state = seed;
    for word in words {
        state = fold(state ^ word, seed.rotate_left(32) | 1).wrapping_add(ODD);
    }
    fold(state, ODD).max(1)
}

/// The same of many words, two at a time: another hash.
pub fn hash_of_pairs(seed: u64, mut words: &[u64]) -> u64 {
    let (mut state, other) = (seed, seed.rotate_left(32) | 1);
    while let [first, second, rest @ ..] = words {
        state = fold(state ^ first, other ^ second).wrapping_add(ODD);
        words = rest;
    }
    if let [last, ..] = words {
        state = fold(state ^ last, other);
    }
    fold(state, ODD).max(1)
}

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    (product as u64) ^ (product >> 64) as u64
}

/// Maps a signed number to an unsigned one in the same order, so that the greatest of all values
/// can start at zero.
pub const fn greatest_word(value: i64) -> u64 {
    value as u64 ^ 1 << 63
}

/// Maps a signed number to an unsigned one in reverse order: the greatest of these is the least
/// value.
pub const fn least_word(value: i64) -> u64 {
    !greatest_word(value)
}

/// The number that [`greatest_word`] was given.
pub const fn of_greatest_word(word: u64) -> i64 {
    (word ^ 1 << 63) as i64
}

/// The number that [`least_word`] was given.
pub const fn of_least_word(word: u64) -> i64 {
    of_greatest_word(!word)
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::vec;

    fn keyed(rows: u32) -> Table {
        Table {
            kind: TABLE_SUMS,
            rows,
            key_words: 2,
            ..Table::default()
        }
    }

    #[test]
    fn only_sound_tables_have_a_shape() {
        assert!(Shape::new(&keyed(1), 2).is_some_and(|shape| shape.rows == WAYS));
        assert_eq!(Shape::new(&keyed(0), 2), None);
        assert_eq!(Shape::new(&keyed(ROWS_MAX + 1), 2), None);
        let plain = Table {
            kind: TABLE_SUMS,
            ..Table::default()
        };
        assert!(Shape::new(&plain, 3).is_some_and(|shape| shape.rows == 3 && !shape.is_keyed()));
        let spans = Table {
            kind: TABLE_SPANS,
            ..plain
        };
        assert_eq!(Shape::new(&spans, 2), None);
        let histogram = Table {
            kind: TABLE_HISTOGRAM,
            ..plain
        };
        assert_eq!(Shape::new(&histogram, 2), None);
        let log = Table {
            scale: SCALE_LOG,
            log_bits: 2,
            ..histogram
        };
        assert!(Shape::new(&log, 2).is_some());
        assert_eq!(Shape::new(&Table { step: 1, ..log }, 2), None);
        assert_eq!(Shape::new(&Table { log_bits: 5, ..log }, 2), None);
    }

    /// What one container may have of half as much again is what was asked for.
    #[test]
    fn a_table_gets_nearly_full() {
        let shape = Shape::new(&keyed(4096), 2).unwrap();
        let mut used = vec![0; shape.rows / WAYS];
        let mut kept = 0;
        for key in 0u64..1 << 20 {
            let sets = shape.sets(hash(7, [key].iter()));
            let set = sets.into_iter().min_by_key(|set| used[set / WAYS]).unwrap();
            // The last place of a set is for others.
            if used[set / WAYS] == WAYS - 1 {
                break;
            }
            used[set / WAYS] += 1;
            kept += 1;
        }
        assert!(kept >= 4096, "{kept} of {}", shape.rows);
    }

    proptest! {
        #[test]
        fn sets_lie_in_the_table(rows in 1..=ROWS_MAX, hash in any::<u64>()) {
            let shape = Shape::new(&keyed(rows), 2).unwrap();
            for set in shape.sets(hash) {
                prop_assert!(set % WAYS == 0 && set + WAYS <= shape.rows);
            }
        }

        #[test]
        fn order_is_kept(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(greatest_word(a) < greatest_word(b), a < b);
            prop_assert_eq!(least_word(a) < least_word(b), a > b);
            prop_assert_eq!(of_greatest_word(greatest_word(a)), a);
            prop_assert_eq!(of_least_word(least_word(a)), a);
        }

        #[test]
        fn each_word_of_many_counts(seed in any::<u64>(), words in prop::collection::vec(any::<u64>(), 1..20), at in any::<prop::sample::Index>()) {
            let mut others = words.clone();
            *at.get_mut(&mut others) ^= 1 << 20;
            prop_assert_ne!(hash_of_pairs(seed, &words), hash_of_pairs(seed, &others));
        }

        #[test]
        fn equal_keys_have_equal_hashes(seed in any::<u64>(), words in prop::collection::vec(any::<u64>(), 0..20)) {
            prop_assert_eq!(hash(seed, words.iter()), hash(seed, words.iter()));
            prop_assert_ne!(hash(seed, words.iter()), 0);
            prop_assert_ne!(hash_of_pairs(seed, &words), 0);
        }
    }
}
