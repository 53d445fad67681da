// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: whatever a program makes of its stack, its hits are handled in bounded time,
//! nothing of the kernel's is shown, and nobody else waits for it.

use crate::command::{self, Running};
use crate::figures;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::records::Records;
use crate::session::{probe_at, Session};
use crate::setting::Setting;
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nsprobe_common::abi::{self, Probe};
use nsprobe_common::record::{Frame, Frames, Hit, StackEnd};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Instant;

/// Stacks that the victim has.
const STACKS: u64 = 48;
/// How long another tool's detach may take.
/// The kernel's half of the addresses.
const KERNEL: u64 = 1 << 47;

/// The victim, with its file system that never answers.
struct Hostile {
    folder: String,
    victim: Victim,
    /// Compaction leaves locked memory where it is, which the victim's is: a page on its way to
    /// another place is not there, and its stack would be taken late.
    _unmoved: Setting,
}

impl Hostile {
    fn start() -> Hostile {
        let folder = format!("/var/tmp/mute-{}", std::process::id());
        fs::create_dir_all(&folder).expect("/var/tmp is writable");
        let loaded = Command::new("modprobe").arg("fuse").status();
        assert!(loaded.expect("kmod is in the guest").success());
        Hostile {
            _unmoved: Setting::new("/proc/sys/vm/compact_unevictable_allowed", "0"),
            victim: Victim::start("hostile_stacks", &[&folder]),
            folder,
        }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.victim.end();
        let _ = Command::new("umount").args(["-l", &self.folder]).status();
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Asserts that a frame is none of the kernel's.
fn assert_user(frame: &Frame) {
    if let Frame::Address { address, .. } = frame {
        assert!(*address < KERNEL, "{address:#x}");
    }
}

test! { core, forty_eight_hostile_stacks_end, module, cpus = 2, seconds = 240 }
fn forty_eight_hostile_stacks_end() {
    let _module = Module::load();
    let mut hostile = Hostile::start();
    let victim = &mut hostile.victim;
    let function = victim.function("target");
    let session = Session::with_rings(64 << 20);
    session.only(&[victim.pid()]).expect("it lives");
    let flags = abi::PROBE_STACK | abi::PROBE_AT_ENTRY;
    let id = session.probe(victim.file(), &function, flags | abi::PROBE_LATE);
    // The same without the entry's flag, for which the stack pointer does not matter, and
    // into a table.
    let other = session.probe(victim.file(), &function, abi::PROBE_STACK | abi::PROBE_LATE);
    let table = session.table(abi::Table {
        kind: abi::TABLE_SUMS,
        rows: 512,
        max_frames: abi::FRAMES_MAX,
        ..abi::Table::default()
    });
    let table = table.expect("it can be");
    let counted = Probe {
        sink: abi::SINK_TABLE,
        table: table.id,
        ..probe_at(function.offset, flags)
    };
    let counted = session.attach(victim.file(), counted).expect("a probe");
    let rounds = 1000 / figures::parts(10) as u64;
    // In the midst of its hits: a detach that waited for one of these pages would wait for ever.
    for _ in 0..7 {
        detach(|| victim.begin(10));
        victim.finish();
    }
    assert_eq!(victim.call(rounds - 70), STACKS * rounds);
    for probe in [id, other] {
        let counters = session.counters(probe);
        assert_eq!(
            (counters.recorded, counters.lost_full),
            (STACKS * rounds, 0)
        );
        assert!(counters.stacks_cut > 0);
    }
    let counters = session.counters(counted);
    let ends = (counters.aggregated, counters.turned_away);
    assert_eq!(ends, (STACKS * rounds, 0), "{counters:?}");
    let (rows, _) = session.rows(&table, 64);
    println!("{} rows of the table", rows.len());
    let counts = rows.iter().map(|row| row.head.count);
    assert_eq!(counts.sum::<u64>(), STACKS * rounds);
    for frame in rows.iter().flat_map(|row| Frames(&row.stack)) {
        assert_user(&frame);
    }
    let mut records = Records::of(&session);
    for (_, frames) in &records.hits {
        assert!((1..=abi::FRAMES_MAX as usize).contains(&frames.len()));
        frames.iter().for_each(assert_user);
    }
    // One thread: the order of time is that of its stacks.
    records.hits.sort_by_key(|(hit, _)| hit.time_ns);
    for (probe, more) in [(id, 1), (other, 0)] {
        let ends = records.hits_of(probe).map(|(hit, frames)| {
            let end = StackEnd::from_u8(hit.stack_end).expect("a reason");
            (format!("{end:?}"), frames.len())
        });
        check(&ends.collect::<Vec<_>>(), rounds, |number| {
            let (end, frames) = BY_FRAME_POINTERS[number];
            (end, frames + more)
        });
    }
    let is_late = |hit: &Hit| StackEnd::from_u8(hit.stack_end) == Some(StackEnd::Late);
    let late = records.hits.iter().filter(|(hit, _)| is_late(hit)).count();
    assert_eq!(records.late.len(), late);
}

/// Detaches another tool's probe elsewhere, once `first` is done.
fn detach(first: impl FnOnce()) {
    let elsewhere = victim::path("call_in_loop");
    let place = crate::binary::function(&elsewhere, "begins_with_push");
    let witness = Witness::new(&elsewhere, place.offset);
    first();
    drop(witness);
}

/// Why each of the victim's stacks ends, and how many frames it has, when they are followed by
/// frame pointers, and the first is not that of a function's entry; in the victim's order: one
/// that the frame pointer leads to, one that the stack pointer does. With the entry's there is
/// one frame more, the caller.
const BY_FRAME_POINTERS: [(&str, usize); STACKS as usize] = {
    const BAD: (&str, usize) = ("BadFramePointer", 1);
    const FAULT: (&str, usize) = ("Fault", 1);
    const NO_CODE: (&str, usize) = ("NotCode", 1);
    const CODE: (&str, usize) = ("NotCode", 2);
    const BACK: (&str, usize) = ("BadFramePointer", 2);
    // Memory that was never touched reads as zeroes once somebody waits for it.
    const END: (&str, usize) = ("Outermost", 1);
    [
        BAD,
        FAULT,
        BAD,
        FAULT,
        BAD,
        FAULT,
        BAD,
        CODE,
        BAD,
        FAULT,
        BAD,
        CODE,
        BAD,
        ("Late", 1),
        BAD,
        NO_CODE,
        BAD,
        FAULT,
        BAD,
        END,
        BAD,
        END,
        BAD,
        BACK,
        BAD,
        BAD,
        BAD,
        BACK,
        NO_CODE,
        NO_CODE,
        BAD,
        NO_CODE,
        BAD,
        NO_CODE,
        FAULT,
        NO_CODE,
        FAULT,
        NO_CODE,
        FAULT,
        NO_CODE,
        FAULT,
        NO_CODE,
        FAULT,
        NO_CODE,
        FAULT,
        NO_CODE,
        FAULT,
        NO_CODE,
    ]
};

/// The same when the rows of the victim's file are followed, from its entry on.
const BY_ROWS: [(&str, usize); STACKS as usize] = {
    const BAD: (&str, usize) = ("bad-row", 2);
    const FAULT: (&str, usize) = ("fault", 2);
    const NO_CODE: (&str, usize) = ("not-code", 2);
    const END: (&str, usize) = ("outermost", 2);
    [
        BAD,
        FAULT,
        BAD,
        FAULT,
        BAD,
        FAULT,
        BAD,
        FAULT,
        BAD,
        FAULT,
        BAD,
        FAULT,
        BAD,
        FAULT,
        BAD,
        ("fault", 3),
        BAD,
        FAULT,
        BAD,
        END,
        BAD,
        END,
        BAD,
        ("limit", 127),
        BAD,
        ("bad-row", 1),
        BAD,
        ("no-row", 3),
        NO_CODE,
        NO_CODE,
        BAD,
        NO_CODE,
        BAD,
        NO_CODE,
        FAULT,
        NO_CODE,
        FAULT,
        NO_CODE,
        FAULT,
        NO_CODE,
        FAULT,
        NO_CODE,
        FAULT,
        NO_CODE,
        FAULT,
        NO_CODE,
        BAD,
        NO_CODE,
    ]
};

/// The stack with memory that was never touched: its first hit has it brought.
const UNTOUCHED: usize = 19;

/// Asserts that each of the victim's stacks has ended as it should in each round.
fn check(ends: &[(String, usize)], rounds: u64, wanted: impl Fn(usize) -> (&'static str, usize)) {
    assert_eq!(ends.len() as u64, STACKS * rounds);
    let mut wrong = BTreeMap::<_, u64>::new();
    for (number, (end, frames)) in ends.iter().enumerate() {
        let (round, stack) = (number as u64 / STACKS, number % STACKS as usize);
        let is_brought = stack == UNTOUCHED && round == 0 && end == "Late";
        if (end.as_str(), *frames) != wanted(stack) && !is_brought {
            *wrong
                .entry((stack, wanted(stack), (end, *frames)))
                .or_default() += 1;
        }
    }
    assert!(wrong.is_empty(), "(stack, wanted, got): rounds: {wrong:#?}");
}

test! { full, hostile_stacks_end_by_rows_as_well, module, cpus = 2, seconds = 240 }
fn hostile_stacks_end_by_rows_as_well() {
    let _module = Module::load();
    let hostile = Hostile::start();
    let mut victim = hostile;
    let file = victim.victim.file().display().to_string();
    let pid = victim.victim.pid().to_string();
    let words = [
        "trace",
        "--json",
        "--stack",
        "-p",
        &pid,
        "--ring-size",
        "64M",
    ];
    let spec = format!("{file}:target");
    let mut trace = Running::start(&[&words[..], &[&spec]].concat());
    trace.attached(1);
    let mut called = 0;
    let mut calls = |rounds: u64| {
        called += STACKS * rounds;
        assert_eq!(victim.victim.call(rounds), called);
        let hits = (0..STACKS * rounds).map(|_| trace.wait_for("\"type\":\"hit\"", SOON));
        ends_of(hits)
    };
    // The rows may come after the first hits.
    let has_rows = within(SOON, || calls(1).iter().any(|(end, _)| end == "bad-row"));
    assert!(has_rows, "no stack goes by rows");
    const ROUNDS: u64 = 100;
    let begun = Instant::now();
    let ends = calls(ROUNDS);
    println!("{:?} for {STACKS} stacks x {ROUNDS}", begun.elapsed());
    let (code, _, errors) = trace.finish();
    assert_eq!(code, Some(0), "{errors}");
    check(&ends, ROUNDS, |number| BY_ROWS[number]);
    // Nobody is left behind in the kernel.
    command::run(&["status"]).succeeded();
}

/// How the stacks of hits in lines of JSON end, and how many frames they have, by time.
fn ends_of(lines: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    let hits = lines.map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
    let mut hits: Vec<Value> = hits.collect();
    hits.sort_by_key(|hit| hit["time_ns"].as_u64());
    let ends = hits.iter().map(|hit| {
        let frames = hit["stack"].as_array().expect("a stack");
        for frame in frames {
            let address = frame["address"].as_str().unwrap_or("0x0");
            let address = u64::from_str_radix(address.trim_start_matches("0x"), 16);
            assert!(address.expect("a number") < KERNEL, "{frame}");
        }
        let end = hit["stack_end"].as_str().expect("a reason");
        (end.to_owned(), frames.len())
    });
    ends.collect()
}
