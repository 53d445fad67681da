// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: unwind rows are checked, bounded, used for the very file and session that they
//! were given for, and gone when nobody needs them; wrong ones do no harm.

use super::build_ids::CODE;
use super::capsule::Folder;
use crate::command::Running;
use crate::held::{Place, Stage};
use crate::module::Module;
use crate::processes::code_of;
use crate::records::Records;
use crate::session::{errno, probe_at, size, Session, PAGE, RING_BYTES};
use crate::stack::Stack;
use crate::sys;
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nix::libc;
use nsprobe_common::abi::{self, Unwind};
use nsprobe_common::record::{Frame, Method, StackEnd};
use nsprobe_common::unwind::{row, Base, Defect, Rule, Saved, BLOCK_BITS};
use serde_json::Value;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A file of a victim, and a session.
fn prepared() -> (Session, File) {
    let session = Session::with_rings(RING_BYTES);
    let file = File::open(victim::path("no_frame_pointers")).expect("the victim is there");
    (session, file)
}

fn rule(base: Base, offset: i32) -> Rule {
    Rule {
        base: base as u8,
        offset,
        ..Rule::default()
    }
}

/// Gives rows; the defect that is told.
fn give(
    session: &Session,
    fd: i32,
    blocks: &[u32],
    rows: &[u32],
    rules: &[Rule],
) -> (Result<i64, std::io::Error>, u32) {
    let mut unwind = Unwind {
        size: size::<Unwind>(),
        fd,
        blocks: blocks.as_ptr() as u64,
        block_count: blocks.len() as u32,
        rows: rows.as_ptr() as u64,
        row_count: rows.len() as u32,
        rules: rules.as_ptr() as u64,
        rule_count: rules.len() as u32,
        ..Unwind::default()
    };
    let given = sys::ioctl(session, abi::UNWIND, &mut unwind);
    (given, unwind.defect)
}

test! { core, wrong_rows_are_refused_and_change_nothing }
fn wrong_rows_are_refused_and_change_nothing() {
    let _module = Module::load();
    let (session, file) = prepared();
    let good = [rule(Base::Rsp, 8)];
    let fd = file.as_raw_fd();
    for (blocks, rows, rules, defect) in [
        (
            &[0, 2][..],
            &[row(0, 0), row(0, 0)][..],
            &good[..],
            Defect::Unsorted,
        ),
        (&[0, 2], &[row(0, 0), row(9, 1)], &good, Defect::NoRule),
        (&[0, 1], &[row(1, 0)], &good, Defect::NoFirstRow),
        (&[0, 2], &[row(0, 0)], &good, Defect::Blocks),
        (&[0], &[row(0, 0)], &good, Defect::Empty),
        (
            &[0, 1],
            &[row(0, 0)],
            &[Rule {
                base: 77,
                ..good[0]
            }],
            Defect::BadRule,
        ),
    ] {
        let (given, told) = give(&session, fd, blocks, rows, rules);
        assert_eq!(errno(given, "UNWIND"), libc::EINVAL, "{defect:?}");
        assert_eq!(told, defect as u32);
    }
    let sound = |fd| give(&session, fd, &[0, 1], &[row(0, 0)], &good).0;
    assert_eq!(errno(sound(-1), "no descriptor"), libc::EBADF);
    let null = File::open("/dev/null").expect("it is there");
    assert_eq!(errno(sound(null.as_raw_fd()), "a device"), libc::EINVAL);
    let (none, _) = give(&session, fd, &[], &[], &[]);
    assert_eq!(errno(none, "nothing"), libc::EINVAL);
    let mut none = Unwind {
        size: size::<Unwind>(),
        flags: abi::UNWIND_NONE,
        fd,
        row_count: 1,
        ..Unwind::default()
    };
    let given = sys::ioctl(&session, abi::UNWIND, &mut none);
    assert_eq!(errno(given, "none, but one"), libc::EINVAL);
    none.flags = abi::UNWIND_DROP << 1;
    let given = sys::ioctl(&session, abi::UNWIND, &mut none);
    assert_eq!(errno(given, "an unknown flag"), libc::EINVAL);
    let mut unmapped = Unwind {
        size: size::<Unwind>(),
        fd,
        blocks: 8,
        block_count: 2,
        rows: u64::MAX - 4,
        row_count: 1,
        rules: 1 << 47,
        rule_count: 1,
        ..Unwind::default()
    };
    let given = sys::ioctl(&session, abi::UNWIND, &mut unmapped);
    assert_eq!(errno(given, "no memory there"), libc::EFAULT);
    sound(fd).expect("nothing of it is kept");
    assert_eq!(errno(sound(fd), "once more"), libc::EEXIST);
}

