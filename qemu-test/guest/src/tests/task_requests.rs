// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: no request about tasks, however wrong, does more than fail with the error that
//! the interface names.

use crate::module::Module;
use crate::session::{size, Session};
use crate::sys::{self, Forked};
use crate::tasks::TaskSession;
use libnsprobe::TaskOptions;
use nix::libc;
use nsprobe_common::abi::{
    self, CpuTimes, TaskCounters, TaskDump, Tasks, CPU_ALL, CPU_ROWS_MAX, DUMP_BYTES_MIN,
    TASKS_CPU, TASKS_LIFE, TASKS_SWITCHES, TASKS_UNFILTERED,
};
use nsprobe_common::task::TASK_ARGS_MAX;

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

test! { full, impossible_wishes_are_refused, module }
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

test! { full, requests_before_their_time_are_refused, module }
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

test! { full, impossible_dumps_are_refused, module }
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
    // There is nothing after the last number.
    for next in [1 << 22, i32::MAX as u32, 1 << 31, u32::MAX] {
        let mut request = TaskDump { next, ..good };
        sys::ioctl(&session, abi::TASK_DUMP, &mut request).expect("an empty dump");
        assert_eq!((request.next, request.count, request.written), (0, 0, 0));
    }
    assert_eq!(dump(good), 0);
}

test! { full, impossible_readings_are_refused, module }
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

test! { full, a_user_with_roots_descriptor_learns_nothing_of_tasks, module }
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
    let times = CpuTimes {
        size: size::<CpuTimes>(),
        buffer: room.as_mut_ptr() as u64,
        buffer_bytes: 64,
        ..CpuTimes::default()
    };
    match sys::fork().expect("fork") {
        Forked::Child => {
            let is_user = sys::become_user(65534).is_ok();
            let wishes = [TASKS_LIFE, TASKS_SWITCHES, TASKS_UNFILTERED];
            let mut wishes = wishes.into_iter().map(|flags| tasks(flags, 0, 0));
            let refused = wishes.all(|wish| ask(&session, abi::TASKS, wish) == libc::EPERM)
                && ask(&session, abi::TASKS, tasks(TASKS_CPU, 0, 8)) == libc::EPERM
                && ask(&session, abi::TASK_DUMP, dump) == libc::EPERM
                && ask(&session, abi::CPU_TIMES, times) == libc::EPERM
                && ask(&session, abi::SETUP, session.made) == libc::EPERM;
            sys::exit_now(i32::from(!(is_user && refused)))
        }
        Forked::Parent(child) => assert_eq!(libc::WEXITSTATUS(sys::wait(child)), 0),
    }
    assert_eq!(ask(&session, abi::TASK_DUMP, dump), 0);
}

test! { full, more_sessions_than_can_listen_are_refused, module, seconds = 120 }
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
