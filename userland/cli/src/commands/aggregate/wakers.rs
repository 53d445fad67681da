// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits with what ended them. Both are recorded by themselves: a wait says when it was ended and by
//! which thread, and the wake-up has that thread's stack.

use crate::output::tables::Waker as WakerStack;
use libnsprobe::common::program::Context;
use libnsprobe::common::record::{Details, Frame, Hit};
use libnsprobe::common::wait::{WaitKind, Waker};
use libnsprobe::{Rows, TableRow};
use nsprobe_trace::hits::lookup::{words_of, Lookup};
use std::collections::{HashMap, VecDeque};

/// What each wait is recorded with, in front of its keys.
pub(super) const FACTS: [Context; 3] = [Context::WokenAt, Context::WokenBy, Context::WaitKind];
/// Most wake-ups, and most waits without theirs, that are kept.
const KEPT_MAX: usize = 1 << 16;
/// How long a wait stays without its wake-up, whose stack may come late.
const PATIENCE_NS: u64 = 2_000_000_000;

/// What a wait says of its end.
#[derive(Clone, Copy)]
struct End {
    at_ns: u64,
    waker: Waker,
    tid: u32,
    kind: u64,
}

/// Joins waits with what ended them.
#[derive(Default)]
pub(crate) struct Wakers {
    /// The probe of wake-ups.
    probe: u32,
    /// Wake-ups by their time and thread: the index of what woke.
    wakes: HashMap<(u64, u32), usize>,
    /// The keys of `wakes`, the oldest first.
    order: VecDeque<(u64, u32)>,
    /// Waits whose wake-up has not come yet.
    waiting: VecDeque<(End, TableRow)>,
    /// What woke, each thing once.
    known: Vec<WakerStack>,
    numbers: HashMap<WakerStack, usize>,
    rows: Vec<TableRow>,
    /// The time of the latest wait.
    latest_ns: u64,
}

impl Wakers {
    /// The probe with this id has the wake-ups.
    pub(super) fn of(probe: u32) -> Wakers {
        Wakers {
            probe,
            ..Wakers::default()
        }
    }

    /// Takes a wait or a wake-up with its whole stack.
    pub(super) fn take(
        &mut self,
        lookup: &mut impl Lookup,
        hit: &Hit,
        frames: &[Frame],
        details: &Details<'_>,
    ) {
        let stack = words_of(frames);
        if hit.probe == self.probe {
            let container = lookup.container(hit);
            let comm = String::from_utf8_lossy(&hit.comm);
            let comm = comm.trim_end_matches('\0');
            let number = self.number(WakerStack {
                name: match container {
                    Some(container) => format!("{comm} in {container}"),
                    None => comm.to_owned(),
                },
                stack,
                stack_end: hit.stack_end,
            });
            self.keep((hit.time_ns, hit.tid), number);
            return;
        }
        // The mask of the fields that are there comes first.
        let Some([_, at_ns, by, kind, key @ ..]) = details.fields.get(..) else {
            return;
        };
        let end = End {
            at_ns: *at_ns,
            waker: Waker::from_u8((by >> 32) as u8).unwrap_or(Waker::Unknown),
            tid: *by as u32,
            kind: *kind,
        };
        let took_ns = details.elapsed_ns.unwrap_or(0) as i64;
        let row = TableRow {
            key: key.to_vec(),
            stack,
            stack_end: hit.stack_end,
            count: 1,
            sum: took_ns,
            least: took_ns,
            greatest: took_ns,
            ..TableRow::default()
        };
        self.latest_ns = self.latest_ns.max(hit.time_ns);
        self.waiting.push_back((end, row));
        self.join(false);
    }

    fn keep(&mut self, at: (u64, u32), number: usize) {
        if self.wakes.insert(at, number).is_none() {
            self.order.push_back(at);
        }
        if self.order.len() > KEPT_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.wakes.remove(&oldest);
            }
        }
    }

    /// Joins the waits whose wake-up is there, and those that it does not come for.
    fn join(&mut self, is_end: bool) {
        while let Some((end, _)) = self.waiting.front() {
            let found = self.wakes.get(&(end.at_ns, end.tid)).copied();
            let is_old = self.latest_ns.saturating_sub(end.at_ns) > PATIENCE_NS;
            let may_come = matches!(end.waker, Waker::Thread | Waker::Sender);
            if found.is_none() && may_come && !is_end && !is_old && self.waiting.len() < KEPT_MAX {
                return;
            }
            if let Some((end, mut row)) = self.waiting.pop_front() {
                row.key.push(self.ended_by(end, found) as u64);
                self.rows.push(row);
            }
        }
    }

    /// The number of what has ended a wait.
    fn ended_by(&mut self, end: End, found: Option<usize>) -> usize {
        let known = found.and_then(|number| self.known.get(number)).cloned();
        let named = |name: String| WakerStack {
            name,
            ..WakerStack::default()
        };
        let waker = match (end.waker, known) {
            (Waker::Thread, Some(known)) => known,
            (Waker::Sender, Some(known)) => WakerStack {
                name: format!("probably {}", known.name),
                ..known
            },
            (Waker::Thread, None) => named(format!("thread {}", end.tid)),
            (Waker::Sender, None) => named(format!("probably thread {}", end.tid)),
            (Waker::Kernel, _) => named(kernel_thread(end.tid)),
            (Waker::Interrupt, _) if end.kind == WaitKind::Sleep as u64 => named("timer".into()),
            (Waker::Interrupt, _) => named("interrupt".into()),
            // Nothing wakes a thread that could run.
            (Waker::Unknown, _) if end.kind == WaitKind::Cpu as u64 => named(String::new()),
            (Waker::Unknown, _) => named("?".into()),
        };
        self.number(waker)
    }

    fn number(&mut self, waker: WakerStack) -> usize {
        let next = self.known.len();
        let number = *self.numbers.entry(waker.clone()).or_insert(next);
        if number == next {
            self.known.push(waker);
        }
        number
    }

    /// All wake-ups have come.
    pub(super) fn end(&mut self) {
        self.join(true);
    }

    /// The rows so far; the last word of their keys is the number of what ended the waits.
    pub(super) fn rows(&mut self) -> Rows {
        let rows = Rows {
            rows: std::mem::take(&mut self.rows),
            ..Rows::default()
        };
        let rows = rows.added_up();
        self.rows.clone_from(&rows.rows);
        rows
    }

    /// What has ended waits, by its number.
    pub(super) fn known(&self) -> &[WakerStack] {
        &self.known
    }
}

/// The name of a thread of the kernel's: those stay.
fn kernel_thread(tid: u32) -> String {
    let comm = std::fs::read_to_string(format!("/proc/{tid}/comm"));
    match comm {
        Ok(comm) if tid != 0 => format!("[{}]", comm.trim_end()),
        _ => "[kernel]".to_owned(),
    }
}
