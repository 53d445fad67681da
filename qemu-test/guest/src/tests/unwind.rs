// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: stacks are whole without frame pointers, from the first hit on; and rows that
//! are wrong do no harm.

use super::tests;
use crate::command::{self, nsprobe, Output, Running};
use crate::module::Module;
use crate::session::{errno, probe_at, size, Session, RING_BYTES};
use crate::stack::{self, Stack};
use crate::sys;
use crate::victim::{self, Victim};
use nix::libc;
use nsprobe_common::abi::{self, Unwind};
use nsprobe_common::record::StackEnd;
use nsprobe_common::unwind::{row, Base, Defect, Rule, Saved};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

tests![
    frames_of_all_kinds_are_followed,
    first_stacks_through_new_files_are_whole: 180,
    frame_pointers_lead_where_a_file_says_little,
    sframe_leads_where_there_is_nothing_else,
    rows_are_compiled_once_and_a_forged_entry_changes_nothing,
    wrong_rows_are_refused_and_change_nothing,
    rows_are_for_the_file_as_it_is,
    rows_that_lie_end_the_stack: 120,
    copies_are_bounded_and_end_with_the_rows,
    many_rows_are_bounded: 120,
];

/// The stacks that a command line prints.
pub(super) fn stacks(words: &[&str]) -> (Vec<Stack>, Output) {
    let got = command::run(words).succeeded();
    (stack::all(&got), got)
}

fn frames_of_all_kinds_are_followed() {
    let _module = Module::load();
    let path = victim::path("no_frame_pointers");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:leaf");
    let outer = &["chosen", "main", "_start"][..];
    for (how, inner, outer) in [
        ("plain", &[][..], outer),
        ("vla", &["with_vla"], outer),
        ("aligned", &["with_alignment", "with_both"], outer),
        ("sort", &["compare", "with_sort"], outer),
        ("signal", &["on_signal", "with_signal"], outer),
        ("thread", &["in_thread"], &[]),
        ("vfork", &["with_vfork"], outer),
        ("context", &["coroutine"], &[]),
    ] {
        let words = [
            "trace",
            "--json",
            "--stack",
            "--children",
            &spec,
            "--",
            path,
            how,
            "3",
        ];
        let (stacks, got) = stacks(&words);
        assert!(stacks.len() >= 3, "{how}: {got:#?}");
        let wanted = [&["leaf", "plain"], inner, outer].concat();
        for Stack { frames, end } in &stacks {
            let own = frames.iter().filter(|frame| frame.path == path);
            let names: Vec<&str> = own.map(|frame| frame.name.as_str()).collect();
            assert_eq!(names, wanted, "{how}: {frames:#?}");
            // Nothing says of the C library's first code on a new stack how it is left.
            let wanted = if how == "context" {
                "no-row"
            } else {
                "outermost"
            };
            assert_eq!(end, wanted, "{how}: {frames:#?}");
            let by_rows = frames
                .iter()
                .skip(1)
                .all(|frame| ["unwind-row", "signal"].contains(&frame.how.as_str()));
            assert!(by_rows, "{how}: {frames:#?}");
        }
        let signals = stacks.iter().flat_map(|stack| &stack.frames);
        let signals = signals.filter(|frame| frame.how == "signal").count();
        assert_eq!(
            signals,
            if how == "signal" { stacks.len() } else { 0 },
            "{how}"
        );
    }
    // By frame pointers alone nothing of it is seen.
    let words = [
        "trace",
        "--json",
        "--stack",
        "--frame-pointers",
        &spec,
        "--",
        path,
        "vla",
        "3",
    ];
    let (stacks, _) = self::stacks(&words);
    assert!(stacks
        .iter()
        .all(|stack| stack.frames.len() < 5 || stack.end != "outermost"));
}

