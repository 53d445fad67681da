// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: who is traced is who was asked for, from the moment on when the request
//! returns; who is left out carries no breakpoint where that can be known.

use crate::command::Running;
use crate::container::in_filter;
use crate::group::Group;
use crate::module::Module;
use crate::session::{errno, probe_at, size, Session, RING_BYTES};
use crate::tests::waits::child_of;
use crate::victim::{self, Victim};
use nix::libc;
use nsprobe_common::abi::{self, Filter};
use serde_json::Value;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// How long a call may take to be printed.
const LIMIT: Duration = Duration::from_secs(10);

fn family() -> Victim {
    Victim::start("family", &[])
}

fn filter(flags: u32) -> Filter {
    Filter {
        size: size::<Filter>(),
        flags,
        ..Filter::default()
    }
}

fn set(session: &Session, mut wanted: Filter) {
    session.filter(&mut wanted).expect("a good filter");
}

/// A session with a probe on a function of a victim's file, and the probe's id.
fn probed(wanted: Filter, victim: &Victim, function: &str) -> (Session, u32) {
    let session = Session::with_rings(RING_BYTES);
    set(&session, wanted);
    let id = session.probe(victim.file(), &victim.function(function), 0);
    (session, id)
}

/// Recorded hits of a probe.
fn recorded(session: &Session, id: u32) -> u64 {
    session.counters(id).recorded
}

/// The thread of a victim that is not its first.
fn second_thread(victim: &Victim) -> u32 {
    let tasks = fs::read_dir(format!("/proc/{}/task", victim.pid())).expect("it lives");
    let names = tasks.map(|task| task.expect("/proc is readable").file_name());
    let mut ids = names.filter_map(|name| name.to_str()?.parse().ok());
    ids.find(|id| *id != victim.pid()).expect("two threads")
}

test! { core, listed_threads_alone_are_traced }
fn listed_threads_alone_are_traced() {
    let _module = Module::load();
    let (mut victim, mut other) = (family(), family());
    let tids = [second_thread(&victim)];
    let (session, id) = probed(
        Filter {
            tids: tids.as_ptr() as u64,
            tid_count: 1,
            ..filter(abi::FILTER_TIDS)
        },
        &victim,
        "member",
    );
    assert!(other.text_is_restored(other.function("member").offset));
    for (order, wanted) in [("m 5", 0), ("t 7", 7), ("n 5", 7), ("d 5", 7), ("t 1", 8)] {
        victim.order(order);
        other.order(order);
        assert_eq!(recorded(&session, id), wanted, "{order}");
    }
    let counters = session.counters(id);
    assert_eq!(counters.filtered, counters.hits - 8);
}

test! { full, returns_of_listed_threads_alone_are_traced }
/// The filter was not asked at the entry of a call whose return alone is wanted.
fn returns_of_listed_threads_alone_are_traced() {
    let _module = Module::load();
    let mut victim = family();
    let tids = [second_thread(&victim)];
    let session = Session::with_rings(RING_BYTES);
    let wanted = Filter {
        tids: tids.as_ptr() as u64,
        tid_count: 1,
        ..filter(abi::FILTER_TIDS)
    };
    set(&session, wanted);
    let probe = abi::Probe {
        kind: abi::PROBE_RETURN,
        ..probe_at(victim.function("member").offset, 0)
    };
    let id = session.attach(victim.file(), probe).expect("a probe");
    for (order, wanted) in [("m 5", 0), ("t 7", 7), ("n 5", 7), ("d 5", 7), ("t 1", 8)] {
        victim.order(order);
        assert_eq!(recorded(&session, id), wanted, "{order}");
    }
    let counters = session.counters(id);
    assert_eq!(counters.filtered, counters.hits - 8);
    assert!(counters.filtered >= 5, "{counters:?}");
}

