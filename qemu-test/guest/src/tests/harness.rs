// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a test that goes wrong in whatever way is seen to go wrong. Without
//! this a harness that has gone blind would show nothing but success.

use super::{tests, Test};
use crate::leftovers::{parse, written, WINDOW};
use crate::module::{self, Module};
use crate::oracle::{within, Oracle, SOON};
use crate::processes::code_of;
use crate::run::{self, Verdict};
use crate::session::{Session, PAGE};
use crate::sys::Unborn;
use crate::witness::Witness;
use crate::{binary, victim};
use std::fs::{self, File};
use std::mem::ManuallyDrop;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

tests![
    a_test_that_fails_crashes_or_hangs_is_seen,
    a_guest_takes_tests_until_one_does_not_end,
    what_a_failed_test_has_left_is_undone_before_its_verdict,
    what_a_test_leaves_behind_is_seen_and_undone,
    what_a_test_leaves_in_the_log_and_the_module_is_seen,
    what_cannot_be_undone_is_told_once,
    what_probes_leave_in_text_is_seen,
    mappings_with_pages_of_their_own_are_found,
    what_an_uprobe_writes_is_seen_and_nothing_else,
];

const fn hidden(name: &'static str, run: fn()) -> Test {
    let limit_s = 20;
    Test { name, run, limit_s }
}

/// Tests that are not on the list.
pub(crate) fn hidden_tests() -> impl Iterator<Item = &'static Test> {
    WAYS.iter().chain([&IN_USE])
}

/// The ways in which tests go wrong.
const WAYS: &[Test] = &[
    hidden("passes", || println!("it says so")),
    hidden("skips", || run::skip("no reason")),
    hidden("panics", || panic!("on purpose")),
    hidden("exits", || std::process::exit(7)),
    hidden("aborts", || std::process::abort()),
    Test {
        limit_s: 2,
        ..hidden("hangs", || std::thread::sleep(Duration::from_secs(60)))
    },
    Test {
        limit_s: 2,
        ..hidden("prints", || loop {
            println!("on purpose");
        })
    },
    hidden("leaves_who_prints", || {
        let mut shell = Command::new("setsid");
        shell.args(["--fork", "sh", "-c", "while :; do echo on purpose; done"]);
        shell.status().expect("setsid is in the guest");
    }),
];

/// Fails, and leaves the module, which another process uses by then.
const IN_USE: Test = hidden("leaves_a_module_in_use", || {
    let module = ManuallyDrop::new(Module::load());
    let is_used = within(SOON, || module.references() > 0);
    assert!(is_used, "nothing uses it");
    panic!("on purpose");
});

fn a_test_that_fails_crashes_or_hangs_is_seen() {
    let verdicts: Vec<Verdict> = WAYS.iter().map(|test| run::run(test).verdict).collect();
    let skipped = Verdict::Skipped(String::from("no reason"));
    let failed = || Verdict::Failed;
    let wanted = [
        Verdict::Passed,
        skipped,
        failed(),
        failed(),
        failed(),
        failed(),
        failed(),
        Verdict::Passed,
    ];
    assert_eq!(verdicts, wanted);
}

fn sees(oracle: &mut Oracle, part: &str) {
    let troubles = oracle.troubles();
    let seen = troubles.iter().any(|trouble| trouble.contains(part));
    assert!(seen, "no {part:?} in {troubles:?}");
}

/// What a guest prints that takes these tests from a queue, and its record of them.
fn taken(queue: &Path, order: &str, words: &[&str]) -> (String, String) {
    fs::create_dir_all(queue.join("taken")).expect("/tmp is writable");
    fs::write(queue.join("order"), order).expect("it is ours");
    let mut guest = Command::new(std::env::current_exe().expect("/proc is mounted"));
    guest.arg("--queue").arg(queue).arg("me").args(words);
    let output = guest.output().expect("it is this program");
    let record = fs::read_to_string(queue.join("me.ktap")).expect("it was written");
    let who = |test: &&str| fs::read_link(queue.join("taken").join(test)).ok();
    let mine = order.lines().filter(|test| who(test) == Some("me".into()));
    let mine: Vec<_> = mine.collect();
    fs::remove_dir_all(queue).expect("it is ours");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    (format!("{printed}taken: {mine:?}"), record)
}

