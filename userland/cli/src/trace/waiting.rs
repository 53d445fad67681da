// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hits whose stacks come later, in records of their own.

use libnsprobe::common::record::{Details, Frames, Hit, LateStack};
use std::collections::VecDeque;

/// Most hits that wait; then the oldest is given up.
const WAITING_MAX: usize = 1024;

/// A hit that waits for its stack, with all that its record had.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) hit: Hit,
    elapsed_ns: Option<u64>,
    frames: Vec<u64>,
    kernel: Vec<u64>,
    fields: Vec<u64>,
}

impl Waiting {
    /// A hit that waits.
    pub(super) fn new(hit: &Hit, details: &Details<'_>) -> Waiting {
        Waiting {
            hit: *hit,
            elapsed_ns: details.elapsed_ns,
            frames: details.frames.0.to_vec(),
            kernel: details.kernel.to_vec(),
            fields: details.fields.to_vec(),
        }
    }

    /// Its stack has come.
    pub(super) fn take_stack(&mut self, late: &LateStack, frames: Frames<'_>) {
        self.hit.stack = late.stack;
        self.hit.stack_end = late.stack_end;
        self.frames = frames.0.to_vec();
    }

    /// What its record had.
    pub(super) fn details(&self) -> Details<'_> {
        Details {
            elapsed_ns: self.elapsed_ns,
            frames: Frames(&self.frames),
            kernel: &self.kernel,
            fields: &self.fields,
        }
    }

    fn is_of(&self, late: &LateStack) -> bool {
        (self.hit.tid, self.hit.probe, self.hit.time_ns) == (late.tid, late.probe, late.hit_ns)
    }
}

/// Hits that wait, the oldest first.
#[derive(Debug, Default)]
pub(super) struct WaitingHits(VecDeque<Waiting>);

impl WaitingHits {
    /// Keeps a hit; the one that is given up for it.
    pub(super) fn push(&mut self, hit: Waiting) -> Option<Waiting> {
        self.0.push_back(hit);
        (self.0.len() > WAITING_MAX).then(|| self.0.pop_front())?
    }

    /// The hit that this stack is of.
    pub(super) fn take(&mut self, late: &LateStack) -> Option<Waiting> {
        let place = self.0.iter().position(|waiting| waiting.is_of(late))?;
        self.0.remove(place)
    }

    /// The oldest.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(tid: u32, time_ns: u64) -> Waiting {
        let hit = Hit {
            tid,
            time_ns,
            ..Hit::default()
        };
        let nothing = Details {
            elapsed_ns: None,
            frames: Frames(&[]),
            kernel: &[],
            fields: &[7],
        };
        Waiting::new(&hit, &nothing)
    }

    #[test]
    fn a_stack_finds_its_hit_and_no_other() {
        let mut hits = WaitingHits::default();
        for (tid, time_ns) in [(1, 10), (2, 10), (1, 20)] {
            assert!(hits.push(waiting(tid, time_ns)).is_none());
        }
        let late = |tid, hit_ns| LateStack {
            tid,
            hit_ns,
            stack_end: 1,
            ..LateStack::default()
        };
        assert!(hits.take(&late(2, 20)).is_none());
        let mut found = hits.take(&late(1, 20)).unwrap();
        found.take_stack(&late(1, 20), Frames(&[5]));
        assert_eq!((found.hit.time_ns, found.hit.stack_end), (20, 1));
        assert_eq!(
            (found.details().frames.0, found.details().fields),
            (&[5][..], &[7][..])
        );
        assert!(hits.take(&late(1, 20)).is_none());
        assert_eq!(hits.pop().unwrap().hit.tid, 1);
        assert_eq!(hits.pop().unwrap().hit.tid, 2);
        assert!(hits.pop().is_none());
    }

    #[test]
    fn the_oldest_is_given_up_when_too_many_wait() {
        let mut hits = WaitingHits::default();
        for time_ns in 0..WAITING_MAX as u64 {
            assert!(hits.push(waiting(1, time_ns)).is_none());
        }
        assert_eq!(hits.push(waiting(1, 9999)).unwrap().hit.time_ns, 0);
    }
}
