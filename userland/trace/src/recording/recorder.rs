// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records into a capsule: first what came out of the rings, then what it means.
//!
//! A batch is written at once, after the objects and stacks that it names. What takes longer
//! (frames that only files can resolve, and names) is found afterwards, in small parts, between
//! looks at the rings.

use super::containers::{self, Containers};
use super::needed_names::NeededNames;
use crate::attach::run::{Added, Run};
use crate::hits::assembler::{HitAssembler, Ready, Waiting};
use crate::hits::label::ProbeLabel;
use crate::hits::live::{secure, Live};
use crate::hits::lookup::{words_of, Lookup, NameFrames, Rest as Behind};
use crate::hits::offline_unwind::COPIES_ENOUGH;
use crate::names::jit::Moment;
use crate::recording::capsule::{convert, rest_key};
use crate::recording::destination::{CapsuleWriter, Destination};
use crate::summary::Summary;
use anyhow::Context;
use libnsprobe::common::record::{Frame, Frames, Record, StackEnd};
use libnsprobe::common::task::TASK_EXEC;
use libnsprobe::{Copied, Session, TaskDump};
use nsprobe_capsule::model::{Container, Object, RecordingEnd, RecordingHeader};
use nsprobe_capsule::{each_body, ChunkKind, Rest, Stack, Written};
use serde::Serialize;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// How long the end waits for the places of files.
const PLACES_WAIT: Duration = Duration::from_secs(30);

/// Most bytes of records that wait for their names; beyond, the rings fill up, and count
/// what they lose.
const BYTES_MAX: usize = 64 << 20;
/// Records that are looked through before the rings are looked at again.
const RECORDS_AT_ONCE: usize = 10_000;
/// Largest chunk body in bytes: a kill loses at most this much.
const BODY_BYTES: usize = 64 << 10;
/// Most probes, objects and such of a chunk.
const THINGS_AT_ONCE: usize = 1000;

/// A recording.
pub struct Recorder {
    /// The session's names, and what else it knows.
    pub live: Live,
    writer: CapsuleWriter,
    /// Bytes that its end may take.
    end_bytes: u64,
    /// Whether names are looked up.
    names: bool,
    labels: HashMap<u32, ProbeLabel>,
    waiting: HitAssembler,
    needed: NeededNames,
    objects: HashSet<u32>,
    /// Objects that were written before it was known where their files are.
    unplaced: Vec<u32>,
    stacks: HashSet<u32>,
    rests: Vec<Rest>,
    /// Hits whose copied stacks are followed when what files say of them is there.
    copied: VecDeque<Waiting>,
    /// Finds the containers of tasks and hits; none before it begins.
    containers: Option<Containers>,
    backlog: VecDeque<Copied>,
    /// Number of hits received.
    taken: u64,
    /// Hits of these that are in the file.
    written: u64,
    /// Events of tasks that came and are not in the file.
    unwritten_tasks: u64,
    /// There is no room for more records: only for their names.
    is_full: bool,
}

/// Totals of what was written.
pub struct Done {
    /// Bytes of the capsule.
    pub bytes: u64,
    /// Hits that it has no room for.
    pub unwritten: u64,
    /// Events of tasks that it has no room for.
    pub unwritten_tasks: u64,
}

impl Recorder {
    /// Writes to the destination; names are looked up if they are to be in it.
    pub fn new(destination: Destination, live: Live, names: bool) -> Recorder {
        let (writer, end_bytes) = destination.keep();
        Recorder {
            live,
            writer,
            end_bytes,
            names,
            labels: HashMap::new(),
            waiting: HitAssembler::default(),
            needed: NeededNames::default(),
            objects: HashSet::new(),
            unplaced: Vec::new(),
            stacks: HashSet::new(),
            rests: Vec::new(),
            copied: VecDeque::new(),
            containers: None,
            backlog: VecDeque::new(),
            taken: 0,
            written: 0,
            unwritten_tasks: 0,
            is_full: false,
        }
    }

    /// Number of hits received.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes of the capsule so far.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// Stacks that came late.
    pub fn late(&self) -> u64 {
        self.waiting.late()
    }

    /// Writes the header, and the tasks that live at the beginning.
    pub fn begin(
        &mut self,
        header: &RecordingHeader,
        all: &[Container],
        dump: &TaskDump,
    ) -> anyhow::Result<()> {
        self.json(ChunkKind::Header, 1, header)?;
        self.list(ChunkKind::Containers, all)?;
        self.containers = Some(Containers::new()?);
        self.dump(dump)
    }

