// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what the kernel still calls, or a task still reads, stays until that is over.

use crate::container::in_filter;
use crate::held::{Place, Stage};
use crate::module::Module;
use crate::oracle::within;
use crate::session::{errno, size, Session, RING_BYTES};
use crate::sys;
use crate::tasks::Kept;
use crate::victim::Victim;
use nix::libc;
use nix::sys::prctl::set_name;
use nsprobe_common::abi::{
    self, Filter, TaskCounters, Tasks, TASKS_LIFE, TASKS_NAMES, TASK_KIND_NAME,
};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

test! { core, the_module_stays_until_a_late_stack_is_taken, module, cpus = 2 }
/// The task is held twice: where it waits for a page of its stack, and where it has given the
/// module back but has not left its code.
fn the_module_stays_until_a_late_stack_is_taken() {
    let module = Module::load();
    let mut victim = Victim::start("untouched_frame", &[]);
    let function = victim.function("in_frame");
    // The buffer that it reads its orders into is there from here on.
    victim.call(1);
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    let flags = abi::PROBE_STACK | abi::PROBE_AT_ENTRY | abi::PROBE_LATE;
    session.probe(victim.file(), &function, flags);
    let stage = Stage::new();
    let at_the_end = stage.hold(&victim, &Place::Tracepoint("module/module_put"));
    let in_the_stack = stage.hold(&victim, &Place::Fault);
    victim.begin(1);
    in_the_stack.wait();
    drop(session);
    assert_eq!(module.references(), 1, "of the task");
    assert_eq!(errno(module.try_unload(), "rmmod"), libc::EAGAIN);
    drop(in_the_stack);
    at_the_end.wait();
    assert_eq!(module.references(), 0);
    at_the_end.keeps_waiting(|| module.unload());
    victim.finish();
}

test! { full, a_session_ends_behind_the_fork_that_it_follows, module, cpus = 2 }
fn a_session_ends_behind_the_fork_that_it_follows() {
    let _module = Module::load();
    let mut victim = Victim::start("forks", &[]);
    let stage = Stage::new();
    let held = stage.hold(&victim, &Place::Tracepoint("sched/sched_process_fork"));
    let pids = [victim.pid()];
    let session = Session::open();
    let mut wanted = Filter {
        size: size::<Filter>(),
        flags: abi::FILTER_PIDS | abi::FILTER_CHILDREN,
        pids: pids.as_ptr() as u64,
        pid_count: 1,
        ..Filter::default()
    };
    session.filter(&mut wanted).expect("a filter");
    victim.begin(1);
    held.wait();
    held.keeps_waiting(|| drop(session));
    victim.finish();
}

/// Asks for events of tasks.
fn tell(session: &Session, flags: u32) {
    let mut wanted = Tasks {
        size: size::<Tasks>(),
        flags,
        ..Tasks::default()
    };
    sys::ioctl(session, abi::TASKS, &mut wanted).expect("TASKS");
}

test! { core, events_of_tasks_end_behind_those_under_way, module, cpus = 2 }
fn events_of_tasks_end_behind_those_under_way() {
    let _module = Module::load();
    let mut victim = Victim::start("forks", &[]);
    let stage = Stage::new();
    let held = stage.hold(&victim, &Place::Tracepoint("task/task_newtask"));
    let session = Session::with_rings(RING_BYTES);
    tell(&session, TASKS_LIFE);
    victim.begin(1);
    held.wait();
    held.keeps_waiting(|| tell(&session, 0));
    victim.finish();
}

/// The only child of a process.
pub(super) fn child_of(parent: u32) -> u32 {
    let file = format!("/proc/{parent}/task/{parent}/children");
    let mut child = None;
    within(Duration::from_secs(60), || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        child = text.trim().parse().ok();
        child.is_some()
    });
    child.expect("it has one")
}

test! { core, a_filter_goes_when_no_handler_reads_it, module, cpus = 2, seconds = 120 }
/// Each new name of a thread has a handler look for a namespace in the filter. Where memory is
/// checked, what is freed is overwritten, so that a handler that reads a freed filter finds none in
/// it.
fn a_filter_goes_when_no_handler_reads_it() {
    const CHANGES: u64 = 10;
    const NAMES: u64 = 40_000;
    let _module = Module::load();
    // The last one of the list lets in all tasks, and those before it none that runs here.
    let other = Kept::start("unshare", &["-pf", "--kill-child", "sleep", "1000"]);
    let mut all = [in_filter(child_of(other.pid())); abi::FILTER_PIDNS_MAX as usize];
    all[all.len() - 1] = in_filter(std::process::id());
    let mut wanted = Filter {
        size: size::<Filter>(),
        flags: abi::FILTER_PIDNS_LIST | abi::FILTER_SELF,
        pidns_list: all.as_ptr() as u64,
        pidns_count: abi::FILTER_PIDNS_MAX,
        ..Filter::default()
    };
    let session = Session::with_rings(RING_BYTES);
    session.filter(&mut wanted).expect("a filter");
    tell(&session, TASKS_NAMES);
    let (named, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let changed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                set_name(c"named-anew").expect("a name");
                named.fetch_add(1, Relaxed);
            }
        });
        let mut changes = 0;
        let mut changed = Ok(());
        // Without waits there would be many more changes.
        while changed.is_ok() && (changes < CHANGES || named.load(Relaxed) < NAMES) {
            changed = session.filter(&mut wanted);
            changes += 1;
        }
        is_over.store(true, Relaxed);
        changed.map(|()| changes)
    });
    let changes = changed.expect("the same filter");
    let named = named.into_inner();
    let mut counters = TaskCounters {
        size: size::<TaskCounters>(),
        cpu: abi::CPU_ALL,
        ..TaskCounters::default()
    };
    sys::ioctl(&session, abi::TASK_COUNTERS, &mut counters).expect("they are counted");
    let names = counters.kinds[TASK_KIND_NAME];
    println!("{named} names, {changes} filters, {names:?}");
    assert!(names.seen >= named && names.filtered == 0, "{names:?}");
}