test! { full, rows_are_for_the_file_as_it_is }
/// Rows that lead astray: each step goes up by one word, whatever is there.
fn rows_are_for_the_file_as_it_is() {
    let _module = Module::load();
    let copy = format!("/var/tmp/unwind-{}", std::process::id());
    fs::copy(victim::path("call_in_loop"), &copy).expect("/var/tmp is writable");
    let path = Path::new(&copy);
    let start = || {
        let mut command = Command::new(path);
        Victim::start_command(command.args(["begins_with_push"]), path)
    };
    let mut victim = start();
    let place = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    let file = File::open(path).expect("it is there");
    let astray = [rule(Base::Outermost, 0)];
    let (given, _) = give(&session, file.as_raw_fd(), &[0, 1], &[row(0, 0)], &astray);
    given.expect("they are sound");
    session.probe(victim.file(), &place, abi::PROBE_STACK);
    victim.call(1);
    let ends = |count: usize| {
        let records = Records::of(&session);
        assert_eq!(records.hits.len(), count);
        let ends = records.hits.iter();
        ends.map(|(hit, frames)| (hit.stack_end, frames.len()))
            .collect::<Vec<_>>()
    };
    let outermost = StackEnd::Outermost as u8;
    assert_eq!(ends(1), [(outermost, 1)]);
    // Another file comes into its place: these rows are not its own.
    drop(victim);
    let again = format!("{copy}.new");
    fs::copy(victim::path("call_in_loop"), &again).expect("writable");
    fs::rename(&again, &copy).expect("writable");
    let mut victim = start();
    session.probe(
        victim.file(),
        &place,
        abi::PROBE_STACK | abi::PROBE_AT_ENTRY,
    );
    victim.call(1);
    let ends = ends(1);
    assert!(ends[0].1 > 1, "{ends:?}");
    drop(victim);
    let _ = fs::remove_file(&copy);
}

test! { full, rows_of_a_block_hold_from_its_first_byte_on }
/// By the block before, its first instruction would have no caller.
fn rows_of_a_block_hold_from_its_first_byte_on() {
    const BLOCK: usize = 1 << BLOCK_BITS;
    let _module = Module::load();
    let folder = Folder::new("blocks");
    let path = folder.path("file");
    let mut bytes = vec![0; BLOCK + PAGE];
    bytes[BLOCK..][..CODE.len()].copy_from_slice(&CODE);
    fs::write(&path, bytes).expect("there is room");
    let mut victim = Victim::start("through_file", &[&path, &BLOCK.to_string()]);
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    let file = File::open(&path).expect("it is there");
    let rules = [rule(Base::Outermost, 0), rule(Base::Rsp, 8)];
    let (blocks, rows) = ([0, 1, 2], [row(0, 0), row(0, 1)]);
    let (given, _) = give(&session, file.as_raw_fd(), &blocks, &rows, &rules);
    given.expect("they are sound");
    let probe = probe_at(BLOCK as u64, abi::PROBE_STACK);
    session.attach(Path::new(&path), probe).expect("a probe");
    victim.call(1);
    let hits = Records::of(&session).hits;
    assert!(hits.len() == 1 && hits[0].1.len() > 1, "{hits:?}");
}

test! { full, a_row_may_lead_by_a_word_and_a_constant }
/// As those of realigned frames do; here to every other caller of a chain of frame pointers.
fn a_row_may_lead_by_a_word_and_a_constant() {
    let _module = Module::load();
    let mut victim = Victim::start("chain", &[]);
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    let file = File::open(victim.file()).expect("it is there");
    let every_other = Rule {
        more: 16,
        saved: Saved::AtFrame as u8,
        saved_at: -16,
        ..rule(Base::AtRbp, 0)
    };
    let (given, _) = give(
        &session,
        file.as_raw_fd(),
        &[0, 1],
        &[row(0, 0)],
        &[every_other],
    );
    given.expect("they are sound");
    session.probe(victim.file(), &victim.function("bottom"), abi::PROBE_STACK);
    victim.call(1);
    let hits = Records::of(&session).hits;
    let frames = &hits[0].1;
    for (frame, name) in frames[1..].iter().zip(["level_13", "level_11", "level_09"]) {
        let function = victim.function(name);
        let inside = function.offset..function.offset + function.bytes;
        let is_there = matches!(frame, Frame::Object { offset, .. } if inside.contains(offset));
        assert!(is_there, "{name}: {frames:?}");
    }
    assert!(frames.len() > 3, "{frames:?}");
}

