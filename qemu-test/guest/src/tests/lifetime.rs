// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: everything ends with its owner. No probe, no breakpoint, no memory
//! and no reference stays, however the owner ended.

use super::capsule::Folder;
use super::garbage::Random;
use crate::group::Group;
use crate::growth::assert_no_growth;
use crate::lab::Lab;
use crate::module::{self, Module};
use crate::oracle::{within, SOON};
use crate::processes::is_asleep;
use crate::records::Records;
use crate::run::ROLE;
use crate::session::{errno, open_device, probe_at, size, Session, RING_BYTES};
use crate::sys::{self, Forked};
use crate::tasks::{Kept, TaskSession};
use crate::victim::{self, from_file, Victim};
use crate::witness;
use crate::{binary, figures};
use nix::libc;
use nix::sys::statvfs::statvfs;
use nsprobe_common::abi;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

test! { full, the_module_loads_and_unloads_a_hundred_times, seconds = 300 }
fn the_module_loads_and_unloads_a_hundred_times() {
    let round = || {
        let module = Module::load();
        let session = Session::open();
        assert_eq!(session.info().sessions, 1);
        drop(session);
        assert_eq!(module.references(), 0);
    };
    // 5, 33 and 66 rounds.
    assert_no_growth(33, round);
    assert!(!Path::new(abi::DEVICE).exists());
}

test! { full, the_module_is_loaded_once, module }
fn the_module_is_loaded_once() {
    let _module = Module::load();
    let got = errno(module::load(module::FILE), "a second load");
    assert_eq!(got, libc::EEXIST);
    Session::open();
}

test! { full, parameters_that_cannot_be_are_refused, module }
fn parameters_that_cannot_be_are_refused() {
    let file = File::open(module::FILE).expect("the module was built");
    for parameters in ["allow_modify=maybe", "allow_modify=2", "allow_modify="] {
        let loaded = sys::load_module(&file, parameters);
        assert_eq!(errno(loaded, parameters), libc::EINVAL, "{parameters}");
        assert!(!module::is_loaded(), "{parameters}");
    }
    let _module = Module::load_with("allow_modify=1");
    let shown = Path::new("/sys/module/nsprobe/parameters/allow_modify");
    assert_eq!(fs::read_to_string(shown).expect("it is loaded"), "Y\n");
    // Sessions have gone by it: it stays as it is.
    let mode = fs::metadata(shown).expect("it is loaded").mode();
    assert_eq!(mode & 0o777, 0o444);
}

test! { core, unload_is_refused_while_a_session_is_open, module }
fn unload_is_refused_while_a_session_is_open() {
    let module = Module::load();
    let session = Session::open();
    assert_eq!(errno(module.try_unload(), "rmmod"), libc::EAGAIN);
    assert!(module.references() > 0);
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let with_probe = Session::with_rings(RING_BYTES);
    let id = with_probe.probe(victim.file(), &function, 0);
    drop(session);
    for _ in 0..100 {
        assert_eq!(errno(module.try_unload(), "rmmod"), libc::EAGAIN);
    }
    victim.call(10);
    assert_eq!(with_probe.counters(id).recorded, 10);
    drop(with_probe);
    assert_eq!(module.references(), 0);
}

test! { full, unload_is_refused_while_a_reader_sleeps, module }
fn unload_is_refused_while_a_reader_sleeps() {
    let module = Module::load();
    // A process of its own: it sleeps in read() with no other reference.
    let Forked::Parent(sleeper) = sys::fork().expect("fork") else {
        let session = Session::with_rings(RING_BYTES);
        let mut buffer = [0; 4096];
        let _ = std::io::Read::read(&mut &session.file, &mut buffer);
        sys::exit_now(0)
    };
    let sleeps = || module.references() > 0 && is_asleep(sleeper);
    assert!(
        within(Duration::from_secs(60), sleeps),
        "the reader does not sleep"
    );
    assert_eq!(errno(module.try_unload(), "rmmod"), libc::EAGAIN);
    let pid = nix::unistd::Pid::from_raw(sleeper);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it lives");
    sys::wait(sleeper);
    assert_eq!(module.references(), 0);
}