test! { core, children_are_followed }
fn children_are_followed() {
    let _module = Module::load();
    let (mut victim, mut other) = (family(), family());
    let pids = [victim.pid()];
    let only = |flags| Filter {
        pids: pids.as_ptr() as u64,
        pid_count: 1,
        ..filter(abi::FILTER_PIDS | flags)
    };
    let (session, id) = probed(only(0), &victim, "member");
    for order in ["c 3", "g 3", "e 3"] {
        victim.order(order);
        assert_eq!(recorded(&session, id), 0, "{order}");
    }
    set(&session, only(abi::FILTER_CHILDREN));
    let mut wanted = 0;
    for (order, calls) in [("m 2", 2), ("n 2", 2), ("c 3", 3), ("g 4", 4), ("e 5", 5)] {
        victim.order(order);
        other.order(order);
        wanted += calls;
        assert_eq!(recorded(&session, id), wanted, "{order}");
    }
    assert!(other.text_is_restored(other.function("member").offset));
    for _ in 0..40 {
        victim.order("c 1");
    }
    assert_eq!(recorded(&session, id), wanted + 40);
    assert_eq!(missed(&session), 0);
}

/// Forks of traced tasks that a session found no room for.
fn missed(session: &Session) -> u64 {
    let fdinfo = format!("/proc/self/fdinfo/{}", session.as_raw_fd());
    let fdinfo = fs::read_to_string(fdinfo).expect("it is open");
    let line = fdinfo
        .lines()
        .find_map(|line| line.strip_prefix("filter-missed:\t"));
    line.and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{fdinfo}"))
}

test! { full, more_threads_than_ever_fit_are_followed, seconds = 180 }
/// One after the other: those that have ended make room.
fn more_threads_than_ever_fit_are_followed() {
    // `ENTRIES_MAX` of kmod/sys/pid_set.rs, and those for which it does not look again at once.
    const THREADS: u64 = (1 << 14) + (1 << 12) + 500;
    let _module = Module::load();
    let mut victim = family();
    let tids = [victim.pid()];
    let wanted = Filter {
        tids: tids.as_ptr() as u64,
        tid_count: 1,
        ..filter(abi::FILTER_TIDS | abi::FILTER_CHILDREN)
    };
    let session = Session::with_rings(RING_BYTES);
    set(&session, wanted);
    let probe = abi::Probe {
        sink: abi::SINK_COUNT,
        ..probe_at(victim.function("member").offset, 0)
    };
    let id = session.attach(victim.file(), probe).expect("a probe");
    victim.order(&format!("s {THREADS}"));
    let counters = session.counters(id);
    assert_eq!((counters.hits, counters.filtered), (THREADS, 0));
    assert_eq!(missed(&session), 0);
}

test! { full, children_of_a_thread_are_followed }
fn children_of_a_thread_are_followed() {
    let _module = Module::load();
    let mut victim = family();
    let tids = [second_thread(&victim)];
    let (session, id) = probed(
        Filter {
            tids: tids.as_ptr() as u64,
            tid_count: 1,
            ..filter(abi::FILTER_TIDS | abi::FILTER_CHILDREN)
        },
        &victim,
        "member",
    );
    for (order, wanted) in [
        ("c 5", 0),
        ("n 5", 0),
        ("e 5", 0),
        ("d 3", 3),
        ("t 1", 4),
        ("x 2", 6),
        ("n 5", 6),
    ] {
        victim.order(order);
        assert_eq!(recorded(&session, id), wanted, "{order}");
    }
}

