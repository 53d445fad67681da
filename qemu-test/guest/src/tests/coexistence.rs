// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: other tracers at the same instruction see what they would without us, in
//! whatever order all come and go, and the program does not notice.

use crate::command::Running;
use crate::module::Module;
use crate::oracle::SOON;
use crate::perf_event::PerfEvent;
use crate::processes::is_asleep;
use crate::session::{probe_at, Session, RING_BYTES};
use crate::victim::Victim;
use crate::witness::Witness;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use nsprobe_common::abi::{self, Probe};
use std::io::Read;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

const FUNCTION: &str = "begins_with_push";

/// Somebody who counts hits of one instruction.
enum Party {
    Ours(Session, u32),
    Theirs(Witness),
    PerfWithBpf(PerfEvent),
}

impl Party {
    fn new(kind: usize, victim: &Victim) -> Party {
        let offset = victim.function(FUNCTION).offset;
        match kind {
            0 | 1 => {
                let session = Session::with_rings(RING_BYTES);
                let probe = Probe {
                    kind: [abi::PROBE_ENTRY, abi::PROBE_RETURN][kind],
                    sink: abi::SINK_COUNT,
                    ..probe_at(offset, 0)
                };
                let id = session.attach(victim.file(), probe).expect("a probe");
                Party::Ours(session, id)
            }
            2 => Party::Theirs(Witness::new(victim.file(), offset)),
            3 => Party::Theirs(Witness::of_return(victim.file(), offset)),
            _ => Party::PerfWithBpf(PerfEvent::new(victim.file(), offset, victim.pid())),
        }
    }

    fn hits(&self) -> u64 {
        match self {
            Party::Ours(session, id) => session.counters(*id).hits,
            Party::Theirs(witness) => witness.hits(),
            Party::PerfWithBpf(event) => {
                let [perf, bpf] = event.hits();
                assert_eq!(perf, bpf, "perf and its BPF program");
                perf
            }
        }
    }
}

/// All orders of this number of things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        let longer = all.iter().flat_map(|order: &Vec<usize>| {
            let left = (0..count).filter(|next| !order.contains(next));
            left.map(|next| [order.as_slice(), &[next]].concat())
        });
        all = longer.collect();
    }
    all
}

/// gdb with a breakpoint that never stops.
struct Debugger {
    gdb: Child,
    stdout: ChildStdout,
}

