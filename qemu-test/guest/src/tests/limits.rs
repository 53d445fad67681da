// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what is not to be delivered is counted under its reason, and a probe that
//! slows the machine is turned off and says so.

use crate::command;
use crate::module::Module;
use crate::records::Records;
use crate::session::{probe_at, Session, RING_BYTES};
use crate::steps::{constant, register, step};
use crate::sys;
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nsprobe_common::abi::{self, Counters, Probe, Refusal};
use nsprobe_common::limit::RATE_MAX;
use nsprobe_common::program::{Operation, Register};
use nsprobe_common::record::HIT_RETURN;
use std::process::Command;
use std::time::{Duration, Instant};

/// A session with one limited probe.
fn limited(victim: &Victim, wanted: Probe) -> (Session, u32) {
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    let probe = Probe {
        offset: function.offset,
        ..wanted
    };
    let id = session.attach(victim.file(), probe).expect("it is right");
    (session, id)
}

/// One whose hits one CPU counts.
fn on_one_cpu() -> Victim {
    sys::run_on(1);
    let victim = Victim::caller("begins_with_push");
    sys::run_on(u64::MAX >> 1);
    victim
}

test! { full, one_in_so_many_is_delivered, module }
fn one_in_so_many_is_delivered() {
    let _module = Module::load();
    let mut victim = on_one_cpu();
    let every = Probe {
        every: 7,
        ..probe_at(0, 0)
    };
    let (session, id) = limited(&victim, every);
    assert_eq!(victim.call(700), 700);
    let counters = session.counters(id);
    println!("{counters:?}");
    assert_eq!(
        (counters.hits, counters.recorded, counters.skipped),
        (700, 100, 600)
    );
    let records = Records::of(&session);
    let numbers: Vec<u32> = records.hits.iter().map(|(hit, _)| hit.sequence).collect();
    let wanted: Vec<u32> = (0..100).map(|index| 7 * index + 1).collect();
    assert_eq!(numbers, wanted);
}

test! { full, a_rate_lets_a_burst_through_and_counts_the_rest, module }
fn a_rate_lets_a_burst_through_and_counts_the_rest() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let rate = Probe {
        rate: 10,
        burst: 25,
        ..probe_at(0, 0)
    };
    let (session, id) = limited(&victim, rate);
    victim.call(5_000);
    let counters = session.counters(id);
    println!("{counters:?}");
    let records = Records::of(&session);
    let times: Vec<u64> = records.hits.iter().map(|(hit, _)| hit.time_ns).collect();
    let span_ns = times.iter().max().expect("some") - times.iter().min().expect("some");
    // The burst, and a token for each tenth of a second that it took: not one more.
    let most = 25 + span_ns / 100_000_000;
    assert!((25..=most).contains(&counters.recorded), "{counters:?}");
    assert_eq!(counters.recorded + counters.limited, 5_000);
    assert_eq!(records.hits.len() as u64, counters.recorded);
    // A second is ten more.
    std::thread::sleep(Duration::from_secs(1));
    victim.call(100);
    let later = session.counters(id).recorded;
    assert!(later >= counters.recorded + 10, "{later}, {counters:?}");
}

test! { full, of_a_call_both_ends_are_delivered_or_none, module }
fn of_a_call_both_ends_are_delivered_or_none() {
    let _module = Module::load();
    let mut victim = on_one_cpu();
    let call = Probe {
        kind: abi::PROBE_CALL,
        every: 10,
        ..probe_at(0, 0)
    };
    let (session, id) = limited(&victim, call);
    victim.call(200);
    let counters = session.counters(id);
    println!("{counters:?}");
    let records = Records::of(&session);
    let is_return = |index: usize| records.hits[index].0.flags & HIT_RETURN != 0;
    assert_eq!(records.hits.len(), 40);
    assert!((0..40).all(|index| is_return(index) == (index % 2 == 1)));
    // The returns of calls that were left out are no hits at all.
    assert_eq!((counters.hits, counters.skipped), (220, 180));
}

test! { full, what_does_not_match_takes_no_tokens, module }
fn what_does_not_match_takes_no_tokens() {
    let _module = Module::load();
    let mut victim = on_one_cpu();
    // arg1 counts from 0 on in each line: 30 of 100 are required.
    let steps = [
        register(0, Register::Rdi),
        constant(1, 30),
        step(Operation::Below, 2, 0, 1, 0, 0),
        step(Operation::Require, 0, 2, 0, 0, 0),
    ];
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    let program = session.upload(&steps, &[]).expect("it is right");
    let probe = Probe {
        entry_program: program,
        every: 3,
        ..probe_at(victim.function("begins_with_push").offset, 0)
    };
    let id = session.attach(victim.file(), probe).expect("it is right");
    victim.call(100);
    let counters = session.counters(id);
    println!("{counters:?}");
    let parts = (counters.recorded, counters.skipped, counters.rejected);
    assert_eq!(parts, (10, 20, 70));
}