test! { core, users_names_and_namespaces_are_picked_at_the_hit }
fn users_names_and_namespaces_are_picked_at_the_hit() {
    let _module = Module::load();
    let file = victim::path("call_in_loop");
    let start = |uid: u32, name: &str| {
        // The kernel names a process by the path that was run.
        let link = PathBuf::from(format!("/tmp/{name}"));
        std::os::unix::fs::symlink(&file, &link).expect("it is not there");
        let mut command = Command::new(&link);
        let victim = Victim::start_command(command.uid(uid).arg("begins_with_push"), &file);
        fs::remove_file(&link).expect("it is there");
        victim
    };
    let mut root = start(0, "fifteen-bytes-n");
    let mut user = start(1234, "fifteen-bytes-m");
    let mut short = start(0, "fifteen-bytes-");
    let wanted = Filter {
        uid: 1234,
        ..filter(abi::FILTER_UID)
    };
    let (session, id) = probed(wanted, &root, "begins_with_push");
    root.call(3);
    user.call(4);
    assert_eq!(recorded(&session, id), 4);
    assert_eq!(session.counters(id).filtered, 3);
    set(&session, filter(abi::FILTER_UID));
    root.call(3);
    user.call(4);
    assert_eq!(recorded(&session, id), 7, "user 0");
    let mut comm = [0; 16];
    comm[..15].copy_from_slice(b"fifteen-bytes-m");
    let named = |comm| Filter {
        comm,
        ..filter(abi::FILTER_COMM)
    };
    set(&session, named(comm));
    root.call(3);
    user.call(4);
    short.call(5);
    assert_eq!(recorded(&session, id), 11, "more than a name");
    comm[14] = 0;
    set(&session, named(comm));
    root.call(3);
    user.call(4);
    assert_eq!(recorded(&session, id), 11, "a part of a name");
    short.call(5);
    assert_eq!(recorded(&session, id), 16);
    drop(session);
    only_listed_namespaces_and_those_below(root);
}

/// Of processes in namespaces of the first level and below one of them.
fn only_listed_namespaces_and_those_below(mut outside: Victim) {
    let inside = |words: &str| {
        let mut command = Command::new("unshare");
        command.args(words.split(' ')).arg(outside.file());
        Victim::start_command(command.arg("begins_with_push"), outside.file())
    };
    let mut other = inside("-pf --kill-child");
    let mut shallow = inside("-pf --kill-child");
    let mut deep = inside("-pf --kill-child unshare -pf --kill-child");
    let first = |victim: &Victim| in_filter(child_of(victim.pid()));
    let deepest = in_filter(child_of(child_of(deep.pid())));
    for (listed, wanted) in [
        (vec![first(&shallow)], 2),
        (vec![first(&deep)], 3),
        (vec![deepest], 3),
        (vec![first(&deep), first(&shallow)], 5),
        (vec![first(&shallow), deepest, first(&shallow)], 5),
        (vec![in_filter(std::process::id()), deepest], 11),
    ] {
        let listed = listed.as_slice();
        let namespaces = Filter {
            pidns_list: listed.as_ptr() as u64,
            pidns_count: listed.len() as u32,
            ..filter(abi::FILTER_PIDNS_LIST)
        };
        let (session, id) = probed(namespaces, &outside, "begins_with_push");
        outside.call(5);
        other.call(1);
        shallow.call(2);
        deep.call(3);
        assert_eq!(recorded(&session, id), wanted, "{listed:?}");
    }
}

/// A victim that was started in a control group.
fn start_in(group: &Group) -> Victim {
    let file = victim::path("call_in_loop");
    Victim::start_command(group.command(&file).arg("begins_with_push"), &file)
}

test! { core, one_control_group_pays_for_its_probe }
fn one_control_group_pays_for_its_probe() {
    let _module = Module::load();
    let wanted = Group::new("nsprobe-wanted");
    let below = Group::new("nsprobe-wanted/below");
    let beside = Group::new("nsprobe-wanted-not");
    // All map the same page of the same file.
    let (mut one, mut two, mut three) = (start_in(&wanted), start_in(&below), start_in(&beside));
    let place = one.function("begins_with_push").offset;
    let folder = File::open(&wanted.folder).expect("it is there");
    for by in [
        Filter {
            cgroup_id: wanted.id(),
            ..filter(abi::FILTER_CGROUP)
        },
        Filter {
            cgroup_fd: folder.as_raw_fd(),
            ..filter(abi::FILTER_CGROUP)
        },
    ] {
        let (session, id) = probed(by, &one, "begins_with_push");
        assert!(!one.text_is_restored(place) && !two.text_is_restored(place));
        assert!(three.text_is_restored(place), "it is outside and pays");
        let (mut four, mut five) = (start_in(&below), start_in(&beside));
        assert!(!four.text_is_restored(place));
        assert!(five.text_is_restored(place), "it is outside and pays");
        for victim in [&mut one, &mut two, &mut three, &mut four, &mut five] {
            victim.call(10);
        }
        let counters = session.counters(id);
        assert_eq!((counters.hits, counters.recorded), (30, 30));
    }
}

