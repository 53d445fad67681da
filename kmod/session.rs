// SPDX-License-Identifier: GPL-2.0-only
//! A session: one open file of the device. It owns every probe, ring and object
//! made through it; its end detaches and frees them all.
//!
//! Locks: `probes` and `reader` are never held together. Handlers take neither.

use crate::{
    call::Calls,
    common::{
        abi::{
            Probe as ProbeRequest,
            Refusal,
            FRAMES_MAX,
            PROBES_MAX,
            PROBE_AT_ENTRY,
            PROBE_CALL,
            PROBE_ENTRY,
            PROBE_RETURN,
            PROBE_RETURN_ONLY,
            PROBE_STACK,
            PROGRAMS_MAX,
            RING_BYTES_MAX,
            RING_BYTES_MIN,
            RING_BYTES_TOTAL_MAX,
            SINK_COUNT,
            SINK_RECORD,
            SINK_SPAN,
            SINK_TABLE,
            TABLES_MAX,
            TABLE_BYTES_MAX, //
        },
        program::Summary,
        ring::Geometry,
        table::{Kind, Shape}, //
    },
    counters::{Counters, Counts},
    filter::Filter,
    probe::{Probe, Shared, Sink},
    program::Program,
    reader::Reader,
    ring::Rings,
    sys::{
        inode::{PinnedInode, Unusable},
        uprobe::{Batch, Ends},
        vma::FileKey, //
    },
    table::Table,
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kernel::{
    alloc::AllocError,
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

/// A blocking `read()` hands out what there is after this time, even below the
/// watermark.
const FLUSH_MS: u32 = 100;

/// Sessions that were ever opened: the last one's number.
static LAST_SESSION: AtomicU32 = AtomicU32::new(0);
/// Sessions open in the whole module.
pub(crate) static SESSIONS: AtomicU32 = AtomicU32::new(0);
/// Probes attached in the whole module.
pub(crate) static PROBES: AtomicU32 = AtomicU32::new(0);

/// How records leave the session; fixed by the first use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Mapped,
    Read,
}

/// An error, and why.
pub(crate) struct Refused(pub(crate) Error, pub(crate) Refusal);

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let reason = if error == ENOMEM {
            Refusal::NoMemory
        } else {
            Refusal::None
        };
        Refused(error, reason)
    }
}

impl From<AllocError> for Refused {
    fn from(_: AllocError) -> Self {
        Refused(ENOMEM, Refusal::NoMemory)
    }
}

impl From<Unusable> for Refused {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::BadFd => Refused(EBADF, Refusal::BadFd),
            Unusable::NotRegular => Refused(EINVAL, Refusal::NotRegular),
        }
    }
}

/// Where a probe is in its life.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Attached,
    /// Chosen to be detached, under the session's lock.
    Leaving,
    Detached,
}

/// What is known of every probe, also when it is detached.
struct Known {
    id: u32,
    file: FileKey,
    offset: u64,
    state: State,
    counters: Arc<Counters>,
}

struct Probes {
    batch: Batch<Probe>,
    known: KVVec<Known>,
    programs: KVec<Arc<Program>>,
    tables: KVec<Arc<Table>>,
    table_bytes: u64,
}

impl Probes {
    /// The program with this id; none for zero.
    fn program(&self, id: u32) -> Result<Option<Arc<Program>>, Refused> {
        let Some(index) = place(id) else {
            return Ok(None);
        };
        let program = self.programs.get(index);
        let program = program.ok_or(Refused(ENOENT, Refusal::NoSuchId))?;
        if program.summary().writes {
            return Err(Refused(EPERM, Refusal::MayNotWrite));
        }
        Ok(Some(program.clone()))
    }

    /// The table with this id; none for zero.
    fn table(&self, id: u32) -> Result<Option<Arc<Table>>, Refused> {
        let Some(index) = place(id) else {
            return Ok(None);
        };
        let table = self.tables.get(index);
        Ok(Some(
            table.ok_or(Refused(ENOENT, Refusal::NoSuchId))?.clone(),
        ))
    }

