// SPDX-License-Identifier: GPL-2.0-only
//! Deferred stacks: a page of the stack was not present, and a handler must not wait for one.
//!
//! On its way back to user space the task fetches the page and captures the stack: above the place
//! of the hit the stack is still as it was. Meanwhile an emulated probed instruction writes below
//! that place, if anywhere. Or the stack has to be copied, and interrupts are off: it is copied at
//! their end.

use crate::{
    common::record::{body_of, LateStack, StackEnd, KIND_LATE_STACK},
    context::Context,
    probe::counters::Counters,
    stack::{
        capture::{CaptureTime, Frames, StackOwner},
        Stack, //
        StackRequest,
    },
    sys::{
        self,
        bottom_half::BottomHalf,
        rcu_slot::Reading,
        regs::RegisterFile,
        task_work::TaskWork,
        user_mem::{self, PAIR_BYTES},
        vma::is_all, //
    }, //
};
use kernel::sync::{
    rcu,
    Arc, //
};
use zerocopy::transmute_ref;

/// The maximum number of pages fetched for one stack.
const PAGES_MAX: u8 = 32;

const LATE_WORDS: usize = size_of::<LateStack>() / 8;

/// A stack to be captured later.
pub(crate) struct DeferredStack {
    /// The registers at the hit.
    pub(crate) regs: RegisterFile,
    pub(crate) request: StackRequest,
    pub(crate) owner: StackOwner,
    pub(crate) counters: Arc<Counters>,
}

impl TaskWork for Context {
    type Job = DeferredStack;

    fn run(&self, job: &DeferredStack) {
        let mut stack = Stack::new();
        let (end, pages) = self.capture_late(&mut stack, job);
        let now_ns = sys::now_ns();
        let end = self.copy_if_left(&stack, end, || job.owner, now_ns);
        let frames = Frames::of(&stack, end);
        let record = LateStack {
            time_ns: now_ns,
            hit_ns: job.owner.hit_ns,
            probe: job.owner.probe,
            tid: job.owner.tid,
            stack: frames.id,
            words: frames.words.len() as u16,
            stack_end: end as u8,
            pages,
            ..LateStack::default()
        };
        let words: &[u64; LATE_WORDS] = transmute_ref!(&record);
        let parts = [body_of(words), frames.words, &[], &[]];
        let told = self.append(job.owner.cpu, KIND_LATE_STACK, &parts, now_ns);
        if let Some(here) = job.counters.here(job.owner.cpu) {
            if !told || end.is_cut() {
                here.stack_cut();
            }
        }
    }
}

impl BottomHalf for Context {
    fn miss(&self, job: &DeferredStack) {
        if let Some(here) = job.counters.here(job.owner.cpu) {
            here.stack_cut();
        }
    }
}

impl Context {
    /// Captures as much of the stack as is present.
    fn capture_now(&self, stack: &mut Stack, job: &DeferredStack) -> StackEnd {
        let guard = rcu::read_lock();
        let at = CaptureTime {
            cpu: job.owner.cpu,
            now_ns: sys::now_ns(),
            reading: Reading::under_rcu(&guard),
        };
        self.capture(stack, &job.regs, &job.request, at, || job.owner.pid)
    }

    /// Captures the stack, and fetches missing pages until it is complete or a page cannot be
    /// fetched, as in a softirq; returns also the number of fetches.
    fn capture_late(&self, stack: &mut Stack, job: &DeferredStack) -> (StackEnd, u8) {
        let mut pages = 0;
        let mut last = None;
        loop {
            *stack = Stack::new();
            let end = self.capture_now(stack, job);
            let may_fetch = pages < PAGES_MAX && !sys::in_interrupt();
            let Some(address) = stack.missed().filter(|_| may_fetch) else {
                return (end, pages);
            };
            let is_same = last == Some(address);
            if is_same || !may_be_fetched(address) || user_mem::fetch(address, PAIR_BYTES).is_err()
            {
                return (end, pages);
            }
            last = Some(address);
            pages = pages.wrapping_add(1);
        }
    }
}

/// Whether fetching the memory of a frame at `address`, which could not be read, waits for a disk at
/// most: no user-space process serves it.
pub(crate) fn may_be_fetched(address: u64) -> bool {
    is_all(address, PAIR_BYTES, |mapping| mapping.is_private_memory())
}
