// SPDX-License-Identifier: MIT OR Apache-2.0
//! What something was, and since when.

/// Values by the time from which each held, in CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History<T> {
    /// By time; two beside each other differ.
    changes: Vec<Change<T>>,
}

/// What something became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<T> {
    /// The first time that it is known to have been this.
    pub since_ns: u64,
    /// The last time that it is known to have been this.
    pub until_ns: u64,
    /// What it was.
    pub value: T,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        History {
            changes: Vec::new(),
        }
    }
}

impl<T: PartialEq + Clone> History<T> {
    /// Notes that this was so at a time, which may lie before what is known already. Of more
    /// than `most` changes the oldest is forgotten.
    pub(crate) fn note(&mut self, time_ns: u64, value: T, most: usize) {
        let after = self.after(time_ns);
        if let Some(before) = after.checked_sub(1).and_then(|at| self.changes.get_mut(at)) {
            if before.value == value {
                before.until_ns = before.until_ns.max(time_ns);
                return;
            }
            // It was something else for a while, and then this again.
            if time_ns < before.until_ns {
                let again = Change {
                    since_ns: before.until_ns,
                    ..before.clone()
                };
                before.until_ns = before.since_ns;
                self.changes.insert(after, again);
            }
        }
        match self.changes.get_mut(after) {
            // It was so earlier than was known.
            Some(change) if change.value == value => change.since_ns = time_ns,
            _ => self.changes.insert(
                after,
                Change {
                    since_ns: time_ns,
                    until_ns: time_ns,
                    value,
                },
            ),
        }
        let too_many = self.changes.len().saturating_sub(most);
        self.changes.drain(..too_many);
    }
}

impl<T> History<T> {
    /// What it is, as far as is known.
    pub fn last(&self) -> Option<&T> {
        self.changes.last().map(|change| &change.value)
    }

    /// What it was at a time; before the first change that is known, what that says.
    pub fn at(&self, time_ns: u64) -> Option<&T> {
        let at = self.after(time_ns).saturating_sub(1);
        self.changes.get(at).map(|change| &change.value)
    }

    /// All changes, by their time.
    pub fn changes(&self) -> &[Change<T>] {
        &self.changes
    }

    /// Where the changes after a time begin.
    fn after(&self, time_ns: u64) -> usize {
        self.changes
            .partition_point(|change| change.since_ns <= time_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_value_of_a_moment_is_the_last_one_before() {
        let mut history = History::default();
        for (time, value) in [(10, 'a'), (30, 'c'), (20, 'b'), (35, 'c')] {
            history.note(time, value, 9);
        }
        let at = |time| *history.at(time).unwrap();
        assert_eq!(
            [5, 10, 19, 20, 30, 99].map(at),
            ['a', 'a', 'a', 'b', 'c', 'c']
        );
        assert_eq!(history.changes().len(), 3);
        assert_eq!(history.changes()[2].until_ns, 35);
    }

    #[test]
    fn an_older_record_of_the_same_moves_the_change_back() {
        let mut history = History::default();
        history.note(20, 'a', 9);
        history.note(10, 'a', 9);
        assert_eq!(
            (history.changes().len(), history.changes()[0].since_ns),
            (1, 10)
        );
    }

    #[test]
    fn what_was_otherwise_for_a_while_is_itself_again() {
        let mut history = History::default();
        for (time, value) in [(10, 'a'), (30, 'a'), (20, 'b')] {
            history.note(time, value, 9);
        }
        let at = |time| *history.at(time).unwrap();
        assert_eq!([15, 25, 30].map(at), ['a', 'b', 'a']);
    }

    proptest! {
        #[test]
        fn in_order_each_moment_is_as_it_was(values in prop::collection::vec(0..3u8, 1..20)) {
            let mut history = History::default();
            (0..).zip(&values).for_each(|(time, value)| history.note(time, *value, 99));
            for (time, value) in (0..).zip(&values) {
                prop_assert_eq!(history.at(time), Some(value));
            }
        }

        #[test]
        fn what_it_is_now_does_not_depend_on_the_order(
            values in prop::collection::vec(0..3u8, 1..20).prop_map(|values| {
                (0..).zip(values).collect::<Vec<(u64, u8)>>()
            }).prop_flat_map(|timed| (Just(timed.clone()), Just(timed).prop_shuffle())),
        ) {
            let (timed, shuffled) = values;
            let mut history = History::default();
            shuffled.iter().for_each(|(time, value)| history.note(*time, *value, 99));
            prop_assert_eq!(history.last(), timed.last().map(|(_, value)| value));
            let changes = history.changes();
            prop_assert!(changes.windows(2).all(|pair| pair[0].since_ns < pair[1].since_ns));
        }
    }
}