    /// The sink that a probe asks for.
    fn sink(&self, request: &ProbeRequest) -> Result<Sink, Refused> {
        match (request.sink, self.table(request.table)?) {
            (SINK_RECORD, None) => Ok(Sink::Record),
            (SINK_COUNT, None) => Ok(Sink::Count),
            (SINK_TABLE, Some(table)) if table.shape().kind != Kind::Spans => {
                Ok(Sink::Table(table))
            }
            (SINK_SPAN, Some(table)) if table.shape().kind == Kind::Spans => Ok(Sink::Span(table)),
            (SINK_RECORD..=SINK_SPAN, _) => Err(Refused(EINVAL, Refusal::Mismatch)),
            _ => Err(Refused(EINVAL, Refusal::UnknownValue)),
        }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        // The batch, which is dropped next, waits for its handlers; they hold what
        // they use.
        PROBES.fetch_sub(self.batch.len() as u32, Relaxed);
    }
}

/// One in [`SESSIONS`], and its number.
struct Tally(u32);

impl Tally {
    fn new() -> Self {
        SESSIONS.fetch_add(1, Relaxed);
        Tally(LAST_SESSION.fetch_add(1, Relaxed).wrapping_add(1))
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        SESSIONS.fetch_sub(1, Relaxed);
    }
}

/// One open file of the device.
#[pin_data]
pub(crate) struct Session {
    shared: Arc<Shared>,
    as_text: SetOnce<bool>,
    access: SetOnce<Access>,
    tally: Tally,
    #[pin]
    probes: Mutex<Probes>,
    #[pin]
    reader: Mutex<Reader>,
}