impl Debugger {
    fn new(victim: &Victim) -> Debugger {
        let mut command = Command::new("gdb");
        command.args(["-nx", "-batch", "-iex", "set debuginfod enabled off"]);
        command.args(["-p", &victim.pid().to_string()]);
        // Its output to a pipe comes late.
        let told = format!("/var/tmp/gdb-of-{}", victim.pid());
        for line in [
            &format!("break *{FUNCTION}"),
            "ignore 1 1000000",
            &format!("shell touch {told}"),
            "continue",
            "info breakpoints",
            "detach",
        ] {
            command.args(["-ex", line]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut gdb = command.spawn().expect("gdb is in the guest");
        let stdout = gdb.stdout.take().expect("piped");
        let pause = || std::thread::sleep(Duration::from_millis(10));
        while std::fs::remove_file(&told).is_err() {
            let ended = gdb.try_wait().expect("it is ours");
            assert!(ended.is_none(), "gdb has ended");
            pause();
        }
        // It puts its breakpoint in when it lets the program go on.
        while !is_asleep(victim.pid()) {
            pause();
        }
        Debugger { gdb, stdout }
    }

    /// Has it leave; hits that it has seen.
    fn leave(mut self, victim: &Victim) -> u64 {
        kill(Pid::from_raw(victim.pid() as i32), Signal::SIGINT).expect("it lives");
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("text");
        assert!(self.gdb.wait().expect("it is ours").success(), "{text}");
        // It lists its breakpoint, and tells of hits only when there were some.
        assert!(text.contains("keep y"), "{text}");
        text.split_once("already hit ").map_or(0, |(_, rest)| {
            let count = rest.split(' ').next().and_then(|count| count.parse().ok());
            count.unwrap_or_else(|| panic!("no count: {text}"))
        })
    }
}

test! { full, a_debugger_at_the_same_instruction_does_no_harm, seconds = 120 }
/// The kernel gives a hit to its own probes when there are some; else to gdb.
fn a_debugger_at_the_same_instruction_does_no_harm() {
    let _module = Module::load();
    let ours = |victim: &Victim| Party::new(0, victim);
    for (first, last) in [
        ("ours", "gdb"),
        ("ours", "ours"),
        ("gdb", "gdb"),
        ("gdb", "ours"),
    ] {
        let mut victim = Victim::caller(FUNCTION);
        let offset = victim.function(FUNCTION).offset;
        let (party, debugger) = match first {
            "ours" => {
                let party = ours(&victim);
                (party, Debugger::new(&victim))
            }
            _ => {
                let debugger = Debugger::new(&victim);
                assert_eq!(victim.call(5), 5);
                (ours(&victim), debugger)
            }
        };
        let before = if first == "ours" { 0 } else { 5 };
        assert_eq!(victim.call(100), before + 100);
        let mine = party.hits();
        let theirs = match last {
            "gdb" => {
                drop(party);
                assert_eq!(victim.call(10), before + 110);
                debugger.leave(&victim)
            }
            _ => {
                let theirs = debugger.leave(&victim);
                assert_eq!(victim.call(10), before + 110);
                drop(party);
                theirs
            }
        };
        println!("{first} first, {last} last: ours {mine}, gdb {theirs}");
        // The kernel's own come first, and take the other's breakpoint along when they go: the
        // debugger sees what came before us.
        assert_eq!((mine, theirs), (100, before), "{first} first, {last} last");
        // The program goes on as before, and a new probe sees all.
        let again = ours(&victim);
        assert_eq!(victim.call(20), before + 130);
        assert_eq!(again.hits(), 20);
        drop(again);
        assert_eq!(victim.call(5), before + 135);
        assert!(victim.text_is_restored(offset));
    }
}

test! { core, every_kind_of_tracer_at_one_instruction_counts_the_same, seconds = 150 }
/// All at once, and a debugger: of the kernel's own each counts every call, in any order.
fn every_kind_of_tracer_at_one_instruction_counts_the_same() {
    const KINDS: usize = 5;
    let _module = Module::load();
    let mut victim = Victim::caller(FUNCTION);
    let place = victim.function(FUNCTION).offset;
    let debugger = Debugger::new(&victim);
    let mut called = victim.call(5);
    // Some of the 120: in the first ours go last, in the last first.
    for going in orders(KINDS).iter().rev().step_by(17) {
        let mut parties: Vec<(usize, Party)> = Vec::new();
        parties.extend((0..KINDS).map(|kind| (kind, Party::new(kind, &victim))));
        let mut each = 0;
        for next in going {
            called += 10;
            each += 10;
            assert_eq!(victim.call(10), called);
            for (kind, party) in &parties {
                assert_eq!(party.hits(), each, "{kind} of {going:?}");
            }
            parties.retain(|(kind, _)| kind != next);
        }
    }
    // It had what came before all others.
    assert_eq!(debugger.leave(&victim), 5);
    assert_eq!(victim.call(5), called + 5);
    assert!(victim.text_is_restored(place));
}

test! { full, bpftrace_at_the_same_instruction_counts_the_same, seconds = 240 }
fn bpftrace_at_the_same_instruction_counts_the_same() {
    let _module = Module::load();
    let mut called = 0;
    let mut victim = Victim::caller(FUNCTION);
    let offset = victim.function(FUNCTION).offset;
    for (first, last) in [
        ("ours", "theirs"),
        ("ours", "ours"),
        ("theirs", "ours"),
        ("theirs", "theirs"),
    ] {
        let before = called;
        let early = (first == "ours").then(|| Party::new(0, &victim));
        let bpftrace = Bpftrace::new(&mut victim, &mut called);
        // Those that it took bpftrace to begin were ours, too.
        let missed = if early.is_some() { called - before } else { 0 };
        let ours = early.unwrap_or_else(|| Party::new(0, &victim));
        let returns = Party::new(1, &victim);
        let seen = bpftrace.hits;
        let mut call = |count| {
            called += count;
            assert_eq!(victim.call(count), called);
        };
        call(100);
        assert_eq!((ours.hits(), returns.hits()), (missed + 100, 100));
        if last == "ours" {
            drop(returns);
            assert_eq!(bpftrace.leave(), seen + 100, "{first} first");
            call(10);
            assert_eq!(ours.hits(), missed + 110);
            drop(ours);
        } else {
            drop((ours, returns));
            call(10);
            assert_eq!(bpftrace.leave(), seen + 110, "{first} first");
        }
        call(5);
        assert!(
            victim.text_is_restored(offset),
            "{first} first, {last} last"
        );
    }
}

/// bpftrace, which counts calls and tells of each.
struct Bpftrace {
    running: Running,
    /// Calls that it has seen.
    hits: u64,
}

impl Bpftrace {
    /// Starts it; `called` counts the calls that it took to see that it is there.
    fn new(victim: &mut Victim, called: &mut u64) -> Bpftrace {
        let place = format!("uprobe:{}:{FUNCTION}", victim.file().display());
        let program = format!("{place} {{ printf(\"hit %d\\n\", arg0); @ = count(); }}");
        let mut running = Running::start_command(Command::new("bpftrace").args(["-e", &program]));
        let (mut hits, mut made) = (0, 0);
        while hits == 0 {
            // Some minutes: it compiles its program, with all of LLVM.
            if made == 250 {
                panic!("bpftrace does not begin: {:?}", running.finish());
            }
            made += 1;
            *called += 1;
            assert_eq!(victim.call(1), *called);
            let line = running.next_line(Duration::from_millis(700));
            hits += u64::from(line.is_some_and(|line| line == "hit 0"));
        }
        // Of the calls before, some may not be printed yet: a second one of an order has another
        // argument, and is the last.
        *called += 2;
        assert_eq!(victim.call(2), *called);
        loop {
            let line = running.next_line(SOON).expect("the last hit");
            hits += u64::from(line.starts_with("hit "));
            if line == "hit 1" {
                return Bpftrace { running, hits };
            }
        }
    }

    /// Has it leave; calls that it has counted.
    fn leave(self) -> u64 {
        let (code, lines, errors) = self.running.finish();
        assert_eq!(code, Some(0), "{errors}");
        let count = lines.iter().find_map(|line| line.strip_prefix("@: "));
        count.and_then(|count| count.parse().ok()).expect("a count")
    }
}
