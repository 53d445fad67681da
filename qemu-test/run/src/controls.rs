// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that go wrong on purpose, in the ways in which nsprobe could make one go wrong. Each
//! must be a failed run, for the right reason, and none may be taken for a crash of QEMU's own.
//! Beside them those in which the kernel refuses what the tests need, until its next boot.
//!
//! Each is a stage like those of the tests, with a script in the place of the tests, and goes
//! all the way to the judgement on a run.

use crate::catalogue::Test;
use crate::guest::Guest;
use crate::ktap::{Ending, Verdict};
use crate::results::{Judgement, NO_KERNEL};
use crate::shared::Run;
use crate::suite::Stage;
use crate::SANITIZE;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
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
    /// Tests that are planned.
    tests: &'static [&'static str],
    /// What runs in the guest, and prints KTAP.
    script: &'static str,
    /// How long the guest may be silent.
    silence_s: u64,
    wanted: Wanted,
}

/// What the run must come to.
enum Wanted {
    Good,
    /// Good, and this is said of it.
    Remark(&'static str),
    /// A failed run with a problem that has these parts.
    Problem(&'static str, &'static str),
    /// A failed run, as the kernel ran what was unloaded: it is filled with int3, or mapped
    /// no more when all that lay beside it is free, too.
    RanUnloaded,
    /// A failed run, as this test failed for a reason that begins so.
    Failed(&'static str, &'static str),
}

/// The begin of a script that has one test, `t`.
macro_rules! begins {
    ($script:expr) => {
        concat!("echo KTAP version 1; echo '# begins: t'; ", $script)
    };
}

/// The test passes.
macro_rules! passes {
    ($script:expr) => {
        concat!(begins!($script), " && echo ok 1 t; echo 1..1")
    };
}

/// Waits for the trouble that was begun; the test of its absence is its end.
macro_rules! then_wait {
    ($script:expr) => {
        concat!(begins!($script), "; sleep 60")
    };
}

/// What most have in common.
const CONTROL: Control = Control {
    name: "",
    append: "",
    tests: &["t"],
    script: "",
    silence_s: LIMIT_S,
    wanted: Wanted::Good,
};

const CONTROLS: &[Control] = &[
    Control {
        name: "a_good_guest_is_no_failure",
        script: passes!("insmod /payload/nsprobe.ko && rmmod nsprobe"),
        ..CONTROL
    },
    Control {
        name: "a_kernel_that_is_locked_down_later_refuses_by_and_by",
        script: passes!("/payload/nsprobe-guest-test --role lock-down"),
        ..CONTROL
    },
    Control {
        name: "a_kernel_that_is_locked_down_takes_no_module_without_a_signature",
        append: "lockdown=integrity",
        script: passes!("/payload/nsprobe-guest-test --role locked-down"),
        ..CONTROL
    },
    // The kernel's complaint of the name has a stack, which is not for the console.
    Control {
        name: "a_device_of_the_same_name_is_an_error_of_the_load",
        script: passes!(
            "dmesg -n 2 && insmod /payload/trouble.ko what=name && ! insmod /payload/nsprobe.ko \
             && rmmod trouble && dmesg -n 7 && insmod /payload/nsprobe.ko \
             && /payload/nsprobe status && rmmod nsprobe"
        ),
        ..CONTROL
    },
    Control {
        name: "an_oops_is_a_failure",
        script: then_wait!("echo c >/proc/sysrq-trigger"),
        wanted: Wanted::Problem("the kernel stopped", "sysrq triggered crash"),
        ..CONTROL
    },
    Control {
        name: "a_breakpoint_that_was_left_in_the_kernel_is_a_failure",
        script: then_wait!("insmod /payload/trouble.ko what=breakpoint"),
        wanted: Wanted::Problem("the kernel crashed", "Oops: int3"),
        ..CONTROL
    },
    Control {
        name: "a_tracepoint_probe_that_outlives_its_module_is_a_failure",
        script: then_wait!(
            "insmod /payload/trouble.ko what=tracepoint; rmmod trouble; /bin/true; /bin/true"
        ),
        wanted: Wanted::RanUnloaded,
        ..CONTROL
    },
    Control {
        name: "a_timer_that_outlives_its_module_is_a_failure",
        script: then_wait!("insmod /payload/trouble.ko what=timer; rmmod trouble"),
        wanted: Wanted::RanUnloaded,
        ..CONTROL
    },
    Control {
        name: "an_irq_work_that_outlives_its_module_is_a_failure",
        script: then_wait!("insmod /payload/trouble.ko what=irq_work; rmmod trouble"),
        wanted: Wanted::RanUnloaded,
        ..CONTROL
    },
    Control {
        name: "a_warning_is_a_failure",
        script: then_wait!("insmod /payload/trouble.ko what=warning"),
        wanted: Wanted::Problem("the kernel warned", "trouble"),
        ..CONTROL
    },
    Control {
        name: "a_stalled_cpu_is_a_failure",
        // Behind the boot, which has stalls of its own when the host is busy.
        script: then_wait!(
            "echo 3 >/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout; \
             insmod /payload/trouble.ko what=stall"
        ),
        wanted: Wanted::Problem("an RCU reader does not end", "stall"),
        ..CONTROL
    },
    Control {
        name: "a_task_that_hangs_is_a_failure",
        append: "sysctl.kernel.hung_task_sys_info=tasks",
        script: then_wait!(
            "echo 2 >/proc/sys/kernel/hung_task_timeout_secs; \
             insmod /payload/trouble.ko what=hang"
        ),
        wanted: Wanted::Problem("a task hangs in the kernel", "trouble"),
        ..CONTROL
    },
    Control {
        name: "a_freed_object_that_is_written_is_a_failure_where_memory_is_checked",
        append: SANITIZE,
        script: then_wait!("insmod /payload/trouble.ko what=freed_object"),
        wanted: Wanted::Problem("freed slab memory was written", "Poison overwritten"),
        ..CONTROL
    },
    Control {
        name: "a_freed_object_that_is_read_is_a_failure_where_memory_is_checked",
        append: SANITIZE,
        script: then_wait!("insmod /payload/trouble.ko what=guarded_object"),
        wanted: Wanted::Problem("use of freed or foreign", "KFENCE: use-after-free read"),
        ..CONTROL
    },
    Control {
        name: "a_freed_page_that_is_written_is_a_failure_where_memory_is_checked",
        append: SANITIZE,
        script: then_wait!("insmod /payload/trouble.ko what=freed_page"),
        wanted: Wanted::Problem("a freed page was written", "memory corruption"),
        ..CONTROL
    },
    Control {
        name: "an_end_without_a_verdict_is_a_failure",
        script: begins!("echo o >/proc/sysrq-trigger; sleep 60"),
        wanted: Wanted::Problem("the guest ended without a verdict", ""),
        ..CONTROL
    },
    Control {
        name: "a_silent_guest_is_a_failure",
        script: begins!("sleep 1000"),
        silence_s: 20,
        wanted: Wanted::Problem("silent for", ""),
        ..CONTROL
    },
    Control {
        name: "a_test_that_is_left_in_the_queue_is_a_failure",
        tests: &["t", "u"],
        script: passes!("true"),
        wanted: Wanted::Failed("u", "0 verdicts where 1 were due"),
        ..CONTROL
    },
    Control {
        name: "a_skip_that_is_not_listed_is_a_failure",
        script: begins!("echo 'ok 1 t # SKIP no reason'; echo 1..1"),
        wanted: Wanted::Failed("t", "skipped, which no list allows"),
        ..CONTROL
    },
    // What it says is said by no processor's kernel: see `oops.rs`.
    Control {
        name: "a_guest_that_dies_of_qemu_is_followed_by_another_one",
        script: begins!(
            "if mkdir /run/queue/died 2>/dev/null; then
                say() { echo \"<1>$*\" >/dev/kmsg; }
                say 'Oops: int3: 0000 [#1] SMP'; say 'RIP: 0010:f+0x1/0x2'
                say 'Code: 66 90 0f 1f 44 <00> 00'
                echo o >/proc/sysrq-trigger; sleep 60
            fi
            echo ok 1 t; echo '# begins: t'; echo ok 2 t; echo 1..2"
        ),
        wanted: Wanted::Remark(OF_QEMU),
        ..CONTROL
    },
];

/// What is said of a guest that another one followed.
const OF_QEMU: &str = "died of QEMU's own doing";

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
            results.plan(&control.full_name(), LIMIT_S, NO_KERNEL);
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
        let started = Instant::now();
        let judgement = self.judged(guest)?;
        let wrong = self.wanted.is_missed_by(&judgement);
        // Such as that of a boot that was tried again.
        let others = judgement.remarks.into_iter();
        for remark in others.filter(|remark| !remark.contains(OF_QEMU)) {
            run.results().remark(remark);
        }
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

    /// What a run of this guest alone comes to.
    fn judged(&self, guest: &Guest) -> Result<Judgement> {
        let folder = guest.folder.join(self.full_name());
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let mut guest = Guest {
            folder,
            cpus: Some(1),
            timeout: Duration::from_secs(LIMIT_S),
            silence: Duration::from_secs(self.silence_s),
            ..guest.clone()
        };
        guest.append(self.append);
        if let Wanted::Remark(_) = self.wanted {
            // Only there may a crash be QEMU's own.
            guest.accel = "tcg".into();
        }
        let test = |name: &&str| Test {
            name: (*name).to_owned(),
            limit_s: LIMIT_S,
            tags: BTreeSet::new(),
        };
        let stage = Stage {
            prefix: "",
            tests: self.tests.iter().map(test).collect(),
            guests: 1,
            guest,
            seed: 0,
            shows_all: false,
            script: Some(self.script),
        };
        let run = Run::quiet();
        run.plan(&stage);
        stage.run(&run)?;
        let judgement = run.results().judge();
        Ok(judgement)
    }
}

impl Wanted {
    /// Why this judgement is not the one that is wanted.
    fn is_missed_by(&self, judgement: &Judgement) -> Option<String> {
        let has_remark = |part: &str| {
            let mut remarks = judgement.remarks.iter();
            remarks.any(|remark| remark.contains(part))
        };
        let has_problem = |one: &str, other: &str| {
            let mut problems = judgement.problems.iter();
            problems.any(|problem| problem.contains(one) && problem.contains(other))
        };
        let is_good = judgement.status() == 0 && judgement.failed.is_empty();
        let is_met = match self {
            Wanted::Good => is_good && !has_remark(OF_QEMU),
            Wanted::Remark(part) => is_good && has_remark(part),
            Wanted::Problem(one, other) => has_problem(one, other),
            Wanted::RanUnloaded => {
                has_problem("the kernel crashed", "Oops: int3")
                    || has_problem("used a wild pointer", "page fault for address: ffffffffc")
            }
            Wanted::Failed(test, why) => {
                let mut failed = judgement.failed.iter();
                failed.any(|(name, reason)| name == test && reason.starts_with(why))
            }
        };
        let is_right = match self {
            Wanted::Good | Wanted::Remark(_) => is_met,
            _ => is_met && judgement.status() == 1 && !has_remark(OF_QEMU),
        };
        (!is_right).then(|| format!("the run came to {judgement:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Results;

    fn judged(problem: Option<&str>, remark: Option<&str>) -> Judgement {
        let mut results = Results::default();
        results.plan("t", 1, NO_KERNEL);
        let verdict = Verdict {
            name: "t".into(),
            ending: Ending::Passed,
            seconds: 0.0,
            idle_percent: 0,
            notes: Vec::new(),
        };
        results.add("t", "a", verdict);
        if let Some(text) = problem {
            results.problem(text.into());
        }
        if let Some(text) = remark {
            results.remark(text.into());
        }
        results.judge()
    }

    #[test]
    fn a_control_sees_what_is_not_as_it_must_be() {
        let is_met = |wanted: Wanted, judgement: &Judgement| {
            let missed = wanted.is_missed_by(judgement);
            missed.is_none()
        };
        let good = judged(None, None);
        let bad = judged(Some("a: the kernel warned: WARNING: x"), None);
        let of_qemu = judged(Some("a: the kernel warned: WARNING: x"), Some(OF_QEMU));
        assert!(is_met(Wanted::Good, &good) && !is_met(Wanted::Good, &bad));
        let warned = || Wanted::Problem("the kernel warned", "x");
        assert!(is_met(warned(), &bad));
        assert!(!is_met(warned(), &good) && !is_met(warned(), &of_qemu));
        assert!(!is_met(Wanted::Problem("the kernel warned", "y"), &bad));
        assert!(!is_met(Wanted::Failed("t", ""), &good));
        assert!(!is_met(Wanted::Remark(OF_QEMU), &good));
        assert!(is_met(
            Wanted::Remark(OF_QEMU),
            &judged(None, Some(OF_QEMU))
        ));
    }
}
