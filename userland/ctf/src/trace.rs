// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace that is being written.

use crate::encode;
use crate::error::CtfError;
use crate::folder::NewFolder;
use crate::pending::{Pending, Waiting, What};
use crate::streams::Streams;
use crate::tsdl;
use crate::types::{Channel, ChannelId, EventClass, EventId, Value};
use std::fs;
use std::path::Path;

/// [`Description::clock_offset_ns`] when it is not known: times count from the machine's start.
pub const UNKNOWN_OFFSET: i64 = 0;

/// What a trace says of itself.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// Its number, as no other trace has it.
    pub uuid: [u8; 16],
    /// Nanoseconds since 1970 when CLOCK_MONOTONIC was zero.
    pub clock_offset_ns: i64,
    /// Names (identifiers) and values.
    pub environment: Vec<(&'static str, EnvironmentValue)>,
}

/// A value of the environment that is described.
#[derive(Clone, Debug)]
pub enum EnvironmentValue {
    /// A number.
    Number(u32),
    /// Text, of which nothing is expected.
    Text(String),
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events.
    pub events: u64,
    /// Events that were lost before they came here.
    pub discarded: u64,
    /// Streams: one for each channel and CPU, and more where times go back.
    pub streams: u64,
}

/// Writes a trace. Events come in nearly the order of their times; its memory is bounded,
/// whatever comes.
#[derive(Debug)]
pub struct Trace {
    description: Description,
    channels: Vec<(Channel, Vec<EventClass>)>,
    pending: Pending,
    streams: Streams,
    folder: NewFolder,
    totals: Totals,
}

impl Trace {
    /// A trace that will be the folder `path`, which must not be there yet.
    pub fn create(path: &Path, description: Description) -> Result<Trace, CtfError> {
        let folder = NewFolder::create(path)?;
        Ok(Trace {
            channels: Vec::new(),
            pending: Pending::default(),
            streams: Streams::new(folder.path(), description.uuid),
            folder,
            totals: Totals::default(),
            description,
        })
    }

    /// Adds a channel.
    pub fn channel(&mut self, channel: Channel) -> ChannelId {
        self.channels.push((channel, Vec::new()));
        ChannelId(self.channels.len() as u32 - 1)
    }

    /// Adds a class of events to a channel.
    pub fn class(&mut self, channel: ChannelId, class: EventClass) -> Result<EventId, CtfError> {
        let (_, classes) = self
            .channels
            .get_mut(channel.0 as usize)
            .ok_or(CtfError::NoClass)?;
        classes.push(class);
        let number = classes.len() as u32 - 1;
        Ok(EventId { channel, number })
    }

    /// Writes an event of `time_ns` (CLOCK_MONOTONIC) on a CPU: the values of its channel's
    /// context, and of its class's fields.
    pub fn event(
        &mut self,
        id: EventId,
        cpu: u32,
        time_ns: u64,
        context: &[Value<'_>],
        values: &[Value<'_>],
    ) -> Result<(), CtfError> {
        let found = self.channels.get(id.channel.0 as usize);
        let (channel, classes) = found.ok_or(CtfError::NoClass)?;
        let class = classes.get(id.number as usize).ok_or(CtfError::NoClass)?;
        let mut bytes = Vec::new();
        encode::fields(&class.name, &channel.context, context, &mut bytes)?;
        encode::fields(&class.name, &class.fields, values, &mut bytes)?;
        self.totals.events += 1;
        let what = What::Event(id.number, bytes);
        self.pending.push(time_ns, id.channel, cpu, what);
        self.settle()
    }

    /// Reports that `count` events of a channel and CPU were lost up to `time_ns`.
    pub fn loss(
        &mut self,
        channel: ChannelId,
        cpu: u32,
        time_ns: u64,
        count: u64,
    ) -> Result<(), CtfError> {
        self.totals.discarded = self.totals.discarded.saturating_add(count);
        self.pending.push(time_ns, channel, cpu, What::Loss(count));
        self.settle()
    }

    /// Writes what is left, and gives the folder its name.
    pub fn finish(mut self) -> Result<Totals, CtfError> {
        while let Some(waiting) = self.pending.pop() {
            self.write(&waiting)?;
        }
        let finished = self.streams.finish();
        finished.map_err(|error| error.of(self.folder.destination()))?;
        let text = tsdl::metadata(&self.description, &self.channels);
        fs::write(self.folder.path().join("metadata"), text)
            .map_err(CtfError::at(self.folder.destination()))?;
        self.totals.streams = self.streams.count();
        self.folder.finish()?;
        Ok(self.totals)
    }

    fn settle(&mut self) -> Result<(), CtfError> {
        while let Some(waiting) = self.pending.pop_over() {
            self.write(&waiting)?;
        }
        Ok(())
    }

    fn write(&mut self, waiting: &Waiting) -> Result<(), CtfError> {
        let found = self.channels.get(waiting.channel.0 as usize);
        let (channel, _) = found.ok_or(CtfError::NoClass)?;
        let appended = self.streams.append(&channel.name, waiting);
        appended.map_err(|error| error.of(self.folder.destination()))
    }
}
