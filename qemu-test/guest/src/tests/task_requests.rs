// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: no request about tasks, however wrong, does more than fail with the error that
//! the interface names.

use super::garbage::Seed;
use super::tests;
use crate::module::Module;
use crate::session::{errno, size, Session};
use crate::sys::{self, Forked};
use crate::tasks::TaskSession;
use libnsprobe::TaskOptions;
use nix::libc;
use nsprobe_common::abi::{
    self, CpuTimes, TaskCounters, TaskDump, Tasks, CPU_ALL, CPU_ROWS_MAX, DUMP_BYTES_MIN,
    TASKS_CPU, TASKS_LIFE, TASKS_SWITCHES, TASKS_UNFILTERED,
};
use nsprobe_common::task::TASK_ARGS_MAX;
use std::collections::BTreeMap;

tests![
    impossible_wishes_are_refused,
    requests_before_their_time_are_refused,
    impossible_dumps_are_refused,
    impossible_readings_are_refused,
    a_user_with_roots_descriptor_learns_nothing_of_tasks,
    more_sessions_than_can_listen_are_refused: 120,
    no_bytes_do_harm: 120,
];

fn tasks(flags: u32, args_bytes: u32, cpu_rows: u32) -> Tasks {
    Tasks {
        size: size::<Tasks>(),
        flags,
        args_bytes,
        cpu_rows,
        ..Tasks::default()
    }
}

/// The error number of a request, 0 for none.
fn ask<T: zerocopy::FromBytes + zerocopy::IntoBytes>(
    session: &Session,
    command: u32,
    mut request: T,
) -> i32 {
    let result = sys::ioctl(session, command, &mut request);
    result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |_| 0)
}

fn impossible_wishes_are_refused() {
    let _module = Module::load();
    let session = Session::with_rings(64 << 10);
    let most = TASK_ARGS_MAX as u32;
    let set = |request| ask(&session, abi::TASKS, request);
    for bit in 7..32 {
        assert_eq!(set(tasks(1 << bit, 0, 0)), libc::EINVAL, "{bit}");
    }
    for (flags, args, rows) in [
        (TASKS_LIFE, most + 1, 0),
        (TASKS_LIFE, u32::MAX, 0),
        (TASKS_SWITCHES, 1, 0),
        (0, 1, 0),
        (TASKS_LIFE, 0, 1),
        (TASKS_CPU, 0, 0),
        (TASKS_CPU, 0, CPU_ROWS_MAX + 1),
        (TASKS_CPU, 0, u32::MAX),
    ] {
        let request = tasks(flags, args, rows);
        assert_eq!(set(request), libc::EINVAL, "{flags:#x} {args} {rows}");
    }
    let reserved = Tasks {
        reserved: 1,
        ..tasks(TASKS_LIFE, 0, 0)
    };
    assert_eq!(set(reserved), libc::EINVAL);
    for (flags, args, rows) in [
        (TASKS_LIFE, most, 0),
        (TASKS_CPU, 0, 1),
        (TASKS_LIFE | TASKS_CPU | TASKS_UNFILTERED, 1, 2),
        (TASKS_UNFILTERED, 0, 0),
        (0, 0, 0),
    ] {
        assert_eq!(set(tasks(flags, args, rows)), 0, "{flags:#x} {args} {rows}");
    }
}

fn requests_before_their_time_are_refused() {
    let _module = Module::load();
    let session = Session::open();
    let set = |flags, rows| ask(&session, abi::TASKS, tasks(flags, 0, rows));
    assert_eq!(set(TASKS_LIFE, 0), libc::ENXIO);
    assert_eq!(set(TASKS_LIFE | TASKS_CPU, 8), libc::ENXIO);
    let counters = TaskCounters {
        size: size::<TaskCounters>(),
        cpu: CPU_ALL,
        ..TaskCounters::default()
    };
    assert_eq!(ask(&session, abi::TASK_COUNTERS, counters), libc::ENXIO);
    let mut room = vec![0u64; 64];
    let times = CpuTimes {
        size: size::<CpuTimes>(),
        buffer: room.as_mut_ptr() as u64,
        buffer_bytes: 512,
        ..CpuTimes::default()
    };
    assert_eq!(ask(&session, abi::CPU_TIMES, times), libc::ENXIO);
    // Times alone need no rings.
    assert_eq!(set(TASKS_CPU, 8), 0);
    assert_eq!(ask(&session, abi::CPU_TIMES, times), 0);
}

