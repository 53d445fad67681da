// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: one container takes no call, row or stack from another. What it uses is its own share,
//! and what it loses is counted.

use super::sinks::{attach, program, SUMS};
use super::stack_ids::ask;
use crate::command::Running;
use crate::module::Module;
use crate::session::Session;
use crate::steps::{key, step};
use crate::victim::{self, Victim};
use nsprobe_common::abi::{self, Probe, Table};
use nsprobe_common::program::{Context, Operation};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;

/// A victim in a pid namespace of its own.
fn contained(name: &str, argument: &str) -> Victim {
    let path = victim::path(name);
    let mut command = Command::new("unshare");
    command
        .args(["-pf", "--kill-child"])
        .arg(&path)
        .arg(argument);
    Victim::start_command(&mut command, &path)
}

test! { core, one_container_takes_nothing_from_another, module }
/// Of calls under way the oldest were forgotten, whosever they were; tables and stacks filled up.
fn one_container_takes_nothing_from_another() {
    let _module = Module::load();
    calls_return_beside_a_forger();
    blocks_have_rows_and_stacks_beside_a_flood();
}

/// 100,000 forged calls left none of the others.
fn calls_return_beside_a_forger() {
    let mut honest = contained("forges_calls", "honest");
    let mut forger = contained("forges_calls", "forger");
    let session = Session::with_rings(1 << 16);
    let file = File::open(honest.file()).expect("it is there");
    let probe = |name, kind| Probe {
        kind,
        call: 1,
        fd: file.as_raw_fd(),
        sink: abi::SINK_COUNT,
        offset: honest.function(name).offset,
        ..Probe::default()
    };
    let mut probes = [
        probe("followed", abi::PROBE_BEGIN),
        probe("followed_exit", abi::PROBE_END),
    ];
    session.attach_all(&mut probes).expect("they fit");
    let [begin, end] = probes.map(|probe| probe.id);
    honest.call(200);
    forger.call(100_000);
    honest.call(1);
    let (begun, ended) = (session.counters(begin), session.counters(end));
    println!("{begun:?} {ended:?}");
    assert_eq!(ended.aggregated, 200);
    assert_eq!(begun.hits, 100_200);
    // All but those that there is room for.
    let lost = begun.evicted + begun.turned_away;
    assert!(begun.evicted > 0 && lost >= 100_000 - u64::from(abi::CALLS_MAX));
}

/// As many blocks with as many stacks as there is room for left no row and no stack to others.
fn blocks_have_rows_and_stacks_beside_a_flood() {
    let mut flood = contained("many_stacks", "60");
    let mut other = contained("many_stacks", "16");
    let session = Session::with_rings(1 << 16);
    let spans = session.table(Table {
        kind: abi::TABLE_SPANS,
        key_words: 2,
        rows: 2000,
        ..SUMS
    });
    let spans = spans.expect("a table");
    let context = |to, what| step(Operation::Context, to, 0, 0, 0, what as u64);
    let begin = [
        context(0, Context::Time),
        context(1, Context::PidNamespaceId),
        key(0),
        key(1),
    ];
    let function = other.function("end_of_path");
    let probe = Probe {
        flags: abi::PROBE_STACK | abi::PROBE_STACK_IDS,
        sink: abi::SINK_SPAN,
        table: spans.id,
        entry_program: program(&session, &begin),
        ..Probe::default()
    };
    let id = attach(&session, &other, &function, probe);
    flood.call(8000);
    other.call(100);
    let counters = session.counters(id);
    let (rows, answer) = session.rows(&spans, 100);
    let of = |is_others: bool| {
        let rows = rows.iter();
        let rows = rows.filter(|row| (row.key[1] == answer.turned_away_pidns) != is_others);
        let rows: Vec<bool> = rows.map(|row| row.head.least != 0).collect();
        (
            rows.len(),
            rows.iter().filter(|has_stack| **has_stack).count(),
        )
    };
    let (_, stacks) = ask(&session, 0, 0);
    println!("flood {:?}, other {:?}, {stacks:?}", of(false), of(true));
    assert_eq!(answer.turned_away, counters.turned_away);
    assert!(of(false).0 >= 2000 && counters.turned_away >= 5000);
    // By chance few of its keys find both sets full.
    assert!(of(true).0 >= 90 && of(true).0 == of(true).1);
    assert_eq!(stacks.full_pidns, answer.turned_away_pidns);
}

test! { core, the_container_that_fills_a_table_is_named }
fn the_container_that_fills_a_table_is_named() {
    let _module = Module::load();
    let mut flood = contained("call_in_loop", "begins_with_push");
    let spec = format!("{}:begins_with_push", flood.file().display());
    let mut count = Running::start(&["count", &spec, "--by", "arg1", "--rows", "16"]);
    count.attached(1);
    flood.call(1000);
    let (code, errors) = count.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    let note = errors
        .lines()
        .find(|line| line.contains("has its share of the rows"));
    // Its pid namespace is no runtime's.
    assert!(
        note.is_some_and(|note| note.contains("(pid namespace ")),
        "{errors}"
    );
}