test! { core, closing_a_session_restores_the_text, module }
fn closing_a_session_restores_the_text() {
    let lab = Lab::new();
    let mut victim = lab.caller("begins_with_endbr64");
    victim.alone();
    let function = victim.function.clone();
    for _ in 0..20 {
        let session = lab.session(RING_BYTES);
        let id = session.probe(&victim, 0);
        let changed = victim.changed_places(function.offset, function.bytes);
        assert_eq!(changed, [function.offset], "the breakpoint");
        victim.call(3);
        assert_eq!(session.counters(id).hits, 3);
        drop(session);
        assert!(victim.text_is_restored());
    }
    victim.call(3);
}

/// A reader as good as any, until it is killed.
pub(super) fn read_for_ever(file: &str, offset: &str) -> ExitCode {
    let session = Session::with_rings(1 << 16);
    let offset = offset.parse().expect("a number");
    let flags = abi::PROBE_STACK | abi::PROBE_AT_ENTRY;
    session
        .attach(Path::new(file), probe_at(offset, flags))
        .expect("a probe");
    let rings = session.rings();
    loop {
        Records::default().drain(&rings);
    }
}

fn reader(file: &Path, offset: u64) -> Child {
    let this = std::env::current_exe().expect("/proc is mounted");
    Command::new(this)
        .args([ROLE, "reader"])
        .arg(file)
        .arg(offset.to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("the reader starts")
}

test! { core, killed_readers_leave_no_probe, seconds = 240 }
/// A probe is gone a second after its owner was killed, unless even a process that has none
/// takes that long here.
fn killed_readers_leave_no_probe() {
    let _module = Module::load();
    let victim = Victim::start("call_in_loop", &["begins_with_push", "0", "0"]);
    let function = victim.function("begins_with_push");
    let watcher = Session::open();
    let mut random = Random(4711);
    let (mut kills, mut probes_seen) = (0, 0);
    let mut to_the_probe = Duration::ZERO;
    assert_no_growth(70 / figures::parts(24) as u32, || {
        let mut reader = reader(victim.file(), function.offset);
        // Every other one when it has its probe, the rest somewhere on the way.
        kills += 1;
        let begun = Instant::now();
        if kills % 2 == 1 {
            assert!(within(SOON, || watcher.info().probes > 0));
            to_the_probe = begun.elapsed();
            std::thread::sleep(Duration::from_micros(random.next() % 100_000));
        } else {
            let way = 2 * to_the_probe.as_micros() as u64;
            std::thread::sleep(Duration::from_micros(random.next() % way));
            probes_seen += watcher.info().probes;
        }
        reader.kill().expect("it lives for ever");
        reader.wait().expect("ours");
        let gone = within(SOON, || {
            let info = watcher.info();
            (info.sessions, info.probes) == (1, 0)
        });
        assert!(gone, "left behind: {:?}", watcher.info());
        assert!(victim.text_is_restored(function.offset));
        assert_eq!(witness::listed(), "");
    });
    println!(
        "{kills} readers; {probes_seen} of the {} that were killed on the way had their probe",
        kills / 2
    );
}

test! { core, sessions_leave_no_memory, seconds = 120 }
/// Each round has all that a session can have, for a process and a file of its own: what is
/// left of any of them is left once more by the next round.
fn sessions_leave_no_memory() {
    let _module = Module::load();
    let folder = Folder::with_tmpfs("leaks", 32 << 20);
    let mut rounds = 0;
    assert_no_growth(16 / figures::parts(3) as u32, || {
        rounds += 1;
        let file = PathBuf::from(folder.path(&rounds.to_string()));
        fs::copy(victim::path("call_in_loop"), &file).expect("there is room");
        let mut command = Command::new(&file);
        let mut victim = Victim::start_command(command.arg("begins_with_push"), &file);
        let function = victim.function("begins_with_push");
        let session = Session::with_rings(1 << 18);
        session.only(&[victim.pid()]).expect("it lives");
        let flags = abi::PROBE_STACK | abi::PROBE_AT_ENTRY;
        let id = session.probe(&file, &function, flags | abi::PROBE_LATE);
        let table = session.table(abi::Table {
            kind: abi::TABLE_SUMS,
            rows: 64,
            max_frames: abi::FRAMES_MAX,
            ..abi::Table::default()
        });
        let counted = abi::Probe {
            sink: abi::SINK_TABLE,
            table: table.expect("it can be").id,
            ..probe_at(function.offset, flags)
        };
        session.attach(&file, counted).expect("a probe");
        let returns = abi::Probe {
            kind: abi::PROBE_RETURN,
            ..probe_at(function.offset, 0)
        };
        let returns = session.attach(&file, returns).expect("a probe");
        let rings = session.rings();
        victim.call(20);
        let mut records = Records::default();
        records.drain(&rings);
        assert_eq!(records.hits_of(id).count(), 20);
        assert_eq!(records.hits_of(returns).count(), 20);
        let object = *records.objects.keys().next().expect("its file");
        let object = session.object(object, abi::OBJECT_FD).expect("it is held");
        drop(sys::adopt(object.fd));
        // Some go with their session.
        if rounds % 2 == 0 {
            session.detach(&[id, returns]).expect("they are attached");
        }
        drop((session, rings, victim));
        fs::remove_file(&file).expect("it is ours");
    });
}

test! { full, sessions_of_tasks_leave_no_memory, seconds = 300 }
fn sessions_of_tasks_leave_no_memory() {
    let _module = Module::load();
    assert_no_growth(24, || {
        let mut session = TaskSession::with_rings(64 << 10);
        session.set(abi::TASKS_LIFE | abi::TASKS_UNFILTERED, 4096);
        // One that lives while the dump looks at it, and ends.
        let looked_at = Kept::start("/bin/sleep", &["1000"]);
        assert!(Command::new("/bin/true").status().expect("true").success());
        let dump = session.session.dump_tasks(libnsprobe::DumpOptions {
            mappings: true,
            args: true,
        });
        assert!(dump.expect("a dump").records().count() > 10);
        assert!(!session.told().is_empty());
        drop(looked_at);
    });
}

/// Control groups below one that were removed, and that somebody holds.
fn held_groups(group: &Group) -> u64 {
    let stat = fs::read_to_string(group.folder.join("cgroup.stat")).expect("it is there");
    let line = stat
        .lines()
        .find_map(|line| line.strip_prefix("nr_dying_descendants "));
    line.and_then(|number| number.parse().ok())
        .expect("the kernel counts them")
}

test! { full, control_groups_go_with_the_last_filter, module }
/// Filters by their numbers, and by their folders.
fn control_groups_go_with_the_last_filter() {
    const GROUPS: u64 = 16;
    let _module = Module::load();
    let parent = Group::new("nsprobe-filtered");
    let sessions = (0..GROUPS).map(|number| {
        let group = Group::new(&format!("nsprobe-filtered/{number}"));
        let folder = fs::File::open(&group.folder).expect("it is there");
        let wanted = abi::Filter {
            size: size::<abi::Filter>(),
            flags: abi::FILTER_CGROUP,
            ..abi::Filter::default()
        };
        let by_folder = abi::Filter {
            cgroup_fd: folder.as_raw_fd(),
            ..wanted
        };
        let by_number = abi::Filter {
            cgroup_id: group.id(),
            ..wanted
        };
        let session = Session::open();
        let mut filter = if number % 2 == 0 {
            by_folder
        } else {
            by_number
        };
        session.filter(&mut filter).expect("a filter");
        session
    });
    let sessions: Vec<Session> = sessions.collect();
    assert_eq!(held_groups(&parent), GROUPS, "the filters do not hold them");
    drop(sessions);
    let gone = within(SOON, || held_groups(&parent) == 0);
    assert!(gone, "{} are held", held_groups(&parent));
}

test! { full, memory_that_grows_is_seen, seconds = 120 }
/// What the tests above go by: a page and an object a round, and a session's memory.
fn memory_that_grows_is_seen() {
    let fault_of = |rounds, round: &mut dyn FnMut()| -> String {
        let grown = std::panic::AssertUnwindSafe(|| assert_no_growth(rounds, round));
        let fault = std::panic::catch_unwind(grown).expect_err("it is not seen");
        *fault.downcast::<String>().expect("a text")
    };
    let mut pipes = Vec::new();
    let fault = fault_of(50, &mut || {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        std::io::Write::write_all(&mut writer, b"one page").expect("there is room");
        pipes.push((reader, writer));
    });
    assert!(fault.contains("\"pages: by "), "{fault}");
    assert!(fault.contains("\"slab filp: by "), "{fault}");
    drop(pipes);
    let _module = Module::load();
    let mut sessions = Vec::new();
    let fault = fault_of(16, &mut || sessions.push(Session::with_rings(4096)));
    assert!(fault.contains("\"vmalloc "), "{fault}");
    assert!(fault.contains("\"areas "), "{fault}");
}

test! { full, a_session_lives_until_its_last_descriptor, module }
fn a_session_lives_until_its_last_descriptor() {
    let module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    let id = session.probe(victim.file(), &function, 0);
    let watcher = open_device().expect("root");
    let copy = Session {
        file: sys::duplicate(&session).into(),
        made: session.made,
    };
    // A child that holds it, too.
    let Forked::Parent(holder) = sys::fork().expect("fork") else {
        std::thread::sleep(Duration::from_secs(1000));
        sys::exit_now(0)
    };
    drop(session);
    victim.call(5);
    assert_eq!(
        copy.counters(id).recorded,
        5,
        "a duplicate is the same session"
    );
    // Over a socket to another process, which uses it there.
    assert_eq!(counted_by_another_process(&copy, id), 5);
    drop(copy);
    let info = || {
        let session = Session {
            file: watcher.try_clone().expect("a descriptor"),
            made: abi::Setup::default(),
        };
        session.info()
    };
    assert_eq!(info().probes, 1, "the child still holds the session");
    assert!(!victim.text_is_restored(function.offset));
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(holder),
        nix::sys::signal::Signal::SIGKILL,
    )
    .expect("it sleeps");
    sys::wait(holder);
    let gone = within(SOON, || info().probes == 0);
    assert!(gone, "{:?}", info());
    assert!(victim.text_is_restored(function.offset));
    drop(watcher);
    assert_eq!(module.references(), 0);
}

