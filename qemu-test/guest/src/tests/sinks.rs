// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what is counted in the kernel is what happened, and what there was no
//! room for is counted as that.

use crate::binary::Function;
use crate::module::Module;
use crate::oracle::within;
use crate::records::Records;
use crate::session::{errno, probe_at, size, Session, TableRow, RING_BYTES};
use crate::steps::{constant, field, key, register, step, value};
use crate::sys;
use crate::victim::Victim;
use nix::libc;
use nsprobe_common::abi::{self, Probe, Refusal, Rows, Table};
use nsprobe_common::histogram::Scale;
use nsprobe_common::program::{Context, Operation, Register, Step};
use nsprobe_common::record::StackEnd;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Rows by their keys; two rows of one key, which a race may make, are one.
pub(super) fn by_key(rows: Vec<TableRow>) -> BTreeMap<Vec<u64>, u64> {
    let mut sums = BTreeMap::new();
    for row in rows {
        *sums.entry(row.key).or_default() += row.head.count;
    }
    sums
}

/// A session that traces the victim alone.
pub(super) fn session_on(victim: &Victim) -> Session {
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    session
}

/// Attaches to the entry of a function.
pub(super) fn attach(session: &Session, victim: &Victim, function: &Function, probe: Probe) -> u32 {
    let probe = Probe {
        kind: probe.kind.max(abi::PROBE_ENTRY),
        offset: function.offset,
        flags: probe.flags | abi::PROBE_AT_ENTRY,
        ..probe
    };
    let attached = session.attach(victim.file(), probe);
    attached.unwrap_or_else(|(error, reply)| panic!("{error} {reply:?}"))
}

pub(super) fn program(session: &Session, steps: &[Step]) -> u32 {
    let uploaded = session.upload(steps, b"");
    uploaded.unwrap_or_else(|(error, reply)| panic!("{error} {reply:?}"))
}

pub(super) const LOG: Table = Table {
    kind: abi::TABLE_HISTOGRAM,
    scale: abi::SCALE_LOG,
    log_bits: 2,
    size: 0,
    flags: 0,
    rows: 0,
    key_words: 0,
    max_frames: 0,
    low: 0,
    step: 0,
    buckets: 0,
    id: 0,
    row_bytes: 0,
    capacity: 0,
};

pub(super) const SUMS: Table = Table {
    kind: abi::TABLE_SUMS,
    scale: 0,
    log_bits: 0,
    rows: 64,
    ..LOG
};

test! { full, hits_are_counted_and_not_recorded, module }
fn hits_are_counted_and_not_recorded() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let session = session_on(&victim);
    let id = attach(
        &session,
        &victim,
        &victim.function("begins_with_push"),
        Probe {
            sink: abi::SINK_COUNT,
            ..Probe::default()
        },
    );
    victim.call(3000);
    let counters = session.counters(id);
    assert_eq!((counters.hits, counters.aggregated), (3000, 3000));
    assert!(Records::of(&session).hits.is_empty());
}

test! { full, values_fall_into_their_buckets, module }
fn values_fall_into_their_buckets() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_endbr64");
    let session = session_on(&victim);
    let scale = Scale::Linear {
        low: 10,
        step: 10,
        buckets: 5,
    };
    let table = session
        .table(Table {
            scale: abi::SCALE_LINEAR,
            log_bits: 0,
            low: 10,
            step: 10,
            buckets: 5,
            ..LOG
        })
        .expect("a table");
    let id = attach(
        &session,
        &victim,
        &victim.function("begins_with_endbr64"),
        Probe {
            sink: abi::SINK_TABLE,
            table: table.id,
            entry_program: program(&session, &[register(0, Register::Rdi), value(0)]),
            ..Probe::default()
        },
    );
    victim.call(100);
    assert_eq!(session.counters(id).aggregated, 100);
    let (rows, answer) = session.rows(&table, 1);
    let mut buckets = vec![0; scale.count()];
    let (mut count, mut sum) = (0, 0);
    let (mut least, mut greatest) = (i64::MAX, i64::MIN);
    for row in &rows {
        buckets
            .iter_mut()
            .zip(&row.buckets)
            .for_each(|(a, b)| *a += b);
        count += row.head.count;
        sum += row.head.sum;
        least = least.min(row.head.least);
        greatest = greatest.max(row.head.greatest);
    }
    // The arguments are 0 to 99.
    assert_eq!(buckets, [10, 10, 10, 10, 10, 10, 40]);
    assert_eq!((count, sum, least, greatest), (100, 4950, 0, 99));
    assert_eq!((answer.turned_away, answer.replaced), (0, 0));
}

