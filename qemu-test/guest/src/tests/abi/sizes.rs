// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each request as it is right, for what goes for all of them: their sizes, and addresses at
//! which there is nothing.

use super::resized;
use crate::binary;
use crate::module::Module;
use crate::session::{errno, probe_at, requests, size, Session, PAGE};
use crate::steps::constant;
use crate::sys::{self, Mapping};
use crate::victim;
use nix::libc::{self, PROT_NONE, PROT_READ, PROT_WRITE};
use nsprobe_common::abi::{
    self, Attach, Counters, CpuTimes, Detach, DropSpans, Filter, Freeze, Held, Hold, Info, Object,
    Probe, Program, Rows, Setup, Stack, Table, TaskCounters, TaskDump, Tasks, Unwind,
};
use nsprobe_common::unwind::{Base, Rule};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::process::Command;
use zerocopy::{Immutable, IntoBytes};

/// A request that succeeds in its session.
struct Example {
    session: Session,
    nr: u32,
    /// Bytes of its first version, and of the one of today.
    v1: usize,
    full: usize,
    words: Vec<u64>,
    /// Where it has addresses.
    addresses: Vec<usize>,
    /// What it has descriptors of.
    _file: Option<File>,
}

impl Example {
    fn of<T: IntoBytes + Immutable>(session: Session, nr: u32, request: &T) -> Example {
        Example {
            session,
            nr,
            v1: size_of::<T>(),
            full: size_of::<T>(),
            words: resized(request, size::<T>()),
            addresses: Vec::new(),
            _file: None,
        }
    }

    fn with_addresses(self, addresses: &[usize]) -> Example {
        let addresses = addresses.to_vec();
        Example { addresses, ..self }
    }

    fn since(self, v1: usize) -> Example {
        Example { v1, ..self }
    }

    fn with_file(self, file: File) -> Example {
        let _file = Some(file);
        Example { _file, ..self }
    }

    fn command(&self) -> u32 {
        abi::iowr(self.nr, self.full)
    }

    /// Its error number, 0 for none.
    fn ask(&self, words: &mut [u64]) -> i32 {
        let result = sys::ioctl_bytes(&self.session, self.command(), words);
        result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |_| 0)
    }
}

/// Memory that stays, for what a request points to.
fn stays<T>(things: Vec<T>) -> u64 {
    things.leak().as_mut_ptr() as u64
}

/// A session with a probe on a function of the victim that has been hit once.
fn hit_once(session: &Session, probe: Probe) -> u32 {
    let file = victim::path("exit_soon");
    let offset = binary::function(&file, "short_work").offset;
    let id = session
        .attach(&file, Probe { offset, ..probe })
        .expect("a probe");
    let status = Command::new(&file).status().expect("the victim runs");
    assert!(status.success());
    assert_eq!(session.counters(id).hits, 1);
    id
}

fn with_rings() -> Session {
    Session::with_rings(abi::RING_BYTES_MIN)
}

fn with_task_times() -> Session {
    let session = with_rings();
    let mut tasks = Tasks {
        size: size::<Tasks>(),
        flags: abi::TASKS_CPU,
        cpu_rows: 16,
        ..Tasks::default()
    };
    sys::ioctl(&session, abi::TASKS, &mut tasks).expect("times are kept");
    session
}