test! { full, the_frame_limit_is_kept_and_told_by_rows }
/// Each call has another path, so that its stack is found by rows that are kept, and not by the
/// stack before.
fn the_frame_limit_is_kept_and_told_by_rows() {
    const CALLS: usize = 100;
    const LIMITS: [u32; 4] = [1, 2, 5, 16];
    let _module = Module::load();
    let mut victim = Victim::start("many_stacks", &["16"]);
    let place = victim.function("end_of_path").offset;
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    let file = File::open(victim.file()).expect("it is there");
    let by_rbp = Rule {
        saved: Saved::AtFrame as u8,
        saved_at: -16,
        ..rule(Base::Rbp, 16)
    };
    let (given, _) = give(&session, file.as_raw_fd(), &[0, 1], &[row(0, 0)], &[by_rbp]);
    given.expect("they are sound");
    let limits = LIMITS.map(|max_frames| {
        let probe = abi::Probe {
            max_frames,
            ..probe_at(place, abi::PROBE_STACK | abi::PROBE_AT_ENTRY)
        };
        let id = session.attach(victim.file(), probe).expect("a probe");
        (id, max_frames)
    });
    victim.call(CALLS as u64);
    let records = Records::of(&session);
    assert_eq!(records.hits.len(), CALLS * LIMITS.len());
    for (id, max_frames) in limits {
        for (hit, frames) in records.hits_of(id) {
            assert_eq!(frames.len(), max_frames as usize, "{hit:?}");
            let end = StackEnd::from_u8(hit.stack_end);
            assert_eq!(end, Some(StackEnd::Limit), "{hit:?}");
            let by_rows = frames.iter().skip(2).all(|frame| {
                matches!(frame, Frame::Object { method, .. } if *method == Method::Row as u8)
            });
            assert!(by_rows, "{frames:?}");
        }
    }
}

test! { core, rows_that_lie_end_the_stack, seconds = 120 }
/// Sound rows that say wrong things, on a program whose registers are wild: each walk
/// ends, within bounds, and shows nothing of the kernel's.
fn rows_that_lie_end_the_stack() {
    let _module = Module::load();
    let mut victim = Victim::start("wild_frame_pointer", &[]);
    let place = victim.function("with_wild_frame_pointer");
    let file = File::open(victim.file()).expect("it is there");
    let bases = [
        Base::Unknown,
        Base::Outermost,
        Base::Unsupported,
        Base::Rsp,
        Base::Rbp,
        Base::AtRsp,
        Base::AtRbp,
        Base::Register,
        Base::Linkage,
        Base::Signal,
    ];
    let offsets = [0, 8, 16, -8, 4096, i32::MAX];
    let saved = [
        (Saved::Same, 0),
        (Saved::AtFrame, -16),
        (Saved::AtFrame, i32::MIN),
        (Saved::AtRbp, 0),
        (Saved::Lost, 0),
    ];
    let (mut called, mut walked) = (0, 0);
    for base in bases {
        for (offset, (saved, saved_at)) in offsets
            .iter()
            .flat_map(|offset| saved.map(|saved| (offset, saved)))
        {
            let lie = Rule {
                saved: saved as u8,
                saved_at,
                more: match base {
                    Base::AtRsp | Base::AtRbp => i16::MIN,
                    Base::Register => 6,
                    Base::Linkage => 7,
                    _ => 0,
                },
                ..rule(base, *offset)
            };
            let session = Session::with_rings(1 << 20);
            let (given, _) = give(&session, file.as_raw_fd(), &[0, 1], &[row(0, 0)], &[lie]);
            given.unwrap_or_else(|error| panic!("{lie:?}: {error}"));
            let id = session.probe(victim.file(), &place, abi::PROBE_STACK);
            let calls = victim.call(1) - called;
            called += calls;
            let counters = session.counters(id);
            assert_eq!(
                (counters.hits, counters.recorded),
                (calls, calls),
                "{lie:?}"
            );
            for (hit, frames) in Records::of(&session).hits {
                assert!(StackEnd::from_u8(hit.stack_end).is_some(), "{lie:?}");
                assert!(
                    (1..=abi::FRAMES_MAX as usize).contains(&frames.len()),
                    "{lie:?}"
                );
                for frame in &frames {
                    if let Frame::Address { address, .. } = frame {
                        assert!(*address < 1 << 47, "{lie:?}: {address:#x}");
                    }
                }
                walked += frames.len() as u64;
            }
        }
    }
    println!("{called} hits, {walked} frames");
    assert!(called > 1000 && walked > called + 100, "{called}, {walked}");
}

