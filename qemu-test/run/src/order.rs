// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which tests run: another one for each seed, and the same one for the same.

/// Shuffles the names by a seed. The long ones come in the first half, so that no guest is
/// left alone with one at the end.
pub(crate) fn shuffle(names: Vec<(String, bool)>, seed: u64) -> Vec<String> {
    let mut random = SplitMix(seed);
    let (mut long, mut short): (Vec<_>, Vec<_>) = names.into_iter().partition(|(_, long)| *long);
    random.shuffle(&mut short);
    let rest = short.split_off(short.len() / 2);
    long.append(&mut short);
    random.shuffle(&mut long);
    long.into_iter().chain(rest).map(|(name, _)| name).collect()
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Fisher and Yates; the bias of the remainder is below 2^-50 here.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.next() % (last as u64 + 1);
            items.swap(last, other as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<(String, bool)> {
        let named = |number: usize| (format!("test{number}"), number.is_multiple_of(10));
        (0..100).map(named).collect()
    }

    #[test]
    fn a_seed_is_an_order() {
        assert_eq!(shuffle(names(), 7), shuffle(names(), 7));
        assert_ne!(shuffle(names(), 7), shuffle(names(), 8));
    }

    #[test]
    fn each_test_stands_in_it_once_and_long_ones_in_front() {
        let order = shuffle(names(), 7);
        let mut sorted = order.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), 100);
        let long = |name: &String| names().iter().any(|(other, long)| *long && other == name);
        assert!(order[60..].iter().all(|name| !long(name)));
    }
}