test! { full, who_moves_between_groups_is_seen_to }
fn who_moves_between_groups_is_seen_to() {
    let _module = Module::load();
    let (wanted, beside) = (Group::new("nsprobe-in"), Group::new("nsprobe-out"));
    let (mut inside, mut outside) = (start_in(&wanted), start_in(&beside));
    let place = inside.function("begins_with_push").offset;
    let by = Filter {
        cgroup_id: wanted.id(),
        ..filter(abi::FILTER_CGROUP)
    };
    let (session, id) = probed(by, &inside, "begins_with_push");
    beside.take(inside.pid());
    wanted.take(outside.pid());
    inside.call(5);
    outside.call(5);
    // Who left is filtered at its first hit, which takes its breakpoint away.
    let counters = session.counters(id);
    assert_eq!((counters.hits, counters.filtered), (1, 1));
    assert!(inside.text_is_restored(place) && outside.text_is_restored(place));
    set(&session, by);
    inside.call(5);
    outside.call(5);
    let counters = session.counters(id);
    assert_eq!((counters.hits, counters.recorded), (6, 5));
}

fn call_often(victim: &mut Victim) -> Option<u64> {
    (0..2_000).map(|_| victim.call(100)).last()
}

test! { core, a_filter_is_changed_while_probes_are_hit, module, cpus = 2 }
fn a_filter_is_changed_while_probes_are_hit() {
    let _module = Module::load();
    let mut victims = [
        Victim::caller("begins_with_push"),
        Victim::caller("begins_with_push"),
    ];
    let place = victims[0].function("begins_with_push").offset;
    let session = Session::with_rings(RING_BYTES);
    let id = session.probe(
        victims[0].file(),
        &victims[0].function("begins_with_push"),
        0,
    );
    let mut wanted = 0;
    for round in 0..6 {
        session
            .only(&[victims[round % 2].pid()])
            .expect("both live");
        assert!(!victims[round % 2].text_is_restored(place));
        assert!(victims[(round + 1) % 2].text_is_restored(place));
        victims[0].call(10);
        victims[1].call(10);
        wanted += 10;
        assert_eq!(recorded(&session, id), wanted);
    }
    assert_eq!(session.counters(id).hits, wanted);
    // While both run: nothing is lost, and nobody is harmed.
    let pids = [victims[0].pid(), victims[1].pid()];
    let changes = std::thread::scope(|scope| {
        let start = |victim| scope.spawn(|| call_often(victim));
        let runs: Vec<_> = victims.iter_mut().map(start).collect();
        let mut changes = 0;
        while runs.iter().any(|run| !run.is_finished()) {
            session.only(&[pids[changes % 2]]).expect("both live");
            changes += 1;
        }
        for run in runs {
            assert_eq!(run.join().expect("it has run"), Some(200_060));
        }
        changes
    });
    let before = session.counters(id);
    println!("{changes} changes: {before:?}");
    assert!(changes > 10, "{changes}");
    set(&session, filter(0));
    victims[0].call(3);
    victims[1].call(3);
    assert_eq!(session.counters(id).hits, before.hits + 6);
    drop(session);
    assert!(victims.iter().all(|victim| victim.text_is_restored(place)));
}