test! { full, copies_have_the_addresses_that_pending_returns_hide }
fn copies_have_the_addresses_that_pending_returns_hide() {
    let _module = Module::load();
    let mut victim = Victim::start("chain", &[]);
    let [bottom, caller] = ["bottom", "level_07"].map(|name| victim.function(name));
    // The words of a copy that are addresses of the victim's text: its return addresses.
    let name = victim.file().display().to_string();
    let mut code = code_of(victim.pid()).into_iter();
    let text = code.find(|code| code.path == name).expect("it has text");
    let mut copied = || {
        let session = Session::with_rings(16 << 20);
        session.only(&[victim.pid()]).expect("it lives");
        let flags = abi::PROBE_STACK | abi::PROBE_COPIES;
        session.probe(victim.file(), &bottom, flags);
        victim.call(1);
        let records = Records::of(&session);
        let [(_, words)] = records.copies.as_slice() else {
            panic!("{} copies", records.copies.len());
        };
        let addresses = words.iter().copied();
        let addresses = addresses.filter(|word| text.addresses.contains(word));
        addresses.collect::<Vec<_>>()
    };
    let plain = copied();
    assert!(plain.len() >= 17, "{plain:x?}");
    let pending = Witness::of_return(&victim::path("chain"), caller.offset);
    assert_eq!(copied(), plain);
    assert_eq!(pending.hits(), 1);
}

test! { full, copies_go_on_until_there_are_rows }
fn copies_go_on_until_there_are_rows() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let place = victim.function("begins_with_push");
    let flags = abi::PROBE_STACK | abi::PROBE_COPIES;
    let session = Session::with_rings(16 << 20);
    session.only(&[victim.pid()]).expect("it lives");
    let id = session.probe(victim.file(), &place, flags);
    let of = |calls: u64, victim: &mut Victim| {
        victim.call(calls);
        let records = Records::of(&session);
        assert_eq!(records.hits.len() as u64, calls);
        let copied = records.hits.iter().filter(|(hit, _)| {
            let is_copied = hit.stack_end == StackEnd::Copied as u8;
            let mut copies = records.copies.iter();
            assert_eq!(
                is_copied,
                copies.any(|(copy, _)| copy.time_ns == hit.time_ns)
            );
            is_copied
        });
        copied.count() as u64
    };
    // Nobody gives rows: stacks are copied as long as they are missing.
    assert_eq!(of(1000, &mut victim), 1000);
    assert_eq!(session.counters(id).lost_full, 0);
    drop(session);
    // At a function's entry the caller is in the hit, and the copy begins there.
    let session = Session::with_rings(16 << 20);
    session.probe(victim.file(), &place, flags | abi::PROBE_AT_ENTRY);
    victim.call(1);
    let records = Records::of(&session);
    let (hit, frames) = &records.hits[0];
    assert_eq!((hit.stack_end, frames.len()), (StackEnd::Copied as u8, 2));
    // A file that has none is not where copies begin: its frames are there.
    let session = Session::with_rings(16 << 20);
    let file = File::open(victim.file()).expect("it is there");
    let mut none = Unwind {
        size: size::<Unwind>(),
        flags: abi::UNWIND_NONE,
        fd: file.as_raw_fd(),
        ..Unwind::default()
    };
    sys::ioctl(&session, abi::UNWIND, &mut none).expect("it is a file");
    session.probe(victim.file(), &place, flags | abi::PROBE_AT_ENTRY);
    victim.call(10);
    let records = Records::of(&session);
    assert_eq!(records.hits.len(), 10);
    assert!(records.hits.iter().all(|(_, frames)| frames.len() >= 2));
    // A ring that has no room for a copy loses no hit by it.
    let small = Session::with_rings(4096);
    let id = small.probe(victim.file(), &place, flags);
    victim.call(10);
    let counters = small.counters(id);
    assert_eq!((counters.recorded, counters.lost_full), (10, 0));
    // What cannot be: copies without a stack, or into a table.
    for wrong in [
        abi::Probe {
            sink: abi::SINK_COUNT,
            ..probe_at(place.offset, flags)
        },
        probe_at(place.offset, abi::PROBE_COPIES),
    ] {
        let refused = small
            .attach(victim.file(), wrong)
            .map_err(|(error, _)| error);
        assert_eq!(errno(refused, "a wrong probe"), libc::EINVAL);
    }
}

