// SPDX-License-Identifier: GPL-2.0-only
//! A session: one open file of the device. It owns every probe, ring and object made through it;
//! closing it detaches and frees them all.
//!
//! Locks: of `probes`, `reader` and `tasks`, none is held together with another. Handlers take
//! none.

pub(crate) mod probes;
pub(crate) mod reader;

use crate::{
    common::{
        abi::{
            Counters as CounterValues,
            Probe as ProbeRequest,
            Refusal,
            PROGRAMS_MAX,
            RING_BYTES_MAX,
            RING_BYTES_MIN,
            RING_BYTES_TOTAL_MAX,
            TABLES_MAX,
            TABLE_BYTES_MAX,
            TASKS_CPU,
            TASKS_UNFILTERED, //
        },
        ring::Geometry,
        table::Shape, //
    },
    context::Context,
    filter::Filter,
    probe::{
        counters::Counters,
        program::Program,
        request::Refused, //
    },
    ring::Rings,
    session::{
        probes::{Probes, RefusedAt},
        reader::Reader, //
    },
    sys::memory::{self, GFP_REQUEST},
    table::Table,
    tasks::{
        events::TaskEvents,
        start_gate::{OpenGate, StartGate},
        subscription::{Failed, TaskTrace, Wanted}, //
    },
    totals::Tally, //
};
use kernel::{
    cpu::nr_cpu_ids,
    fs::File,
    mm::virt::VmaNew,
    new_mutex,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{poll::PollTable, Arc, CondVarTimeoutResult, Mutex, SetOnce},
    time::msecs_to_jiffies,
    uaccess::UserSliceWriter, //
};

/// A blocking `read()` returns what there is after this time, even below the watermark.
const FLUSH_MS: u32 = 100;

/// How records leave the session; the first use decides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Mapped,
    Read,
}

/// One open file of the device.
#[pin_data]
pub(crate) struct Session {
    context: Arc<Context>,
    access: SetOnce<Access>,
    #[pin]
    probes: Mutex<Probes>,
    #[pin]
    reader: Mutex<Reader>,
    #[pin]
    tasks: Mutex<TaskTrace>,
    /// Set once programs are held.
    start_gate: SetOnce<OpenGate>,
    /// Dropped last: a session that is no longer counted holds nothing.
    tally: Tally,
}

impl Session {
    /// Opens a session of the current task.
    pub(crate) fn open() -> Result<Pin<KBox<Self>>> {
        let context = Context::new()?;
        KBox::pin_init(
            pin_init!(Session {
                context,
                access: SetOnce::new(),
                probes <- new_mutex!(Probes::new()),
                reader <- new_mutex!(Reader::new()),
                tasks <- new_mutex!(TaskTrace::new()),
                start_gate: SetOnce::new(),
                tally: Tally::new(),
            }),
            GFP_REQUEST,
        )
    }

    /// Makes rings for a session that has none yet; see [`keep_rings`](Self::keep_rings).
    pub(crate) fn make_rings(
        &self,
        ring_bytes: u64,
        watermark_bytes: u64,
        overwrite: bool,
    ) -> Result<Rings> {
        let total = ring_bytes.checked_mul(u64::from(nr_cpu_ids()));
        let sized = (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes)
            && total.is_some_and(|total| total <= RING_BYTES_TOTAL_MAX)
            && watermark_bytes <= ring_bytes;
        let geometry = Geometry::new(ring_bytes).filter(|_| sized).ok_or(EINVAL)?;
        if self.context.rings.as_ref().is_some() {
            return Err(EBUSY);
        }
        Rings::new(geometry, watermark_bytes, overwrite)
    }

    /// Gives the session these rings. `EBUSY` if it has some.
    pub(crate) fn keep_rings(&self, rings: Rings, may_modify: bool) -> Result {
        // Under the lock, so that the rings of one caller are never paired with the flags of
        // another.
        let _probes = self.probes.lock();
        if self.context.rings.as_ref().is_some() {
            return Err(EBUSY);
        }
        self.context.may_modify.populate(may_modify);
        self.context.rings.populate(rings);
        Ok(())
    }

    /// Sets which tasks are traced.
    pub(crate) fn set_filter(&self, filter: Filter) -> Result {
        self.probes.lock().set_filter(&self.context, filter)
    }

    /// Keeps a program; returns its id.
    pub(crate) fn keep_program(&self, program: Program) -> Result<u32> {
        let mut probes = self.probes.lock();
        if probes.programs.len() >= PROGRAMS_MAX as usize {
            return Err(ENOSPC);
        }
        let program = Arc::new(program, GFP_REQUEST)?;
        probes.programs.push(program, GFP_REQUEST)?;
        Ok(probes.programs.len() as u32)
    }