    /// Writes the tasks that live now.
    pub fn dump(&mut self, dump: &TaskDump) -> anyhow::Result<()> {
        each_body(dump.as_bytes(), BODY_BYTES, |body, _| {
            self.chunk(ChunkKind::Tasks, task_events_in(body), body)
                .map(drop)
        })?;
        if let Some(containers) = &mut self.containers {
            let records = dump.records();
            records.for_each(|record| containers.note_record(&record));
        }
        Ok(())
    }

    /// Takes the names of containers that were added.
    pub fn learn(&mut self, added: &Added) -> anyhow::Result<()> {
        let found = added.found.iter().cloned();
        let found: Vec<_> = found.map(containers::model).collect();
        self.list(ChunkKind::Containers, &found)
    }

    /// There are more probes.
    pub fn add(&mut self, labels: &[ProbeLabel]) -> anyhow::Result<()> {
        let named = labels.iter().map(|label| (label.id.0, label.clone()));
        self.labels.extend(named);
        let probes: Vec<_> = labels.iter().map(convert::probe).collect();
        self.list(ChunkKind::Probes, &probes)
    }

    /// Takes what is in the rings up to this time, and writes it.
    pub fn take(&mut self, run: &mut Run<'_>, until_ns: u64) -> anyhow::Result<()> {
        let waiting: usize = self.backlog.iter().map(Copied::bytes).sum();
        if waiting >= BYTES_MAX {
            return Ok(());
        }
        let batch = run.reader.collect(until_ns)?;
        if batch.is_empty() {
            return Ok(());
        }
        secure(&mut self.live, &run.session, &batch);
        let copied = batch.copy();
        // The rings have their room back, before anything is written.
        drop(batch);
        self.write_known(&run.session, &copied)?;
        if let Some(containers) = &mut self.containers {
            containers.note(&copied);
        }
        let was_full = self.is_full;
        self.write_records(&copied)?;
        if !was_full {
            self.backlog.push_back(copied);
        }
        Ok(())
    }

    /// Takes, writes and names everything.
    pub fn take_rest(&mut self, run: &mut Run<'_>) -> anyhow::Result<()> {
        while self.look(&run.session)? {}
        self.take(run, u64::MAX)?;
        while self.look(&run.session)? {}
        while let Some(waiting) = self.waiting.pop() {
            self.hit(&run.session, Ready::Waited(waiting));
        }
        while self.look(&run.session)? {}
        self.await_places(&run.session)?;
        let found = self.containers.as_mut().map(Containers::finish);
        self.list(ChunkKind::Containers, &found.unwrap_or_default())
    }

    /// Looks at some of the records that were written, and finds what they lack; whether
    /// there is more to do.
    pub fn look(&mut self, session: &Session) -> anyhow::Result<bool> {
        self.follow_copies(session);
        // As long as some wait, more are left where they are.
        if self.copied.is_empty() {
            if let Some(mut copied) = self.backlog.pop_front() {
                if self.look_at(session, &mut copied) {
                    self.backlog.push_front(copied);
                }
            }
        }
        self.write_rests(session)?;
        self.write_names(session)?;
        self.write_places(session)?;
        let found = self.containers.as_mut().map(Containers::found);
        self.list(ChunkKind::Containers, &found.unwrap_or_default())?;
        let waits = !self.copied.is_empty() || self.needed.has_asked();
        if waits {
            self.live.of(session).wait();
        }
        Ok(waits || !self.backlog.is_empty() || self.needed.is_waiting())
    }

    /// Continues the walks of raw copies, as far as that is possible now.
    fn follow_copies(&mut self, session: &Session) {
        for waiting in std::mem::take(&mut self.copied) {
            self.follow(session, Ready::Waited(waiting));
        }
    }

    /// Looks at some records; whether there may be more of them.
    fn look_at(&mut self, session: &Session, copied: &mut Copied) -> bool {
        for _ in 0..RECORDS_AT_ONCE {
            if self.copied.len() >= COPIES_ENOUGH {
                return true;
            }
            let Some(record) = copied.next_record() else {
                return false;
            };
            if let Record::StackCopy(head, mappings, words) = record {
                self.live.of(session).note_copy(head, mappings, words);
            } else if let Some(ready) = self.waiting.receive(record) {
                self.hit(session, ready);
            }
        }
        true
    }