impl Session {
    /// A session of the current task.
    pub(crate) fn open() -> Result<Pin<KBox<Self>>> {
        let shared = Shared::new()?;
        KBox::pin_init(
            pin_init!(Session {
                shared,
                as_text: SetOnce::new(),
                access: SetOnce::new(),
                tally: Tally::new(),
                probes <- new_mutex!(Probes {
                    batch: Batch::new(),
                    known: KVVec::new(),
                    programs: KVec::new(),
                    tables: KVec::new(),
                    table_bytes: 0,
                }),
                reader <- new_mutex!(Reader::new()),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Makes the rings; says how many there are and how far apart they are mapped.
    pub(crate) fn set_up(
        &self,
        ring_bytes: u64,
        watermark_bytes: u64,
        as_text: bool,
    ) -> Result<(u32, u64)> {
        let total = ring_bytes.checked_mul(u64::from(nr_cpu_ids()));
        let sized = (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes)
            && total.is_some_and(|total| total <= RING_BYTES_TOTAL_MAX)
            && watermark_bytes <= ring_bytes;
        let geometry = Geometry::new(ring_bytes).filter(|_| sized).ok_or(EINVAL)?;
        // Under the lock, so that two callers do not both make rings.
        let _probes = self.probes.lock();
        if self.shared.rings.as_ref().is_some() {
            return Err(EBUSY);
        }
        let rings = Rings::new(geometry, watermark_bytes)?;
        let answer = (nr_cpu_ids(), rings.stride());
        self.as_text.populate(as_text);
        self.shared.rings.populate(rings);
        Ok(answer)
    }

    /// Sets who is traced.
    pub(crate) fn set_filter(&self, filter: Filter) -> Result {
        let probes = self.probes.lock();
        // Probes that are attached were armed by the filter of that moment.
        if !probes.known.is_empty() || !self.shared.filter.populate(filter) {
            return Err(EBUSY);
        }
        Ok(())
    }

    /// Keeps a program; gives its id.
    pub(crate) fn keep_program(&self, program: Program) -> Result<u32> {
        let mut probes = self.probes.lock();
        if probes.programs.len() >= PROGRAMS_MAX as usize {
            return Err(ENOSPC);
        }
        let program = Arc::new(program, GFP_KERNEL_ACCOUNT)?;
        probes.programs.push(program, GFP_KERNEL_ACCOUNT)?;
        Ok(probes.programs.len() as u32)
    }

    /// Makes a table; gives its id and its shape.
    pub(crate) fn make_table(&self, shape: Shape) -> Result<u32> {
        let bytes = Table::bytes(&shape).ok_or(ENOSPC)?;
        let mut probes = self.probes.lock();
        let total = probes.table_bytes.checked_add(bytes).ok_or(ENOSPC)?;
        if total > TABLE_BYTES_MAX || probes.tables.len() >= TABLES_MAX as usize {
            return Err(ENOSPC);
        }
        let table = Arc::new(Table::new(shape)?, GFP_KERNEL_ACCOUNT)?;
        probes.tables.push(table, GFP_KERNEL_ACCOUNT)?;
        probes.table_bytes = total;
        Ok(probes.tables.len() as u32)
    }

    /// The table with this id.
    pub(crate) fn table(&self, id: u32) -> Result<Arc<Table>> {
        let probes = self.probes.lock();
        let table = place(id).and_then(|at| probes.tables.get(at));
        Ok(table.ok_or(ENOENT)?.clone())
    }

    /// Makes room for the calls of a probe whose entries keep values.
    fn prepare_calls(&self, ends: Ends, entry: Option<&Arc<Program>>) -> Result {
        let keeps = entry.is_some_and(|program| program.summary().keeps != 0);
        if ends == Ends::Both && keeps && self.shared.calls.as_ref().is_none() {
            self.shared.calls.populate(Calls::new()?);
        }
        Ok(())
    }

    /// Attaches one probe; gives its id.
    pub(crate) fn attach(&self, request: &ProbeRequest) -> Result<u32, Refused> {
        let (inode, ends) = check(request)?;
        if self.shared.rings.as_ref().is_none() {
            return Err(Refused(ENXIO, Refusal::NoSetup));
        }
        let mut probes = self.probes.lock();
        let id = (probes.known.len() as u32).wrapping_add(1);
        if id > PROBES_MAX {
            return Err(Refused(ENOSPC, Refusal::TooMany));
        }
        let at_entry = probes.program(request.entry_program)?;
        let at_return = probes.program(request.return_program)?;
        let sink = probes.sink(request)?;
        let spans = probes.table(request.span)?;
        let fits = [&at_entry, &at_return]
            .into_iter()
            .enumerate()
            .all(|(end, program)| {
                let program = program.as_ref().map(|program| program.summary());
                let delivers = match end {
                    0 => ends != Ends::Return && request.flags & PROBE_RETURN_ONLY == 0,
                    _ => ends != Ends::Entry,
                };
                fits(program, &sink, spans.as_deref(), delivers, request)
            });
        if !fits {
            return Err(Refused(EINVAL, Refusal::Mismatch));
        }
        self.prepare_calls(ends, at_entry.as_ref())?;
        probes.known.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let counters = Arc::new(Counters::new()?, GFP_KERNEL_ACCOUNT)?;
        let report = match request.report_offset {
            0 => request.offset,
            offset => offset,
        };
        let probe = Probe {
            id,
            flags: request.flags,
            max_frames: match request.max_frames {
                0 => FRAMES_MAX,
                frames => frames,
            },
            ahead: request.offset.wrapping_sub(report),
            file: inode.key(),
            offset: request.offset,
            ends,
            at_entry,
            at_return,
            sink,
            spans,
            counters: counters.clone(),
            shared: self.shared.clone(),
        };
        let known = Known {
            id,
            file: probe.file,
            offset: probe.offset,
            state: State::Attached,
            counters,
        };
        probes
            .batch
            .register(inode, request.offset, request.semaphore, ends, probe)
            .map_err(|error| Refused(error, Refusal::Kernel))?;
        PROBES.fetch_add(1, Relaxed);
        // Room was reserved.
        let _ = probes.known.push_within_capacity(known);
        Ok(id)
    }

    /// Detaches the probes with these ids, all or none. `EINVAL` when one is there
    /// twice.
    pub(crate) fn detach(&self, ids: &[u32]) -> Result {
        let mut probes = self.probes.lock();
        let probes = &mut *probes;
        let marked = mark(&mut probes.known, ids);
        if marked.is_ok() {
            let known = &probes.known;
            let before = probes.batch.len();
            probes.batch.unregister_if(|probe| {
                place(probe.id)
                    .and_then(|at| known.get(at))
                    .is_some_and(|known| known.state == State::Leaving)
            });
            let gone = before.saturating_sub(probes.batch.len());
            PROBES.fetch_sub(gone as u32, Relaxed);
        }
        let after = match marked {
            Ok(()) => State::Detached,
            Err(_) => State::Attached,
        };
        for known in probes.known.iter_mut() {
            if known.state == State::Leaving {
                known.state = after;
            }
        }
        marked
    }

    /// The counters of probe `id`, on one CPU or summed.
    pub(crate) fn counts(&self, id: u32, cpu: Option<u32>) -> Result<Counts> {
        let probes = self.probes.lock();
        let known = place(id)
            .and_then(|at| probes.known.get(at))
            .ok_or(ENOENT)?;
        match cpu {
            None => Ok(known.counters.total()),
            Some(cpu) => known.counters.on_cpu(cpu).ok_or(ENOENT),
        }
    }

    /// What the session shares with its handlers.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The rings, for this way of reading them.
    fn rings_for(&self, access: Access) -> Result<&Rings> {
        let rings = self.shared.rings.as_ref().ok_or(ENXIO)?;
        self.access.populate(access);
        match self.access.copy() {
            Some(first) if first == access => Ok(rings),
            _ => Err(EBUSY),
        }
    }

    /// `read()`.
    pub(crate) fn read(&self, nonblocking: bool, mut out: UserSliceWriter) -> Result<usize> {
        let rings = self.rings_for(Access::Read)?;
        let as_text = self.as_text.copy().unwrap_or(false);
        let mut reader = self.reader.lock();
        reader.prepare(rings)?;
        loop {
            let count = reader.fill(rings, as_text, &mut out)?;
            if count != 0 || out.is_empty() {
                return Ok(count);
            }
            if nonblocking {
                return Err(EAGAIN);
            }
            self.shared.waiter.arm();
            if reader.is_ready(rings) {
                continue;
            }
            // A record that comes before we sleep is found when the time is over.
            let queue = self.shared.waiter.queue();
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
        let shared = &*self.shared;
        shared.waiter.register(file, &table);
        let Some(rings) = shared.rings.as_ref() else {
            return false;
        };
        shared.waiter.arm();
        match self.access.copy() {
            Some(Access::Read) => self.reader.lock().is_ready(rings),
            _ => rings.is_ready(),
        }
    }

    /// `mmap()`.
    pub(crate) fn map(&self, page_offset: usize, vma: &VmaNew) -> Result {
        self.rings_for(Access::Mapped)?.map(page_offset, vma)
    }

    /// `/proc/PID/fdinfo`.
    pub(crate) fn show(&self, out: &SeqFile) {
        seq_print!(out, "session:\t{}\n", self.tally.0);
        if let Some(rings) = self.shared.rings.as_ref() {
            seq_print!(out, "rings:\t{}\n", rings.as_slice().len());
            seq_print!(out, "ring-bytes:\t{}\n", rings.ring_bytes());
        }
        if let Some(filter) = self.shared.filter.as_ref() {
            seq_print!(out, "filter-processes:\t{}\n", filter.processes.len());
            if let Some(namespace) = &filter.namespace {
                seq_print!(out, "filter-pidns:\t{}\n", namespace.inum());
            }
        }
        let probes = self.probes.lock();
        seq_print!(out, "probes:\t{}\n", probes.batch.len());
        for known in probes
            .known
            .iter()
            .filter(|known| known.state == State::Attached)
        {
            let counts = known.counters.total();
            seq_print!(
                out,
                "probe:\t{} dev {} ino {} offset 0x{:x} hits {} recorded {} filtered {} rejected {} lost-full {} stacks-cut {} aggregated {} turned-away {}\n",
                known.id,
                known.file.dev,
                known.file.ino,
                known.offset,
                counts.hits,
                counts.recorded,
                counts.filtered,
                counts.rejected,
                counts.lost_full,
                counts.stacks_cut,
                counts.aggregated,
                counts.turned_away
            );
        }
    }
}

/// Where the probe with this id stands among those that are known.
fn place(id: u32) -> Option<usize> {
    (id as usize).checked_sub(1)
}

/// Marks the attached probes with these ids as leaving. On failure some may be
/// marked.
fn mark(known: &mut [Known], ids: &[u32]) -> Result {
    for id in ids {
        let known = place(*id).and_then(|at| known.get_mut(at)).ok_or(ENOENT)?;
        match known.state {
            State::Attached => known.state = State::Leaving,
            State::Leaving => return Err(EINVAL),
            State::Detached => return Err(ENOENT),
        }
    }
    Ok(())
}

/// Whether the program of one end of a probe (or none) goes with the probe's sink
/// and spans. `delivers` tells whether hits of that end reach the sink.
fn fits(
    program: Option<Summary>,
    sink: &Sink,
    spans: Option<&Table>,
    delivers: bool,
    request: &ProbeRequest,
) -> bool {
    let summary = program.unwrap_or_default();
    let ends_well = match (summary.ends_span, spans.map(Table::shape)) {
        (None, _) => true,
        (Some(words), Some(shape)) => {
            shape.kind == Kind::Spans && shape.key_words == words as usize
        }
        (Some(_), None) => false,
    };
    let keys = summary.key_words as usize;
    let sinks_well = match sink {
        Sink::Record | Sink::Count => keys == 0 && !summary.gives_value,
        Sink::Table(_) | Sink::Span(_) if !delivers => true,
        Sink::Table(table) | Sink::Span(table) => {
            let shape = table.shape();
            let with_stack = request.flags & PROBE_STACK != 0;
            let frames = match request.max_frames {
                0 => FRAMES_MAX,
                frames => frames,
            };
            shape.key_words == keys
                && with_stack == (shape.max_frames != 0)
                && (!with_stack || frames <= shape.max_frames)
                && summary.fields == 0
        }
    };
    ends_well && sinks_well
}

/// Checks what a request for a probe says, and takes its file.
fn check(request: &ProbeRequest) -> Result<(PinnedInode, Ends), Refused> {
    let known_flags = PROBE_STACK | PROBE_AT_ENTRY | PROBE_RETURN_ONLY;
    let unknown = Refused(EINVAL, Refusal::UnknownValue);
    let ends = match request.kind {
        PROBE_ENTRY => Ends::Entry,
        PROBE_RETURN => Ends::Return,
        PROBE_CALL => Ends::Both,
        _ => return Err(unknown),
    };
    let runs_never = ends == Ends::Entry && request.return_program != 0
        || ends == Ends::Return && request.entry_program != 0;
    if runs_never
        || request.flags & !known_flags != 0
        || request.flags & PROBE_RETURN_ONLY != 0 && ends != Ends::Both
        || request.max_frames > FRAMES_MAX
        || request.semaphore != 0
        || request.report_offset > request.offset
    {
        return Err(unknown);
    }
    let inode = PinnedInode::from_fd(request.fd)?;
    if request.offset >= inode.size() {
        return Err(Refused(ENOEXEC, Refusal::OutsideFile));
    }
    Ok((inode, ends))
}