    /// Takes back the program that [`keep_program`](Self::keep_program) has just given this id,
    /// unless others were kept after it.
    pub(crate) fn forget_program(&self, id: u32) {
        let mut probes = self.probes.lock();
        if probes.programs.len() == id as usize {
            drop(probes.programs.pop());
        }
    }

    /// Makes a table; returns its id and its shape.
    pub(crate) fn make_table(&self, shape: Shape) -> Result<u32> {
        let bytes = Table::bytes(&shape).ok_or(ENOSPC)?;
        let mut probes = self.probes.lock();
        let total = probes.table_bytes.checked_add(bytes).ok_or(ENOSPC)?;
        if total > TABLE_BYTES_MAX || probes.tables.len() >= TABLES_MAX as usize {
            return Err(ENOSPC);
        }
        let table = Arc::new(Table::new(shape)?, GFP_REQUEST)?;
        probes.tables.push(table, GFP_REQUEST)?;
        probes.table_bytes = total;
        Ok(probes.tables.len() as u32)
    }

    /// Takes back the table that [`make_table`](Self::make_table) has just given this id, unless
    /// others were made after it.
    pub(crate) fn forget_table(&self, id: u32, shape: &Shape) {
        let mut probes = self.probes.lock();
        if probes.tables.len() == id as usize {
            drop(probes.tables.pop());
            let bytes = Table::bytes(shape).unwrap_or(0);
            probes.table_bytes = probes.table_bytes.saturating_sub(bytes);
        }
    }

    /// The table with this id.
    pub(crate) fn table(&self, id: u32) -> Result<Arc<Table>> {
        let probes = self.probes.lock();
        match probes.table(id) {
            Ok(Some(table)) => Ok(table),
            _ => Err(ENOENT),
        }
    }

    /// Attaches all of `requests` and fills in their ids, or attaches none; if `is_partial` those
    /// whose place the kernel takes.
    pub(crate) fn attach(
        &self,
        requests: &mut [ProbeRequest],
        is_partial: bool,
    ) -> Result<(), RefusedAt> {
        if self.context.rings.as_ref().is_none() {
            let refused = Refused(ENXIO, Refusal::NoSetup);
            return Err(RefusedAt { index: 0, refused });
        }
        self.probes
            .lock()
            .attach(&self.context, requests, is_partial)
    }

    /// Detaches the probes with these ids, all or none. `EINVAL` if an id is repeated.
    pub(crate) fn detach(&self, ids: &[u32]) -> Result {
        self.probes.lock().detach(ids)
    }

    /// Detaches all probes.
    pub(crate) fn detach_all(&self) -> Result {
        let mut probes = self.probes.lock();
        let mut ids = memory::room(probes.attached_count())?;
        for known in probes.attached() {
            memory::push(&mut ids, known.id)?;
        }
        probes.detach(&ids)
    }

    /// The counters of probe `id`.
    pub(crate) fn counters(&self, id: u32) -> Result<Arc<Counters>> {
        let probes = self.probes.lock();
        Ok(probes.get(id).ok_or(ENOENT)?.counters.clone())
    }

    /// What the session shares with its handlers.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Sets which task events the session requests. `ENXIO` if they need a record and there are no
    /// rings.
    pub(crate) fn set_tasks(&self, wanted: &Wanted) -> Result<(), Failed> {
        let has_records = wanted.flags & !(TASKS_CPU | TASKS_UNFILTERED) != 0;
        if has_records && self.context.rings.as_ref().is_none() {
            return Err(Failed::Error(ENXIO));
        }
        self.tasks.lock().set(&self.context, wanted)
    }

    /// The task events, once some were requested.
    pub(crate) fn task_events(&self) -> Option<Arc<TaskEvents>> {
        self.tasks.lock().events()
    }

    /// Sets how long a program that starts in a new mount namespace waits at most; zero for none.
    pub(crate) fn set_hold(&self, limit_ms: u32) -> Result {
        if self.start_gate.as_ref().is_none() {
            // Of two callers one makes it.
            let _tasks = self.tasks.lock();
            if self.start_gate.as_ref().is_none() {
                self.start_gate.populate(OpenGate::new(&self.context)?);
            }
        }
        self.start_gate()?.set_limit(limit_ms);
        Ok(())
    }

    /// Where programs wait. `ENXIO` if none ever did.
    pub(crate) fn start_gate(&self) -> Result<&StartGate> {
        self.start_gate.as_ref().map(|gate| &**gate).ok_or(ENXIO)
    }