/// The example of a request; one without an example fails.
fn example(nr: u32) -> Example {
    let victim = || File::open(victim::path("exit_soon")).expect("the victim is there");
    let entry = probe_at(0, abi::PROBE_AT_ENTRY);
    match nr {
        abi::NR_INFO => Example::of(Session::open(), nr, &Info::default()),
        abi::NR_SETUP => {
            let ring_bytes = abi::RING_BYTES_MIN;
            let setup = Setup {
                ring_bytes,
                ..Setup::default()
            };
            Example::of(Session::open(), nr, &setup)
        }
        abi::NR_FILTER => {
            let flags = abi::FILTER_SELF;
            let filter = Filter {
                flags,
                ..Filter::default()
            };
            Example::of(Session::open(), nr, &filter).since(abi::FILTER_BYTES_V1)
        }
        abi::NR_ATTACH => {
            let file = victim();
            let offset = binary::function(&victim::path("exit_soon"), "short_work").offset;
            let fd = file.as_raw_fd();
            let attach = Attach {
                probes: stays(vec![Probe {
                    fd,
                    offset,
                    ..entry
                }]),
                count: 1,
                probe_size: size::<Probe>(),
                ..Attach::default()
            };
            Example::of(with_rings(), nr, &attach)
                .with_addresses(&[offset_of!(Attach, probes)])
                .with_file(file)
        }
        abi::NR_DETACH => {
            let session = with_rings();
            let detach = Detach {
                ids: stays(vec![hit_once(&session, entry)]),
                count: 1,
                ..Detach::default()
            };
            Example::of(session, nr, &detach).with_addresses(&[offset_of!(Detach, ids)])
        }
        abi::NR_COUNTERS => {
            let session = with_rings();
            let counters = Counters {
                probe: hit_once(&session, entry),
                cpu: abi::CPU_ALL,
                ..Counters::default()
            };
            Example::of(session, nr, &counters).since(abi::COUNTERS_BYTES_V1)
        }
        abi::NR_OBJECT => {
            let session = with_rings();
            hit_once(&session, probe_at(0, abi::PROBE_STACK));
            let object = Object {
                id: 1,
                ..Object::default()
            };
            Example::of(session, nr, &object)
        }
        abi::NR_PROGRAM => {
            let program = Program {
                steps: stays(vec![constant(0, 1)]),
                data: stays(vec![7u64]),
                step_count: 1,
                data_bytes: 8,
                ..Program::default()
            };
            let addresses = [offset_of!(Program, steps), offset_of!(Program, data)];
            Example::of(Session::open(), nr, &program).with_addresses(&addresses)
        }
        abi::NR_TABLE => Example::of(Session::open(), nr, &sums()),
        abi::NR_ROWS => {
            let session = with_rings();
            let made = session.table(sums()).expect("a table");
            let probe = Probe {
                sink: abi::SINK_TABLE,
                table: made.id,
                ..entry
            };
            hit_once(&session, probe);
            let rows = Rows {
                table: made.id,
                buffer: stays(vec![0u64; 1024]),
                buffer_bytes: 8192,
                ..Rows::default()
            };
            Example::of(session, nr, &rows).with_addresses(&[offset_of!(Rows, buffer)])
        }
        abi::NR_FREEZE => {
            let mut session = Session::open();
            let made = session.setup(abi::RING_BYTES_MIN, abi::SETUP_OVERWRITE);
            made.expect("rings that overwrite");
            let flags = abi::FREEZE_NOW;
            let freeze = Freeze {
                flags,
                ..Freeze::default()
            };
            Example::of(session, nr, &freeze)
        }
        abi::NR_FILE => {
            let file = victim();
            let fd = file.as_raw_fd();
            let request = abi::File {
                fd,
                ..abi::File::default()
            };
            Example::of(Session::open(), nr, &request).with_file(file)
        }
        abi::NR_UNWIND => {
            let file = victim();
            let rule = Rule {
                base: Base::Outermost as u8,
                ..Rule::default()
            };
            let unwind = Unwind {
                fd: file.as_raw_fd(),
                blocks: stays(vec![0u32, 1]),
                block_count: 2,
                rows: stays(vec![0u32]),
                row_count: 1,
                rules: stays(vec![rule]),
                rule_count: 1,
                ..Unwind::default()
            };
            let addresses = [
                offset_of!(Unwind, blocks),
                offset_of!(Unwind, rows),
                offset_of!(Unwind, rules),
            ];
            Example::of(with_rings(), nr, &unwind)
                .with_addresses(&addresses)
                .with_file(file)
        }
        abi::NR_STACK => {
            let session = with_rings();
            hit_once(
                &session,
                probe_at(0, abi::PROBE_STACK | abi::PROBE_STACK_IDS),
            );
            let stack = Stack {
                id: 1,
                words: 1024,
                frames: stays(vec![0u64; 1024]),
                ..Stack::default()
            };
            Example::of(session, nr, &stack).with_addresses(&[offset_of!(Stack, frames)])
        }
        abi::NR_DROP_SPANS => {
            let session = with_rings();
            let made = session.table(Table {
                kind: abi::TABLE_SPANS,
                key_words: 1,
                rows: 8,
                ..Table::default()
            });
            let drop = DropSpans {
                table: made.expect("a table").id,
                count: 2,
                owners: stays(vec![1u64, 0, 2, 0]),
                ..DropSpans::default()
            };
            Example::of(session, nr, &drop).with_addresses(&[offset_of!(DropSpans, owners)])
        }
        abi::NR_TASKS => {
            let tasks = Tasks {
                flags: abi::TASKS_CPU | abi::TASKS_UNFILTERED,
                cpu_rows: 16,
                ..Tasks::default()
            };
            Example::of(with_rings(), nr, &tasks)
        }
        abi::NR_TASK_DUMP => {
            let dump = TaskDump {
                buffer: stays(vec![0u8; 4 * abi::DUMP_BYTES_MIN]),
                buffer_bytes: 4 * abi::DUMP_BYTES_MIN as u32,
                ..TaskDump::default()
            };
            let example = Example::of(with_rings(), nr, &dump);
            example.with_addresses(&[offset_of!(TaskDump, buffer)])
        }
        abi::NR_CPU_TIMES => {
            let times = CpuTimes {
                buffer: stays(vec![0u64; 1024]),
                buffer_bytes: 8192,
                ..CpuTimes::default()
            };
            let example = Example::of(with_task_times(), nr, &times);
            example.with_addresses(&[offset_of!(CpuTimes, buffer)])
        }
        abi::NR_TASK_COUNTERS => {
            let counters = TaskCounters {
                cpu: abi::CPU_ALL,
                ..TaskCounters::default()
            };
            Example::of(with_task_times(), nr, &counters)
        }
        abi::NR_HOLD => Example::of(Session::open(), nr, &HOLD),
        abi::NR_HELD => {
            let session = Session::open();
            sys::ioctl(&session, abi::HOLD, &mut { HOLD }).expect("programs are held");
            Example::of(session, nr, &Held::default())
        }
        nr => panic!("request {nr} has no example"),
    }
}

