// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what a session may have comes to an end that it reports, and what it has until then is
//! of use, be it large or small.

use crate::module::Module;
use crate::records::Records;
use crate::session::{errno, probe_at, Session, RING_BYTES};
use crate::steps::{constant, field, register};
use crate::sys;
use crate::victim::Victim;
use nix::libc;
use nsprobe_common::abi::{self, Probe, Table};
use nsprobe_common::program::Register;
use nsprobe_common::record::{Frame, Unmapped};
use std::collections::HashSet;

const FUNCTION: &str = "begins_with_push";

test! { full, rings_of_each_size_go_around_without_a_gap, module }
/// Records of two lengths and more, so that they meet the end of a ring in many ways.
fn rings_of_each_size_go_around_without_a_gap() {
    const TIMES_AROUND: u64 = 3;
    /// More than what a call records.
    const CALL_BYTES_MAX: u64 = 1024;
    let _module = Module::load();
    sys::run_on(1);
    let mut victim = Victim::caller(FUNCTION);
    let place = victim.function(FUNCTION).offset;
    for ring_bytes in (0..=7).map(|power| abi::RING_BYTES_MIN << power) {
        let session = Session::with_rings(ring_bytes);
        let number = [register(0, Register::Rdi), field(0)];
        let short = Probe {
            entry_program: session.upload(&number, b"").expect("a sound program"),
            ..probe_at(place, 0)
        };
        let long = Probe {
            flags: abi::PROBE_STACK | abi::PROBE_AT_ENTRY,
            ..short
        };
        let ids = [short, long].map(|probe| session.attach(victim.file(), probe));
        let ids = ids.map(|id| id.expect("a probe"));
        let rings = session.rings();
        let calls = ring_bytes / CALL_BYTES_MAX;
        let mut recorded = 0;
        while rings[0].produced() < TIMES_AROUND * ring_bytes {
            victim.call(calls);
            let mut records = Records::default();
            records.drain(&rings);
            let hits = records.hits.iter().zip(&records.details);
            for id in ids {
                let of_it = hits.clone().filter(|((hit, _), _)| hit.probe == id);
                let numbers = of_it.map(|((hit, _), (_, fields))| {
                    let number = fields.last().copied();
                    (u64::from(hit.sequence), number)
                });
                let wanted = (0..calls).map(|number| (recorded + number + 1, Some(number)));
                assert!(numbers.eq(wanted), "{ring_bytes}: {:?}", records.hits);
            }
            recorded += calls;
        }
        let counted = ids.map(|id| session.counters(id).recorded);
        assert_eq!(counted, [recorded; 2]);
    }
}

/// The object of a frame; `None` when the table had no room for it.
fn object_of(frame: &Frame) -> Option<u32> {
    match *frame {
        Frame::Object { id, .. } => Some(id),
        Frame::Address { why, .. } => {
            assert_eq!(why, Unmapped::TableFull as u8, "{frame:?}");
            None
        }
    }
}

test! { full, files_beyond_the_last_object_are_said_to_be, module, seconds = 120 }
/// Hits are recorded all the same, and stacks go on after a frame whose file has no object.
fn files_beyond_the_last_object_are_said_to_be() {
    const MORE: u64 = 100;
    const CALLS: u64 = abi::OBJECTS_MAX as u64 + MORE;
    let _module = Module::load();
    // Of one ring, the order is that of the calls.
    sys::run_on(1);
    let mut victim = Victim::start("many_files", &[]);
    let session = Session::with_rings(4 << 20);
    session.only(&[victim.pid()]).expect("it lives");
    let flags = abi::PROBE_STACK | abi::PROBE_AT_ENTRY;
    let id = session.probe(victim.file(), &victim.function("in_the_middle"), flags);
    assert_eq!(victim.call(CALLS), CALLS);
    let records = Records::of(&session);
    assert_eq!(session.counters(id).recorded, CALLS);
    let (mut callers, mut all) = (HashSet::new(), HashSet::new());
    let mut left_out = 0;
    for (hit, frames) in records.hits_of(id) {
        let objects: Vec<Option<u32>> = frames.iter().map(object_of).collect();
        // Of the victim itself there is one since the first call.
        assert!(objects.len() > 2, "{hit:?} {frames:?}");
        let is_own = objects[0].is_some() && objects[0] == objects[2];
        assert!(is_own, "{frames:?}");
        match objects[1] {
            Some(object) => assert!(callers.insert(object), "{object} twice"),
            None => left_out += 1,
        }
        assert!(left_out == 0 || objects[1].is_none(), "{frames:?}");
        all.extend(objects.into_iter().flatten());
    }
    println!("{} files have objects, {left_out} have none", callers.len());
    assert_eq!(all.len(), abi::OBJECTS_MAX as usize);
    assert_eq!(records.objects.len(), abi::OBJECTS_MAX as usize);
    assert_eq!(callers.len() as u64 + left_out, CALLS);
    assert!((MORE..MORE + 8).contains(&left_out), "{left_out}");
    let last = session.object(abi::OBJECTS_MAX, 0).expect("the last one");
    assert_eq!(last.identity.pid, victim.pid());
}

test! { full, programs_beyond_the_last_are_refused, module }
fn programs_beyond_the_last_are_refused() {
    let _module = Module::load();
    let mut victim = Victim::caller(FUNCTION);
    let session = Session::with_rings(RING_BYTES);
    let upload = |number: u32| session.upload(&[constant(0, number.into()), field(0)], b"");
    for number in 1..=abi::PROGRAMS_MAX {
        assert_eq!(upload(number).expect("there is room"), number);
    }
    let refused = upload(0).map_err(|(error, _)| error);
    assert_eq!(errno(refused, "one more"), libc::ENOSPC);
    let probe = Probe {
        entry_program: abi::PROGRAMS_MAX,
        ..probe_at(victim.function(FUNCTION).offset, 0)
    };
    session.attach(victim.file(), probe).expect("a probe");
    victim.call(3);
    let details = Records::of(&session).details;
    let fields: Vec<_> = details.iter().map(|(_, fields)| fields.last()).collect();
    assert_eq!(fields, [Some(&u64::from(abi::PROGRAMS_MAX)); 3]);
}

test! { full, tables_beyond_the_last_are_refused, module }
fn tables_beyond_the_last_are_refused() {
    let _module = Module::load();
    let mut victim = Victim::caller(FUNCTION);
    let session = Session::with_rings(RING_BYTES);
    let make = || {
        session.table(Table {
            kind: abi::TABLE_SUMS,
            rows: 1,
            ..Table::default()
        })
    };
    let mut last = Table::default();
    for number in 1..=abi::TABLES_MAX {
        last = make().expect("there is room");
        assert_eq!(last.id, number);
    }
    assert_eq!(errno(make(), "one more"), libc::ENOSPC);
    let probe = Probe {
        sink: abi::SINK_TABLE,
        table: last.id,
        ..probe_at(victim.function(FUNCTION).offset, 0)
    };
    session.attach(victim.file(), probe).expect("a probe");
    victim.call(9);
    let (rows, _) = session.rows(&last, 8);
    let counts: Vec<u64> = rows.iter().map(|row| row.head.count).collect();
    assert_eq!(counts, [9]);
}