/// Two hundred programs that nobody has seen before, each of which makes one call and ends
/// at once: the C library is known, the program is not.
fn first_stacks_through_new_files_are_whole() {
    const PROGRAMS: usize = 200;
    let _module = Module::load();
    let folder = format!("/var/tmp/fresh-{}", std::process::id());
    fs::create_dir(&folder).expect("/var/tmp is writable");
    let words = [
        "trace",
        "--json",
        "--stack",
        "--comm",
        "fresh",
        "libc.so.6:write",
    ];
    let mut trace = Running::start(&words);
    // It traces once its own first line could be seen: the first program shows that.
    let program = |number: usize| {
        let place = format!("{folder}/{number}");
        fs::create_dir(&place).expect("it is new");
        let path = format!("{place}/fresh");
        fs::copy(victim::path("no_frame_pointers"), &path).expect("writable");
        let ran = Command::new(&path).args(["write", "1"]).output();
        assert!(ran.expect("it runs").status.success());
        fs::remove_dir_all(&place).expect("it is ours");
    };
    let mut first = 0;
    while trace.next_line(Duration::from_millis(100)).is_none() {
        program(first);
        first += 1;
        assert!(first < 100, "nothing is traced");
    }
    (first..first + PROGRAMS).for_each(program);
    std::thread::sleep(Duration::from_millis(500));
    let (code, lines, errors) = trace.finish();
    println!("{errors}");
    assert_eq!(code, Some(0));
    let _ = fs::remove_dir_all(&folder);
    let hits = lines
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut whole = BTreeSet::new();
    for hit in hits.filter(|line| line["type"] == "hit") {
        let Stack { frames, end } = Stack::of(&hit);
        assert_eq!(end, "outermost", "{frames:#?}");
        let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(names.last(), Some(&"_start"), "{frames:#?}");
        // The other call is that of the C library itself at the end.
        if names[1..4] == ["with_write", "chosen", "main"] {
            let number = frames[1].path.split('/').rev().nth(1).map(str::parse);
            let number: usize = number.and_then(Result::ok).expect("a number");
            assert!(whole.insert(number), "program {number} twice");
        }
    }
    let missing = (first..first + PROGRAMS).filter(|number| !whole.contains(number));
    assert_eq!(missing.collect::<Vec<_>>(), [0usize; 0]);
    assert!(errors.contains("finished from copies"), "{errors}");
}

fn frame_pointers_lead_where_a_file_says_little() {
    let _module = Module::load();
    let path = victim::path("few_rows");
    let bare = format!("/var/tmp/few-rows-{}", std::process::id());
    let mut objcopy = Command::new("objcopy");
    let made = objcopy
        .args(["-R", ".debug_frame"])
        .arg(&path)
        .arg(&bare)
        .status();
    assert!(made.expect("binutils is in the guest").success());
    // The debug information tells of all frames; without it, what keeps a frame pointer.
    for (path, how) in [
        (path.to_str().expect("a plain name"), "unwind-row"),
        (&bare, "frame-pointer"),
    ] {
        let spec = format!("{path}:few_leaf");
        let (stacks, got) = stacks(&["trace", "--json", "--stack", &spec, "--", path, "3"]);
        assert_eq!(stacks.len(), 3, "{got:#?}");
        for Stack { frames, end } in stacks {
            let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
            assert_eq!(
                names[..3],
                ["few_leaf", "few_middle", "main"],
                "{frames:#?}"
            );
            // The C library's own have rows in any case.
            assert_eq!(frames.last().map(|last| last.name.as_str()), Some("_start"));
            assert_eq!((frames[2].how.as_str(), end.as_str()), (how, "outermost"));
        }
    }
    let _ = fs::remove_file(&bare);
}

fn sframe_leads_where_there_is_nothing_else() {
    let _module = Module::load();
    let path = victim::path("only_sframe");
    let bare = format!("/var/tmp/only-sframe-{}", std::process::id());
    let mut objcopy = Command::new("objcopy");
    let removed = ["-R", ".eh_frame", "-R", ".eh_frame_hdr"];
    let made = objcopy.args(removed).arg(&path).arg(&bare).status();
    assert!(made.expect("binutils is in the guest").success());
    let spec = format!("{bare}:sframe_leaf");
    let (stacks, got) = stacks(&["trace", "--json", "--stack", &spec, "--", &bare, "3"]);
    assert_eq!(stacks.len(), 3, "{got:#?}");
    for Stack { frames, .. } in stacks {
        let own = frames.iter().filter(|frame| frame.path == bare);
        let names: Vec<&str> = own.map(|frame| frame.name.as_str()).collect();
        let wanted = ["sframe_leaf", "sframe_plain", "sframe_with_vla", "main"];
        // The start-up code is not from that assembler.
        assert_eq!(names, [&wanted[..], &["_start"]].concat(), "{frames:#?}");
        let by_rows = frames.iter().skip(1).all(|frame| frame.how == "unwind-row");
        assert!(by_rows, "{frames:#?}");
    }
    let _ = fs::remove_file(&bare);
}