/// The hits that a process reads through a descriptor which it was sent.
fn counted_by_another_process(session: &Session, id: u32) -> u64 {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let Forked::Parent(child) = sys::fork().expect("fork") else {
        let sent = Session {
            file: sys::receive_descriptor(&theirs).into(),
            made: abi::Setup::default(),
        };
        let hits = sent.counters_on(id, abi::CPU_ALL).map_or(255, |c| c.hits);
        sys::exit_now(hits as i32)
    };
    sys::send_descriptor(&ours, session);
    libc::WEXITSTATUS(sys::wait(child)) as u64
}

test! { full, a_target_that_ends_or_execs_is_let_go, module }
fn a_target_that_ends_or_execs_is_let_go() {
    let _module = Module::load();
    let session = Session::with_rings(RING_BYTES);
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    session.only(&[victim.pid()]).expect("it lives");
    let id = session.probe(victim.file(), &function, 0);
    victim.call(5);
    victim.end();
    assert_eq!(session.counters(id).recorded, 5);
    assert_eq!(session.info().probes, 1);
    session
        .detach(&[id])
        .expect("the file outlives the process");
    // Gone before the filter was set.
    let late = Session::open();
    assert_eq!(
        errno(late.only(&[victim.pid()]), "a dead process"),
        libc::ESRCH
    );
    // exec: the same process with another program, of which the probes hold, too.
    let soon = victim::path("exit_soon");
    let mut shell = Command::new("/bin/sh");
    let exec = format!("read line; exec {} 3", soon.display());
    let mut shell = shell
        .args(["-c", &exec])
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh");
    let all = Session::with_rings(RING_BYTES);
    all.only(&[shell.id()]).expect("it waits");
    let libc = Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6");
    let before = all.probe(libc, &binary::exported(libc, "execve"), 0);
    let id = all.probe(&soon, &binary::function(&soon, "short_work"), 0);
    let mut input = shell.stdin.take().expect("piped");
    input.write_all(b"go on\n").expect("it reads");
    assert!(shell.wait().expect("ours").success());
    let counters = [before, id].map(|id| all.counters(id));
    let recorded = counters.map(|counters| (counters.hits, counters.recorded));
    assert_eq!(recorded, [(1, 1), (3, 3)], "{counters:?}");
    all.detach(&[before, id]).expect("the files outlive it");
}

