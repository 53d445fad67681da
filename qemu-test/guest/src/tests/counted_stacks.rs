// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: stacks that are counted are as whole as those that are printed: the first ones
//! through a file, and those in the swap, too.

use crate::command::{self, Running};
use crate::fresh::Fresh;
use crate::module::Module;
use crate::session::{probe_at, Session};
use crate::stack::Stack;
use crate::swap::Swap;
use crate::victim::{self, Victim};
use nix::libc;
use nsprobe_common::abi;
use serde_json::Value;
use std::time::Duration;

/// The stacks of the total's lines with their counts, and the summary.
fn rows<'a>(lines: impl Iterator<Item = &'a str>) -> (Vec<(Stack, u64)>, Value) {
    let (mut rows, mut summary) = (Vec::new(), Value::Null);
    for line in lines.filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        match line["type"].as_str() {
            Some("row") if line["of"] == "total" => {
                rows.push((Stack::of(&line), line["count"].as_u64().expect("one")))
            }
            Some("summary") => summary = line,
            _ => {}
        }
    }
    (rows, summary)
}

fn number(summary: &Value, name: &str) -> u64 {
    let number = summary["stacks"][name].as_u64();
    number.unwrap_or_else(|| panic!("{name}: {summary}"))
}

test! { full, counted_stacks_of_fresh_containers_are_whole, seconds = 120 }
fn counted_stacks_of_fresh_containers_are_whole() {
    const PROGRAMS: u64 = 20;
    let _module = Module::load();
    let fresh = Fresh::new();
    let words = [
        "stacks", "--json", "--comm", "fresh", "-i", "1", "--top", "1000",
    ];
    let mut running = Running::start(&[&words[..], &["libc.so.6:write"]].concat());
    running.attached(1);
    // It counts once a first interval shows something.
    let mut first = 0;
    while running.next_line(Duration::from_millis(500)).is_none() {
        fresh.run(&["write", "1"]);
        first += 1;
        assert!(first < 100, "nothing is counted");
    }
    (0..PROGRAMS).for_each(|_| fresh.run(&["write", "1"]));
    std::thread::sleep(Duration::from_millis(500));
    let (code, lines, errors) = running.finish();
    println!("{errors}");
    assert_eq!(code, Some(0));
    let (rows, summary) = rows(lines.iter().map(String::as_str));
    let mut called = 0;
    for (Stack { frames, end }, count) in &rows {
        assert_eq!(end, "outermost", "{frames:#?}");
        let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(names.last(), Some(&"_start"), "{frames:#?}");
        if names[1..4] == ["with_write", "chosen", "main"] {
            called += count;
        }
    }
    println!("{called} calls in {} rows", rows.len());
    assert!((PROGRAMS..=PROGRAMS + first).contains(&called));
    assert!(
        number(&summary, "finished_from_copies") >= PROGRAMS,
        "{summary}"
    );
    assert_eq!(
        (number(&summary, "cut"), &summary["balanced"]),
        (0, &true.into())
    );
}

test! { full, counted_stacks_in_the_swap_are_whole, seconds = 180 }
fn counted_stacks_in_the_swap_are_whole() {
    const CALLS: u64 = 100;
    let _module = Module::load();
    let _swap = Swap::on();
    let path = victim::path("paged_out");
    let path = path.to_str().expect("a plain name");
    let (spec, calls) = (format!("{path}:bottom"), CALLS.to_string());
    let got = command::run(&["stacks", "--json", &spec, "--", path, &calls]).succeeded();
    let (rows, summary) = rows(got.lines());
    let mut counted = 0;
    for (Stack { frames, end }, count) in &rows {
        let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(names[..2], ["bottom", "page_out"], "{frames:#?}");
        assert_eq!((names.last(), end.as_str()), (Some(&"_start"), "outermost"));
        counted += count;
    }
    assert_eq!((counted, rows.len()), (CALLS, 1), "{rows:#?}");
    let late = number(&summary, "taken_late");
    println!("{late} taken late");
    assert!(
        late > CALLS / 2 && number(&summary, "cut") == 0,
        "{summary}"
    );
}

test! { full, spans_and_counts_have_no_stacks_that_come_later }
fn spans_and_counts_have_no_stacks_that_come_later() {
    let _module = Module::load();
    let victim = Victim::caller("begins_with_push");
    let place = victim.function("begins_with_push");
    let session = Session::with_rings(1 << 16);
    for flag in [abi::PROBE_COPIES, abi::PROBE_LATE] {
        for sink in [abi::SINK_COUNT, abi::SINK_SPAN] {
            let probe = abi::Probe {
                sink,
                ..probe_at(place.offset, abi::PROBE_STACK | flag)
            };
            let (error, reply) = session
                .attach(victim.file(), probe)
                .expect_err("it is wrong");
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            assert_eq!(reply.reason, abi::Refusal::UnknownValue as u32);
        }
    }
}
