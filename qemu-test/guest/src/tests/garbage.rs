// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: requests that nobody would write do no harm either.

use super::tests;
use crate::binary;
use crate::container::pid_namespace;
use crate::module::Module;
use crate::session::{Session, PAGE};
use crate::sys::{self, Mapping};
use crate::victim::{self, Victim};
use nix::libc::{MAP_SHARED, PROT_NONE, PROT_READ, PROT_WRITE};
use nsprobe_common::abi;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

tests![
    a_hundred_thousand_garbage_calls_do_no_harm: 240,
    arguments_that_change_meanwhile_do_no_harm,
];

/// A small generator: tests must not depend on anything.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.next() % from.len() as u64) as usize]
    }
}

/// Where things lie in the memory that requests point to.
const PROBES: usize = PAGE;
const IDS: usize = 2 * PAGE;
const PIDS: usize = 3 * PAGE;

/// Requests that are right, but for a word or two.
struct Garbage {
    random: Random,
    /// Values that mean something: sizes, addresses, descriptors.
    words: Vec<u64>,
    memory: Mapping,
    fd: u64,
    place: u64,
    pid: u64,
    pid_namespace: u64,
}

impl Garbage {
    fn chance(&mut self, one_in: u64) -> bool {
        self.random.next().is_multiple_of(one_in)
    }

    fn word(&mut self) -> u64 {
        let r = self.random.next();
        let known = self.words[(r >> 8) as usize % self.words.len()];
        match r % 8 {
            0 => r.rotate_left(17),
            1 => r >> 60,
            2 => 1 << (r >> 32 & 63),
            3 => known | known << 32,
            4 => known ^ 1 << (r >> 32 & 63),
            _ => known,
        }
    }

    /// A request that may succeed, in its place, with all that it points to.
    fn write(&mut self, nr: u32) {
        let at = |offset: usize| self.memory.address() + offset as u64;
        let few = self.random.next() % 4 + 1;
        let bit = self.random.next() % 2;
        let id = self.random.next() % 8;
        let request: Vec<u64> = match nr {
            abi::NR_INFO => vec![72],
            // Rings of up to 2 MiB: memory that a guest has.
            abi::NR_SETUP => vec![40 | bit << 32, 4096 << (self.random.next() % 10)],
            abi::NR_FILTER => {
                let flags = self.random.next() % 8;
                let with = |flag: u32, value: u64| match flags & u64::from(flag) {
                    0 => 0,
                    _ => value,
                };
                let pids = with(abi::FILTER_PIDS, at(PIDS));
                let count = with(abi::FILTER_PIDS, few % 2 + 1);
                let process = with(abi::FILTER_PIDNS, self.pid);
                let inum = with(abi::FILTER_PIDNS, self.pid_namespace);
                vec![32 | flags << 32, pids, count | process << 32, inum]
            }
            abi::NR_ATTACH => vec![32, at(PROBES), few | 48 << 32],
            abi::NR_DETACH => vec![24, at(IDS), 1 + few / 4],
            abi::NR_COUNTERS => vec![64, id | u64::from(abi::CPU_ALL * bit as u32) << 32],
            abi::NR_OBJECT => vec![88 | bit << 32, id],
            // Small tables of sums, with a key of a word.
            abi::NR_TABLE => vec![64, 1 | (few * 8) << 32, bit],
            abi::NR_ROWS => vec![48, 1, at(PROBES), 1024],
            abi::NR_PROGRAM => {
                let (register, require) = (2, 48);
                self.memory.set_word(PROBES, register | 5 << 32);
                self.memory.set_word(PROBES + 8, 0);
                self.memory.set_word(PROBES + 16, require);
                self.memory.set_word(PROBES + 24, 0);
                vec![48, at(PROBES), at(IDS), 2 | (8 * bit) << 32]
            }
            _ => vec![self.word(), self.word()],
        };
        for word in 0..12 {
            let value = request.get(word).copied().unwrap_or(0);
            self.memory.set_word(word * 8, value);
        }
        let probes = if nr == abi::NR_PROGRAM { 0 } else { 4 };
        for probe in 0..probes {
            let flags = self.random.next() % 4;
            let words = [self.fd | 1 << 32, flags, self.place, 0, 0, 0];
            for (number, word) in words.into_iter().enumerate() {
                self.memory.set_word(PROBES + probe * 48 + number * 8, word);
            }
        }
        self.memory.set_word(IDS, id | (id + 1) << 32);
        self.memory.set_word(PIDS, self.pid | self.pid << 32);
    }

    /// Spoils a word of the request, or of what it points to.
    fn spoil(&mut self) {
        let area = self.random.pick(&[0, 0, PROBES, IDS, PIDS]);
        let number = (self.random.next() % 8) as usize;
        let mut word = self.word();
        if area == 0 && number == 1 && self.memory.word(0) as u32 == 40 {
            // Half of all random sizes would be more than the guest has.
            word %= 1 << 22;
        }
        self.memory.set_word(area + number * 8, word);
    }
}

