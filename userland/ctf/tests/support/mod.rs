// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests share: a folder of a test's own, and a reader of traces that knows their
//! classes already, and so needs no metadata.

use nsprobe_ctf::{EventClass, Field, Type, Value};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const UUID: [u8; 16] = *b"0123456789abcdef";

/// A directory of a test's own, removed at its end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("nsprobe-ctf-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An event as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReadEvent {
    pub(crate) time_ns: u64,
    pub(crate) class: u32,
    pub(crate) context: Vec<Value<'static>>,
    pub(crate) values: Vec<Value<'static>>,
}

/// A stream as it was read.
#[derive(Debug)]
pub(crate) struct ReadStream {
    pub(crate) channel: u32,
    pub(crate) cpu: u32,
    pub(crate) events: Vec<ReadEvent>,
    pub(crate) discarded: u64,
}

/// What the channels are like: context, classes.
pub(crate) type Channels = Vec<(Vec<Field>, Vec<EventClass>)>;

/// Reads all streams of a trace.
pub(crate) fn read(folder: &Path, channels: &Channels) -> Vec<ReadStream> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let streams = files.filter(|file| file.file_name() != "metadata");
    let streams: Vec<ReadStream> = streams
        .map(|file| read_stream(&fs::read(file.path()).unwrap(), channels))
        .collect();
    let metadata = fs::read_to_string(folder.join("metadata")).unwrap();
    assert!(metadata.starts_with("/* CTF 1.8 */\n") && metadata.is_ascii());
    streams
}

fn read_stream(bytes: &[u8], channels: &Channels) -> ReadStream {
    let mut rest = Bytes(bytes);
    let mut stream: Option<ReadStream> = None;
    let (mut number, mut instance, mut last_end) = (0, None, 0);
    while !rest.0.is_empty() {
        let whole = rest.0;
        assert_eq!(rest.unsigned(4), 0xc1fc_1fc1);
        assert_eq!(rest.take(16), UUID);
        let channel = rest.unsigned(4) as u32;
        let own = rest.unsigned(8);
        assert_eq!(*instance.get_or_insert(own), own);
        let [begin, end] = [rest.unsigned(8), rest.unsigned(8)];
        let [content, packet] = [rest.unsigned(8), rest.unsigned(8)];
        assert_eq!(rest.unsigned(8), number, "packets are numbered");
        let discarded = rest.unsigned(8);
        let cpu = rest.unsigned(4) as u32;
        assert!(
            begin <= end && last_end <= begin,
            "{last_end} {begin} {end}"
        );
        assert!(content <= packet && packet % 8 == 0);
        let mut body = Bytes(&whole[whole.len() - rest.0.len()..content as usize / 8]);
        rest = Bytes(&whole[packet as usize / 8..]);
        let stream = stream.get_or_insert(ReadStream {
            channel,
            cpu,
            events: Vec::new(),
            discarded,
        });
        assert!(stream.discarded <= discarded);
        stream.discarded = discarded;
        let mut now = begin;
        while !body.0.is_empty() {
            let event = read_event(&mut body, now, &channels[channel as usize]);
            assert!(
                (now..=end).contains(&event.time_ns),
                "{now} {event:?} {end}"
            );
            now = event.time_ns;
            stream.events.push(event);
        }
        (number, last_end) = (number + 1, end);
    }
    stream.unwrap()
}

fn read_event(
    body: &mut Bytes<'_>,
    now: u64,
    channel: &(Vec<Field>, Vec<EventClass>),
) -> ReadEvent {
    let short = body.unsigned(2) as u32;
    let (class, time_ns) = match short {
        0xffff => (body.unsigned(4) as u32, body.unsigned(8)),
        class => {
            let low = body.unsigned(4);
            let passed = (low as u32).wrapping_sub(now as u32);
            (class, now + u64::from(passed))
        }
    };
    let (context, classes) = channel;
    ReadEvent {
        time_ns,
        class,
        context: read_fields(body, context),
        values: read_fields(body, &classes[class as usize].fields),
    }
}

fn read_fields(body: &mut Bytes<'_>, fields: &[Field]) -> Vec<Value<'static>> {
    let values = fields.iter().map(|field| body.value(field.kind()));
    values.collect()
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn unsigned(&mut self, count: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes[..count].copy_from_slice(self.take(count));
        u64::from_le_bytes(bytes)
    }

    fn value(&mut self, kind: &Type) -> Value<'static> {
        match kind {
            Type::Integer { bits, signed, .. } => {
                let number = self.unsigned((bits / 8).into());
                let unused = 64 - u32::from(*bits);
                match signed {
                    true => Value::Signed(((number << unused) as i64) >> unused),
                    false => Value::Unsigned(number),
                }
            }
            Type::Float => Value::Float(f64::from_bits(self.unsigned(8))),
            Type::Text => {
                let end = self.0.iter().position(|byte| *byte == 0).unwrap();
                let text = self.take(end + 1)[..end].to_vec();
                Value::Text(text.into())
            }
            Type::Name { bytes } => {
                let name = self.take((*bytes).into());
                let end = name.iter().position(|byte| *byte == 0);
                Value::Text(name[..end.unwrap_or(name.len())].to_vec().into())
            }
            Type::Sequence {
                length_bits,
                element,
            } => {
                let count = self.unsigned((length_bits / 8).into());
                Value::List((0..count).map(|_| self.value(element)).collect())
            }
        }
    }
}