test! { full, values_fall_into_their_parts_of_powers_of_two, module }
/// Four buckets for each power of two: the widths are written out here, not computed.
fn values_fall_into_their_parts_of_powers_of_two() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let session = session_on(&victim);
    let table = session.table(LOG).expect("a table");
    attach(
        &session,
        &victim,
        &victim.function("begins_with_push"),
        Probe {
            sink: abi::SINK_TABLE,
            table: table.id,
            entry_program: program(&session, &[register(0, Register::Rdi), value(0)]),
            ..Probe::default()
        },
    );
    // The arguments are 0 to 99.
    victim.call(100);
    let mut buckets = vec![0; 24];
    for row in &session.rows(&table, 1).0 {
        let (first, rest) = row.buckets.split_at(buckets.len());
        buckets.iter_mut().zip(first).for_each(|(a, b)| *a += b);
        assert!(rest.iter().all(|count| *count == 0), "{rest:?}");
    }
    let below = [0];
    let to_7 = [1; 8];
    let (to_15, to_31, to_63, to_99) = ([2; 4], [4; 4], [8; 4], [16, 16, 4]);
    let wanted = [&below[..], &to_7, &to_15, &to_31, &to_63, &to_99].concat();
    assert_eq!(buckets, wanted);
}

test! { full, times_of_calls_make_a_histogram, module }
fn times_of_calls_make_a_histogram() {
    let _module = Module::load();
    for name in ["begins_with_push", "begins_with_nop10"] {
        let mut victim = Victim::caller(name);
        let session = session_on(&victim);
        let table = session.table(LOG).expect("a table");
        let id = attach(
            &session,
            &victim,
            &victim.function(name),
            Probe {
                kind: abi::PROBE_CALL,
                flags: abi::PROBE_RETURN_ONLY,
                sink: abi::SINK_TABLE,
                table: table.id,
                ..Probe::default()
            },
        );
        victim.call(500);
        let counters = session.counters(id);
        assert_eq!((counters.hits, counters.aggregated), (500, 500), "{name}");
        let (rows, _) = session.rows(&table, 4);
        let in_buckets: u64 = rows.iter().flat_map(|row| &row.buckets).sum();
        assert_eq!(in_buckets, 500);
        for row in rows {
            assert!(row.head.least > 0 && row.head.least <= row.head.greatest);
            assert_eq!(row.buckets[0] + row.buckets[1], 0, "no call takes no time");
        }
    }
}

test! { full, only_calls_that_begin_as_required_return, module }
/// What the entry's program rejects has no return either.
fn only_calls_that_begin_as_required_return() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let session = session_on(&victim);
    let table = session.table(LOG).expect("a table");
    let at_entry = [
        register(0, Register::Rdi),
        constant(1, 10),
        step(Operation::BelowOrEqual, 2, 1, 0, 0, 0),
        step(Operation::Require, 0, 2, 0, 0, 0),
    ];
    let id = attach(
        &session,
        &victim,
        &victim.function("begins_with_push"),
        Probe {
            kind: abi::PROBE_CALL,
            flags: abi::PROBE_RETURN_ONLY,
            sink: abi::SINK_TABLE,
            table: table.id,
            entry_program: program(&session, &at_entry),
            ..Probe::default()
        },
    );
    victim.call(100);
    let counters = session.counters(id);
    assert_eq!((counters.rejected, counters.aggregated), (10, 90));
}

test! { full, each_key_has_its_row, module }
fn each_key_has_its_row() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let session = session_on(&victim);
    let table = session
        .table(Table {
            key_words: 3,
            ..SUMS
        })
        .expect("a table");
    let steps = [
        register(0, Register::Rdi),
        constant(1, 7),
        step(Operation::Modulo, 2, 0, 1, 0, 0),
        key(2),
        step(Operation::Context, 3, 0, 0, 0, Context::CommLow as u64),
        key(3),
        step(Operation::Context, 4, 0, 0, 0, Context::Pid as u64),
        key(4),
        value(0),
    ];
    let id = attach(
        &session,
        &victim,
        &victim.function("begins_with_push"),
        Probe {
            sink: abi::SINK_TABLE,
            table: table.id,
            entry_program: program(&session, &steps),
            ..Probe::default()
        },
    );
    victim.call(700);
    assert_eq!(session.counters(id).aggregated, 700);
    let (rows, _) = session.rows(&table, 2);
    let sum: i64 = rows.iter().map(|row| row.head.sum).sum();
    assert_eq!(sum, (0..700).sum::<i64>());
    let comm = u64::from_ne_bytes(*b"call_in_");
    let expected: BTreeMap<Vec<u64>, u64> = (0..7)
        .map(|rest| (vec![rest, comm, victim.pid().into()], 100))
        .collect();
    assert_eq!(by_key(rows), expected);
}

