// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: spans begin at one function and end at another, and those that do not end are
//! left to be seen.

use super::sinks::{attach, program, session_on, LOG, SUMS};
use super::stack_ids::ask;
use crate::module::Module;
use crate::records::Records;
use crate::session::Session;
use crate::steps::{constant, field, key, register, step, value};
use crate::sys;
use crate::victim::Victim;
use nix::libc;
use nsprobe_common::abi::{self, Probe, Table};
use nsprobe_common::program::{Context, Operation, Register, Step};
use std::io;
use std::time::Instant;

test! { core, spans_end_on_another_function, module }
/// The argument is the key at the entry, the result less one at the return.
fn spans_end_on_another_function() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = session_on(&victim);
    let spans = session
        .table(Table {
            kind: abi::TABLE_SPANS,
            key_words: 1,
            rows: 16,
            ..SUMS
        })
        .expect("a table");
    let times = session.table(LOG).expect("a table");
    let begin = [register(0, Register::Rdi), key(0), value(0)];
    let begin = attach(
        &session,
        &victim,
        &function,
        Probe {
            sink: abi::SINK_SPAN,
            table: spans.id,
            entry_program: program(&session, &begin),
            ..Probe::default()
        },
    );
    let ends = [
        register(0, Register::Rax),
        constant(1, 1),
        step(Operation::Subtract, 2, 0, 1, 0, 0),
        key(2),
        step(Operation::EndSpan, 3, 0, 0, 0, 0),
    ];
    let ended = |last: &[Step]| program(&session, &[&ends, last].concat());
    let returns = Probe {
        kind: abi::PROBE_RETURN,
        span: spans.id,
        ..Probe::default()
    };
    let timed = attach(
        &session,
        &victim,
        &function,
        Probe {
            sink: abi::SINK_TABLE,
            table: times.id,
            return_program: ended(&[value(3)]),
            ..returns
        },
    );
    let started = Instant::now();
    victim.call(300);
    let longest = started.elapsed().as_nanos();
    assert_eq!(session.counters(begin).aggregated, 300);
    assert_eq!(session.counters(timed).aggregated, 300);
    let (left, answer) = session.rows(&spans, 4);
    assert!(left.is_empty(), "{left:?}");
    assert_eq!((answer.turned_away, answer.replaced), (0, 0));
    let (rows, _) = session.rows(&times, 4);
    let count: u64 = rows.iter().map(|row| row.head.count).sum();
    assert_eq!(count, 300);
    let least = rows.iter().map(|row| row.head.least).min();
    let sum: i64 = rows.iter().map(|row| row.head.sum).sum();
    assert!(least > Some(0), "{rows:?}");
    // One after the other, they fit into the time of all calls.
    assert!(sum as u128 <= longest, "{sum} of {longest} ns");
    session.detach(&[timed]).expect("it is attached");

    // Recorded, with the value that each began with.
    let fields = [
        field(3),
        step(Operation::SpanValue, 4, 0, 0, 0, 0),
        field(4),
    ];
    let recorded = attach(
        &session,
        &victim,
        &function,
        Probe {
            return_program: ended(&fields),
            ..returns
        },
    );
    victim.call(20);
    assert_eq!(session.counters(recorded).recorded, 20);
    let mut values: Vec<u64> = Records::of(&session)
        .details
        .iter()
        .map(|(_, fields)| {
            assert_eq!(fields[0], 0b11);
            assert!(fields[1] > 0);
            fields[2]
        })
        .collect();
    values.sort_unstable();
    assert_eq!(values, (0..20).collect::<Vec<u64>>());
}

test! { full, spans_that_do_not_end_are_left, module }
fn spans_that_do_not_end_are_left() {
    let _module = Module::load();
    let mut victim = Victim::start("chain", &[]);
    let session = session_on(&victim);
    let spans = session
        .table(Table {
            kind: abi::TABLE_SPANS,
            key_words: 1,
            max_frames: 20,
            rows: 1000,
            ..SUMS
        })
        .expect("a table");
    // The time is a new key at each call.
    let begin = [
        step(Operation::Context, 0, 0, 0, 0, Context::Time as u64),
        key(0),
        register(1, Register::Rdi),
        value(1),
    ];
    let id = attach(
        &session,
        &victim,
        &victim.function("bottom"),
        Probe {
            flags: abi::PROBE_STACK,
            max_frames: 20,
            sink: abi::SINK_SPAN,
            table: spans.id,
            entry_program: program(&session, &begin),
            ..Probe::default()
        },
    );
    victim.call(50);
    assert_eq!(session.counters(id).aggregated, 50);
    let (rows, answer) = session.rows(&spans, 7);
    assert_eq!(rows.len(), 50);
    for row in &rows {
        assert_eq!((row.head.count, row.head.tid), (1, victim.pid()));
        assert_eq!(row.head.time_ns, row.key[0]);
        assert!(row.stack.len() >= 17, "{row:?}");
    }
    // A key that is there already replaces its span.
    let again = [constant(0, 1), key(0)];
    let id = attach(
        &session,
        &victim,
        &victim.function("level_15"),
        Probe {
            flags: abi::PROBE_STACK,
            max_frames: 4,
            sink: abi::SINK_SPAN,
            table: spans.id,
            entry_program: program(&session, &again),
            ..Probe::default()
        },
    );
    victim.call(10);
    assert_eq!(session.counters(id).aggregated, 10);
    let (rows, after) = session.rows(&spans, 7);
    assert_eq!(rows.len(), 61);
    assert_eq!(after.replaced - answer.replaced, 9);
    let replaced = rows.iter().find(|row| row.key == [1]).expect("it is there");
    assert_eq!(replaced.stack.len(), 4);
}