test! { full, wrong_filters_change_nothing }
fn wrong_filters_change_nothing() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let mut other = Victim::caller("begins_with_push");
    let place = victim.function("begins_with_push").offset;
    let pids = [victim.pid()];
    let good = Filter {
        pids: pids.as_ptr() as u64,
        pid_count: 1,
        ..filter(abi::FILTER_PIDS)
    };
    let (session, id) = probed(good, &victim, "begins_with_push");
    let dead = [4_000_000u32];
    let gone = Group::new("nsprobe-gone");
    let (gone_id, gone_fd) = (gone.id(), File::open(&gone.folder).expect("it is there"));
    drop(gone);
    let null = File::open("/dev/null").expect("it is there");
    let tids = |tids: &[u32]| Filter {
        tids: tids.as_ptr() as u64,
        tid_count: tids.len() as u32,
        ..filter(abi::FILTER_TIDS)
    };
    let cgroup = |cgroup_id, cgroup_fd| Filter {
        cgroup_id,
        cgroup_fd,
        ..filter(abi::FILTER_CGROUP)
    };
    let comm = |bytes: &[u8]| {
        let mut comm = [0; 16];
        comm[..bytes.len()].copy_from_slice(bytes);
        Filter {
            comm,
            ..filter(abi::FILTER_COMM)
        }
    };
    let here = in_filter(std::process::id());
    let elsewhere = abi::PidNamespace {
        id: here.id + 1,
        ..here
    };
    let gone = abi::PidNamespace {
        pid: dead[0],
        ..here
    };
    let reserved = abi::PidNamespace {
        reserved: 1,
        ..here
    };
    let namespaces = |all: &[abi::PidNamespace]| Filter {
        pidns_list: all.as_ptr() as u64,
        pidns_count: all.len() as u32,
        ..filter(abi::FILTER_PIDNS_LIST)
    };
    let both = Filter {
        flags: abi::FILTER_PIDS | abi::FILTER_TIDS,
        tids: good.pids,
        tid_count: 1,
        ..good
    };
    for (wrong, wanted) in [
        (tids(&dead), libc::ESRCH),
        (tids(&[]), libc::EINVAL),
        (both, libc::EINVAL),
        (filter(abi::FILTER_CHILDREN), libc::EINVAL),
        (cgroup(gone_id, 0), libc::ENOENT),
        (cgroup(0, gone_fd.as_raw_fd()), libc::ENOENT),
        (cgroup(0, null.as_raw_fd()), libc::EBADF),
        (cgroup(0, -1), libc::EBADF),
        (
            Filter {
                program_fd: -1,
                ..filter(abi::FILTER_NOT_PROGRAM)
            },
            libc::EBADF,
        ),
        (cgroup(1, 1), libc::EINVAL),
        (comm(b"sixteen-bytes-16"), libc::EINVAL),
        (comm(b"a\0b"), libc::EINVAL),
        (
            Filter {
                uid: u32::MAX,
                ..filter(abi::FILTER_UID)
            },
            libc::EINVAL,
        ),
        (Filter { uid: 7, ..good }, libc::EINVAL),
        (
            Filter {
                cgroup_id: 1,
                ..good
            },
            libc::EINVAL,
        ),
        (
            Filter {
                comm: [b'a'; 16],
                ..good
            },
            libc::EINVAL,
        ),
        (
            Filter {
                reserved2: 1,
                ..good
            },
            libc::EINVAL,
        ),
        (namespaces(&[]), libc::EINVAL),
        (namespaces(&[here, elsewhere]), libc::ESTALE),
        (namespaces(&[here, gone]), libc::ESRCH),
        (namespaces(&[here, reserved]), libc::EINVAL),
        (namespaces(&[here; 257]), libc::EINVAL),
        (
            Filter {
                pidns_pid: here.pid,
                pidns_id: here.id,
                flags: abi::FILTER_PIDNS | abi::FILTER_PIDNS_LIST,
                ..namespaces(&[here])
            },
            libc::EINVAL,
        ),
        (
            Filter {
                program_fd: 1,
                ..namespaces(&[here])
            },
            libc::EINVAL,
        ),
    ] {
        let got = errno(session.filter(&mut { wrong }), &format!("{wrong:?}"));
        assert_eq!(got, wanted, "{wrong:?}");
        assert!(other.text_is_restored(place), "{wrong:?}");
    }
    assert!(!victim.text_is_restored(place));
    victim.call(3);
    other.call(5);
    let counters = session.counters(id);
    assert_eq!((counters.hits, counters.recorded), (3, 3));
}