test! { full, a_forked_child_of_a_target_is_restored_too, module }
/// A child takes over the breakpoint with its parent's memory; it counts, and
/// it is let go like the parent.
fn a_forked_child_of_a_target_is_restored_too() {
    let _module = Module::load();
    let mut parent = Victim::start("forks", &[]);
    let function = parent.function("in_parent_and_child");
    let session = Session::with_rings(RING_BYTES);
    let id = session.probe(parent.file(), &function, 0);
    // The child is made after ATTACH and answers with its own number.
    let child = parent.call(1) as u32;
    assert!(child > 0 && child != parent.pid());
    let records = Records::of(&session);
    let hits_of = |pid: u32| {
        records
            .hits
            .iter()
            .filter(|(hit, _)| hit.pid == pid)
            .count()
    };
    assert_eq!((hits_of(parent.pid()), hits_of(child)), (10, 10));
    assert_eq!(session.counters(id).hits, 20);
    let inode = from_file(parent.file(), function.offset);
    assert_ne!(victim::text(child, parent.file(), function.offset), inode);
    drop(session);
    assert!(parent.text_is_restored(function.offset));
    assert_eq!(victim::text(child, parent.file(), function.offset), inode);
}

test! { core, a_deleted_file_can_be_let_go, module }
/// It takes no room in its file system any more once it is not held.
fn a_deleted_file_can_be_let_go() {
    let module = Module::load();
    let folder = Folder::with_tmpfs("deleted", 8 << 20);
    let room = || {
        let room = statvfs(folder.path("").as_str()).expect("it is mounted");
        (room.files_free(), room.blocks_free())
    };
    let before = room();
    let copy = PathBuf::from(folder.path("call_in_loop"));
    fs::copy(victim::path("call_in_loop"), &copy).expect("there is room");
    let mut command = Command::new(&copy);
    let mut victim = Victim::start_command(command.arg("begins_with_push"), &copy);
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    let id = session.probe(&copy, &function, 0);
    fs::remove_file(&copy).expect("ours");
    victim.call(10);
    assert_eq!(session.counters(id).recorded, 10);
    drop(victim);
    assert_ne!(room(), before, "the probe does not hold it");
    drop(session);
    assert_eq!(module.references(), 0);
    let gone = within(SOON, || room() == before);
    assert!(gone, "{:?} free of {before:?}", room());
}

