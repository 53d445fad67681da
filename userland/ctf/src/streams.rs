// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of a trace: their packets go to files as soon as they are full.

use crate::error::CtfError;
use crate::packet::{Packet, StreamIdentity};
use crate::pending::{Waiting, What};
use crate::types::ChannelId;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Most CPUs of a channel: as many as Linux can have on x86-64.
const CPUS_MAX: usize = 8192;
/// Most streams of a channel and CPU. Times do not go back within a stream: an event that is
/// older than the last one needs another.
const STREAMS_MAX: usize = 16;

/// A stream and its file. The file is opened for each packet: there may be more streams than
/// a process may have open files.
#[derive(Debug)]
struct Stream {
    file: PathBuf,
    packet: Packet,
}

#[derive(Debug)]
pub(crate) struct Streams {
    folder: PathBuf,
    uuid: [u8; 16],
    of: BTreeMap<(ChannelId, u32), Vec<Stream>>,
    count: u64,
}

impl Streams {
    /// None yet, of a trace in `folder`.
    pub(crate) fn new(folder: &Path, uuid: [u8; 16]) -> Streams {
        Streams {
            folder: folder.to_owned(),
            uuid,
            of: BTreeMap::new(),
            count: 0,
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Appends to the stream that it belongs to; `channel` is what its files are called.
    pub(crate) fn append(&mut self, channel: &str, waiting: &Waiting) -> Result<(), CtfError> {
        let Waiting { time_ns, cpu, .. } = *waiting;
        let stream = self.stream(channel, waiting.channel, cpu, time_ns)?;
        let is_done = match &waiting.what {
            What::Event(class, body) => stream.packet.event(time_ns, *class, body),
            What::Loss(count) => {
                if stream.packet.ends_at_loss(time_ns) {
                    stream.write()?;
                }
                stream.packet.loss(*count);
                false
            }
        };
        match is_done {
            true => stream.write(),
            false => Ok(()),
        }
    }

    /// Writes what is not written yet.
    pub(crate) fn finish(&mut self) -> Result<(), CtfError> {
        let streams = self.of.values_mut().flatten();
        for stream in streams.filter(|stream| stream.packet.is_wanted()) {
            stream.write()?;
        }
        Ok(())
    }

    /// The stream whose last event is the nearest before `time_ns`.
    fn stream(
        &mut self,
        name: &str,
        channel: ChannelId,
        cpu: u32,
        time_ns: u64,
    ) -> Result<&mut Stream, CtfError> {
        let is_new = !self.of.contains_key(&(channel, cpu));
        if is_new && self.of.range((channel, 0)..=(channel, u32::MAX)).count() >= CPUS_MAX {
            return Err(CtfError::TooManyCpus(CPUS_MAX));
        }
        let streams = self.of.entry((channel, cpu)).or_default();
        let before = streams.iter().enumerate();
        let before = before.filter(|(_, stream)| stream.packet.latest() <= time_ns);
        let nearest = before.max_by_key(|(_, stream)| stream.packet.latest());
        let index = match nearest {
            Some((index, _)) => index,
            None if streams.len() >= STREAMS_MAX => return Err(CtfError::Disorder(cpu)),
            None => {
                let more = match streams.len() {
                    0 => String::new(),
                    number => format!("_{number}"),
                };
                streams.push(Stream {
                    file: self.folder.join(format!("{name}_{cpu}{more}")),
                    packet: Packet::first(StreamIdentity {
                        uuid: self.uuid,
                        channel: channel.0,
                        instance: self.count,
                        cpu,
                    }),
                });
                self.count += 1;
                streams.len() - 1
            }
        };
        streams.get_mut(index).ok_or(CtfError::NoClass)
    }
}

impl Stream {
    fn write(&mut self) -> Result<(), CtfError> {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(&self.file);
        let bytes = self.packet.finished();
        file.and_then(|mut file| file.write_all(bytes))
            .map_err(CtfError::at(&self.file))?;
        self.packet.next();
        Ok(())
    }
}
