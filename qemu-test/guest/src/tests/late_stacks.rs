// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a task that fetches the pages of its own stack holds up itself alone: no
//! handler, no session, and no more tasks than the interface says.

use crate::group::Group;
use crate::module::Module;
use crate::oracle::within;
use crate::records::Records;
use crate::session::{errno, Session, RING_BYTES};
use crate::setting::Setting;
use crate::swap::Swap;
use crate::victim::{self, Victim};
use nix::libc;
use nix::sys::stat::{major, minor, stat};
use nsprobe_common::abi;
use nsprobe_common::record::{Frame, Hit, StackEnd};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The controller of what groups read and write; off again with the value.
struct IoController;

impl IoController {
    const FILE: &str = "/sys/fs/cgroup/cgroup.subtree_control";

    fn on() -> IoController {
        fs::write(Self::FILE, "+io").expect("the kernel has it");
        IoController
    }
}

impl Drop for IoController {
    fn drop(&mut self) {
        let _ = fs::write(Self::FILE, "-io");
    }
}

/// Threads whose stacks are in the swap, which they read as slowly as this says.
struct Waiting {
    victim: Victim,
    group: Group,
    _controller: IoController,
    _one_page_at_a_time: Setting,
    _swap: Swap,
}

impl Waiting {
    fn new() -> Waiting {
        let swap = Swap::on();
        let one_page = Setting::new("/proc/sys/vm/page-cluster", "0");
        let controller = IoController::on();
        let group = Group::new("nsprobe-waiting");
        let file = victim::path("waits_for_pages");
        let mut command = group.command(&file);
        command.arg(group.folder.join("memory.reclaim"));
        Waiting {
            victim: Victim::start_command(&mut command, &file),
            group,
            _controller: controller,
            _one_page_at_a_time: one_page,
            _swap: swap,
        }
    }

    /// One page a second, or as they come.
    fn reads_slowly(&self, slowly: bool) -> std::io::Result<()> {
        let device = stat(Path::new("/var/tmp")).expect("it is there").st_dev;
        let rate = if slowly { "1" } else { "max" };
        let line = format!("{}:{} riops={rate}", major(device), minor(device));
        fs::write(self.group.folder.join("io.max"), line)
    }

    fn session(&self) -> (Session, u32) {
        let session = Session::with_rings(RING_BYTES);
        let flags = abi::PROBE_STACK | abi::PROBE_AT_ENTRY | abi::PROBE_LATE;
        let id = session.probe(self.victim.file(), &self.victim.function("waits"), flags);
        (session, id)
    }

    /// Has this number of threads wait for a page each.
    fn begin(&mut self, session: &Session, id: u32, threads: u64) {
        self.reads_slowly(true).expect("the controller is on");
        self.victim.begin(threads);
        let hits = || session.counters(id).hits;
        let are_there = within(Duration::from_secs(60), || hits() == threads);
        assert!(are_there, "{} hits of {threads}", hits());
    }

    fn finish(&mut self) {
        self.reads_slowly(false).expect("the controller is on");
        self.victim.finish();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // A task that waits for a page cannot be killed.
        let _ = self.reads_slowly(false);
    }
}

fn ended(hits: &[(Hit, Vec<Frame>)], end: StackEnd) -> u64 {
    let ends = hits.iter().filter(|(hit, _)| hit.stack_end == end as u8);
    ends.count() as u64
}

test! { full, stacks_that_wait_beyond_the_last_end_with_a_fault, module, needs = StockKernel, seconds = 120 }
/// And there is room for as many again when these are done.
fn stacks_that_wait_beyond_the_last_end_with_a_fault() {
    const MOST: u64 = abi::LATE_MAX as u64;
    const MORE: u64 = 6;
    let _module = Module::load();
    let mut waiting = Waiting::new();
    let (session, id) = waiting.session();
    let rings = session.rings();
    waiting.begin(&session, id, MOST + MORE);
    let mut records = Records::default();
    records.drain(&rings);
    // A slow machine may have had one of its pages meanwhile.
    let done = records.late.len() as u64;
    let late = ended(&records.hits, StackEnd::Late);
    let faults = ended(&records.hits, StackEnd::Fault);
    println!("{late} stacks wait, {faults} do not, {done} are done");
    assert_eq!(late + faults, MOST + MORE);
    assert!(late >= MOST && late <= MOST + done, "{late}");
    waiting.finish();
    records.drain(&rings);
    assert_eq!(records.late.len() as u64, late);
    for (stack, frames) in &records.late {
        // The function, its caller, and the frame that had to be brought.
        assert_eq!(stack.stack_end, StackEnd::Outermost as u8, "{stack:?}");
        assert_eq!(frames.len(), 3, "{frames:?}");
    }
    waiting.victim.call(MOST);
    let mut records = Records::default();
    records.drain(&rings);
    assert_eq!(ended(&records.hits, StackEnd::Late), MOST);
    assert_eq!(records.late.len() as u64, MOST);
}

test! { full, a_session_goes_while_stacks_wait_and_the_module_stays, module, needs = StockKernel, seconds = 120 }
fn a_session_goes_while_stacks_wait_and_the_module_stays() {
    // A minute's worth, of which the close may take a half.
    const THREADS: u64 = 60;
    let module = Module::load();
    let mut waiting = Waiting::new();
    let place = waiting.victim.function("waits").offset;
    let (session, id) = waiting.session();
    waiting.begin(&session, id, THREADS);
    let closing = Instant::now();
    drop(session);
    let closed = closing.elapsed();
    assert!(waiting.victim.text_is_restored(place));
    let left = module.references();
    println!("closed in {closed:?}, {left} tasks in the module");
    assert!(left > 0, "none waits");
    assert_eq!(errno(module.try_unload(), "rmmod"), libc::EAGAIN);
    waiting.finish();
    let is_free = || module.references() == 0;
    assert!(within(Duration::from_secs(60), is_free), "it is held");
    // Which takes a second for each page that it waits for.
    assert!(closed < Duration::from_secs(THREADS / 2), "{closed:?}");
}
