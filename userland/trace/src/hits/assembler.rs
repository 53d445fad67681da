// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hits whose stacks come later, in records of their own.

use crate::hits::lookup::words_of;
use crate::names::named::bare_address;
use libnsprobe::common::record::{
    Details, Frame, Frames, Hit, LateStack, Record, StackEnd, Unmapped,
};
use std::collections::VecDeque;

/// Most hits that wait; then the oldest is given up.
const WAITING_MAX: usize = 1024;

/// A hit that waits for its stack, with all that its record had.
#[derive(Debug)]
pub struct Waiting {
    hit: Hit,
    elapsed_ns: Option<u64>,
    frames: Vec<u64>,
    kernel: Vec<u64>,
    fields: Vec<u64>,
}

impl Waiting {
    /// A hit that waits.
    fn new(hit: &Hit, details: &Details<'_>) -> Waiting {
        Waiting {
            hit: *hit,
            elapsed_ns: details.elapsed_ns,
            frames: details.frames.0.to_vec(),
            kernel: details.kernel.to_vec(),
            fields: details.fields.to_vec(),
        }
    }

    /// Its stack has come.
    fn take_stack(&mut self, late: &LateStack, frames: Frames<'_>) {
        self.hit.stack = late.stack;
        self.hit.stack_end = late.stack_end;
        // What comes late is the user's part of a stack.
        let own = Frames(&self.frames)
            .take_while(|frame| bare_address(frame, Unmapped::Kernel).is_some());
        let own: Vec<Frame> = own.collect();
        self.frames = words_of(&own);
        self.frames.extend_from_slice(frames.0);
    }

    /// Details from its record.
    fn details(&self) -> Details<'_> {
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

/// A hit that waits no longer.
#[derive(Debug)]
pub enum Ready<'a> {
    /// It never waited.
    Now(&'a Hit, Details<'a>),
    /// Its stack has come, or was given up.
    Waited(Waiting),
}

impl Ready<'_> {
    /// Turns it into an owned hit, with all details of its record.
    pub fn keep(self) -> Waiting {
        match self {
            Ready::Now(hit, details) => Waiting::new(hit, &details),
            Ready::Waited(waiting) => waiting,
        }
    }

    /// Its record.
    pub fn hit(&self) -> &Hit {
        match self {
            Ready::Now(hit, _) => hit,
            Ready::Waited(waiting) => &waiting.hit,
        }
    }

    /// Details from its record.
    pub fn details(&self) -> Details<'_> {
        match self {
            Ready::Now(_, details) => *details,
            Ready::Waited(waiting) => waiting.details(),
        }
    }
}

/// Hits that wait, the oldest first.
#[derive(Debug, Default)]
pub struct HitAssembler {
    hits: VecDeque<Waiting>,
    received: u64,
    late: u64,
}

impl HitAssembler {
    /// Hits that came, whether they wait or not.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Stacks that came late.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Takes a record; the hit, if any, that waits no longer.
    pub fn receive<'a>(&mut self, record: Record<'a>) -> Option<Ready<'a>> {
        match record {
            Record::Hit(hit, details) => {
                self.received += 1;
                if hit.stack_end != StackEnd::Late as u8 {
                    return Some(Ready::Now(hit, details));
                }
                self.push(Waiting::new(hit, &details)).map(Ready::Waited)
            }
            Record::LateStack(late, frames) => {
                let mut waiting = self.take(late)?;
                waiting.take_stack(late, frames);
                self.late += 1;
                Some(Ready::Waited(waiting))
            }
            _ => None,
        }
    }

    /// Keeps a hit; the one that is given up for it.
    fn push(&mut self, hit: Waiting) -> Option<Waiting> {
        self.hits.push_back(hit);
        (self.hits.len() > WAITING_MAX).then(|| self.hits.pop_front())?
    }

    /// The hit that this stack is of.
    fn take(&mut self, late: &LateStack) -> Option<Waiting> {
        let place = self.hits.iter().position(|waiting| waiting.is_of(late))?;
        self.hits.remove(place)
    }

    /// Removes the oldest.
    pub fn pop(&mut self) -> Option<Waiting> {
        self.hits.pop_front()
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
    fn a_late_stack_keeps_the_frames_of_the_kernel() {
        let kernel = Frame::Address {
            address: 0xffff_ffff_8100_0000,
            why: Unmapped::Kernel as u8,
            method: 1,
        };
        let user = |offset| Frame::Object {
            id: 1,
            offset,
            method: 1,
        };
        let mut hit = waiting(1, 10);
        hit.frames = words_of(&[kernel, user(16)]);
        let words = words_of(&[user(16), user(32)]);
        hit.take_stack(&LateStack::default(), Frames(&words));
        let frames: Vec<Frame> = hit.details().frames.collect();
        assert_eq!(frames, [kernel, user(16), user(32)]);
    }

    #[test]
    fn a_stack_finds_its_hit_and_no_other() {
        let mut hits = HitAssembler::default();
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
        let mut hits = HitAssembler::default();
        for time_ns in 0..WAITING_MAX as u64 {
            assert!(hits.push(waiting(1, time_ns)).is_none());
        }
        assert_eq!(hits.push(waiting(1, 9999)).unwrap().hit.time_ns, 0);
    }
}