/// Behind a test that does not end in its time, who knows what is left in the guest.
fn a_guest_takes_tests_until_one_does_not_end() {
    let queue = PathBuf::from(format!("/tmp/queue-{}", std::process::id()));
    let (printed, record) = taken(&queue, "panics\nhangs\npasses\n", &[]);
    let all_of_it = "# begins: panics\nnot ok 1 panics\n# begins: hangs\nnot ok 2 hangs\n";
    assert_eq!(record, all_of_it, "{printed}");
    let end = "not ok 2 hangs\n# hands over: hangs\n1..2\n# 2 tests, 2 failed\n\
               taken: [\"panics\", \"hangs\"]";
    assert!(printed.ends_with(end), "{printed}");
    let (printed, record) = taken(&queue, "passes\n", &[]);
    assert_eq!(record, "# begins: passes\nok 1 passes\n");
    assert!(!printed.contains("it says so"), "{printed}");
    let (printed, record) = taken(&queue, "passes\n", &["--show-all", "--first", "skips"]);
    assert!(record.ends_with("# SKIP no reason\n# begins: passes\nok 2 passes\n"));
    assert!(printed.contains("# it says so"), "{printed}");
}

/// The host takes what follows a verdict for the next test's; and a guest that dies while it
/// undoes things has no verdict yet.
fn what_a_failed_test_has_left_is_undone_before_its_verdict() {
    let queue = PathBuf::from(format!("/tmp/queue-{}", std::process::id()));
    let user = std::thread::spawn(|| {
        let is_there = || Path::new(nsprobe_common::abi::DEVICE).exists();
        assert!(within(SOON, is_there), "no module");
        Session::open()
    });
    let order = "leaves_a_module_in_use\npasses\n";
    let (printed, record) = taken(&queue, order, &["--patience", "100"]);
    drop(user.join().expect("it was loaded"));
    module::unload_if_possible();
    let undone = "# cannot be undone: Module that was not there: nsprobe ";
    let (_, behind) = printed
        .split_once(undone)
        .unwrap_or_else(|| panic!("{printed}"));
    let (_, behind) = behind.split_once('\n').expect("whole lines");
    let next = "not ok 1 leaves_a_module_in_use\n# begins: passes\n";
    assert!(behind.starts_with(next), "{printed}");
    assert!(
        record.ends_with(&format!("{next}ok 2 passes\n")),
        "{record}"
    );
}

/// Something that is left behind.
struct Left {
    /// How the trouble begins, and what else is in it.
    kind: &'static str,
    part: &'static str,
    /// Leaves it, by a shell.
    by: &'static str,
}