/// Programs that start wait for a moment.
const HOLD: Hold = Hold {
    size: size_of::<Hold>() as u32,
    flags: abi::HOLD_SET,
    limit_ms: 1,
    reserved: 0,
    held: 0,
    overdue: 0,
    interrupted: 0,
    not_held: 0,
    longest_ns: 0,
};

/// A row for each CPU.
fn sums() -> Table {
    Table {
        kind: abi::TABLE_SUMS,
        ..Table::default()
    }
}

/// Tries a request in all sizes, each in a session in which it is right.
fn sizes(name: &str, nr: u32) {
    let Example { v1, full, .. } = example(nr);
    let call = |bytes: usize, tail: Option<usize>| {
        let example = example(nr);
        let mut words = example.words.clone();
        words.as_mut_bytes()[..4].copy_from_slice(&(bytes as u32).to_ne_bytes());
        if let Some(at) = tail {
            words.as_mut_bytes()[at] = 1;
        }
        let before = words.clone();
        let got = example.ask(&mut words);
        // After what the caller said, nothing is written.
        let told = bytes.min(full) / 8;
        assert_eq!(before[told..], words[told..], "{name} of {bytes} bytes");
        got
    };
    for bytes in [0, 1, 4, 7, v1 / 2, v1 - 8, v1 - 1] {
        assert_eq!(call(bytes, None), libc::EINVAL, "{name} of {bytes} bytes");
    }
    for bytes in [v1, full, full + 8, full + 64, 4096] {
        assert_eq!(call(bytes, None), 0, "{name} of {bytes} bytes");
    }
    for (bytes, at) in [(full + 8, full), (full + 8, full + 7), (4096, 4095)] {
        let got = call(bytes, Some(at));
        assert_eq!(got, libc::E2BIG, "{name} of {bytes} bytes, {at} not zero");
    }
    for bytes in [1 << 20, 1 << 31, u32::MAX as usize] {
        let got = call(bytes, None);
        assert_eq!(got, libc::E2BIG, "{name} of {bytes} bytes");
    }
}

test! { full, each_request_takes_the_sizes_of_the_past_and_the_future, module, seconds = 180 }
fn each_request_takes_the_sizes_of_the_past_and_the_future() {
    let _module = Module::load();
    for (nr, name) in requests() {
        sizes(name, nr);
    }
}

/// Where a request has words that must be zero.
fn reserved(nr: u32) -> Vec<usize> {
    match nr {
        abi::NR_SETUP => vec![offset_of!(Setup, reserved)],
        abi::NR_FILTER => vec![offset_of!(Filter, reserved2)],
        abi::NR_DETACH => vec![offset_of!(Detach, reserved)],
        abi::NR_PROGRAM => vec![offset_of!(Program, reserved)],
        abi::NR_FREEZE => vec![offset_of!(Freeze, reserved)],
        abi::NR_FILE => vec![offset_of!(abi::File, remote)],
        abi::NR_STACK => vec![offset_of!(Stack, reserved)],
        abi::NR_TASKS => vec![offset_of!(Tasks, reserved)],
        abi::NR_CPU_TIMES => vec![offset_of!(CpuTimes, reserved)],
        abi::NR_TASK_COUNTERS => vec![offset_of!(TaskCounters, reserved)],
        abi::NR_HOLD => vec![offset_of!(Hold, reserved)],
        abi::NR_HELD => vec![offset_of!(Held, reserved)],
        _ => Vec::new(),
    }
}