test! { core, spans_name_their_stacks_and_end_with_older_calls, module }
/// As allocations do: many spans of few stacks, and one call that ends what another thread may
/// have begun again before it returns.
fn spans_name_their_stacks_and_end_with_older_calls() {
    let _module = Module::load();
    let mut victim = Victim::start("chain", &[]);
    let session = session_on(&victim);
    let table = Table {
        kind: abi::TABLE_SPANS,
        key_words: 1,
        rows: 1000,
        ..SUMS
    };
    let spans = session.table(table).expect("a table");
    let by_stack = session.table(Table {
        max_frames: 20,
        ..table
    });
    let by_stack = by_stack.expect("a table");
    let (bottom, outer) = (victim.function("bottom"), victim.function("level_15"));
    let time = step(Operation::Context, 0, 0, 0, 0, Context::Time as u64);
    let begin = |steps: &[Step], flags, table: &Table| Probe {
        flags: abi::PROBE_STACK | flags,
        max_frames: 20,
        sink: abi::SINK_SPAN,
        table: table.id,
        entry_program: program(&session, steps),
        ..Probe::default()
    };
    let named = begin(&[time, key(0)], abi::PROBE_STACK_IDS, &spans);
    let misplaced = Probe {
        offset: bottom.offset,
        kind: abi::PROBE_ENTRY,
        table: by_stack.id,
        ..named
    };
    let refused = session.attach(victim.file(), misplaced);
    let (_, reply) = refused.expect_err("a table with room for stacks");
    assert_eq!(reply.reason, abi::Refusal::Mismatch as u32);
    let named = attach(&session, &victim, &bottom, named);
    let whole = begin(&[time, key(0)], 0, &by_stack);
    let whole = attach(&session, &victim, &bottom, whole);
    victim.call(50);
    session.detach(&[named, whole]).expect("they are attached");
    let (rows, _) = session.rows(&spans, 7);
    assert_eq!(rows.len(), 50);
    let id = rows[0].head.least;
    assert!(rows
        .iter()
        .all(|row| row.head.least == id && row.stack.is_empty()));
    let (stack, _) = ask(&session, id as u32, 64);
    let stack = stack.expect("it is kept");
    let (rows, _) = session.rows(&by_stack, 7);
    assert!(stack.len() >= 17 && rows.iter().all(|row| row.stack == stack));

    let one = [constant(0, 1), key(0)];
    let within = begin(&one, abi::PROBE_STACK_IDS, &spans);
    let within = attach(&session, &victim, &bottom, within);
    let at_entry = [&one[..], &[step(Operation::EndSpan, 1, 0, 0, 1, 0)]].concat();
    let older = [
        step(Operation::EndSpan, 1, 0, 0, 1, 0),
        step(Operation::Require, 0, 1, 0, 0, 0),
    ];
    let older = attach(
        &session,
        &victim,
        &outer,
        Probe {
            kind: abi::PROBE_CALL,
            flags: abi::PROBE_RETURN_ONLY,
            sink: abi::SINK_COUNT,
            return_program: program(&session, &[&one[..], &older].concat()),
            span: spans.id,
            ..Probe::default()
        },
    );
    victim.call(5);
    assert_eq!(session.counters(older).aggregated, 0, "begun in the call");
    session.detach(&[within]).expect("it is attached");
    let at_entry = Probe {
        sink: abi::SINK_COUNT,
        entry_program: program(&session, &at_entry),
        span: spans.id,
        ..Probe::default()
    };
    attach(&session, &victim, &bottom, at_entry);
    victim.call(1);
    assert_eq!(session.counters(older).aggregated, 1, "no entry ended it");
    victim.call(4);
    assert_eq!(session.counters(older).aggregated, 1, "older than the call");
    let (rows, _) = session.rows(&spans, 7);
    assert_eq!(rows.len(), 50);

    // Of some owners, as far as they began in time.
    let mut keys: Vec<u64> = rows.iter().map(|row| row.key[0]).collect();
    keys.sort_unstable();
    let owner = |word| abi::SpanOwner {
        word,
        latest_ns: word,
    };
    let mut owners: Vec<abi::SpanOwner> = keys[..20].iter().copied().map(owner).collect();
    owners[0].latest_ns -= 1;
    owners.push(owner(u64::MAX));
    assert_eq!(
        drop_spans(&session, &spans, &owners).expect("they rise"),
        19
    );
    let (rows, _) = session.rows(&spans, 7);
    let mut left: Vec<u64> = rows.iter().map(|row| row.key[0]).collect();
    left.sort_unstable();
    assert_eq!(left, [&keys[..1], &keys[20..]].concat());
    let sums = session.table(SUMS).expect("a table");
    for (table, owners) in [
        (&sums, &owners[..]),
        (&spans, &[]),
        (&spans, &[owner(2), owner(1)]),
        (&spans, &[owner(1), owner(1)]),
    ] {
        let refused = drop_spans(&session, table, owners).expect_err("it is wrong");
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}

fn drop_spans(session: &Session, table: &Table, owners: &[abi::SpanOwner]) -> io::Result<u64> {
    let mut drop = abi::DropSpans {
        size: size_of::<abi::DropSpans>() as u32,
        table: table.id,
        count: owners.len() as u32,
        owners: owners.as_ptr() as u64,
        ..abi::DropSpans::default()
    };
    sys::ioctl(session, abi::DROP_SPANS, &mut drop)?;
    Ok(drop.dropped)
}
