// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of every kind that are right, and have a word or two spoiled.

use super::Random;
use crate::container::in_filter;
use crate::session::PAGE;
use crate::steps::{constant, field, key, register, step, value};
use crate::sys::Mapping;
use crate::victim::Victim;
use nix::libc::{PROT_READ, PROT_WRITE};
use nsprobe_common::abi::{
    self, Attach, Counters, CpuTimes, Detach, DropSpans, Filter, Freeze, Info, Object,
    PidNamespace, Probe, Program, Rows, Setup, Stack, Table, TaskCounters, TaskDump, Tasks, Unwind,
};
use nsprobe_common::program::{Operation, Register, Step};
use nsprobe_common::unwind::{Base, Rule};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use zerocopy::{Immutable, IntoBytes};

/// Where things lie in the memory that requests point to.
const PROBES: usize = PAGE;
const IDS: usize = 2 * PAGE;
const LISTS: usize = 3 * PAGE;
const STEPS: usize = 4 * PAGE;
const UNWIND: usize = 5 * PAGE;
const ROOM: usize = 8 * PAGE;
/// Bytes of the memory and of what lies around it: an address with a wrong bit leads there,
/// and not to what the test itself needs.
const AROUND: usize = 64 << 20;
/// Words that may be spoiled of a request.
const WORDS: usize = 24;

/// Requests that are right, but for a word or two.
pub(super) struct Garbage {
    pub(super) random: Random,
    /// Values that mean something: sizes, addresses, descriptors.
    pub(super) words: Vec<u64>,
    pub(super) memory: Mapping,
    /// Where in `memory` the request lies.
    pub(super) base: usize,
    fd: i32,
    group: File,
    pub(super) place: u64,
    pid: u32,
    pid_namespace: PidNamespace,
}

impl Garbage {
    pub(super) fn new(random: Random, victim: &Victim, file: &File) -> Garbage {
        let memory = Mapping::anonymous(2 * AROUND, PROT_READ | PROT_WRITE).expect("memory");
        let start = memory.address().next_multiple_of(AROUND as u64);
        let base = (start - memory.address()) as usize;
        let mut words = vec![
            0, 1, 2, 8, 16, 24, 32, 40, 48, 64, 72, 88, 96, 152, 272, 4096, 65536,
        ];
        words.extend([1 << 31, 1 << 63, u64::MAX, u64::from(u32::MAX)]);
        words.extend([start, start + 4, 0xffff_ffff_8100_0000, 0x7fff_ffff_f000]);
        Garbage {
            random,
            words,
            memory,
            base,
            fd: file.as_raw_fd(),
            group: File::open("/sys/fs/cgroup").expect("cgroup2 is mounted"),
            place: victim.function("begins_with_push").offset,
            pid: victim.pid(),
            pid_namespace: in_filter(victim.pid()),
        }
    }

    pub(super) fn chance(&mut self, one_in: u64) -> bool {
        self.random.next().is_multiple_of(one_in)
    }

    pub(super) fn word(&mut self) -> u64 {
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

    pub(super) fn address(&self, place: usize) -> u64 {
        self.memory.address() + (self.base + place) as u64
    }

    /// Writes things to a place.
    fn put<T: IntoBytes + Immutable>(&self, place: usize, things: &[T]) {
        for (index, bytes) in things.as_bytes().chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let at = self.base + place + index * 8;
            self.memory.set_word(at, u64::from_ne_bytes(word));
        }
    }

    /// Writes a request of one of the sizes that it has had or may get.
    fn request<T: IntoBytes + Immutable>(&mut self, request: T, sizes: &[usize]) {
        self.put(0, &[0u64; 2 * WORDS]);
        self.put(0, &[request]);
        let size = match self.chance(8) {
            true => size_of::<T>() + 8,
            false => self.random.pick(sizes),
        };
        let first = self.memory.word(self.base) >> 32 << 32;
        self.memory.set_word(self.base, first | size as u64);
    }

