// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that wait for older ones: records of different CPUs, and of hits whose stacks came
//! late, are in no strict order.

use crate::types::ChannelId;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Most events that wait.
const EVENTS_MAX: usize = 1 << 16;
/// Most bytes that they have.
const BYTES_MAX: usize = 16 << 20;

/// An event, or a loss, that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// When it was, in nanoseconds.
    pub(crate) time_ns: u64,
    /// Which of equal times came first.
    number: u64,
    /// Where it belongs.
    pub(crate) channel: ChannelId,
    /// The CPU that it was recorded on.
    pub(crate) cpu: u32,
    /// What it is.
    pub(crate) what: What,
}

/// What waits.
#[derive(Debug)]
pub(crate) enum What {
    /// An event, by its class's number, and its bytes after the header.
    Event(u32, Vec<u8>),
    /// This number of events was lost.
    Loss(u64),
}

/// Gives events back in the order of their times, as far as its room goes.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    waiting: BinaryHeap<Reverse<Waiting>>,
    bytes: usize,
    count: u64,
}

impl Pending {
    pub(crate) fn push(&mut self, time_ns: u64, channel: ChannelId, cpu: u32, what: What) {
        self.bytes += what.bytes();
        self.count += 1;
        self.waiting.push(Reverse(Waiting {
            time_ns,
            number: self.count,
            channel,
            cpu,
            what,
        }));
    }

    /// The oldest, when there is no room for all of them.
    pub(crate) fn pop_over(&mut self) -> Option<Waiting> {
        match self.waiting.len() > EVENTS_MAX || self.bytes > BYTES_MAX {
            true => self.pop(),
            false => None,
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let Reverse(oldest) = self.waiting.pop()?;
        self.bytes -= oldest.what.bytes();
        Some(oldest)
    }
}

impl What {
    fn bytes(&self) -> usize {
        match self {
            What::Event(_, bytes) => bytes.len(),
            What::Loss(_) => 0,
        }
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time_ns, self.number).cmp(&(other.time_ns, other.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}
