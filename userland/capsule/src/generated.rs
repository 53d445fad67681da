// SPDX-License-Identifier: MIT OR Apache-2.0
//! What generated code is over time: a process may put other code at the same address later.

use std::collections::{BTreeMap, HashMap};

/// A place in the generated code of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GeneratedPlace {
    /// The process, as in hits.
    pub pid: u32,
    /// The address, as in frames.
    pub address: u64,
    /// Whether that is the instruction itself; else it is the return address after a call.
    pub exact: bool,
}

/// What is known of such places over time, such as their names.
#[derive(Debug)]
pub struct Generated<T> {
    /// By place, and by the time from which on it holds.
    places: HashMap<GeneratedPlace, BTreeMap<u64, T>>,
    count: usize,
}

impl<T> Default for Generated<T> {
    fn default() -> Generated<T> {
        Generated {
            places: HashMap::new(),
            count: 0,
        }
    }
}

impl<T> Generated<T> {
    /// Adds what is known from a time on (CLOCK_MONOTONIC, in nanoseconds); of the same time
    /// the last one counts.
    pub fn add(&mut self, place: GeneratedPlace, from_ns: u64, name: T) {
        let times = self.places.entry(place).or_default();
        let before = times.insert(from_ns, name);
        self.count += usize::from(before.is_none());
    }

    /// What is known of a place at a time, and from when on.
    pub fn at(&self, place: GeneratedPlace, time_ns: u64) -> Option<(u64, &T)> {
        let times = self.places.get(&place)?;
        let known = times.range(..=time_ns).next_back();
        known.map(|(from_ns, name)| (*from_ns, name))
    }

    /// All names, in no order.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.places.values().flat_map(BTreeMap::values)
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<T: Eq> Generated<T> {
    /// From when on `name` is to be added, so that a place has it at `time_ns`, which it has
    /// had since `since_ns`, if that is known; none when it has that name already.
    pub fn lacks_from(
        &self,
        place: GeneratedPlace,
        time_ns: u64,
        since_ns: Option<u64>,
        name: &T,
    ) -> Option<u64> {
        let begun = since_ns.map_or(time_ns, |since_ns| since_ns.min(time_ns));
        // What was called so before may have been called otherwise in between.
        let is_of_now = |from_ns: u64| since_ns.is_none() || from_ns >= begun;
        match self.at(place, time_ns) {
            Some((from_ns, known)) if is_of_now(from_ns) && known == name => None,
            Some((from_ns, _)) if from_ns >= begun => Some(time_ns),
            _ => Some(begun),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: GeneratedPlace = GeneratedPlace {
        pid: 7,
        address: 0x1000,
        exact: false,
    };

    type TestCode = Generated<&'static str>;

    /// Adds what is lacking; whether anything was.
    fn learn(
        all: &mut TestCode,
        time_ns: u64,
        since_ns: impl Into<Option<u64>>,
        name: &'static str,
    ) -> bool {
        let from = all.lacks_from(PLACE, time_ns, since_ns.into(), &name);
        from.map(|from| all.add(PLACE, from, name)).is_some()
    }

    fn told(all: &TestCode, time_ns: u64) -> Option<&str> {
        all.at(PLACE, time_ns).map(|(_, name)| *name)
    }

    #[test]
    fn a_place_has_the_name_that_it_had_then() {
        let mut all = TestCode::default();
        assert!(all.is_empty());
        assert_eq!(told(&all, 5), None);
        assert!(learn(&mut all, 15, 10, "first"));
        assert!(!learn(&mut all, 12, 10, "first"));
        assert!(learn(&mut all, 25, 20, "second"));
        assert!(!learn(&mut all, 19, 10, "first"));
        let then = [9, 10, 19, 20, 99].map(|time| told(&all, time));
        let second = Some("second");
        assert_eq!(then, [None, Some("first"), Some("first"), second, second]);
        let other = GeneratedPlace {
            exact: true,
            ..PLACE
        };
        assert_eq!(all.at(other, 25), None);
        all.add(PLACE, 20, "third");
        assert_eq!((told(&all, 25), all.len()), (Some("third"), 2));
    }

    proptest! {
        /// However the times are come by, and whether or not it is known since when a name
        /// holds: each has the name that it had.
        #[test]
        fn each_time_has_its_name(times in prop::collection::vec((0u64..100, any::<bool>()), 1..50)) {
            let mut all = TestCode::default();
            let truth = |time: u64| (time / 10 * 10, ["a", "b", "c"][(time / 10 % 3) as usize]);
            for (time, _) in &times {
                let (since, text) = truth(*time);
                learn(&mut all, *time, since, text);
            }
            for (time, _) in &times {
                prop_assert_eq!(told(&all, *time), Some(truth(*time).1));
            }
            // Of rising times it need not be known.
            let mut all = TestCode::default();
            let mut rising = times;
            rising.sort_unstable();
            for (time, is_known) in &rising {
                let (since, text) = truth(*time);
                learn(&mut all, *time, is_known.then_some(since), text);
            }
            for (time, _) in &rising {
                prop_assert_eq!(told(&all, *time), Some(truth(*time).1));
            }
        }
    }
}