    /// The rings, if they may be used in this way.
    fn rings_for(&self, access: Access) -> Result<&Rings> {
        let rings = self.context.rings.as_ref().ok_or(ENXIO)?;
        self.access.populate(access);
        match self.access.copy() {
            Some(first) if first == access => Ok(rings),
            _ => Err(EBUSY),
        }
    }

    /// Freezes or thaws the rings if `freeze` is given; returns whether they are frozen.
    pub(crate) fn freeze(&self, freeze: Option<bool>) -> Result<bool> {
        let rings = self.context.rings.as_ref().ok_or(ENXIO)?;
        if !rings.overwrite() {
            return Err(EINVAL);
        }
        if let Some(freeze) = freeze {
            // Two callers take turns.
            let _reader = self.reader.lock();
            rings.freeze(freeze, &self.context.waiter);
        }
        Ok(rings.is_frozen())
    }

    /// `read()`.
    pub(crate) fn read(&self, nonblocking: bool, mut out: UserSliceWriter) -> Result<usize> {
        let rings = self.rings_for(Access::Read)?;
        let mut reader = self.reader.lock();
        loop {
            // Checked again after a sleep, in which the lock was free.
            if !rings.is_readable() {
                return Err(EBUSY);
            }
            reader.prepare(rings)?;
            let count = reader.fill(rings, &mut out)?;
            if count != 0 || out.is_empty() {
                return Ok(count);
            }
            if nonblocking {
                return Err(EAGAIN);
            }
            self.context.waiter.arm();
            if reader.is_ready(rings) {
                continue;
            }
            // A record that comes before this task sleeps is found after the timeout.
            let queue = self.context.waiter.queue();
            let wait = msecs_to_jiffies(FLUSH_MS);
            if let CondVarTimeoutResult::Signal { .. } =
                queue.wait_interruptible_timeout(&mut reader, wait)
            {
                return Err(ERESTARTSYS);
            }
        }
    }

    /// `poll()`.
    pub(crate) fn poll(&self, file: &File, table: PollTable<'_>) -> bool {
        let context = &*self.context;
        context.waiter.register(file, &table);
        context.waiter.arm();
        let gate = self.start_gate.as_ref();
        if gate.is_some_and(|gate| gate.has_unseen()) {
            return true;
        }
        let Some(rings) = context.rings.as_ref() else {
            return false;
        };
        match self.access.copy() {
            Some(Access::Read) => rings.is_readable() && self.reader.lock().is_ready(rings),
            _ => rings.is_ready(),
        }
    }

    /// `mmap()`.
    pub(crate) fn map(&self, page_offset: usize, vma: &VmaNew) -> Result {
        let rings = self.context.rings.as_ref().ok_or(ENXIO)?;
        if self.access.copy() == Some(Access::Read) {
            return Err(EBUSY);
        }
        rings.map(page_offset, vma)?;
        // Only now: what cannot be mapped leaves the session to be read.
        self.rings_for(Access::Mapped).map(drop)
    }

    /// `/proc/PID/fdinfo`.
    pub(crate) fn show(&self, out: &SeqFile) {
        seq_print!(out, "session:\t{}\n", self.tally.0);
        if let Some(rings) = self.context.rings.as_ref() {
            seq_print!(out, "rings:\t{}\n", rings.as_slice().len());
            seq_print!(out, "ring-bytes:\t{}\n", rings.ring_bytes());
        }
        if let Some(gate) = self.start_gate.as_ref() {
            let report = gate.report();
            seq_print!(out, "hold-ms:\t{}\n", report.limit_ms);
            seq_print!(out, "held:\t{}\n", report.held);
        }
        self.context.filter.with(|filter| {
            if let Some(filter) = filter {
                filter.show(out);
            }
        });
        let probes = self.probes.lock();
        seq_print!(out, "unwind-bytes:\t{}\n", self.context.objects.row_bytes());
        seq_print!(out, "probes:\t{}\n", probes.attached_count());
        for known in probes.attached() {
            let mut counters = CounterValues::default();
            known.counters.add_all(&mut counters);
            seq_print!(
                out,
                "probe:\t{} dev {} ino {} offset 0x{:x} hits {}",
                known.id,
                known.file.dev,
                known.file.ino,
                known.offset,
                counters.hits
            );
            for (name, count) in counters.outcomes() {
                seq_print!(out, " {} {}", name, count);
            }
            seq_print!(
                out,
                " stacks_cut {} processes_failed {}\n",
                counters.stacks_cut,
                counters.processes_failed
            );
        }
    }
}