test! { full, many_rows_are_bounded, seconds = 120 }
/// The greatest tables, until there is no room: it ends with an error, and another
/// session does not notice.
fn many_rows_are_bounded() {
    let _module = Module::load();
    let (session, _) = prepared();
    let rules = [rule(Base::Rsp, 8)];
    // 32 MB of rows: each block full.
    let block: Vec<u32> = (0..=u16::MAX).map(|offset| row(offset, 0)).collect();
    let rows: Vec<u32> = block
        .iter()
        .cycle()
        .take(block.len() << 7)
        .copied()
        .collect();
    let blocks: Vec<u32> = (0..=1u32 << 7).map(|block| block << 16).collect();
    let path = |number: u32| format!("/var/tmp/rows-{}-{number}", std::process::id());
    let mut given = 0;
    let refused = loop {
        assert!(given < 64, "there is no bound");
        fs::write(path(given), "anything").expect("/var/tmp is writable");
        let file = File::open(path(given)).expect("it is there");
        match give(&session, file.as_raw_fd(), &blocks, &rows, &rules).0 {
            Ok(_) => given += 1,
            Err(error) => break errno(Err::<i64, _>(error), "too much"),
        }
    };
    println!("{given} tables of {} bytes", rows.len() * 4);
    assert_eq!((refused, given), (libc::ENOSPC, 15));
    let (other, file) = prepared();
    let (small, _) = give(&other, file.as_raw_fd(), &[0, 1], &[row(0, 0)], &rules);
    small.expect("another session has its own");
    for number in 0..=given {
        let _ = fs::remove_file(path(number));
    }
}

/// The bytes of rows that a request to drop them has dropped.
fn drop_unused(session: &Session, unused: Duration) -> u64 {
    let mut unwind = Unwind {
        size: size::<Unwind>(),
        flags: abi::UNWIND_DROP,
        first: unused.as_nanos() as u64,
        ..Unwind::default()
    };
    sys::ioctl(session, abi::UNWIND, &mut unwind).expect("it may be asked for");
    unwind.bytes
}

test! { core, rows_stay_until_no_stack_goes_by_them, module, cpus = 2 }
/// The task is held in the midst of its stack, where a frame that a row has led to is not there.
fn rows_stay_until_no_stack_goes_by_them() {
    let _module = Module::load();
    let mut victim = Victim::start("wild_frame_pointer", &[]);
    let place = victim.function("with_wild_frame_pointer");
    // The buffer that it reads its orders into is there from here on.
    victim.call(1);
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    let file = File::open(victim.file()).expect("it is there");
    let rules = [rule(Base::Rbp, 16)];
    let (given, _) = give(&session, file.as_raw_fd(), &[0, 1], &[row(0, 0)], &rules);
    given.expect("they are sound");
    session.probe(victim.file(), &place, abi::PROBE_STACK);
    let stage = Stage::new();
    let held = stage.hold(&victim, &Place::Tracepoint("exceptions/page_fault_kernel"));
    victim.begin(1);
    held.wait();
    held.keeps_waiting(|| assert!(drop_unused(&session, Duration::ZERO) > 0));
    victim.finish();
}

