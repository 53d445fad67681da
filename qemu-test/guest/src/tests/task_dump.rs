// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: the dump has every task that lives, once, and as /proc has it.

use crate::module::Module;
use crate::oracle::within;
use crate::processes::{code_of, state_of};
use crate::sys;
use crate::tasks::{InProc, Kept, TaskSession, Told};
use libnsprobe::{DumpOptions, Filter};
use nsprobe_common::abi::{TASKS_LIFE, TASKS_UNFILTERED};
use nsprobe_common::record::Record;
use nsprobe_common::task::{
    NAMESPACE_TIME, TASK_ALIVE, TASK_ARGS_CUT, TASK_BARE, TASK_ENDING, TASK_EXIT, TASK_KERNEL,
    TASK_ZOMBIE,
};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);
const WITH_ALL: DumpOptions = DumpOptions {
    mappings: true,
    args: true,
};

/// A dump's tasks.
pub(super) fn dump(session: &TaskSession, options: DumpOptions) -> Vec<Told> {
    let dump = session.session.dump_tasks(options).expect("a dump");
    dump.records()
        .filter_map(|record| Told::of(&record))
        .collect()
}

/// The task of a dump with this number.
fn with_number(dumped: &[Told], tid: u32) -> &Told {
    let found = dumped.iter().find(|told| told.tid() == tid);
    found.unwrap_or_else(|| panic!("{tid} is not there"))
}

/// What /proc says of all threads, by their numbers.
pub(super) fn all_in_proc() -> HashMap<(u32, u32), InProc> {
    let all = InProc::all().into_iter();
    all.filter_map(|(pid, tid)| Some(((pid, tid), InProc::of(pid, tid)?)))
        .collect()
}

test! { full, every_task_is_dumped_as_proc_has_it, module }
fn every_task_is_dumped_as_proc_has_it() {
    let _module = Module::load();
    let session = TaskSession::recording(TASKS_LIFE | TASKS_UNFILTERED);
    let _nested = Kept::start("unshare", &["-pfmuinC", "unshare", "-Upf", "sleep", "81"]);
    let is_nested = |told: &Told| told.levels.len() == 3 && told.comm() == "sleep";
    assert!(within(LIMIT, || {
        let dumped = dump(&session, DumpOptions::default());
        dumped.iter().any(is_nested)
    }));
    let before = all_in_proc();
    let begun = sys::monotonic_ns();
    let dumped = dump(&session, DumpOptions::default());
    let ended = sys::monotonic_ns();
    let after = all_in_proc();
    let mut by_number = HashMap::new();
    for told in &dumped {
        assert!((begun..=ended).contains(&told.task.time_ns), "{told:?}");
        assert_eq!(told.task.what, TASK_ALIVE);
        assert!(by_number.insert((told.pid(), told.tid()), told).is_none());
    }
    let rising = dumped.windows(2).all(|pair| pair[0].tid() < pair[1].tid());
    assert!(rising);
    let mut checked = HashSet::new();
    for (numbers, in_proc) in &before {
        let Some(later) = after.get(numbers) else {
            continue;
        };
        let told = by_number.get(numbers).expect("a living task");
        // Names of kernel workers change with their work, and others may change meanwhile.
        let is_fixed = told.task.flags & (TASK_KERNEL | TASK_ENDING) == 0 && in_proc == later;
        if is_fixed {
            in_proc.check(told);
            checked.insert(told.tid());
        }
    }
    assert!(checked.len() >= 4, "{checked:?}");
    let nested = dumped.iter().find(|told| is_nested(told)).expect("found");
    assert!(checked.contains(&nested.tid()), "{nested:?}");
}

/// What /proc says of the code that a process has mapped: where, and its offset in the file.
fn mapped_code(pid: u32) -> Vec<(u64, u64, u64)> {
    // The vsyscall page is no mapping of the process's.
    let code = code_of(pid).into_iter();
    let code = code.filter(|code| code.path != "[vsyscall]");
    code.map(|code| (code.addresses.start, code.addresses.end, code.offset))
        .collect()
}

/// Whether a process runs the program with these first arguments, and has loaded its library.
/// Who has spawned it is back before that.
fn has_begun(pid: u32, args: &[u8]) -> bool {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&read("maps")).into_owned();
    let mut code = maps.lines().filter(|line| line.contains(" r-xp "));
    code.any(|line| line.contains("/libc.so")) && read("cmdline").starts_with(args)
}