const LEFT: [Left; 12] = [
    Left {
        kind: "Mount that was not there",
        part: "/tmp/left",
        by: "mkdir -p /tmp/left && mount -t tmpfs left /tmp/left",
    },
    Left {
        kind: "Swap that was not there",
        part: "/var/tmp/left",
        by: "head -c 1M /dev/zero >/var/tmp/left && chmod 600 /var/tmp/left && \
             mkswap -q /var/tmp/left && swapon /var/tmp/left",
    },
    Left {
        kind: "Parameter that is gone",
        part: "kernel/kptr_restrict",
        by: "echo 2 >/proc/sys/kernel/kptr_restrict",
    },
    Left {
        kind: "Parameter that was not there",
        part: "kernel/printk",
        by: "echo 3 >/proc/sys/kernel/printk",
    },
    Left {
        kind: "Trigger that was not there",
        part: "traceoff",
        by: "echo traceoff:1 >/sys/kernel/tracing/events/sched/sched_kthread_stop/trigger",
    },
    Left {
        kind: "TraceInstance that was not there",
        part: "left",
        by: "mkdir /sys/kernel/tracing/instances/left && \
             echo 1 >/sys/kernel/tracing/instances/left/events/sched/sched_kthread_stop/enable",
    },
    Left {
        kind: "Event that was not there",
        part: "sched:sched_kthread_stop",
        by: "echo 1 >/sys/kernel/tracing/events/sched/sched_kthread_stop/enable",
    },
    Left {
        kind: "Tracer that is gone",
        part: "tracing_on = 1",
        by: "echo 0 >/sys/kernel/tracing/tracing_on",
    },
    Left {
        kind: "Probe that was not there",
        part: "uprobe_events p:left/left",
        by: "echo p:left/left /bin/busybox:0x1000 >>/sys/kernel/tracing/uprobe_events && \
             mkdir /sys/kernel/tracing/instances/held && \
             echo 1 >/sys/kernel/tracing/instances/held/events/left/left/enable",
    },
    Left {
        kind: "Probe that was not there",
        part: "kprobe_events p:left/kernel",
        by: "echo p:left/kernel int_sqrt >>/sys/kernel/tracing/kprobe_events",
    },
    Left {
        kind: "Process that was not there",
        part: "sleep",
        by: "setsid sleep 1000 >/dev/null 2>&1 &",
    },
    // What is in it must go before it does.
    Left {
        kind: "Group that was not there",
        part: "left/below",
        by: "mkdir -p /sys/fs/cgroup/left/below && \
             setsid sh -c 'echo $$ >/sys/fs/cgroup/left/below/cgroup.procs; exec sleep 1000' \
             >/dev/null 2>&1 & \
             until grep -q . /sys/fs/cgroup/left/below/cgroup.procs; do sleep 0.1; done",
    },
];

/// A kind that the oracle does not see shows nothing but success.
fn what_a_test_leaves_behind_is_seen_and_undone() {
    let mut oracle = Oracle::new();
    assert_eq!(oracle.troubles(), Vec::<String>::new());
    oracle.going = Duration::ZERO;
    for Left { kind, part, by } in LEFT {
        let status = Command::new("sh").args(["-c", by]).status();
        assert!(status.expect("a shell").success(), "{by}");
        let mut troubles = Vec::new();
        let seen = |trouble: &String| trouble.starts_with(kind) && trouble.contains(part);
        // A process gets its name when it is executed.
        let is_seen = within(SOON, || {
            troubles.extend(oracle.troubles());
            troubles.iter().any(seen)
        });
        assert!(is_seen, "{kind}, {part}: {troubles:?}");
    }
    // All of them together, as some hold others.
    assert_eq!(oracle.undo(), Vec::<String>::new());
    assert_eq!(oracle.troubles(), Vec::<String>::new());
}

/// A device that cannot be closed from outside keeps the module: told once, and no fault of
/// the next test.
fn what_cannot_be_undone_is_told_once() {
    let mut oracle = Oracle::new();
    oracle.going = Duration::ZERO;
    oracle.undoing = Duration::from_millis(100);
    let module = Module::load();
    let session = Session::open();
    sees(&mut oracle, "Module that was not there: nsprobe");
    let left = oracle.undo();
    assert!(
        left.iter().any(|left| left.starts_with("Module")),
        "{left:?}"
    );
    assert_eq!(oracle.troubles(), Vec::<String>::new());
    drop(session);
    drop(module);
    assert_eq!(oracle.troubles(), Vec::<String>::new());
}

fn what_a_test_leaves_in_the_log_and_the_module_is_seen() {
    let mut oracle = Oracle::new();
    assert_eq!(oracle.troubles(), Vec::<String>::new());
    oracle.going = Duration::ZERO;
    oracle.also = Some("on purpose");
    fs::write("/dev/kmsg", "nsprobe-guest: on purpose\n").expect("root");
    sees(&mut oracle, "on purpose");
    let module = Module::load();
    sees(&mut oracle, " 0 - Live");
    let session = Session::open();
    sees(&mut oracle, " 1 - Live");
    drop(session);
    drop(module);
    assert_eq!(oracle.troubles(), Vec::<String>::new());
}

