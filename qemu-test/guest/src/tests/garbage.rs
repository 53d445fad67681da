// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: requests that nobody would write do no harm either.

mod requests;

use crate::binary;
use crate::figures;
use crate::module::Module;
use crate::session::{requests, size, Session, PAGE};
use crate::sys::{self, Mapping};
use crate::tasks::TaskSession;
use crate::threads::Stop;
use crate::victim::{self, Victim};
use nix::libc::{self, MAP_SHARED, PROT_NONE, PROT_READ, PROT_WRITE};
use nsprobe_common::abi::{self, Info, Probe};
use requests::Garbage;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// A small generator: tests must not depend on anything.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.next() % from.len() as u64) as usize]
    }
}

/// What a run of a random test begins with: a fixed number, or the one in the environment
/// (NSPROBE_SEED=N, also on the guest kernel's command line). A test that fails says it.
pub(super) struct Seed(u64);

impl Seed {
    pub(super) fn of_this_run() -> Seed {
        let wanted = std::env::var("NSPROBE_SEED").ok();
        let wanted = wanted.map(|seed| seed.parse().expect("NSPROBE_SEED is a number"));
        let seed = Seed(wanted.unwrap_or(1));
        println!("NSPROBE_SEED={}", seed.0);
        seed
    }

    pub(super) fn random(&self) -> Random {
        // One that is never zero, which the generator would stay at.
        let mut random = Random(self.0 ^ 0x9e37_79b9_7f4a_7c15 | 1 << 63);
        // Seeds that differ in one bit begin alike.
        for _ in 0..16 {
            random.next();
        }
        random
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it failed with NSPROBE_SEED={}", self.0);
        }
    }
}

/// Of one request: its number, how many calls were accepted, and how many refused.
pub(crate) type Answers = (u32, u64, u64);

fn calls_with(garbage: &mut Garbage, calls: u64) -> Vec<Answers> {
    let hole = Mapping::anonymous(PAGE, PROT_NONE).expect("memory");
    garbage.words.push(hole.address());
    let requests = requests();
    // Breakpoints and grace periods take their time.
    let slow = [
        abi::NR_ATTACH,
        abi::NR_DETACH,
        abi::NR_FILTER,
        abi::NR_TASKS,
    ];
    let (slow, quick): (Vec<u32>, Vec<u32>) = requests
        .iter()
        .map(|(nr, _)| *nr)
        .partition(|nr| slow.contains(nr));
    // Others listen for tasks all the time: what is turned on and off here is this session's
    // part, and not the kernel's text.
    let listeners = [0; 2].map(|_| {
        let mut session = TaskSession::with_rings(4096);
        session.set((abi::TASKS_CPU - 1) | abi::TASKS_UNFILTERED, 0);
        session
    });
    let mut answers: Vec<Answers> = requests.iter().map(|(nr, _)| (*nr, 0, 0)).collect();
    let mut made = 0;
    while made < calls {
        let session = Session::open();
        for _ in 0..500.min(calls - made) {
            let nr = match garbage.chance(24) {
                true => garbage.random.pick(&slow),
                false => garbage.random.pick(&quick),
            };
            garbage.write(nr);
            while garbage.chance(2) {
                garbage.spoil(nr);
            }
            let argument = match garbage.chance(32) {
                true => garbage.word() & !0xfff | 1 << 62,
                false => garbage.address(0),
            };
            let wrong_type = u64::from(garbage.chance(32)) << 9;
            let command = u64::from(abi::iowr(nr, 64)) ^ wrong_type;
            let flags = garbage.memory.word(garbage.base) >> 32;
            made += 1;
            let answer = &mut answers[nr as usize];
            if sys::ioctl_wild(&session, command, argument).is_err() {
                answer.2 += 1;
                continue;
            }
            answer.1 += 1;
            let opens = [abi::OBJECT_FD, abi::OBJECT_ROOT].map(u64::from);
            if nr == abi::NR_OBJECT && opens.contains(&flags) {
                let answer = garbage.memory.word(garbage.base + 8);
                drop(sys::adopt((answer >> 32) as i32));
            }
        }
        let bytes = (garbage.word() % (1 << 20)) as usize;
        let offset = garbage.word() & !0xfff & (u64::MAX >> 1);
        let mapped = Mapping::new(&session, offset, bytes.max(1), PROT_READ, MAP_SHARED);
        drop(mapped);
    }
    drop(listeners);
    answers
}