    /// Notes which names a hit needs, and finishes its stack.
    fn hit(&mut self, session: &Session, ready: Ready<'_>) {
        let (hit, details) = (ready.hit(), ready.details());
        let mut lookup = self.live.of(session);
        if self.names {
            self.needed.kernel(&lookup, hit, details.kernel);
            if let Some(label) = self.labels.get(&hit.probe) {
                self.needed.fields(label, details.fields);
            }
        }
        let is_copied = hit.stack_end == StackEnd::Copied as u8;
        let is_new = hit.stack == 0 || self.needed.is_new_stack(hit.stack);
        // Generated code belongs to its process and its time: stacks alone do not name it.
        let has_code = self.names && (is_new || self.needed.code.is_in(hit.stack));
        if !is_new && !is_copied && !has_code {
            return;
        }
        let by_id = (hit.stack != 0).then(|| lookup.stack(hit.stack)).flatten();
        let frames = Frames(by_id.as_deref().unwrap_or(details.frames.0));
        if self.names && is_new {
            self.needed.frames(frames);
        }
        if has_code {
            let (code, moment) = (&mut self.needed.code, Moment::of(hit));
            code.note(hit.stack, frames, moment, |address, exact| {
                lookup.generated(address, exact, moment)
            });
        }
        if is_copied {
            self.follow(session, ready);
        }
    }

    /// Finishes a copied stack, or keeps it until that is possible.
    fn follow(&mut self, session: &Session, ready: Ready<'_>) {
        let (hit, details) = (ready.hit(), ready.details());
        let mut lookup = self.live.of(session);
        let by_id = (hit.stack != 0).then(|| lookup.stack(hit.stack)).flatten();
        let words = by_id.as_deref().unwrap_or(details.frames.0);
        let (frames, end) = match lookup.rest(hit, Frames(words).count()) {
            Behind::Known(frames, end) => (frames, end),
            Behind::Unknown => return,
            Behind::NotYet => return self.copied.push_back(ready.keep()),
        };
        let words = words_of(&frames);
        if self.names {
            self.needed.frames(Frames(&words));
            let (code, moment) = (&mut self.needed.code, Moment::of(hit));
            code.note(0, Frames(&words), moment, |address, exact| {
                lookup.generated(address, exact, moment)
            });
        }
        self.rests.push(Rest {
            of: rest_key(hit),
            end: end as u8,
            words,
        });
    }

    /// Writes the objects that a batch announces, and the stacks that it names first.
    fn write_known(&mut self, session: &Session, copied: &Copied) -> anyhow::Result<()> {
        let mut objects = Vec::new();
        let (mut body, mut count) = (Vec::new(), 0);
        for record in copied.records() {
            let (frames, id) = match record {
                Record::Object(object) => {
                    self.note_object(session, object.id, &mut objects);
                    continue;
                }
                Record::Hit(hit, details) => (details.frames, hit.stack),
                Record::LateStack(late, frames) => (frames, late.stack),
                Record::Task(task, _) if task.what == TASK_EXEC && task.object != 0 => {
                    self.note_object(session, task.object, &mut objects);
                    continue;
                }
                _ => continue,
            };
            self.note_objects(session, frames, &mut objects);
            if id == 0 || !self.stacks.insert(id) {
                continue;
            }
            let Some(words) = self.live.of(session).stack(id) else {
                continue;
            };
            self.note_objects(session, Frames(&words), &mut objects);
            let words = words.to_vec();
            Stack { id, words }.push_to(&mut body);
            count += 1;
            if body.len() >= BODY_BYTES {
                self.chunk(ChunkKind::Stacks, count, &body)?;
                body.clear();
                count = 0;
            }
        }
        self.list(ChunkKind::Objects, &objects)?;
        if !body.is_empty() {
            self.chunk(ChunkKind::Stacks, count, &body)?;
        }
        Ok(())
    }

    /// Objects that frames name, also those whose announcements were lost.
    fn note_objects(&mut self, session: &Session, frames: Frames<'_>, into: &mut Vec<Object>) {
        for frame in frames {
            if let Frame::Object { id, .. } = frame {
                self.note_object(session, id, into);
            }
        }
    }

    fn note_object(&mut self, session: &Session, id: u32, into: &mut Vec<Object>) {
        if self.objects.insert(id) {
            if let Ok(Some(identity)) = session.object(id) {
                let place = self.live.names.place(id);
                if place.is_none() {
                    self.unplaced.push(id);
                }
                into.push(convert::object(
                    id,
                    &identity,
                    place,
                    self.live.names.path(id),
                ));
            }
        }
    }

    fn write_records(&mut self, copied: &Copied) -> anyhow::Result<()> {
        each_body(copied.as_bytes(), BODY_BYTES, |body, hits| {
            self.taken += u64::from(hits);
            match self.chunk(ChunkKind::Records, hits, body)? {
                Written::Whole => self.written += u64::from(hits),
                Written::NoRoom => self.unwritten_tasks += u64::from(task_events_in(body)),
            }
            Ok(())
        })
    }