test! { core, threads_on_all_cpus_share_a_table, module, cpus = 2 }
fn threads_on_all_cpus_share_a_table() {
    let _module = Module::load();
    let mut victim = Victim::start("many_threads", &["6", "3000"]);
    let session = session_on(&victim);
    let table = session
        .table(Table {
            key_words: 1,
            ..SUMS
        })
        .expect("a table");
    let steps = [
        step(Operation::Context, 0, 0, 0, 0, Context::Tid as u64),
        key(0),
    ];
    let id = attach(
        &session,
        &victim,
        &victim.function("in_thread"),
        Probe {
            sink: abi::SINK_TABLE,
            table: table.id,
            entry_program: program(&session, &steps),
            ..Probe::default()
        },
    );
    assert_eq!(victim.call(1), 18000);
    assert_eq!(session.counters(id).aggregated, 18000);
    let rows = by_key(session.rows(&table, 100).0);
    assert_eq!(rows.len(), 6);
    assert!(rows.values().all(|count| *count == 3000), "{rows:?}");
}

test! { core, rows_that_are_taken_have_each_hit_once, module, cpus = 2 }
/// While threads add to them; and their room is there for other keys.
fn rows_that_are_taken_have_each_hit_once() {
    const CALLS: u64 = 120_000;
    let _module = Module::load();
    let mut victim = Victim::start("many_threads", &["6", "20000"]);
    let session = session_on(&victim);
    let table = session
        .table(Table {
            key_words: 2,
            ..SUMS
        })
        .expect("a table");
    let steps = [
        step(Operation::Context, 0, 0, 0, 0, Context::Tid as u64),
        key(0),
        // More keys than there are rows, if none were given back.
        step(Operation::Context, 1, 0, 0, 0, Context::Time as u64),
        constant(2, 23),
        step(Operation::ShiftRight, 1, 1, 2, 0, 0),
        key(1),
    ];
    let id = attach(
        &session,
        &victim,
        &victim.function("in_thread"),
        Probe {
            sink: abi::SINK_TABLE,
            table: table.id,
            entry_program: program(&session, &steps),
            ..Probe::default()
        },
    );
    let (mut sum, mut keys, mut looks) = (0, BTreeSet::new(), 0);
    let mut take = || {
        let rows = by_key(session.take_rows(&table, 16).0);
        sum += rows.values().sum::<u64>();
        keys.extend(rows.into_keys());
        looks += 1;
        sum
    };
    victim.begin(1);
    let is_done = within(LIMIT, || {
        take();
        let counters = session.counters(id);
        counters.aggregated + counters.turned_away == CALLS
    });
    assert!(is_done, "{:?}", session.counters(id));
    assert_eq!(victim.finish(), CALLS);
    let sum = take();
    let counters = session.counters(id);
    println!(
        "{looks} looks, {} keys, {} turned away",
        keys.len(),
        counters.turned_away
    );
    assert_eq!(sum, counters.aggregated);
    assert!(keys.len() > table.capacity as usize, "{} keys", keys.len());
    assert!(session.rows(&table, 16).0.is_empty());
    // Without a key there is nothing to give back.
    let plain = session.table(SUMS).expect("a table");
    let mut rows = Rows {
        size: size::<Rows>(),
        flags: abi::ROWS_TAKE,
        table: plain.id,
        ..Rows::default()
    };
    let refused = errno(sys::ioctl(&session, abi::ROWS, &mut rows), "no key");
    assert_eq!(refused, libc::EINVAL);
}