test! { full, each_request_refuses_what_it_does_not_know, module }
/// The last bit of the flags means nothing in any request. But for the one word each of them
/// is right.
fn each_request_refuses_what_it_does_not_know() {
    const FLAGS_AT: usize = 4;
    const UNKNOWN: u32 = 1 << 31;
    let _module = Module::load();
    for (nr, name) in requests() {
        let wrong = reserved(nr).into_iter().map(|at| (at, 1));
        for (at, bits) in wrong.chain([(FLAGS_AT, UNKNOWN)]) {
            let example = example(nr);
            let mut words = example.words.clone();
            let place = &mut words.as_mut_bytes()[at..at + 4];
            let had = u32::from_ne_bytes(place.try_into().expect("four bytes"));
            place.copy_from_slice(&(had | bits).to_ne_bytes());
            let got = example.ask(&mut words);
            assert_eq!(got, libc::EINVAL, "{name} with {bits:#x} at {at}");
            assert_eq!(example.ask(&mut example.words.clone()), 0, "{name}");
        }
    }
}

/// Filters with a list each, which the example has not.
fn filters_with_lists() -> Vec<Example> {
    let own = std::process::id();
    let list = |flags| Filter {
        flags,
        ..Filter::default()
    };
    let filters = [
        (
            Filter {
                pids: stays(vec![own]),
                pid_count: 1,
                ..list(abi::FILTER_PIDS)
            },
            offset_of!(Filter, pids),
        ),
        (
            Filter {
                tids: stays(vec![own]),
                tid_count: 1,
                ..list(abi::FILTER_TIDS)
            },
            offset_of!(Filter, tids),
        ),
        (
            Filter {
                pidns_list: stays(vec![crate::container::in_filter(own)]),
                pidns_count: 1,
                ..list(abi::FILTER_PIDNS_LIST)
            },
            offset_of!(Filter, pidns_list),
        ),
    ];
    let example = |(filter, at): (Filter, usize)| {
        Example::of(Session::open(), abi::NR_FILTER, &filter).with_addresses(&[at])
    };
    filters.into_iter().map(example).collect()
}

test! { core, bad_addresses_are_refused, module }
fn bad_addresses_are_refused() {
    let _module = Module::load();
    let hole = Mapping::anonymous(PAGE, PROT_NONE).expect("memory");
    let bad = [
        0,
        8,
        hole.address(),
        0xffff_8880_0000_0000,
        0x8000_0000_0000,
        u64::MAX - 7,
    ];
    let examples = requests().into_iter().map(|(nr, _)| example(nr));
    let mut pointers = 0;
    for example in examples.chain(filters_with_lists()) {
        let (nr, session) = (example.nr, &example.session);
        for address in bad {
            let result = sys::ioctl_wild(session, abi::iowr(nr, 8).into(), address);
            let got = errno(result, &format!("request {nr} at {address:#x}"));
            assert_eq!(got, libc::EFAULT, "request {nr} at {address:#x}");
            for &at in &example.addresses {
                let mut words = example.words.clone();
                words[at / 8] = address;
                let got = example.ask(&mut words);
                assert_eq!(
                    got,
                    libc::EFAULT,
                    "request {nr}: {address:#x} in it at {at}"
                );
                pointers += 1;
            }
        }
        // That it was the address: with the right one it succeeds.
        assert_eq!(example.ask(&mut example.words.clone()), 0, "request {nr}");
    }
    // Three of filters and of rows, two of programs, one of seven others.
    assert_eq!(pointers, 15 * bad.len());
    an_id_that_cannot_be_written_leaves_no_probe();
}

fn an_id_that_cannot_be_written_leaves_no_probe() {
    let attach = example(abi::NR_ATTACH);
    let probe = Probe {
        fd: attach._file.as_ref().expect("it has one").as_raw_fd(),
        offset: binary::function(&victim::path("exit_soon"), "short_work").offset,
        ..probe_at(0, abi::PROBE_AT_ENTRY)
    };
    let readable = Mapping::anonymous(PAGE, PROT_READ | PROT_WRITE).expect("memory");
    for (at, word) in probe.as_bytes().chunks(8).enumerate() {
        let word = u64::from_ne_bytes(word.try_into().expect("8 bytes"));
        readable.set_word(at * 8, word);
    }
    readable.protect(PROT_READ).expect("ours");
    let mut words = attach.words.clone();
    words[offset_of!(Attach, probes) / 8] = readable.address();
    assert_eq!(attach.ask(&mut words), libc::EFAULT, "read-only probes");
    let probes = attach.session.info().probes;
    assert_eq!(probes, 0, "a probe without an owner stays");
}