test! { full, rows_of_no_use_are_dropped_and_come_again }
fn rows_of_no_use_are_dropped_and_come_again() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let place = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    let file = File::open(victim.file()).expect("it is there");
    let ino = file.metadata().expect("it is open").ino();
    let outermost = [rule(Base::Outermost, 0)];
    let give_rows = || {
        give(
            &session,
            file.as_raw_fd(),
            &[0, 1],
            &[row(0, 0)],
            &outermost,
        )
        .0
    };
    give_rows().expect("they are sound");
    session.only(&[victim.pid()]).expect("it lives");
    let flags = abi::PROBE_STACK | abi::PROBE_COPIES;
    let id = session.probe(victim.file(), &place, flags);
    let mut ends = |announced: usize| {
        victim.call(1);
        let records = Records::of(&session);
        let objects = records.objects.values();
        let own = objects.filter(|object| object.identity.ino == ino).count();
        assert_eq!((records.hits.len(), own), (1, announced));
        records.hits[0].0.stack_end
    };
    let (whole, copied) = (StackEnd::Outermost as u8, StackEnd::Copied as u8);
    // With rows each stack ends as these say; the object is announced once.
    assert_eq!([ends(1), ends(0)], [whole; 2]);
    assert_eq!(drop_unused(&session, Duration::from_secs(3600)), 0);
    assert_eq!(ends(0), whole);
    // What a handler has kept of them is not asked for long.
    std::thread::sleep(Duration::from_millis(200));
    let bytes = 4 * 3 + 16;
    assert_eq!(drop_unused(&session, Duration::from_millis(100)), bytes);
    assert_eq!(drop_unused(&session, Duration::ZERO), 0);
    // Without any, what is needed to go on is copied, and who gives rows is told of the file.
    assert_eq!([ends(1), ends(0)], [copied; 2]);
    give_rows().expect("the file has none");
    assert_eq!(ends(0), whole);
    // While they are in use, none are dropped.
    let started = std::time::Instant::now();
    while started.elapsed() < Duration::from_secs(4) {
        assert_eq!(ends(0), whole);
        assert_eq!(drop_unused(&session, Duration::from_secs(3)), 0);
    }
    let counters = session.counters(id);
    assert_eq!(counters.hits, counters.recorded);
    // What is said beside that is refused.
    for wrong in [
        Unwind {
            fd: 1,
            ..Unwind::default()
        },
        Unwind {
            row_count: 1,
            ..Unwind::default()
        },
        Unwind {
            bytes: 1,
            ..Unwind::default()
        },
        Unwind {
            flags: abi::UNWIND_NONE,
            ..Unwind::default()
        },
    ] {
        let mut wrong = Unwind {
            size: size::<Unwind>(),
            flags: wrong.flags | abi::UNWIND_DROP,
            ..wrong
        };
        let refused = sys::ioctl(&session, abi::UNWIND, &mut wrong);
        assert_eq!(errno(refused, "drop, and more"), libc::EINVAL);
    }
}

test! { full, a_trace_keeps_the_rows_that_it_needs, seconds = 120 }
/// A program without frame pointers that calls for some time, then rests, then calls again.
fn a_trace_keeps_the_rows_that_it_needs() {
    let _module = Module::load();
    let path = victim::path("no_frame_pointers");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:leaf");
    let trace = ["trace", "--json", "--stack", "--keep-rows", "1", &spec];
    let mut trace = Running::start(&trace);
    let call = || {
        let ran = Command::new(path).args(["plain", "3"]).status();
        assert!(ran.expect("it runs").success());
    };
    while trace.next_line(Duration::from_millis(100)).is_none() {
        call();
    }
    std::thread::sleep(Duration::from_secs(4));
    call();
    std::thread::sleep(Duration::from_millis(500));
    call();
    std::thread::sleep(Duration::from_millis(500));
    let (code, lines, errors) = trace.finish();
    println!("{errors}");
    assert_eq!(code, Some(0));
    let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line));
    let lines: Vec<Value> = lines.map(|line| line.expect("JSON")).collect();
    let hits = lines.iter().filter(|line| line["type"] == "hit");
    for hit in hits {
        let stack = Stack::of(hit);
        assert_eq!(stack.end, "outermost", "{stack:?}");
        assert_eq!(stack.frames.last().expect("frames").name, "_start");
    }
    let stacks = &lines.last().expect("a summary")["stacks"];
    let count = |name: &str| stacks[name].as_u64().unwrap_or_else(|| panic!("{stacks}"));
    assert!(count("unwind_dropped_bytes") > 0, "{stacks}");
    assert!(count("finished_from_copies") > 0, "{stacks}");
    assert_eq!(count("cut"), 0, "{stacks}");
}