test! { core, attach_and_detach_under_fire, module, cpus = 2 }
fn attach_and_detach_under_fire() {
    let _module = Module::load();
    let mut threads = Victim::start("many_threads", &["4", "1000000000000"]);
    let function = threads.function("in_thread");
    threads.begin(0);
    let session = Session::with_rings(RING_BYTES);
    let enough = 400 / figures::parts(10);
    let mut rounds = 0;
    let mut hits = 0;
    while rounds < enough || hits <= 1000 {
        let flags = [0, abi::PROBE_AT_ENTRY, abi::PROBE_COPIES, abi::PROBE_LATE];
        let probe = |more| session.probe(threads.file(), &function, abi::PROBE_STACK | more);
        let ids = flags.map(probe);
        std::thread::sleep(Duration::from_millis(2));
        session.detach(&ids).expect("they are attached");
        let counters: Vec<_> = ids.iter().map(|&id| session.counters(id)).collect();
        std::thread::sleep(Duration::from_millis(1));
        for (&id, before) in ids.iter().zip(&counters) {
            let after = session.counters(id);
            assert_eq!(after.hits, before.hits, "a hit behind DETACH");
            hits += after.hits;
        }
        rounds += 1;
    }
    println!("{rounds} rounds, {hits} hits");
    assert!(threads.text_is_restored(function.offset));
}