fn a_hundred_thousand_garbage_calls_do_no_harm() {
    let _module = Module::load();
    let victim = Victim::start("call_in_loop", &["begins_with_push", "0", "50"]);
    let file = File::open(victim.file()).expect("the victim is there");
    let hole = Mapping::anonymous(PAGE, PROT_NONE).expect("memory");
    let memory = Mapping::anonymous(4 * PAGE, PROT_READ | PROT_WRITE).expect("memory");
    let address = memory.address();
    let end = address + 4 * PAGE as u64 - 16;
    let kernel = 0xffff_ffff_8100_0000;
    let mut words = vec![0, 1, 2, 8, 24, 32, 40, 48, 64, 72, 88, 96, 4096, 65536];
    words.extend([1 << 31, 1 << 63, u64::MAX, u64::from(u32::MAX)]);
    words.extend([
        address,
        address + 4,
        end,
        hole.address(),
        kernel,
        0x7fff_ffff_f000,
    ]);
    let mut garbage = Garbage {
        random: Random(0x1234_5678_9abc_def1),
        words,
        memory,
        fd: file.as_raw_fd() as u64,
        place: victim.function("begins_with_push").offset,
        pid: u64::from(victim.pid()),
        pid_namespace: u64::from(pid_namespace(victim.pid())),
    };
    let until = Instant::now() + Duration::from_secs(150);
    let (mut calls, mut accepted) = (0u32, [0u32; 10]);
    while calls < 100_000 && Instant::now() < until {
        let session = Session::open();
        for _ in 0..500 {
            // Breakpoints and grace periods take their time.
            let nr = match garbage.chance(48) {
                true => garbage
                    .random
                    .pick(&[abi::NR_ATTACH, abi::NR_DETACH, abi::NR_FILTER]),
                false => garbage.random.pick(&[0, 1, 5, 5, 6, 6, 7, 8, 9, 9]),
            };
            garbage.write(nr);
            while garbage.chance(2) {
                garbage.spoil();
            }
            let argument = match garbage.chance(32) {
                true => garbage.word() & !0xfff | 1 << 62,
                false => address,
            };
            let wrong_type = u64::from(garbage.chance(32)) << 9;
            let command = u64::from(abi::iowr(nr, 64)) ^ wrong_type;
            let flags = garbage.memory.word(0) >> 32;
            if sys::ioctl_wild(&session, command, argument).is_ok() {
                accepted[nr as usize] += 1;
                let opens = [abi::OBJECT_FD, abi::OBJECT_ROOT].map(u64::from);
                if nr == abi::NR_OBJECT && opens.contains(&flags) {
                    drop(sys::adopt((garbage.memory.word(8) >> 32) as i32));
                }
            }
            calls += 1;
        }
        let bytes = (garbage.word() % (1 << 20)) as usize;
        let offset = garbage.word() & !0xfff & (u64::MAX >> 1);
        let mapped = Mapping::new(&session, offset, bytes.max(1), PROT_READ, MAP_SHARED);
        drop(mapped);
    }
    println!("{calls} calls, accepted by request {accepted:?}");
    assert!(calls >= 50_000, "only {calls} calls in the time");
    // Garbage that is refused at the door tests the door only.
    assert!(accepted.iter().all(|&count| count > 20), "{accepted:?}");
    assert_eq!(Session::open().info().probes, 0);
}

fn arguments_that_change_meanwhile_do_no_harm() {
    let _module = Module::load();
    let file = File::open(victim::path("exit_soon")).expect("the victim is there");
    let place = binary::function(&victim::path("exit_soon"), "short_work").offset;
    let memory = Mapping::anonymous(2 * PAGE, PROT_READ | PROT_WRITE).expect("memory");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let address = memory.address();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(77);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let sizes = [32u64, 24, 64, 1 << 31, 4096];
                memory.set_word(0, random.pick(&sizes));
                memory.set_word(
                    16,
                    random.pick(&[1 | 48 << 32, 2 | 48 << 32, 1 << 31, 65536]),
                );
                memory.set_word(
                    PAGE,
                    random.pick(&[file.as_raw_fd() as u64 | 1 << 32, u64::MAX]),
                );
            }
        });
        let until = Instant::now() + Duration::from_secs(3);
        let mut attached = 0;
        while Instant::now() < until {
            let session = Session::with_rings(4096);
            for round in 0..200u64 {
                memory.set_word(8, address + PAGE as u64);
                memory.set_word(PAGE + 8, 0);
                memory.set_word(PAGE + 16, place);
                for at in (24..48).step_by(8) {
                    memory.set_word(PAGE + at, 0);
                }
                let nr = [abi::NR_ATTACH, abi::NR_DETACH, abi::NR_COUNTERS][round as usize % 3];
                let result = sys::ioctl_wild(&session, abi::iowr(nr, 32).into(), address);
                attached += u32::from(result.is_ok() && nr == abi::NR_ATTACH);
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        println!("{attached} times attached");
    });
    assert_eq!(Session::open().info().probes, 0);
}