/// What is in the cache is used, when it is right and nobody else could write it.
fn rows_are_compiled_once_and_a_forged_entry_changes_nothing() {
    let _module = Module::load();
    let path = victim::path("no_frame_pointers");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:leaf");
    let folder = format!("/var/tmp/rows-{}", std::process::id());
    let run = |more: &[&str]| {
        let words = ["trace", "--json", "--stack"].iter().chain(more);
        let rest = [&spec, "--", path, "plain", "3"];
        let words: Vec<&str> = words.copied().chain(rest).collect();
        let got = command::output(nsprobe(&words).env("NSPROBE_CACHE", &folder)).succeeded();
        let hits = got.lines().filter(|line| line.contains("\"type\":\"hit\""));
        let whole = hits.filter(|line| line.contains("\"stack_end\":\"outermost\""));
        assert_eq!(whole.count(), 3, "{got:#?}");
        got.stderr
    };
    let entries = || -> Vec<_> {
        let found = fs::read_dir(&folder).into_iter().flatten();
        found.map(|entry| entry.expect("readable").path()).collect()
    };
    assert!(!run(&["--no-cache"]).contains("from the cache"));
    assert!(!Path::new(&folder).exists());
    assert!(!run(&[]).contains("from the cache"));
    assert!(!entries().is_empty(), "the C library is large enough");
    let errors = run(&[]);
    assert!(errors.contains("from the cache"), "{errors}");
    for entry in entries() {
        let mut bytes = fs::read(&entry).expect("it is ours");
        let last = bytes.last_mut().expect("an entry has bytes");
        *last ^= 1;
        fs::write(&entry, bytes).expect("it is ours");
    }
    assert!(!run(&[]).contains("from the cache"));
    assert!(run(&[]).contains("from the cache"), "written anew");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let errors = run(&[]);
    assert!(errors.contains("can be written to by others"), "{errors}");
    assert!(!errors.contains("from the cache"), "{errors}");
    fs::remove_dir_all(&folder).expect("it is ours");
}

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
    none.flags = abi::UNWIND_VDSO << 1;
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
        let records = crate::records::Records::of(&session);
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
            for (hit, frames) in crate::records::Records::of(&session).hits {
                assert!(StackEnd::from_u8(hit.stack_end).is_some(), "{lie:?}");
                assert!(
                    (1..=abi::FRAMES_MAX as usize).contains(&frames.len()),
                    "{lie:?}"
                );
                for frame in &frames {
                    if let nsprobe_common::record::Frame::Address { address, .. } = frame {
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

fn copies_are_bounded_and_end_with_the_rows() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let place = victim.function("begins_with_push");
    let flags = abi::PROBE_STACK | abi::PROBE_COPIES;
    let session = Session::with_rings(16 << 20);
    session.only(&[victim.pid()]).expect("it lives");
    let id = session.probe(victim.file(), &place, flags);
    let of = |calls: u64, victim: &mut Victim| {
        victim.call(calls);
        let records = crate::records::Records::of(&session);
        assert_eq!(records.hits.len() as u64, calls);
        let copied = records.hits.iter().filter(|(hit, _)| {
            let is_copied = hit.stack_end == StackEnd::Copied as u8;
            assert!(
                is_copied
                    == records
                        .copies
                        .iter()
                        .any(|copy| copy.time_ns == hit.time_ns)
            );
            is_copied
        });
        copied.count() as u64
    };
    // Nobody gives rows: so many are copied for each file of the stack, and no more.
    let max = u64::from(abi::OBJECT_COPIES_MAX);
    assert_eq!(of(1, &mut victim), 1);
    let copied: u64 = (0..20).map(|_| of(100, &mut victim)).sum();
    println!("{copied} copies");
    assert!(copied >= max - 1 && copied < 4 * max, "{copied}");
    assert_eq!(of(100, &mut victim), 0);
    assert_eq!(session.counters(id).lost_full, 0);
    drop(session);
    // At a function's entry the caller is in the hit, and the copy begins there.
    let session = Session::with_rings(16 << 20);
    session.probe(victim.file(), &place, flags | abi::PROBE_AT_ENTRY);
    victim.call(1);
    let records = crate::records::Records::of(&session);
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
    let records = crate::records::Records::of(&session);
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
