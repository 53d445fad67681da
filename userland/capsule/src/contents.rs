// SPDX-License-Identifier: MIT OR Apache-2.0
//! All that a capsule has but its records: these may be many.

use crate::blocks::{records, Rest, RestKey, Stack};
use crate::chunk::ChunkKind;
use crate::error::{CapsuleError, Damage, Reason};
use crate::generated::Generated;
use crate::model::{
    Container, FrameName, GeneratedName, KernelName, Object, RecordedNames, RecordedProbe,
    RecordingEnd, RecordingHeader, Summary,
};
use crate::read::{CapsuleReader, Chunk};
use crate::scan::ReadAt;
use nsprobe_common::record::{Frame, Frames, Method, Record};
use nsprobe_tasks::{HistoryLimits, Tasks};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most threads of a capsule that have ended and are kept; a gigabyte of them.
const ENDED_MAX: usize = 1 << 20;
/// Most changes of a thing of a thread that are kept.
const CHANGES_MAX: usize = 1 << 16;

/// Chunks of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many there are.
    pub chunks: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Things in them.
    pub items: u64,
}

/// What a capsule has.
#[derive(Debug, Default)]
pub struct Contents {
    /// What was recorded, when and where; none when that is damaged.
    pub header: Option<RecordingHeader>,
    /// The probes, in their order.
    pub probes: Vec<RecordedProbe>,
    /// The mapped files, by their ids.
    pub objects: BTreeMap<u32, Object>,
    /// The words of the stacks that records name.
    pub stacks: HashMap<u32, Box<[u64]>>,
    /// What stacks lacked: why they end, and the words.
    pub rests: HashMap<RestKey, (u8, Box<[u64]>)>,
    /// Names, by object, offset and whether that is the instruction itself. Where there are
    /// several, the last one that has functions.
    pub names: HashMap<(u32, u64, bool), FrameName>,
    /// Names of the kernel's functions, by return address.
    pub kernel: HashMap<u64, KernelName>,
    /// Names of functions whose addresses are in fields, by probe and address.
    pub symbols: HashMap<(u32, u64), String>,
    /// Names of generated code.
    pub generated: Generated<GeneratedName>,
    /// Containers.
    pub containers: Vec<Container>,
    /// The tasks that lived then, and those that came and went.
    pub tasks: Tasks,
    /// Records of tasks, those that lived before included.
    pub task_records: u64,
    /// What it came to; none when it did not end orderly.
    pub summary: Option<Summary>,
    /// Whether it ended orderly.
    pub end: Option<RecordingEnd>,
    /// What there is of each kind, by its number.
    pub tallies: BTreeMap<u16, Tally>,
    /// Hits in it.
    pub hits: u64,
    /// Bytes of the records, hits and others.
    pub record_bytes: u64,
    /// Hits that found no room in the rings, as announced there.
    pub lost: u64,
    /// Places that hits' own records name: object, offset, exact.
    pub places: BTreeSet<(u32, u64, bool)>,
    /// What could not be read.
    pub damages: Vec<Damage>,
}

impl Contents {
    /// Reads a capsule from its beginning to its end.
    pub fn read<S: ReadAt>(reader: &mut CapsuleReader<S>) -> Result<Contents, CapsuleError> {
        let mut contents = Contents {
            tasks: Tasks::new(HistoryLimits {
                ended: ENDED_MAX,
                changes: CHANGES_MAX,
            }),
            ..Contents::default()
        };
        while let Some(found) = reader.next_chunk()? {
            match found {
                Ok(chunk) => contents.take(&chunk)?,
                Err(damage) => contents.damages.push(damage),
            }
        }
        contents.name_places();
        Ok(contents)
    }

    fn take(&mut self, chunk: &Chunk<'_>) -> Result<(), CapsuleError> {
        let tally = self.tallies.entry(chunk.header.kind.get()).or_default();
        tally.chunks += 1;
        tally.bytes += chunk.body.len() as u64;
        tally.items += u64::from(chunk.header.items.get());
        let Some(kind) = chunk.kind() else {
            return Ok(());
        };
        let taken = match kind {
            ChunkKind::Records => self.take_records(chunk.body)?,
            ChunkKind::Tasks => self.take_tasks(chunk.body)?,
            kind => self.take_other(kind, chunk.body).err(),
        };
        if let Some(why) = taken {
            self.damages.push(Damage {
                at: chunk.at,
                bytes: chunk.body.len() as u64,
                reason: Reason::Content(why),
            });
        }
        Ok(())
    }