fn impossible_dumps_are_refused() {
    let _module = Module::load();
    let session = Session::with_rings(64 << 10);
    let mut room = vec![0u64; DUMP_BYTES_MIN / 8 + 1];
    let good = TaskDump {
        size: size::<TaskDump>(),
        buffer: room.as_mut_ptr() as u64,
        buffer_bytes: DUMP_BYTES_MIN as u32,
        ..TaskDump::default()
    };
    let dump = |request| ask(&session, abi::TASK_DUMP, request);
    for bit in 2..32 {
        let flags = 1 << bit;
        assert_eq!(dump(TaskDump { flags, ..good }), libc::EINVAL, "{bit}");
    }
    for buffer_bytes in [0, 8, DUMP_BYTES_MIN as u32 - 1] {
        assert_eq!(
            dump(TaskDump {
                buffer_bytes,
                ..good
            }),
            libc::EINVAL
        );
    }
    for buffer in [0, 8, u64::MAX, 0xffff_8000_0000_0000] {
        assert_eq!(
            dump(TaskDump { buffer, ..good }),
            libc::EFAULT,
            "{buffer:#x}"
        );
    }
    // There is nothing behind the last number.
    for next in [1 << 22, i32::MAX as u32, 1 << 31, u32::MAX] {
        let mut request = TaskDump { next, ..good };
        sys::ioctl(&session, abi::TASK_DUMP, &mut request).expect("an empty dump");
        assert_eq!((request.next, request.count, request.written), (0, 0, 0));
    }
    assert_eq!(dump(good), 0);
}

fn impossible_readings_are_refused() {
    let _module = Module::load();
    let session = Session::with_rings(64 << 10);
    assert_eq!(ask(&session, abi::TASKS, tasks(TASKS_CPU, 0, 16)), 0);
    let mut room = vec![0u64; 64];
    let good = CpuTimes {
        size: size::<CpuTimes>(),
        buffer: room.as_mut_ptr() as u64,
        buffer_bytes: 512,
        ..CpuTimes::default()
    };
    let times = |request| ask(&session, abi::CPU_TIMES, request);
    assert_eq!(times(good), 0);
    for wrong in [
        CpuTimes { flags: 1, ..good },
        CpuTimes {
            reserved: 1,
            ..good
        },
        CpuTimes {
            buffer_bytes: 31,
            ..good
        },
        CpuTimes {
            next: 16 * session.info().rings,
            ..good
        },
        CpuTimes {
            next: u32::MAX,
            ..good
        },
    ] {
        assert_eq!(times(wrong), libc::EINVAL, "{wrong:?}");
    }
    assert_eq!(times(CpuTimes { buffer: 8, ..good }), libc::EFAULT);
    let good = TaskCounters {
        size: size::<TaskCounters>(),
        cpu: 0,
        ..TaskCounters::default()
    };
    let counters = |request| ask(&session, abi::TASK_COUNTERS, request);
    assert_eq!(counters(good), 0);
    assert_eq!(counters(TaskCounters { flags: 1, ..good }), libc::EINVAL);
    assert_eq!(
        counters(TaskCounters {
            reserved: 1,
            ..good
        }),
        libc::EINVAL
    );
    let cpu = session.info().rings;
    assert_eq!(counters(TaskCounters { cpu, ..good }), libc::ENOENT);
}

fn a_user_with_roots_descriptor_learns_nothing_of_tasks() {
    let _module = Module::load();
    let session = Session::with_rings(64 << 10);
    let mut room = vec![0u64; DUMP_BYTES_MIN / 8];
    let dump = TaskDump {
        size: size::<TaskDump>(),
        buffer: room.as_mut_ptr() as u64,
        buffer_bytes: DUMP_BYTES_MIN as u32,
        ..TaskDump::default()
    };
    match sys::fork().expect("fork") {
        Forked::Child => {
            let is_user = sys::become_user(65534).is_ok();
            let wishes = [TASKS_LIFE, TASKS_SWITCHES, TASKS_UNFILTERED];
            let mut wishes = wishes.into_iter().map(|flags| tasks(flags, 0, 0));
            let refused = wishes.all(|wish| ask(&session, abi::TASKS, wish) == libc::EPERM)
                && ask(&session, abi::TASKS, tasks(TASKS_CPU, 0, 8)) == libc::EPERM
                && ask(&session, abi::TASK_DUMP, dump) == libc::EPERM;
            sys::exit_now(i32::from(!(is_user && refused)))
        }
        Forked::Parent(child) => assert_eq!(libc::WEXITSTATUS(sys::wait(child)), 0),
    }
    assert_eq!(ask(&session, abi::TASK_DUMP, dump), 0);
}

