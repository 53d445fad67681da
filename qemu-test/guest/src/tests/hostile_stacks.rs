// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: whatever a program makes of its stack, its hits are handled in bounded time,
//! nothing of the kernel's is shown, and nobody else waits for it.

use super::tests;
use crate::command::{self, Running};
use crate::module::Module;
use crate::records::Records;
use crate::session::{probe_at, Session};
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nsprobe_common::abi::{self, Probe};
use nsprobe_common::record::{Frame, StackEnd};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

tests![
    forty_eight_hostile_stacks_end: 240,
    hostile_stacks_end_by_rows_as_well: 240,
];

/// Stacks that the victim has.
const STACKS: u64 = 48;
/// The kernel's half of the addresses.
const KERNEL: u64 = 1 << 47;

/// The victim, with its file system that never answers.
struct Hostile {
    folder: String,
    victim: Victim,
}

impl Hostile {
    fn start() -> Hostile {
        let folder = format!("/var/tmp/mute-{}", std::process::id());
        fs::create_dir_all(&folder).expect("/var/tmp is writable");
        let loaded = Command::new("modprobe").arg("fuse").status();
        assert!(loaded.expect("kmod is in the guest").success());
        Hostile {
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
    let counted = Probe {
        sink: abi::SINK_TABLE,
        table: table.expect("it can be").id,
        ..probe_at(function.offset, flags)
    };
    session.attach(victim.file(), counted).expect("a probe");
    let begun = Instant::now();
    const ROUNDS: u64 = 1000;
    victim.begin(ROUNDS);
    // Meanwhile somebody else's probe comes and goes.
    let elsewhere = victim::path("call_in_loop");
    let place = crate::binary::function(&elsewhere, "begins_with_push");
    let mut longest = Duration::ZERO;
    for _ in 0..5 {
        let witness = Witness::new(&elsewhere, place.offset);
        let leaving = Instant::now();
        drop(witness);
        longest = longest.max(leaving.elapsed());
    }
    assert_eq!(victim.finish(), STACKS * ROUNDS);
    println!(
        "{:?} for {STACKS} stacks x {ROUNDS}; a detach took {longest:?}",
        begun.elapsed()
    );
    // Who had to wait for one of these pages would wait for ever.
    assert!(longest < Duration::from_secs(30), "{longest:?}");
    for probe in [id, other] {
        let counters = session.counters(probe);
        assert_eq!(
            (counters.recorded, counters.lost_full),
            (STACKS * ROUNDS, 0)
        );
        assert!(counters.stacks_cut > 0);
    }
    let records = Records::of(&session);
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    for (hit, frames) in &records.hits {
        let end = StackEnd::from_u8(hit.stack_end).expect("a reason");
        *ends.entry(format!("{end:?}")).or_default() += 1;
        assert!((1..=abi::FRAMES_MAX as usize).contains(&frames.len()));
        for frame in frames {
            if let Frame::Address { address, .. } = frame {
                assert!(*address < KERNEL, "{address:#x}");
            }
        }
    }
    println!("{ends:?}, {} taken late", records.late.len());
    // Memory that was never touched reads as zeroes once somebody waits for it.
    assert!(ends["Fault"] > 10 * ROUNDS && ends["Late"] > 0, "{ends:?}");
    assert!(records.late.len() as u64 >= ends["Late"]);
}

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
    let trace = Running::start(&[&words[..], &[&spec]].concat());
    // The probe is there when the text is changed.
    let place = victim.victim.function("target");
    let until = Instant::now() + Duration::from_secs(20);
    while victim.victim.text_is_restored(place.offset) {
        assert!(Instant::now() < until, "no probe");
        std::thread::sleep(Duration::from_millis(20));
    }
    const ROUNDS: u64 = 100;
    let begun = Instant::now();
    assert_eq!(victim.victim.call(ROUNDS), STACKS * ROUNDS);
    println!("{:?} for {STACKS} stacks x {ROUNDS}", begun.elapsed());
    std::thread::sleep(Duration::from_millis(500));
    let (code, lines, errors) = trace.finish();
    assert_eq!(code, Some(0), "{errors}");
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    for line in lines
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        if line["type"] != "hit" {
            continue;
        }
        let end = line["stack_end"].as_str().expect("a reason").to_owned();
        *ends.entry(end).or_default() += 1;
        for frame in line["stack"].as_array().expect("a stack") {
            let address = frame["address"].as_str().unwrap_or("0x0");
            let address = u64::from_str_radix(address.trim_start_matches("0x"), 16);
            assert!(address.expect("a number") < KERNEL, "{frame}");
        }
    }
    println!("{ends:?}");
    assert_eq!(ends.values().sum::<u64>(), STACKS * ROUNDS, "{errors}");
    assert!(ends["fault"] > 10 * ROUNDS, "{ends:?}");
    // Nobody is left behind in the kernel.
    command::run(&["status"]).succeeded();
}
