// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: who is frozen, with the whole machine or with a control group, loses no hit, and
//! is probed like any other.

use super::readers::words;
use crate::group::Group;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::records::Records;
use crate::session::{probe_at, Session, RING_BYTES};
use crate::setting::Setting;
use crate::victim::{self, Victim};
use crate::witness::Witness;
use crate::{binary, sys};
use nsprobe_common::abi::{self, Probe};
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const FUNCTION: &str = "begins_with_push";

/// How long a suspend of the test lasts.
const SUSPENDED: Duration = Duration::from_secs(1);

/// Suspends go no further than freezing all tasks, as long as the value lives
/// (Documentation/power/basic-pm-debugging.rst).
struct OnlyFreezes {
    step: Setting,
    _delay: Setting,
}

impl OnlyFreezes {
    fn new() -> OnlyFreezes {
        let seconds = SUSPENDED.as_secs().to_string();
        OnlyFreezes {
            step: Setting::new("/sys/power/pm_test", "freezer"),
            _delay: Setting::new("/sys/module/suspend/parameters/pm_test_delay", &seconds),
        }
    }

    /// Comes back when all go on.
    fn suspend(&self) {
        fs::write("/sys/power/state", "freeze").expect("all tasks can be frozen");
    }
}

impl Drop for OnlyFreezes {
    fn drop(&mut self) {
        // It lists all steps.
        self.step.put("none");
    }
}

/// All that comes until there is this number of hits, by a `read()` that sleeps; it never fails.
fn read_until(session: &Session, hits: u64) -> Records {
    let mut records = Records::default();
    let mut buffer = vec![0; 1 << 16];
    while (records.hits.len() as u64) < hits {
        let length = (&session.file).read(&mut buffer).expect("records");
        records.add(&words(&buffer[..length]));
    }
    records
}

test! { full, a_suspend_that_freezes_all_tasks_loses_no_hit, needs = StockKernel, seconds = 180 }
/// Neither does a reader that sleeps meanwhile notice.
fn a_suspend_that_freezes_all_tasks_loses_no_hit() {
    const CALLS: u64 = 1000;
    let _module = Module::load();
    sys::run_on(1);
    let file = victim::path("call_in_loop");
    let place = binary::function(&file, FUNCTION).offset;
    let session = Session::with_rings(RING_BYTES);
    let id = session.attach(&file, probe_at(place, abi::PROBE_STACK));
    let id = id.expect("a probe");
    let witness = Witness::new(&file, place);
    let freezer = OnlyFreezes::new();
    // It would be the first thing that a suspend does, before it stops any task.
    nix::unistd::sync();
    let calls = CALLS.to_string();
    let mut victim = Victim::start("call_in_loop", &[FUNCTION, &calls, "5000"]);
    let records = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(&session, CALLS));
        let begun = || session.counters_on(id, abi::CPU_ALL).expect("its id").hits > 20;
        assert!(within(SOON, begun));
        freezer.suspend();
        assert_eq!(victim.finish(), CALLS);
        // One that waits for a hit that was lost gets others, which are too many.
        while !within(SOON, || reader.is_finished()) {
            Victim::caller(FUNCTION).call(CALLS);
        }
        reader.join().expect("read() does not fail")
    });
    let counters = session.counters(id);
    assert_eq!(
        (counters.hits, counters.recorded, witness.hits()),
        (CALLS, CALLS, CALLS)
    );
    assert_eq!(records.hits.len() as u64, CALLS);
    // It ran before and after the suspend, and not meanwhile. A busy host may stop it as well.
    let times: Vec<u64> = records.hits.iter().map(|(hit, _)| hit.time_ns).collect();
    let gaps = times.windows(2).map(|pair| {
        let gap = pair[1].checked_sub(pair[0]);
        Duration::from_nanos(gap.expect("times rise"))
    });
    let longest = gaps.max().expect("there were hits");
    assert!(longest >= SUSPENDED, "{times:?}");
}

/// A control group that is frozen, until this is dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn new(group: &Group) -> Frozen {
        let frozen = Frozen(group.folder.join("cgroup.freeze"));
        fs::write(&frozen.0, "1").expect("it is ours");
        let events = group.folder.join("cgroup.events");
        let is_frozen = || {
            let events = fs::read_to_string(&events).expect("it is ours");
            events.contains("frozen 1\n")
        };
        assert!(within(SOON, is_frozen));
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = fs::write(&self.0, "0");
    }
}

test! { full, a_frozen_victim_is_probed_and_left, module }
/// Breakpoints go in and out while it stands still, idle or in the midst of its calls.
fn a_frozen_victim_is_probed_and_left() {
    const FEW: u64 = 100;
    const MANY: u64 = 2_000_000;
    let _module = Module::load();
    let group = Group::new("nsprobe-frozen");
    let file = victim::path("call_in_loop");
    let mut command = group.command(&file);
    let mut victim = Victim::start_command(command.arg(FUNCTION), &file);
    let place = victim.function(FUNCTION).offset;
    let session = Session::with_rings(RING_BYTES);
    let attach = || {
        let probe = Probe {
            sink: abi::SINK_COUNT,
            ..probe_at(place, 0)
        };
        session.attach(&file, probe).expect("a probe")
    };
    let hits = |id| session.counters(id).hits;
    let frozen = Frozen::new(&group);
    let first = attach();
    assert!(!victim.text_is_restored(place), "there is no breakpoint");
    victim.begin(FEW);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(hits(first), 0);
    drop(frozen);
    assert_eq!(victim.finish(), FEW);
    assert_eq!(hits(first), FEW);
    victim.begin(MANY);
    assert!(within(SOON, || hits(first) > FEW + 10));
    let frozen = Frozen::new(&group);
    let until_frozen = hits(first);
    session.detach(&[first]).expect("it is attached");
    assert!(victim.text_is_restored(place));
    drop(frozen);
    assert_eq!(victim.finish(), FEW + MANY);
    assert!(until_frozen < FEW + MANY, "it was done before");
    assert_eq!(hits(first), until_frozen);
    // Killed as it stands, with a breakpoint.
    let frozen = Frozen::new(&group);
    let last = attach();
    drop(victim);
    assert_eq!(hits(last), 0);
    drop(frozen);
    let status = Command::new(&file).args([FUNCTION, "7", "0"]).output();
    assert!(status.expect("it starts").status.success());
    assert_eq!(hits(last), 7);
}