test! { core, a_full_table_counts_what_it_turns_away, module }
fn a_full_table_counts_what_it_turns_away() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let session = session_on(&victim);
    let table = session
        .table(Table {
            key_words: 1,
            rows: 8,
            ..SUMS
        })
        .expect("a table");
    let id = attach(
        &session,
        &victim,
        &victim.function("begins_with_push"),
        Probe {
            sink: abi::SINK_TABLE,
            table: table.id,
            entry_program: program(&session, &[register(0, Register::Rdi), key(0)]),
            ..Probe::default()
        },
    );
    victim.call(1000);
    let counters = session.counters(id);
    let (rows, answer) = session.rows(&table, 100);
    println!("{} rows of {}", rows.len(), table.capacity);
    assert!(rows.len() >= 8 && rows.len() <= table.capacity as usize);
    assert_eq!(counters.aggregated, rows.len() as u64);
    assert_eq!(counters.turned_away, 1000 - rows.len() as u64);
    assert_eq!(answer.turned_away, counters.turned_away);
}

/// A row for each stack.
const STACKS: Table = Table {
    max_frames: 32,
    ..SUMS
};

/// A probe that counts its stacks in a table of `STACKS`.
fn counting_stacks(table: &Table) -> Probe {
    Probe {
        flags: abi::PROBE_STACK,
        max_frames: STACKS.max_frames,
        sink: abi::SINK_TABLE,
        table: table.id,
        ..Probe::default()
    }
}

test! { full, each_stack_has_its_row, module }
fn each_stack_has_its_row() {
    let _module = Module::load();
    let mut victim = Victim::start("chain", &[]);
    let session = session_on(&victim);
    let table = session.table(STACKS).expect("a table");
    let mut ids = Vec::new();
    for name in ["level_03", "bottom"] {
        ids.push(attach(
            &session,
            &victim,
            &victim.function(name),
            counting_stacks(&table),
        ));
    }
    victim.call(40);
    let (rows, _) = session.rows(&table, 3);
    let counts: BTreeMap<usize, u64> = rows
        .iter()
        .map(|row| (row.stack.len(), row.head.count))
        .collect();
    println!("{rows:?}");
    // From main down there are 4 frames, and 17, and those below main are the same.
    let lengths: Vec<usize> = counts.keys().copied().collect();
    assert_eq!(lengths.len(), 2, "two places, two stacks");
    assert_eq!(lengths[1] - lengths[0], 13);
    assert!(counts.values().all(|count| *count == 40));
    let ends: BTreeSet<u16> = rows.iter().map(|row| row.head.stack_end).collect();
    assert_eq!(ends.len(), 1);
    assert!(!ends.contains(&(StackEnd::None as u16)));
    for id in ids {
        assert_eq!(session.counters(id).aggregated, 40);
    }
}

test! { full, stacks_of_one_length_have_rows_of_their_own, module }
/// Stacks as long as each other, that differ in one frame or more.
fn stacks_of_one_length_have_rows_of_their_own() {
    const CALLS: u64 = 160;
    let _module = Module::load();
    let mut victim = Victim::start("many_stacks", &["3"]);
    let session = session_on(&victim);
    let table = session.table(STACKS).expect("a table");
    attach(
        &session,
        &victim,
        &victim.function("end_of_path"),
        counting_stacks(&table),
    );
    victim.call(CALLS);
    let (rows, _) = session.rows(&table, 2);
    let stacks: BTreeSet<_> = rows.iter().map(|row| &row.stack).collect();
    let lengths: BTreeSet<_> = rows.iter().map(|row| row.stack.len()).collect();
    assert_eq!((stacks.len(), lengths.len()), (8, 1), "{rows:?}");
    let counts: Vec<u64> = rows.iter().map(|row| row.head.count).collect();
    assert_eq!(counts, [CALLS / 8; 8]);
}

