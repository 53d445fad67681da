// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's answers about tasks: living tasks, starts and ends, and CPU times.

use libnsprobe::common::abi::{TASKS_CPU, TASKS_LIFE, TASKS_NAMES, TASKS_UNFILTERED};
use libnsprobe::common::record::Record;
use libnsprobe::{Device, DumpOptions, Reader, Session, SetupOptions, TaskOptions};
use nsprobe_containers::PidSpace;
use nsprobe_tasks::Tasks;
use std::collections::HashMap;

/// CPU time of the threads of a control group and a pid namespace, on all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuRow {
    /// The control group's id.
    pub cgroup: u64,
    /// The pid namespace.
    pub pid_namespace: PidSpace,
    /// Nanoseconds on CPUs.
    pub cpu_ns: u64,
    /// How often they left a CPU.
    pub switches: u64,
}

impl CpuRow {
    /// The key of the row.
    pub fn key(&self) -> (u64, u64) {
        (self.cgroup, self.pid_namespace.id)
    }
}

/// A reading of the CPU times since the first request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuReading {
    /// CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// Each group and namespace once.
    pub rows: Vec<CpuRow>,
    /// CPU time for which there was no row.
    pub turned_away_ns: u64,
}

/// What a dump includes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dump {
    /// Includes arguments.
    pub args: bool,
}

/// Bytes of a ring for tasks that come and go: a thousand of them.
const RING_BYTES: u64 = 256 << 10;
/// Size of a ring that receives no records.
const RING_BYTES_MIN: u64 = 4 << 10;
/// Groups and namespaces for which each CPU has room.
const CPU_ROWS: u32 = 4096;

/// The kernel, as a source of what there is to know of tasks.
pub struct TaskSource {
    session: Session,
    reader: Reader,
}

impl TaskSource {
    /// Opens a session of its own. With `over_time`, CPU times are kept from now on, and starts and
    /// ends of tasks are recorded.
    pub fn open(over_time: bool) -> anyhow::Result<TaskSource> {
        let (ring_bytes, flags, cpu_rows) = match over_time {
            true => (
                RING_BYTES,
                TASKS_UNFILTERED | TASKS_LIFE | TASKS_NAMES | TASKS_CPU,
                CPU_ROWS,
            ),
            false => (RING_BYTES_MIN, TASKS_UNFILTERED, 0),
        };
        let setup = SetupOptions::with_ring_bytes(ring_bytes);
        let (mut session, reader) = Device::open()?.setup(&setup)?;
        session.set_tasks(&TaskOptions {
            flags,
            args_bytes: 0,
            cpu_rows,
        })?;
        Ok(TaskSource { session, reader })
    }

    /// Dumps all living tasks.
    pub fn dump(&mut self, tasks: &mut Tasks, what: Dump) -> anyhow::Result<()> {
        tasks.dump_begun(Reader::now());
        let options = DumpOptions {
            args: what.args,
            mappings: false,
        };
        let dump = self.session.dump_tasks(options)?;
        dump.records().for_each(|record| take(tasks, &record));
        tasks.dump_ended();
        Ok(())
    }

    /// Reads the CPU times up to now.
    pub fn cpu(&mut self) -> anyhow::Result<CpuReading> {
        let times = self.session.cpu_times()?;
        let mut rows: HashMap<(u64, u64), CpuRow> = HashMap::new();
        for time in &times.rows {
            let row = rows.entry((time.cgroup, time.pidns_id)).or_insert(CpuRow {
                cgroup: time.cgroup,
                pid_namespace: PidSpace {
                    id: time.pidns_id,
                    inum: time.pidns_inum,
                },
                ..CpuRow::default()
            });
            row.cpu_ns += time.runtime_ns;
            row.switches += time.switches;
        }
        Ok(CpuReading {
            time_ns: times.time_ns,
            rows: rows.into_values().collect(),
            turned_away_ns: times.turned_away_ns,
        })
    }

    /// Takes what has come; how many records were lost so far.
    pub fn drain(&mut self, tasks: &mut Tasks) -> anyhow::Result<u64> {
        let batch = self.reader.collect_rest()?;
        for record in batch.records() {
            match record {
                // Started programs: nothing here needs their files.
                Record::Object(object) => self.session.let_go(object.id)?,
                record => take(tasks, &record),
            }
        }
        drop(batch);
        Ok(self.reader.lost_in_rings())
    }
}

fn take(tasks: &mut Tasks, record: &Record<'_>) {
    if let Record::Task(record, details) = record {
        tasks.apply(record, details);
    }
}