/// Writes into the text of a process, as an uprobe does.
fn write_text(process: &Unborn, file: &Path, bytes: &[u8]) {
    let name = file.to_str().expect("a plain name");
    let mut code = code_of(process.pid()).into_iter();
    let text = code.find(|code| code.path == name).expect("text");
    let memory = File::options()
        .write(true)
        .open(format!("/proc/{}/mem", process.pid()));
    let written = memory
        .expect("root")
        .write_all_at(bytes, text.addresses.start + 0x40);
    written.expect("it is mapped");
}

/// In programs at low addresses nothing was seen, nor calls that had taken a breakpoint's
/// place, nor probes that were left when all that they were put into had ended.
fn what_probes_leave_in_text_is_seen() {
    let mut oracle = Oracle::new();
    oracle.going = Duration::ZERO;
    let call = [0x48, 0x8d, 0x64, 0x24, 0x80, 0xe8];
    for (name, bytes) in [
        ("call_in_loop", &[0xcc][..]),
        // At a low address.
        ("named", &[0xcc]),
        ("call_in_loop", &call),
    ] {
        let file = victim::path(name);
        let process = Unborn::of(&mut Command::new(&file)).expect("it is a program");
        write_text(&process, &file, bytes);
        let place = format!("in process {}: {}", process.pid(), file.display());
        sees(&mut oracle, &place);
    }
    let file = victim::path("exit_soon");
    let function = binary::function(&file, "short_work");
    let witness = Witness::new(&file, function.offset);
    let process = format!("in a new process of {0}: {0}", file.display());
    sees(&mut oracle, &process);
    drop(witness);
    assert_eq!(oracle.undo(), Vec::<String>::new());
    assert_eq!(oracle.troubles(), Vec::<String>::new());
}

/// Also those that were swapped out; with addresses as `map_files` has them.
fn mappings_with_pages_of_their_own_are_found() {
    let smaps = "00401000-00402000 r-xp 00001000 fe:00 12   /bin/busybox\n\
        Size: 4 kB\nAnonymous:             4 kB\nSwap:                  4 kB\n\
        00402000-00403000 r-xp 00002000 fe:00 12   /bin/busybox\n\
        Anonymous:             0 kB\nSwap:                  0 kB\n\
        00403000-00404000 rw-p 00003000 fe:00 12   /bin/busybox\n\
        Anonymous:             4 kB\n\
        00404000-00405000 r-xp 00004000 fe:00 12   /bin/busybox\n\
        Anonymous:             0 kB\nSwap:                  4 kB\nSwapPss: 4 kB\n";
    let all = parse(smaps);
    let found: Vec<_> = all
        .iter()
        .map(|one| (one.range(), one.offset, one.path.as_str()))
        .collect();
    let wanted = [(0x401000, 0x1000), (0x404000, 0x4000)];
    let wanted = wanted.map(|(start, offset)| {
        let range = format!("{start:x}-{:x}", start + 0x1000);
        (range, offset, "/bin/busybox")
    });
    assert_eq!(found, wanted);
}

fn what_an_uprobe_writes_is_seen_and_nothing_else() {
    let filed = [0x90; WINDOW];
    let with = |at: usize, bytes: &[u8]| {
        let mut mapped = filed;
        mapped[at..at + bytes.len()].copy_from_slice(bytes);
        written(&mapped, &filed)
    };
    let call = [0x48, 0x8d, 0x64, 0x24, 0x80, 0xe8];
    assert_eq!(with(7, &[0xcc]), [7]);
    assert_eq!(with(7, &call), [7]);
    assert_eq!(with(PAGE - 1, &call), [PAGE - 1]);
    // The next page's own.
    assert_eq!(with(PAGE, &[0xcc]), [0; 0]);
    assert_eq!(with(7, &call[..5]), [0; 0]);
    assert_eq!(with(7, &[0xe8, 0, 1, 2, 3]), [0; 0]);
    let breakpoints = [0xcc; WINDOW];
    assert_eq!(written(&breakpoints, &breakpoints), [0; 0]);
}