/// The pids and tids of the hits that the program prints with these words, while `calls`
/// make some.
fn printed(words: &[&str], calls: impl FnOnce()) -> Vec<(u32, u32)> {
    let mut running = Running::start(&[&["trace", "--json"], words].concat());
    running.attached(1);
    calls();
    let (code, lines, errors) = running.finish();
    assert_eq!(code, Some(0), "{errors}");
    let lines = lines
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let hits = lines.filter(|line| line["type"] == "hit");
    let number = |value: &Value| value.as_u64().expect("a number") as u32;
    hits.map(|hit| (number(&hit["pid"]), number(&hit["tid"])))
        .collect()
}

test! { full, options_of_the_program_let_in_who_is_meant }
/// Who is let in by each option, beside others of the same file.
fn options_of_the_program_let_in_who_is_meant() {
    let _module = Module::load();
    let (mut victim, mut other) = (family(), family());
    let spec = format!("{}:member", victim.file().display());
    let (pid, tid) = (victim.pid(), second_thread(&victim));
    let got = printed(&["--tid", &tid.to_string(), &spec], || {
        for order in ["m 5", "t 7", "n 3"] {
            victim.order(order);
            other.order(order);
        }
    });
    assert_eq!(got, [(pid, tid); 7]);
    let both = [tid, second_thread(&other)].map(|tid| tid.to_string());
    let got = printed(&["--tid", &both[0], "--tid", &both[1], &spec], || {
        victim.order("t 2");
        other.order("m 4");
        other.order("t 3");
    });
    let by_second = got.iter().filter(|(by, _)| *by == other.pid()).count();
    assert_eq!((got.len(), by_second), (5, 3), "{got:?}");

    // Of several processes the last one ends the trace.
    let pids = [victim.pid(), other.pid()].map(|pid| pid.to_string());
    let words = ["trace", "-p", &pids[0], "-p", &pids[1], &spec];
    let mut both = Running::start(&words);
    both.attached(1);
    victim.end();
    for _ in 0..3 {
        other.order("m 1");
        both.wait_for("member", LIMIT);
    }
    other.end();
    let both = both.ended().succeeded();
    assert!(both.stderr.contains("3 hits"), "{both:?}");

    let file = victim::path("call_in_loop");
    let start = |uid: u32| {
        let mut command = Command::new(&file);
        let command = command.uid(uid).gid(uid + 1).arg("begins_with_push");
        Victim::start_command(command, &file)
    };
    let (mut root, mut user) = (start(0), start(1234));
    let spec = format!("{}:begins_with_push", file.display());
    for (uid, pid, count) in [("1234", user.pid(), 4), ("0", root.pid(), 3)] {
        let got = printed(&["--uid", uid, &spec], || {
            root.call(3);
            user.call(4);
        });
        assert_eq!(got, vec![(pid, pid); count], "--uid {uid}");
    }
    let mut count = Running::start(&["count", "--json", "--by", "uid,gid", &spec]);
    count.attached(1);
    root.call(3);
    user.call(4);
    let (_, lines, errors) = count.finish();
    let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line));
    let rows = lines.map(|line| line.expect("JSON"));
    let mut keys: Vec<String> = rows
        .filter(|row| row["of"] == "total")
        .map(|row| {
            format!(
                "{} {} {}",
                row["key"]["uid"], row["key"]["gid"], row["count"]
            )
        })
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, ["0 1 3", "1234 1235 4"], "{errors}");

    let (wanted, beside) = (Group::new("nsprobe-one"), Group::new("nsprobe-other"));
    let (mut inside, mut outside) = (start_in(&wanted), start_in(&beside));
    let folder = wanted.folder.display().to_string();
    let got = printed(&["--cgroup", &folder, &spec], || {
        inside.call(5);
        outside.call(6);
    });
    assert_eq!(got, [(inside.pid(), inside.pid()); 5]);
}