    fn write_rests(&mut self, session: &Session) -> anyhow::Result<()> {
        let rests = std::mem::take(&mut self.rests);
        let mut objects = Vec::new();
        for rest in &rests {
            self.note_objects(session, Frames(&rest.words), &mut objects);
        }
        self.list(ChunkKind::Objects, &objects)?;
        for rests in rests.chunks(THINGS_AT_ONCE) {
            let mut body = Vec::new();
            rests.iter().for_each(|rest| rest.push_to(&mut body));
            self.chunk(ChunkKind::Rests, rests.len() as u32, &body)?;
        }
        Ok(())
    }

    /// Writes objects again whose files have been found.
    fn write_places(&mut self, session: &Session) -> anyhow::Result<()> {
        let mut objects = Vec::new();
        let names = &self.live.names;
        self.unplaced.retain(|&id| match names.place(id) {
            Some(place) => {
                let identity = session.object(id).ok().flatten();
                objects.extend(
                    identity.map(|known| convert::object(id, &known, Some(place), names.path(id))),
                );
                false
            }
            None => true,
        });
        self.list(ChunkKind::Objects, &objects)
    }

    /// Waits for files whose names were not requested, as far as they are found in time.
    fn await_places(&mut self, session: &Session) -> anyhow::Result<()> {
        let until = Instant::now() + PLACES_WAIT;
        let is_opening = |recorder: &Recorder| {
            let mut unplaced = recorder.unplaced.iter();
            unplaced.any(|&id| recorder.live.names.is_opening(id))
        };
        while is_opening(self) && Instant::now() < until {
            self.live.names.wait();
            self.write_places(session)?;
        }
        Ok(())
    }

    fn write_names(&mut self, session: &Session) -> anyhow::Result<()> {
        let (names, count) = self.needed.take(&mut self.live.of(session));
        match count {
            0 => Ok(()),
            count => self.json(ChunkKind::Names, count, &names),
        }
    }

    /// Writes the end. The room for it was kept back.
    pub fn end(mut self, summary: &Summary) -> anyhow::Result<Done> {
        let unwritten = self.taken - self.written;
        self.writer.keep_back(0);
        self.is_full = false;
        let mut model = convert::summary_model(summary, unwritten);
        model.unwritten_tasks = self.unwritten_tasks;
        let count = model.probes.len();
        if self.writer.json(ChunkKind::Summary, count, &model)? == Written::NoRoom {
            model.names.clear();
            self.json(ChunkKind::Summary, count, &model)?;
        }
        let end = RecordingEnd { hits: self.written };
        self.json(ChunkKind::End, 1, &end)?;
        Ok(Done {
            bytes: self.writer.finish()?,
            unwritten,
            unwritten_tasks: model.unwritten_tasks,
        })
    }

    /// Some things, in chunks that are not too large.
    fn list<T: Serialize>(&mut self, kind: ChunkKind, all: &[T]) -> anyhow::Result<()> {
        let mut parts = all.chunks(THINGS_AT_ONCE);
        parts.try_for_each(|part| self.json(kind, part.len(), &part))
    }

    fn json(
        &mut self,
        kind: ChunkKind,
        count: usize,
        value: &impl Serialize,
    ) -> anyhow::Result<()> {
        let body = serde_json::to_vec(value)?;
        self.chunk(kind, count as u32, &body).map(drop)
    }

    fn chunk(&mut self, kind: ChunkKind, count: u32, body: &[u8]) -> anyhow::Result<Written> {
        let is_late = matches!(kind, ChunkKind::Names | ChunkKind::Rests);
        if self.is_full && !is_late {
            return Ok(Written::NoRoom);
        }
        let written = self.writer.chunk(kind, count, body);
        let written = written.context("cannot write the capsule")?;
        if written == Written::NoRoom && !self.is_full {
            // Later records would need what was skipped.
            self.is_full = true;
            self.writer.keep_back(self.end_bytes);
            eprintln!("nsprobe: there is no room for more: what comes now is only counted");
        }
        Ok(written)
    }
}

/// Number of these records that are events of tasks.
fn task_events_in(mut bytes: &[u8]) -> u32 {
    let mut count = 0;
    while let Ok(Some((record, length))) = Record::parse(bytes) {
        if let Some(Record::Task(..) | Record::Switch(_) | Record::Wake(_)) = record {
            count += 1;
        }
        bytes = bytes.get(length..).unwrap_or_default();
    }
    count
}
