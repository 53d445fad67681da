// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: whatever kind of place is probed, the program, the kernel's own tracer at
//! the very same instruction and the traced program itself count the same, whoever
//! of them comes and goes meanwhile.

use super::tests;
use crate::binary;
use crate::command::Running;
use crate::module::Module;
use crate::oracle::within;
use crate::session::{probe_at, Session, RING_BYTES};
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use nsprobe_common::abi::{Probe, SINK_COUNT};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

tests![
    each_kind_of_place_is_counted_as_the_kernel_counts: 120,
    perf_comes_and_goes_in_every_order: 120,
    a_debugger_and_a_tracer_share_a_function: 120,
];

const SECONDS_20: Duration = Duration::from_secs(20);

/// A kind of place.
struct Kind {
    /// The victim and its arguments.
    victim: &'static [&'static str],
    /// The spec behind the program's path, and more words.
    words: &'static [&'static str],
    /// What the victim is told behind the number of rounds.
    order: &'static str,
    /// How many places the kind has there.
    places: usize,
    /// Which of the kernel's probes counts the same.
    witness: fn(&Path, u64) -> Witness,
}

fn at_point(file: &Path, offset: u64) -> Witness {
    Witness::of_point(file, offset, binary::section(file, ".probes"))
}

/// Where the marked line is: the victim's source tells in a comment.
const KINDS: &[Kind] = &[
    Kind {
        victim: &["call_in_loop", "begins_with_push"],
        words: &[":begins_with_push"],
        order: "",
        places: 1,
        witness: Witness::new,
    },
    Kind {
        victim: &["call_in_loop", "begins_with_endbr64"],
        words: &[":begins_with_endbr64"],
        order: "",
        places: 1,
        witness: Witness::new,
    },
    Kind {
        victim: &["call_in_loop", "begins_with_push"],
        words: &[":begins_with_push%return"],
        order: "",
        places: 1,
        witness: Witness::of_return,
    },
    // The lea behind push and mov.
    Kind {
        victim: &["call_in_loop", "begins_with_push"],
        words: &[":begins_with_push+0x4"],
        order: "",
        places: 1,
        witness: Witness::new,
    },
    Kind {
        victim: &["kinds"],
        words: &[":kinds.c:28"],
        order: " line",
        places: 1,
        witness: Witness::new,
    },
    Kind {
        victim: &["kinds"],
        words: &[":doubled", "--inlined"],
        order: " inlined",
        places: 2,
        witness: Witness::new,
    },
    Kind {
        victim: &["with_semaphore"],
        words: &[":demo:step"],
        order: "",
        places: 1,
        witness: at_point,
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
        let watch = |&place: &u64| (kind.witness)(victim.file(), place);
        let witnesses: Vec<Witness> = places.iter().map(watch).collect();
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

/// Somebody who counts hits of one instruction.
enum Tracer {
    Nsprobe(Session, u32),
    Tracefs(Witness),
    Perf(Perf),
}

/// `perf stat` on a probe of its own.
struct Perf {
    running: Running,
    event: String,
    folder: PathBuf,
    _witness: Witness,
}

impl Perf {
    fn start(victim: &Victim, offset: u64) -> Perf {
        let witness = Witness::idle(victim.file(), offset);
        let event = witness.event();
        let folder = PathBuf::from(format!("/tmp/perf-{}", event.replace(':', "-")));
        fs::create_dir_all(&folder).expect("/tmp is writable");
        let pipe = |name: &str| {
            let path = folder.join(name);
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
            let both = OpenOptions::new().read(true).write(true).open(&path);
            (both.expect("a FIFO opens"), path)
        };
        let ((mut orders, to), (mut answers, from)) = (pipe("orders"), pipe("answers"));
        let running = Running::start_command(
            Command::new("perf")
                .args(["stat", "-x,", "--delay=-1", "-e", &event, "-p"])
                .arg(victim.pid().to_string())
                .arg(format!(
                    "--control=fifo:{},{}",
                    to.display(),
                    from.display()
                )),
        );
        orders.write_all(b"enable\n").expect("a FIFO");
        let mut answer = [0; 4];
        answers.read_exact(&mut answer).expect("perf answers");
        assert_eq!(&answer, b"ack\n");
        Perf {
            running,
            event,
            folder,
            _witness: witness,
        }
    }

    fn end(self) -> u64 {
        let (_, text) = self.running.interrupt();
        let _ = fs::remove_dir_all(&self.folder);
        let line = text.lines().find(|line| line.contains(&self.event));
        line.and_then(|line| line.split(',').next()?.parse().ok())
            .unwrap_or_else(|| panic!("perf says: {text}"))
    }
}

impl Tracer {
    fn start(which: usize, victim: &Victim, offset: u64) -> Tracer {
        match which {
            0 => {
                let session = Session::with_rings(RING_BYTES);
                let probe = Probe {
                    sink: SINK_COUNT,
                    ..probe_at(offset, 0)
                };
                let id = session.attach(victim.file(), probe);
                let id = id.unwrap_or_else(|(error, reply)| panic!("{error} {reply:?}"));
                Tracer::Nsprobe(session, id)
            }
            1 => Tracer::Tracefs(Witness::new(victim.file(), offset)),
            _ => Tracer::Perf(Perf::start(victim, offset)),
        }
    }

    /// Ends it; what it has counted.
    fn end(self) -> u64 {
        match self {
            Tracer::Nsprobe(session, id) => session.counters(id).aggregated,
            Tracer::Tracefs(witness) => witness.hits(),
            Tracer::Perf(perf) => perf.end(),
        }
    }
}

const ORDERS: [[usize; 3]; 6] = [
    [0, 1, 2],
    [1, 2, 0],
    [2, 0, 1],
    [0, 2, 1],
    [1, 0, 2],
    [2, 1, 0],
];

/// perf too, and an entry that the kernel optimises: what `coexistence` leaves out. Each
/// order of coming once, and each of going.
fn perf_comes_and_goes_in_every_order() {
    let _module = Module::load();
    let perf = Command::new("perf").arg("--version").output();
    assert!(perf.expect("perf is in the guest").status.success());
    for name in ["begins_with_push", "begins_with_nop10"] {
        let mut victim = Victim::caller(name);
        let offset = victim.function(name).offset;
        for (round, (coming, going)) in ORDERS.iter().zip(ORDERS.iter().cycle().skip(2)).enumerate()
        {
            let mut told = victim.call(1);
            let mut here: Vec<(usize, u64, Tracer)> = Vec::new();
            for &which in coming {
                here.push((which, told, Tracer::start(which, &victim, offset)));
                told = victim.call(101);
            }
            let mut counts = Vec::new();
            for which in going {
                let index = here.iter().position(|(one, _, _)| one == which);
                let (which, since, tracer) = here.remove(index.expect("it came"));
                counts.push((which, tracer.end(), told - since));
                told = victim.call(103);
            }
            println!("{name}, {coming:?} then {going:?}: (who, counted, called) {counts:?}");
            for (which, counted, called) in counts {
                assert_eq!(
                    counted, called,
                    "round {round}: tracer {which} of {coming:?}"
                );
            }
            let restored = within(SECONDS_20, || match name {
                "begins_with_nop10" => victim.nop10_is_restored(offset),
                _ => victim.text_is_restored(offset),
            });
            assert!(restored, "round {round}");
        }
    }
}

/// gdb stops at two instructions, of which a tracer takes one for a while.
///
/// Whoever probes by the kernel's uprobes takes the trap of the instruction, and in
/// the end writes back what is in the file: a debugger's breakpoint at that very
/// instruction stops no more (the same with a probe of tracefs alone). So the
/// promise is: the tracer and the program miss nothing, and the debugger nothing of
/// its other breakpoints.
fn a_debugger_and_a_tracer_share_a_function() {
    const NAME: &str = "begins_with_push";
    let _module = Module::load();
    let file = victim::path("call_in_loop");
    let folder = PathBuf::from(format!("/tmp/gdb-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("/tmp is writable");
    let (input, output) = (folder.join("in"), folder.join("out"));
    nix::unistd::mkfifo(&input, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let mut orders = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&input)
        .expect("a FIFO opens");
    let begin = format!("starti {NAME} < {} > {}", input.display(), output.display());
    let (same, behind) = (format!("break *{NAME}"), format!("break *({NAME}+4)"));
    let commands = [
        "set pagination off",
        &begin,
        &same,
        &behind,
        "ignore 1 1000000",
        "ignore 2 1000000",
        "continue",
        "info breakpoints",
    ];
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch"]);
    commands.iter().for_each(|command| {
        gdb.args(["-ex", command]);
    });
    let mut gdb = Running::start_command(gdb.arg(&file));
    let said = || fs::read_to_string(&output).unwrap_or_default();
    let mut told = 0;
    let mut call = |count: u64| {
        writeln!(orders, "{count}").expect("a FIFO");
        told += count;
        let line = format!("called {told}\n");
        assert!(within(SECONDS_20, || said().ends_with(&line)), "{}", said());
        told
    };
    let alone = call(11);
    let session = Session::with_rings(RING_BYTES);
    let id = session.probe(&file, &binary::function(&file, NAME), 0);
    call(13);
    assert_eq!(session.counters(id).recorded, 13);
    session.detach(&[id]).expect("it is attached");
    let all = call(17);
    assert_eq!(session.counters(id).hits, 13);
    // No number: the victim ends.
    writeln!(orders, "end").expect("a FIFO");
    let mut hits = || {
        let line = gdb.wait_for("already hit", SECONDS_20);
        let number = line.split_whitespace().nth(3).and_then(|n| n.parse().ok());
        number.unwrap_or_else(|| panic!("gdb says {line:?}"))
    };
    let (same, behind): (u64, u64) = (hits(), hits());
    println!("{all} calls; gdb: {same} at the tracer's instruction, {behind} behind it");
    assert!((alone..=all).contains(&same));
    assert_eq!(behind, all);
    let _ = fs::remove_dir_all(&folder);
}
