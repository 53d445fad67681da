// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of generated code: a process may put other code at the same address later.

use crate::model::GeneratedName;
use std::collections::{BTreeMap, HashMap};

/// A place in the generated code of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GeneratedPlace {
    /// The process, as in hits.
    pub pid: u32,
    /// The address, as in frames.
    pub address: u64,
    /// Whether that is the instruction itself; else it is the return address behind a call.
    pub exact: bool,
}

/// What is known of such places, over time.
#[derive(Debug, Default)]
pub struct Generated {
    /// By place, and by the time from which on it holds.
    places: HashMap<GeneratedPlace, BTreeMap<u64, GeneratedName>>,
    count: usize,
}

impl Generated {
    /// Adds what is known from a time on; of the same time the last one counts.
    pub fn add(&mut self, name: GeneratedName) {
        let times = self.places.entry(name.place()).or_default();
        let before = times.insert(name.from_ns, name);
        self.count += usize::from(before.is_none());
    }

    /// What is known of a place at a time (CLOCK_MONOTONIC, in nanoseconds).
    pub fn at(&self, place: GeneratedPlace, time_ns: u64) -> Option<&GeneratedName> {
        let times = self.places.get(&place)?;
        times.range(..=time_ns).next_back().map(|(_, name)| name)
    }

    /// From when on something is to be added, so that a place has a certain name at
    /// `time_ns`, which it has had since `since_ns`, if that is known; none when it has that
    /// name already, of which `is_same` tells.
    pub fn lacks_from(
        &self,
        place: GeneratedPlace,
        time_ns: u64,
        since_ns: Option<u64>,
        is_same: impl FnOnce(&GeneratedName) -> bool,
    ) -> Option<u64> {
        let known = self.at(place, time_ns);
        let begun = since_ns.map_or(time_ns, |since_ns| since_ns.min(time_ns));
        // What was called so before may have been called otherwise in between.
        let is_of_now = |known: &GeneratedName| since_ns.is_none() || known.from_ns >= begun;
        match known {
            Some(known) if is_of_now(known) && is_same(known) => None,
            Some(known) if known.from_ns >= begun => Some(time_ns),
            _ => Some(begun),
        }
    }

    /// All names, in no order.
    pub fn all(&self) -> impl Iterator<Item = &GeneratedName> {
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

impl GeneratedName {
    /// What it is about.
    pub fn place(&self) -> GeneratedPlace {
        GeneratedPlace {
            pid: self.pid,
            address: self.address,
            exact: self.exact,
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

    fn name(from_ns: u64, why: &str) -> GeneratedName {
        GeneratedName {
            pid: PLACE.pid,
            address: PLACE.address,
            from_ns,
            unresolved: Some(why.to_owned()),
            ..GeneratedName::default()
        }
    }

    /// Adds what is lacking; whether anything was.
    fn learn(
        all: &mut Generated,
        time_ns: u64,
        since_ns: impl Into<Option<u64>>,
        text: &str,
    ) -> bool {
        let same = |known: &GeneratedName| known.unresolved.as_deref() == Some(text);
        let from = all.lacks_from(PLACE, time_ns, since_ns.into(), same);
        from.map(|from| all.add(name(from, text))).is_some()
    }

    fn told(all: &Generated, time_ns: u64) -> Option<&str> {
        all.at(PLACE, time_ns)?.unresolved.as_deref()
    }

    #[test]
    fn a_place_has_the_name_that_it_had_then() {
        let mut all = Generated::default();
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
        all.add(name(20, "third"));
        assert_eq!((told(&all, 25), all.len()), (Some("third"), 2));
    }

    proptest! {
        /// However the times are come by, and whether or not it is known since when a name
        /// holds: each has the name that it had.
        #[test]
        fn each_time_has_its_name(times in prop::collection::vec((0u64..100, any::<bool>()), 1..50)) {
            let mut all = Generated::default();
            let truth = |time: u64| (time / 10 * 10, ["a", "b", "c"][(time / 10 % 3) as usize]);
            for (time, _) in &times {
                let (since, text) = truth(*time);
                learn(&mut all, *time, since, text);
            }
            for (time, _) in &times {
                prop_assert_eq!(told(&all, *time), Some(truth(*time).1));
            }
            // Of rising times it need not be known.
            let mut all = Generated::default();
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