    fn take_other(&mut self, kind: ChunkKind, body: &[u8]) -> Result<(), String> {
        match kind {
            ChunkKind::Header => self.header = self.header.take().or(Some(json(body)?)),
            ChunkKind::Probes => self.probes.append(&mut bounded(json(body)?)?),
            ChunkKind::Objects => {
                let objects: Vec<Object> = json(body)?;
                let objects = objects.into_iter().map(|object| (object.id, object));
                self.objects.extend(objects);
            }
            ChunkKind::Stacks => Stack::all(body, |stack| {
                self.stacks.insert(stack.id, stack.words.into());
            })?,
            ChunkKind::Rests => Rest::all(body, |rest| {
                self.rests.insert(rest.of, (rest.end, rest.words.into()));
            })?,
            ChunkKind::Names => self.take_names(json(body)?),
            ChunkKind::Containers => self.containers.append(&mut json(body)?),
            ChunkKind::Summary => self.summary = Some(json(body)?),
            ChunkKind::End => self.end = Some(json(body)?),
            ChunkKind::Tasks | ChunkKind::Records => {}
        }
        Ok(())
    }

    fn take_names(&mut self, names: RecordedNames) {
        for name in names.frames {
            let key = (name.object, name.offset, name.exact);
            let known = self.names.get(&key);
            if known.is_none_or(|known| known.functions.is_empty() || !name.functions.is_empty()) {
                self.names.insert(key, name);
            }
        }
        let kernel = names.kernel.into_iter();
        self.kernel.extend(kernel.map(|name| (name.address, name)));
        let symbols = names.symbols.into_iter();
        self.symbols
            .extend(symbols.map(|symbol| ((symbol.probe, symbol.address), symbol.name)));
        for name in names.generated {
            self.generated.add(name.place(), name.from_ns, name);
        }
    }

    /// Counts, and remembers what the frames in records are.
    fn take_records(&mut self, body: &[u8]) -> Result<Option<String>, CapsuleError> {
        self.record_bytes += body.len() as u64;
        records(body, &mut |record| {
            match record {
                Record::Hit(_, details) => {
                    self.hits += 1;
                    note_places(&mut self.places, details.frames);
                }
                Record::LateStack(_, frames) => note_places(&mut self.places, frames),
                Record::Lost(lost) => self.lost = self.lost.saturating_add(lost.count),
                record => self.take_task(&record),
            }
            Ok(())
        })
    }

    fn take_tasks(&mut self, body: &[u8]) -> Result<Option<String>, CapsuleError> {
        records(body, &mut |record| {
            self.take_task(&record);
            Ok(())
        })
    }

    fn take_task(&mut self, record: &Record<'_>) {
        if let Record::Task(record, details) = record {
            self.task_records += 1;
            self.tasks.apply(record, details);
        }
    }

    /// Adds the places that stacks and their rests name.
    fn name_places(&mut self) {
        let rests = self.rests.values().map(|(_, words)| words);
        for words in self.stacks.values().chain(rests) {
            note_places(&mut self.places, Frames(words));
        }
    }
}

fn note_places(places: &mut BTreeSet<(u32, u64, bool)>, frames: Frames<'_>) {
    for frame in frames {
        if let Frame::Object { id, offset, method } = frame {
            places.insert((id, offset, Method::is_exact(method)));
        }
    }
}

/// Probes whose fields can be shown.
fn bounded(probes: Vec<RecordedProbe>) -> Result<Vec<RecordedProbe>, String> {
    let mut fields = probes.iter().flat_map(|probe| &probe.fields);
    match fields.all(|field| field.is_bounded()) {
        true => Ok(probes),
        false => Err("a field has too many parts".to_owned()),
    }
}

fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}
