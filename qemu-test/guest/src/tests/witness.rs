// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: whatever kind of place is probed, the program, the kernel's own tracer at
//! the very same instruction and the traced program itself count the same, whoever
//! of them comes and goes meanwhile.

use crate::binary;
use crate::command::Running;
use crate::module::Module;
use crate::oracle::within;
use crate::victim::Victim;
use crate::witness::Witness;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const SECONDS_20: Duration = Duration::from_secs(20);

/// A kind of place.
struct Kind {
    /// The victim and its arguments.
    victim: &'static [&'static str],
    /// The spec after the program's path, and more words.
    words: &'static [&'static str],
    /// The victim's arguments after the number of rounds.
    order: &'static str,
    /// How many places the kind has there.
    places: usize,
    /// The kernel's probes that count the same, of the places that have breakpoints.
    witnesses: fn(&Path, &[u64]) -> Vec<Witness>,
}

fn at_places(file: &Path, places: &[u64]) -> Vec<Witness> {
    let at = |&place: &u64| Witness::new(file, place);
    places.iter().map(at).collect()
}

fn at_points(file: &Path, places: &[u64]) -> Vec<Witness> {
    let semaphores = binary::section(file, ".probes");
    let at = |&place: &u64| Witness::of_point(file, place, semaphores);
    places.iter().map(at).collect()
}

/// The return probe of a function that begins at the first place.
fn at_returns(file: &Path, places: &[u64]) -> Vec<Witness> {
    let at = |&begin: &u64| Witness::of_return(file, begin);
    places.first().map(at).into_iter().collect()
}

/// Where the marked line is: the victim's source tells in a comment.
const KINDS: &[Kind] = &[
    Kind {
        victim: &["call_in_loop", "begins_with_push"],
        words: &[":begins_with_push"],
        order: "",
        places: 1,
        witnesses: at_places,
    },
    Kind {
        victim: &["call_in_loop", "begins_with_endbr64"],
        words: &[":begins_with_endbr64"],
        order: "",
        places: 1,
        witnesses: at_places,
    },
    Kind {
        victim: &["call_in_loop", "begins_with_push"],
        words: &[":begins_with_push%return"],
        order: "",
        // Where it begins, and its ret.
        places: 2,
        witnesses: at_returns,
    },
    // The lea after push and mov.
    Kind {
        victim: &["call_in_loop", "begins_with_push"],
        words: &[":begins_with_push+0x4"],
        order: "",
        places: 1,
        witnesses: at_places,
    },
    Kind {
        victim: &["kinds"],
        words: &[":kinds.c:28"],
        order: " line",
        places: 1,
        witnesses: at_places,
    },
    Kind {
        victim: &["kinds"],
        words: &[":doubled", "--inlined"],
        order: " inlined",
        places: 2,
        witnesses: at_places,
    },
    Kind {
        victim: &["with_semaphore"],
        words: &[":demo:step"],
        order: "",
        places: 1,
        witnesses: at_points,
    },
];

/// Where breakpoints are in the victim's own functions.
fn probed(victim: &Victim) -> Vec<u64> {
    let functions = binary::functions(victim.file());
    let mut places: Vec<u64> = functions
        .iter()
        .filter(|function| function.bytes > 0)
        .flat_map(|function| victim.changed_places(function.offset, function.bytes))
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}

test! { core, each_kind_of_place_is_counted_as_the_kernel_counts, seconds = 120 }
fn each_kind_of_place_is_counted_as_the_kernel_counts() {
    const ROUNDS: u64 = 1_000;
    let _module = Module::load();
    for kind in KINDS {
        let (name, arguments) = kind.victim.split_first().expect("a name");
        let mut victim = Victim::start(name, arguments);
        let (spec, more) = kind.words.split_first().expect("a spec");
        let spec = format!("{}{spec}", victim.file().display());
        let pid = victim.pid().to_string();
        let words = [&["count", "--json", "-p", &pid, &spec], more].concat();
        let mut running = Running::start(&words);
        let attached = within(SECONDS_20, || probed(&victim).len() == kind.places);
        let places = probed(&victim);
        assert!(attached, "{spec}: breakpoints at {places:x?}");
        let witnesses = (kind.witnesses)(victim.file(), &places);
        let told = victim.order(&format!("{ROUNDS}{}", kind.order));
        // Of the point the victim tells the semaphore; it passes while that is not 0.
        let wanted = match *name {
            "with_semaphore" => told * ROUNDS,
            _ => told,
        };
        let seen: u64 = witnesses.iter().map(Witness::hits).sum();
        kill(Pid::from_raw(running.pid() as i32), Signal::SIGINT).expect("it runs");
        let line = running.wait_for("\"summary\"", SECONDS_20);
        let summary: Value = serde_json::from_str(&line).expect("an object");
        let counted = (&summary["hits"], &summary["aggregated"]);
        println!(
            "{spec} at {places:x?}: {wanted} by the victim, {seen} by tracefs, {counted:?} by nsprobe"
        );
        assert!(wanted > 0, "{spec}: the victim did nothing");
        assert_eq!(seen, wanted, "{spec}: tracefs");
        assert_eq!(counted, (&wanted.into(), &wanted.into()), "{spec}");
        drop((witnesses, running));
        let gone = within(SECONDS_20, || probed(&victim).is_empty());
        assert!(gone, "{spec}: left at {:x?}", probed(&victim));
    }
}