test! { full, tables_that_cannot_be_are_refused, module }
fn tables_that_cannot_be_are_refused() {
    let _module = Module::load();
    let session = Session::with_rings(RING_BYTES);
    let keyed = Table {
        key_words: 1,
        ..SUMS
    };
    let cases = [
        (Table { kind: 0, ..keyed }, libc::EINVAL),
        (Table { kind: 9, ..keyed }, libc::EINVAL),
        (Table { flags: 1, ..keyed }, libc::EINVAL),
        (Table { rows: 0, ..keyed }, libc::EINVAL),
        (
            Table {
                rows: u32::MAX,
                ..keyed
            },
            libc::EINVAL,
        ),
        (
            Table {
                key_words: 17,
                ..keyed
            },
            libc::EINVAL,
        ),
        (
            Table {
                max_frames: 128,
                ..keyed
            },
            libc::EINVAL,
        ),
        (Table { step: 1, ..keyed }, libc::EINVAL),
        (Table { scale: 0, ..LOG }, libc::EINVAL),
        (Table { scale: 3, ..LOG }, libc::EINVAL),
        (Table { log_bits: 5, ..LOG }, libc::EINVAL),
        (
            Table {
                scale: abi::SCALE_LINEAR,
                log_bits: 0,
                ..LOG
            },
            libc::EINVAL,
        ),
        (
            Table {
                kind: abi::TABLE_SPANS,
                key_words: 0,
                ..SUMS
            },
            libc::EINVAL,
        ),
        // Some thirty gigabytes.
        (
            Table {
                rows: abi::ROWS_MAX,
                max_frames: 127,
                ..keyed
            },
            libc::ENOSPC,
        ),
    ];
    for (table, code) in cases {
        let refused = session.table(table);
        assert_eq!(errno(refused, "a bad table"), code, "{table:?}");
    }
    let table = session.table(keyed).expect("a table");
    let mut buffer = [0u64; 64];
    let base = Rows {
        size: size::<Rows>(),
        table: table.id,
        buffer: buffer.as_mut_ptr() as u64,
        buffer_bytes: size_of_val(&buffer) as u32,
        ..Rows::default()
    };
    let cases = [
        (Rows { table: 9, ..base }, libc::ENOENT),
        (Rows { table: 0, ..base }, libc::ENOENT),
        (Rows { flags: 1, ..base }, libc::EINVAL),
        (
            Rows {
                buffer_bytes: table.row_bytes - 1,
                ..base
            },
            libc::EINVAL,
        ),
        (
            Rows {
                next: table.capacity,
                ..base
            },
            libc::EINVAL,
        ),
    ];
    for (mut rows, code) in cases {
        let refused = sys::ioctl(&session, abi::ROWS, &mut rows);
        assert_eq!(errno(refused, "bad rows"), code, "{rows:?}");
    }
}

test! { full, probes_that_do_not_fit_their_table_are_refused, module }
fn probes_that_do_not_fit_their_table_are_refused() {
    let _module = Module::load();
    let victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    let table = |table: Table| session.table(table).expect("a table").id;
    let keyed = table(Table {
        key_words: 1,
        ..SUMS
    });
    let spans = table(Table {
        kind: abi::TABLE_SPANS,
        key_words: 1,
        ..SUMS
    });
    let stacks = table(Table {
        max_frames: 8,
        ..SUMS
    });
    let one_key = program(&session, &[constant(0, 1), key(0)]);
    let two_keys = program(&session, &[constant(0, 1), key(0), key(0)]);
    let ends = program(
        &session,
        &[
            constant(0, 1),
            key(0),
            step(Operation::EndSpan, 1, 0, 0, 0, 0),
        ],
    );
    let fields = program(&session, &[constant(0, 1), key(0), field(0)]);
    let to_table = |table, entry_program| Probe {
        sink: abi::SINK_TABLE,
        table,
        entry_program,
        ..probe_at(function.offset, 0)
    };
    let none = probe_at(function.offset, 0);
    let cases = [
        // No table, or one that is not there.
        to_table(0, one_key),
        to_table(99, one_key),
        // The wrong kind, and the wrong key.
        to_table(spans, one_key),
        to_table(keyed, 0),
        to_table(keyed, two_keys),
        to_table(keyed, fields),
        Probe {
            sink: abi::SINK_SPAN,
            ..to_table(keyed, one_key)
        },
        // A stack that the table does not take, none, and one that is too long.
        Probe {
            flags: abi::PROBE_STACK,
            ..to_table(keyed, one_key)
        },
        to_table(stacks, 0),
        Probe {
            flags: abi::PROBE_STACK,
            max_frames: 9,
            ..to_table(stacks, 0)
        },
        // Records have no key, and no table.
        Probe {
            entry_program: one_key,
            ..none
        },
        Probe {
            table: keyed,
            ..none
        },
        // Spans that are nobody's, or of another key.
        Probe {
            entry_program: ends,
            ..none
        },
        Probe {
            entry_program: ends,
            span: keyed,
            ..none
        },
    ];
    for probe in cases {
        let refused = session.attach(victim.file(), probe);
        let (_, reply) = refused.expect_err("it does not fit");
        let reasons = [Refusal::Mismatch as u32, Refusal::NoSuchId as u32];
        assert!(reasons.contains(&reply.reason), "{probe:?} {reply:?}");
    }
    assert_eq!(session.info().probes, 0);
    let probe = Probe {
        entry_program: ends,
        span: spans,
        ..none
    };
    session.attach(victim.file(), probe).expect("it fits");
}