/// Calls until the probe is off; how many hits it took.
fn run_away(victim: &mut Victim, session: &Session, id: u32) -> Counters {
    for _ in 0..100 {
        victim.call(20_000);
        let counters = session.counters(id);
        if counters.off > 0 {
            return counters;
        }
    }
    panic!("it is still on: {:?}", session.counters(id));
}

test! { core, a_runaway_probe_is_turned_off_and_says_so, module }
fn a_runaway_probe_is_turned_off_and_says_so() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let offset = victim.function("begins_with_push").offset;
    let wild = Probe {
        runaway: 1_000,
        sink: abi::SINK_COUNT,
        ..probe_at(0, 0)
    };
    let (session, id) = limited(&victim, wild);
    let counters = run_away(&mut victim, &session, id);
    println!("{counters:?}");
    assert_eq!(counters.aggregated + counters.off, counters.hits);
    let records = Records::of(&session);
    let [off] = records.off.as_slice() else {
        panic!("{:?}", records.off);
    };
    assert_eq!((off.probe, off.limit), (id, 1_000));
    // The process has lost the breakpoint, and new ones do not get it.
    assert!(victim.text_is_restored(offset));
    let witness = Witness::new(victim.file(), offset);
    victim.call(1_000);
    assert_eq!(
        session.counters(id).hits,
        counters.hits + 1_000,
        "the witness arms it anew"
    );
    assert_eq!(session.counters(id).off, counters.off + 1_000);
    assert_eq!(witness.hits(), 1_000);
    drop(witness);
    let mut other = Command::new(victim::path("call_in_loop"));
    let output = other.args(["begins_with_push", "500", "0"]).output();
    assert!(output.expect("it runs").status.success());
    assert_eq!(session.counters(id).hits, counters.hits + 1_000);
    // A steady probe stays.
    let calm = Probe {
        runaway: RATE_MAX,
        sink: abi::SINK_COUNT,
        ..probe_at(0, 0)
    };
    let (session, id) = limited(&victim, calm);
    victim.call(20_000);
    let counters = session.counters(id);
    assert_eq!((counters.aggregated, counters.off), (20_000, 0));
}

test! { full, limits_that_cannot_be_are_refused, module }
fn limits_that_cannot_be_are_refused() {
    let _module = Module::load();
    let victim = Victim::caller("begins_with_push");
    let offset = victim.function("begins_with_push").offset;
    let session = Session::with_rings(RING_BYTES);
    let plain = probe_at(offset, 0);
    let bad = [
        Probe {
            rate: RATE_MAX + 1,
            ..plain
        },
        Probe {
            rate: u32::MAX,
            ..plain
        },
        Probe { burst: 1, ..plain },
        Probe {
            runaway: RATE_MAX + 1,
            ..plain
        },
    ];
    for probe in bad {
        let (error, reply) = session
            .attach(victim.file(), probe)
            .expect_err("it is wrong");
        assert_eq!(reply.reason, Refusal::BadLimit as u32, "{error} {probe:?}");
    }
    assert!(victim.text_is_restored(offset));
}

/// Standard output and error of a trace of a command that makes 10,000 calls.
fn traced(verb: &str, options: &[&str]) -> (String, String) {
    let path = victim::path("call_in_loop");
    let spec = format!("{}:begins_with_push", path.display());
    let path = path.to_str().expect("a plain name");
    let command = [&spec, "--", path, "begins_with_push", "10000", "0"];
    let got = command::run(&[&[verb], options, &command].concat()).succeeded();
    println!("{}", got.stderr);
    (got.stdout, got.stderr)
}

test! { core, a_user_limits_a_trace, module }
fn a_user_limits_a_trace() {
    let _module = Module::load();
    sys::run_on(1);
    let (out, err) = traced("trace", &["--every", "1000"]);
    sys::run_on(u64::MAX >> 1);
    let hits = |out: &str| {
        out.lines()
            .filter(|line| line.ends_with("begins_with_push"))
            .count()
    };
    assert_eq!(hits(&out), 10);
    assert!(err.contains("10000 hits = 10 recorded + 0 filtered + 9990 skipped (--every)"));
    let begun = Instant::now();
    let (out, err) = traced("trace", &["--rate", "1:5"]);
    let most = 5 + begun.elapsed().as_secs() as usize + 1;
    assert!((5..=most).contains(&hits(&out)), "{out}");
    assert!(err.contains("over the limit (--rate)"));
    let (_, err) = traced("count", &["--runaway", "100"]);
    assert!(err.contains("begins_with_push was turned off: it was hit more than 100 times"));
    assert!(err.contains("after it was turned off (--runaway)"));
    let (out, _) = traced("trace", &["--json", "--runaway", "100"]);
    let off = out.lines().find(|line| line.contains("\"type\":\"off\""));
    assert!(
        off.expect("it is told").contains("\"limit\":100"),
        "{off:?}"
    );
    for bad in [
        ["--rate", "0"],
        ["--every", "0"],
        ["--rate", "5:x"],
        ["--runaway", "x"],
    ] {
        let got = command::run(&[&["trace"], &bad[..], &["/bin/true:main"]].concat());
        assert_eq!(got.code, 2, "{bad:?}: {got:#?}");
    }
}