test! { core, garbage_calls_do_no_harm, module, seconds = 300 }
/// All requests, each as often accepted as to show that it was not the first check alone that
/// was tried.
fn garbage_calls_do_no_harm() {
    let calls = 100_000 / figures::parts(10) as u64;
    let _module = Module::load();
    let seed = Seed::of_this_run();
    let victim = Victim::start("call_in_loop", &["begins_with_push", "0", "50"]);
    let file = File::open(victim.file()).expect("the victim is there");
    let mut garbage = Garbage::new(seed.random(), &victim, &file);
    let answers = calls_with(&mut garbage, calls);
    for ((nr, accepted, refused), (_, name)) in answers.into_iter().zip(requests()) {
        println!("{nr} {name}: {accepted} accepted, {refused} refused");
        // Garbage that is refused at the door tests the door only.
        let least = calls / 2000;
        assert!(accepted > least && refused > least, "{name}");
    }
    assert_eq!(Session::open().info().probes, 0);
    assert!(victim.text_is_restored(garbage.place));
}

test! { core, arguments_that_change_meanwhile_do_no_harm, module, cpus = 2, seconds = 120 }
fn arguments_that_change_meanwhile_do_no_harm() {
    let enough = 300 / figures::parts(3);
    let _module = Module::load();
    let seed = Seed::of_this_run();
    let file = File::open(victim::path("exit_soon")).expect("the victim is there");
    let place = binary::function(&victim::path("exit_soon"), "short_work").offset;
    let memory = Mapping::anonymous(2 * PAGE, PROT_READ | PROT_WRITE).expect("memory");
    let stop = AtomicBool::new(false);
    let address = memory.address();
    let (mut attached, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = seed.random();
            let (v1, full) = (abi::PROBE_BYTES_V1 as u64, u64::from(size::<Probe>()));
            while !stop.load(Ordering::Relaxed) {
                let sizes = [32u64, 24, 64, 152, 1 << 31, 4096];
                memory.set_word(0, random.pick(&sizes));
                let counts = [1 | v1 << 32, 2 | v1 << 32, 1 | full << 32, 1 << 31, 65536];
                memory.set_word(16, random.pick(&counts));
                let fds = [file.as_raw_fd() as u64 | 1 << 32, u64::MAX];
                memory.set_word(PAGE, random.pick(&fds));
            }
        });
        let _stop = Stop(&stop);
        while attached.min(refused) < enough {
            let session = Session::with_rings(4096);
            for round in 0..200u64 {
                memory.set_word(8, address + PAGE as u64);
                memory.set_word(PAGE + 8, 0);
                memory.set_word(PAGE + 16, place);
                for at in (24..size::<Probe>() as usize).step_by(8) {
                    memory.set_word(PAGE + at, 0);
                }
                let nr = [abi::NR_ATTACH, abi::NR_DETACH, abi::NR_COUNTERS][round as usize % 3];
                let result = sys::ioctl_wild(&session, abi::iowr(nr, 32).into(), address);
                if nr == abi::NR_ATTACH {
                    *(if result.is_ok() {
                        &mut attached
                    } else {
                        &mut refused
                    }) += 1;
                }
            }
        }
    });
    println!("{attached} times attached, {refused} times refused");
    assert_eq!(Session::open().info().probes, 0);
}

test! { full, a_size_that_changes_meanwhile_counts_as_it_was_first, module, cpus = 2 }
/// Another thread changes the size all the time between one that is right and one that is too
/// small. A request that is not refused has had the right one, and is answered in full.
fn a_size_that_changes_meanwhile_counts_as_it_was_first() {
    // As often the size is seen to have changed since the request before: while one of the
    // threads waits for its CPU, nothing is tried.
    const ENOUGH: u32 = 500;
    const CALLS: u32 = 5000;
    let _module = Module::load();
    let session = Session::open();
    let memory = Mapping::anonymous(PAGE, PROT_READ | PROT_WRITE).expect("memory");
    let stop = AtomicBool::new(false);
    let (mut calls, mut changes, mut in_part) = (0, 0, 0);
    let mut is_refusal = true;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for size in [size::<Info>(), 4] {
                    memory.set_word(0, size.into());
                }
            }
        });
        let _stop = Stop(&stop);
        let mut was_answered = false;
        while in_part == 0 && (calls < CALLS || changes < ENOUGH) {
            // The version, after the size and the flags.
            memory.set_word(8, 0);
            let result = sys::ioctl_wild(&session, abi::INFO.into(), memory.address());
            let is_answered = result.is_ok();
            match result {
                Ok(_) => in_part += u32::from(memory.word(8) == 0),
                Err(error) => is_refusal &= error.raw_os_error() == Some(libc::EINVAL),
            }
            changes += u32::from(is_answered != was_answered);
            was_answered = is_answered;
            calls += 1;
        }
    });
    println!("{calls} calls, {changes} changes");
    assert!(is_refusal, "refused with another error");
    assert_eq!(in_part, 0, "answered in part");
}