    /// The request as it is.
    fn plain<T: IntoBytes + Immutable>(&mut self, request: T) {
        self.request(request, &[size_of::<T>()]);
    }

    fn filter(&mut self) -> Filter {
        let mut filter = Filter::default();
        let two = self.random.pick(&[1, 2]);
        if self.chance(3) {
            filter.flags |= abi::FILTER_SELF;
        }
        match self.random.next() % 4 {
            0 => {
                filter.flags |= abi::FILTER_PIDS | self.random.pick(&[0, abi::FILTER_CHILDREN]);
                (filter.pids, filter.pid_count) = (self.address(LISTS), two);
            }
            1 => {
                filter.flags |= abi::FILTER_TIDS | self.random.pick(&[0, abi::FILTER_CHILDREN]);
                (filter.tids, filter.tid_count) = (self.address(LISTS), two);
            }
            _ => {}
        }
        match self.random.next() % 4 {
            0 => {
                filter.flags |= abi::FILTER_PIDNS;
                (filter.pidns_pid, filter.pidns_id) = (self.pid, self.pid_namespace.id);
            }
            1 => {
                filter.flags |= abi::FILTER_PIDNS_LIST;
                (filter.pidns_list, filter.pidns_count) = (self.address(LISTS + 64), two);
            }
            _ => {}
        }
        if self.chance(4) {
            filter.flags |= abi::FILTER_UID;
        }
        if self.chance(4) {
            filter.flags |= abi::FILTER_COMM;
            filter.comm[..12].copy_from_slice(b"call_in_loop");
        }
        if self.chance(4) {
            filter.flags |= abi::FILTER_NOT_PROGRAM;
            filter.program_fd = self.group.as_raw_fd();
        }
        match self.random.next() % 8 {
            0 => {
                filter.flags |= abi::FILTER_CGROUP;
                filter.cgroup_fd = self.group.as_raw_fd();
            }
            1 => {
                filter.flags |= abi::FILTER_CGROUP;
                filter.cgroup_id = self.group.metadata().map_or(1, |group| group.ino());
            }
            _ => {}
        }
        filter
    }

    fn probe(&mut self) -> Probe {
        let base = Probe {
            fd: self.fd,
            kind: abi::PROBE_ENTRY,
            flags: abi::PROBE_AT_ENTRY,
            offset: self.place,
            ..Probe::default()
        };
        let shape = self.random.next() % 9;
        let few = (self.random.next() % 4) as u32;
        match shape {
            0 => Probe { flags: few, ..base },
            1 => Probe {
                flags: abi::PROBE_STACK | abi::PROBE_STACK_IDS,
                max_frames: 5 * few,
                ..base
            },
            2 => Probe {
                flags: abi::PROBE_STACK | abi::PROBE_COPIES | abi::PROBE_LATE,
                ..base
            },
            3 => Probe {
                flags: abi::PROBE_KERNEL_STACK | (abi::PROBE_FREEZES * (few & 1)),
                ..base
            },
            4 => Probe {
                kind: self.random.pick(&[abi::PROBE_RETURN, abi::PROBE_CALL]),
                every: few,
                rate: 1000 * few,
                burst: few,
                runaway: 100_000,
                ..base
            },
            5 => Probe {
                sink: abi::SINK_TABLE,
                table: 1,
                entry_program: few,
                ..base
            },
            6 => Probe {
                sink: abi::SINK_SPAN,
                table: 1 + few % 2,
                span: 1 + few % 2,
                entry_program: few,
                ..base
            },
            7 => Probe {
                sink: abi::SINK_COUNT,
                entry_program: few % 2,
                max_writes: few / 3,
                ..base
            },
            _ => Probe {
                entry_program: few,
                ..base
            },
        }
    }

    fn steps(&mut self) -> Vec<Step> {
        let require = step(Operation::Require, 0, 2, 0, 0, 0);
        match self.random.next() % 4 {
            0 => vec![register(2, Register::Rdi), require],
            1 => vec![register(1, Register::Rsp), field(1)],
            2 => vec![constant(0, 3), key(0)],
            _ => vec![constant(0, 3), key(0), value(0)],
        }
    }

