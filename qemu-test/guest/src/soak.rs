// SPDX-License-Identifier: MIT OR Apache-2.0
//! The long run of `make soak`: a few promises, each at a figure that the tests of every day
//! have no time for. `docs/soak.md` has the figures and what was reached.
//!
//! ```text
//! nsprobe-guest-test --soak SCALE [PART-OF-A-NAME…]
//! ```
//!
//! SCALE multiplies every figure. A part that does less than its figure fails; so does one
//! whose check accepts what it must refuse: each part gives its check something wrong, too.

mod calls;
mod garbage;
mod hits;
mod kills;
mod loads;
mod memory;
mod probes;
mod race;
mod readme;
mod records;
mod sessions;
mod storm;
mod trips;

use crate::run;
use crate::tests::Test;
use memory::Memory;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Hands the scale to the processes that the parts run in.
const SCALE: &str = "NSPROBE_SOAK_SCALE";

const fn part(name: &'static str, run: fn(), limit_s: u64) -> Test {
    Test { name, run, limit_s }
}

/// The parts, each with the seconds that it may take at its full figure.
pub(crate) const PARTS: &[Test] = &[
    part("soak_exact_hits", hits::every_hit_is_counted, 7200),
    part("soak_records", records::every_record_is_right, 7200),
    part("soak_probes_one_inode", probes::on_one_inode, 3600),
    part("soak_probes_many_inodes", probes::on_many_inodes, 3600),
    part(
        "soak_probes_of_a_session",
        probes::until_there_are_no_more,
        3600,
    ),
    part("soak_race", race::nothing_is_lost_under_fire, 21600),
    part("soak_sessions", sessions::sessions_leave_nothing, 28800),
    part("soak_loads", loads::loads_leave_nothing, 7200),
    part("soak_exec_storm", storm::every_process_is_counted, 14400),
    part("soak_garbage", garbage::no_call_does_harm, 14400),
    part(
        "soak_killed_readers",
        kills::killed_readers_leave_nothing,
        14400,
    ),
    part(
        "soak_readme",
        readme::its_command_lines_do_what_they_say,
        1200,
    ),
    part(
        "soak_namespace_trips",
        trips::every_trip_ends_where_it_should,
        7200,
    ),
];

/// What a part may take however small its figure is.
const LEAST_S: u64 = 120;

/// Runs the parts whose names have one of these words in them, or all of them.
pub(crate) fn run(scale: &str, words: &[String]) -> ExitCode {
    let factor = match scale.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= 1000.0 => factor,
        _ => {
            eprintln!("--soak {scale}: a number above 0, 1 for the figures of docs/soak.md");
            return ExitCode::from(2);
        }
    };
    let chosen = |part: &&Test| {
        words.is_empty() || words.iter().any(|word| part.name.contains(word.as_str()))
    };
    let parts: Vec<Test> = PARTS
        .iter()
        .filter(chosen)
        .map(|part| Test {
            limit_s: LEAST_S + (part.limit_s as f64 * factor) as u64,
            ..*part
        })
        .collect();
    if parts.is_empty() {
        eprintln!("no part has such a name: {words:?}");
        return ExitCode::from(2);
    }
    std::env::set_var(SCALE, scale);
    let count = parts.len();
    // They live as long as the program does.
    let manner = run::Manner {
        planned: Some(count),
        shows_all: true,
        ..run::Manner::default()
    };
    run::all(parts.leak().iter(), manner)
}

/// A figure, at the scale of this run.
fn figure(full: u64) -> u64 {
    let scale = std::env::var(SCALE)
        .ok()
        .and_then(|scale| scale.parse().ok());
    let scale: f64 = scale.expect("a part runs with its scale");
    ((full as f64 * scale).ceil() as u64).max(1)
}

/// Tells what was reached of a figure, in the form that `scripts/soak.sh` reads; less than
/// was asked for is a failure.
fn reached(part: &str, asked: u64, reached: u64, unit: &str) {
    println!("soak: {part}: reached {reached} of {asked} {unit}");
    assert!(reached >= asked, "{part}: {reached} of {asked} {unit}");
}

/// Shows that a check is one: what it was given here is wrong, and it has to say so.
fn must_refuse<T: std::fmt::Debug>(part: &str, what: &str, verdict: Result<T, String>) {
    match verdict {
        Err(fault) => println!("soak: {part}: control: {what}: refused: {fault}"),
        Ok(taken) => panic!("{part}: control: {what}: was not refused: {taken:?}"),
    }
}

/// Tells the host now and then how far a part is: its own lines come at its end.
struct Progress {
    part: &'static str,
    asked: u64,
    told: Instant,
}

/// The host gives a guest up that says nothing for some minutes.
const EVERY: Duration = Duration::from_secs(30);

impl Progress {
    fn new(part: &'static str, asked: u64) -> Progress {
        Progress {
            part,
            asked,
            told: Instant::now(),
        }
    }

    fn at(&mut self, done: u64) {
        if self.told.elapsed() < EVERY {
            return;
        }
        self.told = Instant::now();
        let line = format!("nsprobe-guest: {} {done} of {}\n", self.part, self.asked);
        let _ = fs::write("/dev/kmsg", line);
    }
}
