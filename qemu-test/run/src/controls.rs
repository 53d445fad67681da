// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that go wrong on purpose, in the ways in which nsprobe could make one go wrong: a
//! runner that calls one of them good would call everything good.

use crate::guest::{Guest, Outcome, Terminal};
use crate::ktap::Verdict;
use crate::results::Results;
use crate::SANITIZE;
use anyhow::{Context, Result};
use std::fs;
use std::time::{Duration, Instant};

/// Seconds that each may take.
const LIMIT_S: u64 = 120;

struct Control {
    name: &'static str,
    /// For the kernel's command line.
    append: &'static str,
    script: &'static str,
    /// Problems of which the run has to have one, by two of their parts.
    wanted: &'static [(&'static str, &'static str)],
}

const CONTROLS: &[Control] = &[
    Control {
        name: "runner.an_oops_is_a_failure",
        append: "",
        script: "echo c >/proc/sysrq-trigger; sleep 60",
        wanted: &[("the kernel stopped", "sysrq triggered crash")],
    },
    // Unloaded text is filled with int3, or mapped no more when all beside it is free, too.
    Control {
        name: "runner.a_probe_that_outlives_its_module_is_a_failure",
        append: "",
        script: "insmod /payload/trouble.ko what=tracepoint; rmmod trouble; /bin/true; \
                 /bin/true; sleep 60",
        wanted: &[
            ("the kernel crashed", "Oops: int3"),
            ("used a wild pointer", "page fault for address: ffffffffc"),
        ],
    },
    Control {
        name: "runner.a_write_to_a_freed_object_is_a_failure",
        append: SANITIZE,
        script: "insmod /payload/trouble.ko what=freed_object; sleep 60",
        wanted: &[("freed slab memory was written", "Poison overwritten")],
    },
];

pub(crate) fn names() -> impl Iterator<Item = String> {
    CONTROLS.iter().map(|control| control.name.to_owned())
}

/// Runs them one after the other.
pub(crate) fn run(guest: &Guest, results: &Results) -> Result<()> {
    CONTROLS.iter().try_for_each(|control| {
        let started = Instant::now();
        let outcome = control.outcome(guest)?;
        let has_passed = control.is_met_by(&outcome);
        results.take(
            "of its own",
            Verdict {
                name: control.name.to_owned(),
                has_passed,
                seconds: started.elapsed().as_secs_f64(),
                idle_percent: 0,
                notes: vec![format!("# the guest came to {outcome:?}")],
            },
        );
        Ok(())
    })
}

impl Control {
    fn outcome(&self, guest: &Guest) -> Result<Outcome> {
        let mut guest = Guest {
            folder: guest.folder.join(self.name),
            cpus: Some(1),
            timeout: Duration::from_secs(LIMIT_S),
            ..guest.clone()
        };
        guest.append(self.append);
        fs::create_dir_all(&guest.folder).with_context(|| guest.folder.display().to_string())?;
        guest.run(self.script, Terminal::Pipe(&mut |_| {}))
    }

    fn is_met_by(&self, outcome: &Outcome) -> bool {
        let has = |(one, other): &(&str, &str)| {
            let mut problems = outcome.problems.iter();
            problems.any(|problem| problem.contains(one) && problem.contains(other))
        };
        self.wanted.iter().any(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_sees_a_good_guest_and_another_trouble() {
        let outcome = |problems: &[&str]| Outcome {
            problems: problems.iter().map(|text| (*text).to_owned()).collect(),
            ..Outcome::default()
        };
        let oops = &CONTROLS[0];
        assert!(oops.is_met_by(&outcome(&["the kernel stopped: sysrq triggered crash"])));
        assert!(!oops.is_met_by(&outcome(&[])));
        assert!(!oops.is_met_by(&outcome(&["the kernel warned: WARNING: x"])));
    }
}