    /// A request that may succeed, in its place, with all that it points to. One that this
    /// does not know fails the test.
    pub(super) fn write(&mut self, nr: u32) {
        let few = (self.random.next() % 4 + 1) as u32;
        let bit = (self.random.next() % 2) as u32;
        let id = (self.random.next() % 8) as u32;
        let probe_bytes = self
            .random
            .pick(&[abi::PROBE_BYTES_V1, size_of::<Probe>(), 96]);
        for index in 0..4 {
            let probe = self.probe();
            self.put(PROBES + index * probe_bytes, &[0u64; 12]);
            self.put(PROBES + index * probe_bytes, &[probe]);
        }
        self.put(IDS, &[id, id + 1]);
        self.put(LISTS, &[self.pid; 2]);
        self.put(LISTS + 64, &[self.pid_namespace; 2]);
        let steps = self.steps();
        self.put(STEPS, &steps);
        let rule = Rule {
            base: Base::Outermost as u8,
            ..Rule::default()
        };
        self.put(UNWIND, &[0u32, 1, 0, 0]);
        self.put(UNWIND + 64, &[rule]);
        match nr {
            abi::NR_INFO => self.plain(Info::default()),
            // Rings of up to 2 MiB: memory that a guest has.
            abi::NR_SETUP => {
                let overwrite = self.random.pick(&[0, abi::SETUP_OVERWRITE]);
                let ring_bytes = 4096 << (self.random.next() % 10);
                self.plain(Setup {
                    flags: bit | overwrite,
                    ring_bytes,
                    ..Setup::default()
                });
            }
            abi::NR_FILTER => {
                let filter = self.filter();
                self.request(filter, &[abi::FILTER_BYTES_V1, 64, size_of::<Filter>()]);
            }
            abi::NR_ATTACH => self.plain(Attach {
                probes: self.address(PROBES),
                count: few,
                probe_size: probe_bytes as u32,
                ..Attach::default()
            }),
            abi::NR_DETACH => self.plain(Detach {
                ids: self.address(IDS),
                count: 1 + few / 4,
                ..Detach::default()
            }),
            abi::NR_COUNTERS => {
                let counters = Counters {
                    probe: id,
                    cpu: abi::CPU_ALL * bit,
                    ..Counters::default()
                };
                self.request(
                    counters,
                    &[abi::COUNTERS_BYTES_V1, 96, size_of::<Counters>()],
                );
            }
            abi::NR_OBJECT => self.plain(Object {
                flags: [0, abi::OBJECT_FD, abi::OBJECT_ROOT, 0][few as usize - 1],
                id: id / 2,
                ..Object::default()
            }),
            abi::NR_PROGRAM => self.plain(Program {
                steps: self.address(STEPS),
                data: self.address(IDS),
                step_count: steps.len() as u32,
                data_bytes: 8 * bit,
                ..Program::default()
            }),
            // Small tables, with a key of a word or none.
            abi::NR_TABLE => {
                let kind =
                    self.random
                        .pick(&[abi::TABLE_SUMS, abi::TABLE_HISTOGRAM, abi::TABLE_SPANS]);
                let is_histogram = u32::from(kind == abi::TABLE_HISTOGRAM);
                let scale = is_histogram * (1 + bit);
                let is_linear = u32::from(scale == abi::SCALE_LINEAR);
                self.plain(Table {
                    kind,
                    rows: few * 8,
                    key_words: bit,
                    scale,
                    log_bits: (is_histogram - is_linear) * few,
                    step: u64::from(is_linear),
                    buckets: is_linear * few,
                    ..Table::default()
                });
            }
            abi::NR_ROWS => self.plain(Rows {
                table: 1,
                buffer: self.address(ROOM),
                buffer_bytes: 8192,
                ..Rows::default()
            }),
            abi::NR_DROP_SPANS => self.plain(DropSpans {
                table: id,
                count: few,
                owners: self.address(LISTS),
                ..DropSpans::default()
            }),
            abi::NR_FREEZE => self.plain(Freeze {
                flags: [0, abi::FREEZE_NOW, abi::FREEZE_END, 0][few as usize - 1],
                ..Freeze::default()
            }),
            abi::NR_FILE => self.plain(abi::File {
                fd: self.fd,
                ..abi::File::default()
            }),
            abi::NR_UNWIND => {
                let unwind = match few {
                    1 => Unwind {
                        flags: abi::UNWIND_DROP,
                        first: id.into(),
                        ..Unwind::default()
                    },
                    2 => Unwind {
                        flags: abi::UNWIND_NONE,
                        fd: self.fd,
                        ..Unwind::default()
                    },
                    _ => Unwind {
                        flags: abi::UNWIND_VDSO * (few & 1),
                        fd: self.fd * (1 - (few & 1) as i32),
                        blocks: self.address(UNWIND),
                        block_count: 2,
                        rows: self.address(UNWIND + 8),
                        row_count: 1,
                        rules: self.address(UNWIND + 64),
                        rule_count: 1,
                        ..Unwind::default()
                    },
                };
                self.plain(unwind);
            }
            abi::NR_STACK => self.plain(Stack {
                id: 1,
                words: 127 * few,
                frames: self.address(ROOM),
                ..Stack::default()
            }),
            abi::NR_TASKS => self.plain(match few {
                1 => Tasks::default(),
                2 => Tasks {
                    flags: abi::TASKS_LIFE | abi::TASKS_NAMES | abi::TASKS_UNFILTERED,
                    args_bytes: 64 * bit,
                    ..Tasks::default()
                },
                3 => Tasks {
                    flags: abi::TASKS_SWITCHES | abi::TASKS_WAKEUPS | abi::TASKS_MOVES,
                    ..Tasks::default()
                },
                _ => Tasks {
                    flags: abi::TASKS_CPU,
                    cpu_rows: 1 << id,
                    ..Tasks::default()
                },
            }),
            abi::NR_TASK_DUMP => self.plain(TaskDump {
                flags: id % 4,
                next: [0, self.pid, 1 << 15, 0][few as usize - 1],
                buffer: self.address(ROOM),
                buffer_bytes: abi::DUMP_BYTES_MIN as u32 * few,
                ..TaskDump::default()
            }),
            abi::NR_CPU_TIMES => self.plain(CpuTimes {
                next: bit,
                buffer: self.address(ROOM),
                buffer_bytes: 64 * few,
                ..CpuTimes::default()
            }),
            abi::NR_TASK_COUNTERS => self.plain(TaskCounters {
                cpu: abi::CPU_ALL * bit,
                ..TaskCounters::default()
            }),
            abi::NR_HOLD => self.plain(abi::Hold {
                flags: abi::HOLD_SET * bit,
                limit_ms: bit * few,
                ..abi::Hold::default()
            }),
            abi::NR_HELD => self.plain(abi::Held {
                release: bit.into(),
                ..abi::Held::default()
            }),
            nr => panic!("request {nr} is never spoiled"),
        }
    }

    /// Spoils a word of the request, or of what it points to.
    pub(super) fn spoil(&mut self, nr: u32) {
        let areas = [0, 0, 0, PROBES, IDS, LISTS, LISTS + 64, STEPS, UNWIND];
        let area = self.random.pick(&areas);
        let number = (self.random.next() % WORDS as u64) as usize;
        let mut word = self.word();
        // Half of all random sizes would be more than the guest has.
        let sizes: &[usize] = match nr {
            abi::NR_SETUP => &[1],
            abi::NR_TABLE => &[1, 2, 6],
            abi::NR_UNWIND => &[1, 6],
            _ => &[],
        };
        if area == 0 && sizes.contains(&number) {
            word &= 0x003f_ffff_003f_ffff;
        }
        self.memory.set_word(self.base + area + number * 8, word);
    }
}