fn more_sessions_than_can_listen_are_refused() {
    let _module = Module::load();
    let mut sessions = Vec::new();
    loop {
        let mut session = TaskSession::with_rings(4096);
        let options = TaskOptions {
            flags: TASKS_LIFE,
            ..TaskOptions::default()
        };
        match session.session.set_tasks(&options) {
            Ok(()) => sessions.push(session),
            Err(error) => {
                assert!(error.to_string().contains("too many sessions"), "{error}");
                break;
            }
        }
        assert!(sessions.len() <= 64);
    }
    assert_eq!(sessions.len(), 64);
    // One that goes makes room for another one.
    sessions.remove(20);
    TaskSession::with_rings(4096).set(TASKS_LIFE, 0);
}

/// Any words as requests: each is done, or fails with an error that the interface names.
fn no_bytes_do_harm() {
    const CALLS: usize = 8000;
    let _module = Module::load();
    let seed = Seed::of_this_run();
    let mut random = seed.random();
    let session = Session::with_rings(64 << 10);
    let mut room = vec![0u64; 1 << 16];
    let mut room_bytes = room.len() as u64 * 8;
    // Others listen all the time, so that the kernel's text is not changed each time.
    let _listeners = [0; 2].map(|_| TaskSession::recording((TASKS_CPU - 1) & !TASKS_UNFILTERED));
    let commands: [(u32, u32, &[i32]); 4] = [
        (abi::TASKS, size::<Tasks>(), &[libc::EINVAL]),
        (
            abi::TASK_DUMP,
            size::<TaskDump>(),
            &[libc::EINVAL, libc::EFAULT],
        ),
        (
            abi::CPU_TIMES,
            size::<CpuTimes>(),
            &[libc::EINVAL, libc::EFAULT, libc::ENXIO],
        ),
        (
            abi::TASK_COUNTERS,
            size::<TaskCounters>(),
            &[libc::EINVAL, libc::ENOENT],
        ),
    ];
    let mut outcomes = BTreeMap::new();
    let mut has_wishes = false;
    for round in 0..CALLS {
        let (command, bytes, errors) = commands[round % 4];
        let mut words = vec![0u64; 64];
        for word in &mut words[..bytes as usize / 8] {
            // Mostly small numbers, and no address that is ours.
            *word = random.next() & 0x0000_00ff_0000_00ff & random.next();
        }
        words[0] = words[0] & 0x7f_0000_0000 | u64::from(bytes);
        // Of three, one is right in all that a word may be wrong in, and one in its flags.
        let right = random.next() % 3;
        if right > 0 {
            words[0] &= 0x03_0000_0000 & random.next() | 0xffff_ffff;
        }
        if right > 1 {
            match command {
                abi::TASKS => words[1..].fill(0),
                abi::TASK_COUNTERS => words[1] = random.pick(&[0, 1, CPU_ALL.into()]),
                _ => {
                    words[0] &= 0xffff_ffff;
                    words[1] &= 1;
                    let place = room.as_mut_ptr() as u64;
                    words[2] = random.pick(&[place, place, 8]);
                    words[3] = room_bytes;
                }
            }
        }
        let got = sys::ioctl_bytes(&session, command, &mut words);
        let got = got.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |_| 0);
        // There are no counters before the first wish.
        let is_early = command == abi::TASK_COUNTERS && got == libc::ENXIO && !has_wishes;
        assert!(
            got == 0 || errors.contains(&got) || is_early,
            "{command:#x} {words:x?}: {got}"
        );
        has_wishes |= command == abi::TASKS && got == 0;
        *outcomes.entry((round % 4, got)).or_insert(0) += 1;
        // Times are there for the second half of the calls.
        if round == CALLS / 2 {
            assert_eq!(ask(&session, abi::TASKS, tasks(TASKS_CPU, 0, 16)), 0);
        }
        room_bytes = random.pick(&[room.len() as u64 * 8, DUMP_BYTES_MIN as u64, 32]);
    }
    println!("how often each request ended with which error: {outcomes:?}");
    for (number, (_, _, errors)) in commands.iter().enumerate() {
        for error in errors.iter().chain(&[0]) {
            let count = outcomes.get(&(number, *error)).copied().unwrap_or(0);
            assert!(count > 20, "{count} times {error} of request {number}");
        }
    }
    assert_eq!(
        errno(
            sys::ioctl_wild(&session, abi::TASK_DUMP.into(), 8),
            "an address that is none"
        ),
        libc::EFAULT
    );
}
