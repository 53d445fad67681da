// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that go wrong on purpose, in the ways in which nsprobe could make one go wrong. Each
//! must be a failed run, for the right reason, and none may be taken for a crash of QEMU's own.

use crate::guest::{Guest, Outcome, Terminal};
use crate::ktap::{Ending, Verdict};
use crate::suite::{remark_boots, Run};
use anyhow::{Context, Result};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Stands in front of the controls' names.
const PREFIX: &str = "runner.";

/// Seconds that each may take.
const LIMIT_S: u64 = 120;

/// One guest that goes wrong.
struct Control {
    name: &'static str,
    /// For the kernel's command line.
    append: &'static str,
    command: &'static str,
    /// How the run's one problem begins, and what else is in it; empty for a good run.
    problem: (&'static str, &'static str),
}

/// Waits for the trouble that was begun; the test of its absence is its end.
macro_rules! then_wait {
    ($command:literal) => {
        concat!($command, "; sleep 60")
    };
}

const CONTROLS: &[Control] = &[
    Control {
        name: "a_good_guest_is_no_failure",
        append: "",
        command: "insmod /payload/nsprobe.ko && rmmod nsprobe",
        problem: ("", ""),
    },
    Control {
        name: "an_oops_is_a_failure",
        append: "",
        command: then_wait!("echo c >/proc/sysrq-trigger"),
        problem: ("the kernel stopped", "sysrq triggered crash"),
    },
    Control {
        name: "a_breakpoint_that_was_left_in_the_kernel_is_a_failure",
        append: "",
        command: then_wait!("insmod /payload/trouble.ko what=breakpoint"),
        problem: ("the kernel crashed", "Oops: int3"),
    },
    Control {
        name: "a_tracepoint_probe_that_outlives_its_module_is_a_failure",
        append: "",
        command: then_wait!(
            "insmod /payload/trouble.ko what=tracepoint; rmmod trouble; /bin/true; /bin/true"
        ),
        problem: ("the kernel crashed", "Oops: int3"),
    },
    Control {
        name: "a_timer_that_outlives_its_module_is_a_failure",
        append: "",
        command: then_wait!("insmod /payload/trouble.ko what=timer; rmmod trouble"),
        problem: ("the kernel crashed", "Oops: int3"),
    },
    Control {
        name: "an_irq_work_that_outlives_its_module_is_a_failure",
        append: "",
        command: then_wait!("insmod /payload/trouble.ko what=irq_work; rmmod trouble"),
        problem: ("the kernel crashed", "Oops: int3"),
    },
    Control {
        name: "a_warning_is_a_failure",
        append: "",
        command: then_wait!("insmod /payload/trouble.ko what=warning"),
        problem: ("the kernel warned", "trouble"),
    },
    Control {
        name: "a_stalled_cpu_is_a_failure",
        append: "rcupdate.rcu_cpu_stall_timeout=3",
        command: then_wait!("insmod /payload/trouble.ko what=stall"),
        problem: ("an RCU reader does not end", "stall"),
    },
    Control {
        name: "a_task_that_hangs_is_a_failure",
        append: "sysctl.kernel.hung_task_timeout_secs=2",
        command: then_wait!("insmod /payload/trouble.ko what=hang"),
        problem: ("a task hangs in the kernel", "trouble"),
    },
    Control {
        name: "an_end_without_a_verdict_is_a_failure",
        append: "",
        command: "echo o >/proc/sysrq-trigger; sleep 60",
        problem: ("the guest ended without a verdict", ""),
    },
    Control {
        name: "a_silent_guest_is_a_failure",
        append: "",
        command: "while :; do :; done",
        problem: ("silent for", ""),
    },
];

/// Controls that were chosen.
pub(crate) struct Controls(Vec<&'static Control>);

impl Controls {
    pub(crate) fn all() -> Controls {
        Controls(CONTROLS.iter().collect())
    }

    /// The one that is called so, with its prefix.
    pub(crate) fn named(name: &str) -> Option<Controls> {
        let control = CONTROLS
            .iter()
            .find(|control| control.full_name() == name)?;
        Some(Controls(vec![control]))
    }

    /// Says which are to come.
    pub(crate) fn plan(&self, run: &Run) {
        let mut results = run.results();
        for control in &self.0 {
            results.plan(&control.full_name(), LIMIT_S);
        }
    }

    /// Runs them, `side_by_side` at a time.
    pub(crate) fn run(&self, run: &Run, guest: &Guest, side_by_side: usize) -> Result<()> {
        eprintln!(
            "qemu-test: guests that must be seen to go wrong: {}",
            self.0.len()
        );
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            while let Some(control) = self.0.get(next.fetch_add(1, Ordering::Relaxed)) {
                control.run(run, guest)?;
            }
            Ok(())
        };
        side_by_side_do(side_by_side, work)
    }
}

/// Does the work in this number of threads; the first error.
fn side_by_side_do(threads: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        for worker in workers {
            match worker.join() {
                Ok(ended) => ended?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })
}

impl Control {
    fn full_name(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }

    fn run(&self, run: &Run, guest: &Guest) -> Result<()> {
        let folder = guest.folder.join(format!("{PREFIX}{}", self.name));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let guest = Guest {
            folder,
            append: format!("{} {}", guest.append, self.append),
            cpus: Some(1),
            timeout: Duration::from_secs(LIMIT_S),
            silence: Duration::from_secs(30),
            ..guest.clone()
        };
        let started = Instant::now();
        let outcome = guest.run(self.command, Terminal::Pipe(&mut |_| {}))?;
        remark_boots(&mut run.results(), &guest.name(), &outcome);
        let wrong = self.what_is_wrong(&outcome, guest.died_of_qemu()?);
        let verdict = Verdict {
            name: self.name.into(),
            ending: if wrong.is_none() {
                Ending::Passed
            } else {
                Ending::Failed
            },
            seconds: started.elapsed().as_secs_f64(),
            idle_percent: 0,
            notes: wrong.into_iter().map(|line| format!("# {line}")).collect(),
        };
        run.take(&self.full_name(), "of its own", verdict, false);
        Ok(())
    }

    /// Why this outcome is not the one that this guest must have.
    fn what_is_wrong(&self, outcome: &Outcome, is_qemus: bool) -> Option<String> {
        let (begin, part) = self.problem;
        let told = &outcome.problems;
        if begin.is_empty() {
            let is_good = told.is_empty() && outcome.status == Some(0);
            return (!is_good).then(|| format!("status {:?}, problems {told:?}", outcome.status));
        }
        if is_qemus {
            return Some(format!("it counts as QEMU's own: {told:?}"));
        }
        let is_seen = told
            .iter()
            .any(|problem| problem.starts_with(begin) && problem.contains(part));
        (!is_seen).then(|| format!("no problem {begin:?} with {part:?} in {told:?}"))
    }
}