test! { full, arguments_and_mappings_of_processes_are_dumped, module }
fn arguments_and_mappings_of_processes_are_dumped() {
    let _module = Module::load();
    let long = "y".repeat(5000);
    let session = TaskSession::recording(TASKS_LIFE);
    let sleeps = Kept::start("sleep", &["82"]);
    let waits = Kept::start("sh", &["-c", "read line", &long]);
    let have_begun = || {
        let code = mapped_code(sleeps.pid());
        has_begun(sleeps.pid(), b"sleep\x0082\0")
            && has_begun(waits.pid(), b"sh\0-c\0")
            && code == mapped_code(sleeps.pid())
    };
    assert!(within(LIMIT, have_begun));
    let got = session.session.dump_tasks(WITH_ALL).expect("a dump");
    let dumped = dump(&session, WITH_ALL);
    assert_eq!(with_number(&dumped, sleeps.pid()).args, b"sleep\x0082\0");
    let cut = with_number(&dumped, waits.pid());
    let whole = fs::read(format!("/proc/{}/cmdline", waits.pid())).expect("it lives");
    assert_eq!(cut.args, whole[..4096]);
    assert_ne!(cut.task.flags & TASK_ARGS_CUT, 0);
    let pid = sleeps.pid();
    let of_sleep = got.records().find_map(|record| match record {
        Record::Mappings(head, mappings) if head.pid == pid => Some((*head, mappings.to_vec())),
        _ => None,
    });
    let (head, mappings) = of_sleep.expect("mappings");
    assert_eq!(head.left_out, 0);
    assert_eq!(head.start_ns, with_number(&dumped, pid).task.start_ns);
    let told: Vec<(u64, u64, u64)> = mappings
        .iter()
        .map(|one| {
            (
                one.start,
                one.start + one.bytes,
                one.start.wrapping_add(one.delta),
            )
        })
        .collect();
    assert_eq!(told, mapped_code(pid));
    let program = fs::File::open("/bin/sleep").expect("it is there");
    let program = session.session.identify(&program).expect("FILE");
    let is_program = |id: u32| {
        let object = session.session.object(id).expect("OBJECT");
        object.is_some_and(|object| (object.dev, object.ino) == (program.dev, program.ino))
    };
    assert!(mappings
        .iter()
        .any(|one| one.object != 0 && is_program(one.object)));
}

test! { full, the_dead_that_nobody_has_asked_for_are_dumped_as_such, module }
fn the_dead_that_nobody_has_asked_for_are_dumped_as_such() {
    let _module = Module::load();
    let session = TaskSession::recording(TASKS_LIFE);
    let mut child = Command::new("true").spawn().expect("true");
    let pid = child.id();
    // Its namespaces have gone a moment before.
    assert!(within(LIMIT, || state_of(pid) == Some('Z')));
    let dumped = dump(&session, WITH_ALL);
    let told = with_number(&dumped, pid);
    let flags = TASK_ZOMBIE | TASK_BARE | TASK_ENDING;
    assert_eq!(told.task.flags & flags, flags, "{told:?}");
    assert_eq!(told.task.namespaces, [0; 8]);
    assert_eq!(told.task.state, 0x20);
    child.wait().expect("its end");
    let dumped = dump(&session, WITH_ALL);
    assert!(dumped.iter().all(|told| told.tid() != pid));
}

test! { full, the_filter_says_who_is_dumped, module }
fn the_filter_says_who_is_dumped() {
    let _module = Module::load();
    let kept = Kept::start("sleep", &["83"]);
    let mut session = TaskSession::with_rings(64 << 10);
    let all = dump(&session, DumpOptions::default());
    assert!(all.len() > 10);
    // Its own process is none of those that are traced.
    assert!(all.iter().all(|told| told.pid() != std::process::id()));
    let filter = Filter::pids([kept.pid()]);
    session.session.filter(&filter).expect("FILTER");
    let dumped = dump(&session, DumpOptions::default());
    assert_eq!(dumped.len(), 1, "{dumped:?}");
    assert_eq!(dumped[0].pid(), kept.pid());
    session.set(TASKS_LIFE | TASKS_UNFILTERED, 0);
    let dumped = dump(&session, DumpOptions::default());
    assert!(dumped.iter().any(|told| told.pid() == std::process::id()));
}

test! { full, tasks_with_clocks_of_their_own_have_the_same_start, module }
fn tasks_with_clocks_of_their_own_have_the_same_start() {
    let _module = Module::load();
    let session = TaskSession::recording(TASKS_LIFE);
    let shifted = ["-T", "--boottime", "1000000", "-f", "sleep", "84"];
    let kept = Kept::start("unshare", &shifted);
    let mut told = Vec::new();
    assert!(within(LIMIT, || {
        told = dump(&session, DumpOptions::default());
        told.iter()
            .any(|told| told.comm() == "sleep" && told.levels[0].ppid == kept.pid())
    }));
    let is_inside = |told: &&Told| told.comm() == "sleep" && told.levels[0].ppid == kept.pid();
    let inside = told.iter().find(is_inside).expect("found");
    let outside = with_number(&told, std::process::id());
    let clocks = |told: &Told| told.task.namespaces[NAMESPACE_TIME];
    assert_ne!(clocks(inside), clocks(outside));
    InProc::of(inside.pid(), inside.tid())
        .expect("it sleeps")
        .check(inside);
    let _ = Command::new("kill").arg(inside.pid().to_string()).status();
}

test! { full, a_namespace_whose_first_process_died_takes_its_tasks_along, module }
fn a_namespace_whose_first_process_died_takes_its_tasks_along() {
    let _module = Module::load();
    let mut session = TaskSession::of_lives();
    let script = "sleep 85 & sleep 85 & exit 0";
    let ran = Command::new("unshare")
        .args(["-pf", "sh", "-c", script])
        .status();
    assert!(ran.expect("unshare").success());
    let told = session.told();
    let ends: Vec<&Told> = told
        .iter()
        .filter(|told| told.task.what == TASK_EXIT && told.levels.len() == 2)
        .collect();
    // The shell with 0, and both of its children killed, in numbers of its namespace.
    let numbers: Vec<(u32, u32)> = ends
        .iter()
        .map(|told| (told.levels[1].tid, told.task.value))
        .collect();
    assert_eq!(numbers.len(), 3, "{told:?}");
    for expected in [(1, 0), (2, 9), (3, 9)] {
        assert!(numbers.contains(&expected), "{numbers:?}");
    }
    session.check_nothing_lost();
}
