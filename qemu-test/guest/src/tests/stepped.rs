// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a program whose every instruction or system call a debugger looks at does what it
//! does, and its probes see it all.

use crate::module::Module;
use crate::oracle::within;
use crate::session::{probe_at, Session, RING_BYTES};
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::Pid;
use nsprobe_common::abi::{self, Probe};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Counts calls and returns of a function, with their stacks.
struct Probes {
    session: Session,
    ids: [u32; 2],
}

impl Probes {
    fn new(victim: &Victim, function: &str) -> Probes {
        let place = victim.function(function).offset;
        let session = Session::with_rings(RING_BYTES);
        let ids = [abi::PROBE_ENTRY, abi::PROBE_RETURN].map(|kind| {
            let probe = Probe {
                kind,
                ..probe_at(place, abi::PROBE_STACK)
            };
            session.attach(victim.file(), probe).expect("a probe")
        });
        Probes { session, ids }
    }

    fn hits(&self) -> [u64; 2] {
        self.ids.map(|id| self.session.counters(id).hits)
    }
}

/// Steps through some calls; how many steps that took. Each ends as steps do.
fn step(pid: Pid, probes: &Probes) -> u64 {
    const CALLS: u64 = 15;
    let calls = || {
        let counters = probes.session.counters_on(probes.ids[0], abi::CPU_ALL);
        counters.expect("its id").hits
    };
    let before = calls();
    for steps in 0..5000 {
        if calls() > before + CALLS {
            return steps;
        }
        ptrace::step(pid, None).expect("it is stopped");
        let status = waitpid(pid, None).expect("it is ours");
        assert_eq!(status, WaitStatus::Stopped(pid, Signal::SIGTRAP));
    }
    panic!("steps without end");
}

test! { full, a_program_that_is_stepped_through_its_probes_goes_its_way, module, seconds = 120 }
/// Also through a copy of the instruction out of its line, and through the return's trampoline.
fn a_program_that_is_stepped_through_its_probes_goes_its_way() {
    const CALLS: u64 = 12_000;
    let _module = Module::load();
    for function in ["begins_with_push", "begins_with_lea", "begins_with_nop10"] {
        let mut victim = Victim::caller(function);
        let pid = Pid::from_raw(victim.pid() as i32);
        let place = victim.function(function).offset;
        let probes = Probes::new(&victim, function);
        let witness = Witness::new(victim.file(), place);
        victim.begin(CALLS);
        let is_calling = || witness.hits() > 10;
        assert!(within(Duration::from_secs(20), is_calling));
        ptrace::attach(pid).expect("tests run as root");
        let status = waitpid(pid, None).expect("it is ours");
        assert_eq!(status, WaitStatus::Stopped(pid, Signal::SIGSTOP));
        let steps = step(pid, &probes);
        ptrace::detach(pid, None).expect("it is stopped");
        assert_eq!(victim.finish(), CALLS);
        println!("{function}: {steps} steps");
        assert_eq!(probes.hits(), [CALLS; 2], "{function}");
        assert_eq!(witness.hits(), CALLS, "{function}");
        // Of each call and its caller there are some instructions.
        assert!(steps > 100, "{function}: {steps} steps");
    }
}

test! { full, a_program_whose_system_calls_are_traced_goes_its_way, module }
/// Also where a probe or a return enters the kernel by a system call of its own.
fn a_program_whose_system_calls_are_traced_goes_its_way() {
    const CALLS: u64 = 200;
    let _module = Module::load();
    for function in ["begins_with_push", "begins_with_nop10"] {
        let file = victim::path("call_in_loop");
        let output = format!("/var/tmp/traced-{}", std::process::id());
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", &output]).arg(&file);
        let mut victim = Victim::start_command(command.arg(function), &file);
        let probes = Probes::new(&victim, function);
        victim.call(CALLS);
        victim.end();
        let told = fs::read_to_string(&output).expect("strace wrote it");
        let _ = fs::remove_file(&output);
        assert_eq!(probes.hits(), [CALLS; 2], "{function}");
        let is_well = told.contains("write(1, \"called 200") && !told.contains("--- SIG");
        assert!(is_well, "{function}: {told}");
    }
}
