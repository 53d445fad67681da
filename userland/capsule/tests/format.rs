// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was written is read again; what is damaged, cut off, or of another version is told,
//! and costs no more than itself.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use nsprobe_capsule::model::{
    self, FrameName, GeneratedName, Object, RecordedFunction, RecordedNames, RecordingEnd,
    RecordingHeader, Text,
};
use nsprobe_capsule::{
    each_body, CapsuleError, CapsuleReader, ChunkHeader, ChunkKind, Contents, Damage, Preamble,
    Reason, Rest, RestKey, Stack, Writer, MAJOR, MAY_SKIP, MINOR,
};
use nsprobe_common::record::{
    Frame, Header as RecordHeader, Hit, Lost, Record, StackCopy, KIND_HIT, KIND_LOST,
    KIND_STACK_COPY,
};
use nsprobe_spec::decode::{FieldFormat, WordShape};
use proptest::prelude::*;
use zerocopy::byteorder::little_endian::U16;
use zerocopy::IntoBytes;

/// Bytes in front of the first chunk.
const PREAMBLE: usize = size_of::<Preamble>();
const HEADER: usize = size_of::<ChunkHeader>();

fn header_of<T>(kind: u16, words: usize) -> RecordHeader {
    RecordHeader {
        word: (size_of::<T>() + 8 * words) as u32,
        kind,
        reserved: 0,
    }
}

fn hit(time_ns: u64, stack: u32) -> Vec<u8> {
    let (frame, count) = Frame::Object {
        id: 7,
        offset: 0x1000 + time_ns,
        method: 0,
    }
    .encode();
    let hit = Hit {
        header: header_of::<Hit>(KIND_HIT, count),
        time_ns,
        probe: 1,
        words: count as u16,
        stack,
        ..Hit::default()
    };
    [hit.as_bytes(), frame[..count].as_bytes()].concat()
}

fn lost(count: u64) -> Vec<u8> {
    let lost = Lost {
        header: header_of::<Lost>(KIND_LOST, 0),
        count,
        ..Lost::default()
    };
    lost.as_bytes().to_vec()
}

fn probe() -> model::RecordedProbe {
    model::RecordedProbe {
        id: 1,
        planned: 0,
        role: "whole".into(),
        label: "app:f".into(),
        binary: "/bin/app".into(),
        function: "f".into(),
        offset: 0x1000,
        fields: vec![FieldFormat::new("x", WordShape::Word)],
    }
}

fn name(offset: u64, function: &str) -> FrameName {
    let named = |name: &str| RecordedFunction {
        name: name.into(),
        ..RecordedFunction::default()
    };
    FrameName {
        object: 7,
        offset,
        exact: true,
        functions: (!function.is_empty())
            .then(|| named(function))
            .into_iter()
            .collect(),
        ..FrameName::default()
    }
}

/// A capsule with something of each kind, and `batches` chunks of two hits each.
fn sample(batches: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Shared(&mut bytes)).unwrap();
    let header = RecordingHeader {
        kernel: "7.2".into(),
        host: Text(vec![0xff, b'x']),
        start_ns: 5,
        ..RecordingHeader::default()
    };
    writer.json(ChunkKind::Header, 1, &header).unwrap();
    writer.json(ChunkKind::Probes, 1, &[probe()]).unwrap();
    let object = Object {
        id: 7,
        build_id: "abcd".into(),
        path: Some(Text(b"/bin/app".to_vec())),
        ..Object::default()
    };
    writer.json(ChunkKind::Objects, 1, &[object]).unwrap();
    let mut body = Vec::new();
    let stack = Stack {
        id: 3,
        words: vec![1 << 44 | 5, 2],
    };
    stack.push_to(&mut body);
    writer.chunk(ChunkKind::Stacks, 1, &body).unwrap();
    for batch in 0..batches {
        let records = [hit(2 * batch, 3), lost(4), hit(2 * batch + 1, 0)].concat();
        writer.chunk(ChunkKind::Records, 2, &records).unwrap();
    }
    let names = RecordedNames {
        frames: vec![name(0x1000, "main")],
        ..RecordedNames::default()
    };
    writer.json(ChunkKind::Names, 1, &names).unwrap();
    let end = RecordingEnd { hits: 2 * batches };
    writer.json(ChunkKind::End, 1, &end).unwrap();
    writer.finish().unwrap();
    bytes
}

/// An output that outlives its writer.
struct Shared<'a>(&'a mut Vec<u8>);

impl nsprobe_capsule::Output for Shared<'_> {
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<nsprobe_capsule::Written> {
        self.0.extend(bytes);
        Ok(nsprobe_capsule::Written::Whole)
    }
}

fn read(bytes: &[u8]) -> Result<Contents, CapsuleError> {
    Contents::read(&mut CapsuleReader::new(bytes)?)
}

/// When the hits were, in the order of the file.
fn times(bytes: &[u8]) -> Vec<u64> {
    let mut times = Vec::new();
    let mut reader = CapsuleReader::new(bytes).unwrap();
    let taken = reader.each_record(|record| -> Result<(), CapsuleError> {
        if let Record::Hit(hit, _) = record {
            times.push(hit.time_ns);
        }
        Ok(())
    });
    taken.unwrap();
    times
}

/// Where each chunk begins, and after the last one.
fn places(bytes: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut reader = CapsuleReader::new(bytes).unwrap();
    while let Some(found) = reader.next_chunk().unwrap() {
        places.push(found.unwrap().at as usize);
    }
    places.push(bytes.len());
    places
}

#[test]
fn what_was_written_comes_back() {
    let bytes = sample(3);
    let contents = read(&bytes).unwrap();
    assert_eq!(contents.damages, []);
    let header = contents.header.unwrap();
    assert_eq!((header.kernel.as_str(), header.start_ns), ("7.2", 5));
    assert_eq!(header.host, Text(vec![0xff, b'x']));
    assert_eq!(contents.probes, [probe()]);
    assert_eq!(contents.objects[&7].build_id, "abcd");
    assert_eq!(*contents.stacks[&3], [1 << 44 | 5, 2]);
    assert_eq!(contents.names[&(7, 0x1000, true)].functions[0].name, "main");
    assert_eq!((contents.hits, contents.lost), (6, 12));
    assert_eq!(contents.end, Some(RecordingEnd { hits: 6 }));
    assert!(contents.places.contains(&(1, 5, false)) || contents.places.contains(&(1, 5, true)));
    assert!(contents.places.contains(&(7, 0x1005, true)));
    assert_eq!(times(&bytes), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn the_layout_is_as_documented() {
    let bytes = sample(0);
    assert_eq!(bytes[..8], *b"\x89nspcap\n");
    assert_eq!(bytes[8..12], [MAJOR as u8, 0, MINOR as u8, 0]);
    let first = &bytes[PREAMBLE..];
    assert_eq!(first[..8], *b"\x8anschunk");
    assert_eq!(first[8..16], bytes[16..24], "the file's number");
    assert_eq!(first[16..18], [1, 0], "the kind");
    assert_eq!(first[20..24], [0; 4], "the number");
    let length = u32::from_le_bytes(first[24..28].try_into().unwrap()) as usize;
    let body = &first[HEADER..HEADER + length];
    assert!(body.starts_with(b"{\"nsprobe\":"));
    let crc = |at: usize| u32::from_le_bytes(first[at..at + 4].try_into().unwrap());
    assert_eq!(crc(32), crc32fast::hash(body));
    assert_eq!(crc(36), crc32fast::hash(&first[..36]));
    assert!(bytes.len().is_multiple_of(8));
}

#[test]
fn rests_come_back() {
    let rest = Rest {
        of: RestKey {
            time_ns: 9,
            tid: 8,
            probe: 7,
        },
        end: 1,
        words: vec![4, 5],
    };
    let mut body = Vec::new();
    rest.push_to(&mut body);
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Shared(&mut bytes)).unwrap();
    writer.chunk(ChunkKind::Rests, 1, &body).unwrap();
    // The same cut off: the chunk is whole, its body is not.
    writer.chunk(ChunkKind::Rests, 1, &body[..30]).unwrap();
    let contents = read(&bytes).unwrap();
    assert_eq!(contents.rests[&rest.of], (1, vec![4, 5].into()));
    let [Damage { reason, .. }] = contents.damages.as_slice() else {
        panic!("{:?}", contents.damages)
    };
    assert!(matches!(reason, Reason::Content(_)));
}

#[test]
fn records_are_divided_between_records_and_without_copies() {
    let copy = StackCopy {
        header: header_of::<StackCopy>(KIND_STACK_COPY, 2),
        ..StackCopy::default()
    };
    let copy = [copy.as_bytes(), &[1; 16]].concat();
    let all = [hit(1, 0), copy, hit(2, 0), lost(1), hit(3, 0)].concat();
    let mut bodies = Vec::new();
    each_body(&all, 2 * hit(1, 0).len(), |body, hits| {
        bodies.push((body.to_vec(), hits));
        Ok::<(), ()>(())
    })
    .unwrap();
    let wanted = [
        ([hit(1, 0), hit(2, 0)].concat(), 2),
        ([lost(1), hit(3, 0)].concat(), 1),
    ];
    assert_eq!(bodies, wanted);
}

#[test]
fn what_is_no_capsule_is_told() {
    assert!(matches!(read(b""), Err(CapsuleError::Empty)));
    assert!(matches!(
        read(b"\x7fELF and more of it, much more than that"),
        Err(CapsuleError::NotCapsule)
    ));
    assert!(matches!(read(b"x"), Err(CapsuleError::NotCapsule)));
    let bytes = sample(1);
    for count in 1..PREAMBLE {
        assert!(
            matches!(read(&bytes[..count]), Err(CapsuleError::Short(_))),
            "{count}"
        );
    }
    assert!(read(&bytes[..PREAMBLE]).unwrap().header.is_none());
}

#[test]
fn an_incompatible_major_version_is_refused() {
    for (major, advice) in [(MAJOR + 1, "later"), (0, "older")] {
        let mut bytes = sample(1);
        let mut preamble = Preamble::new(1);
        preamble.major = U16::new(major);
        bytes[..PREAMBLE].copy_from_slice(preamble.sealed().as_bytes());
        let error = read(&bytes).unwrap_err();
        assert!(matches!(error, CapsuleError::Major { .. }));
        assert!(error.to_string().contains(advice), "{error}");
    }
}

/// The sample with a chunk of a kind that nobody knows yet, of a later minor version.
fn of_later_version(flags: u16) -> Vec<u8> {
    let mut bytes = sample(1);
    let mut preamble = Preamble::new(u64::from_le_bytes(bytes[16..24].try_into().unwrap()));
    preamble.minor = U16::new(MINOR + 3);
    bytes[..PREAMBLE].copy_from_slice(preamble.sealed().as_bytes());
    let chunk = |number: u32| {
        let header = ChunkHeader::new(preamble.id.get(), 99, flags, number, 1, b"from 2030");
        [header.as_bytes(), b"from 2030\0\0\0\0\0\0\0"].concat()
    };
    // In the middle, so that the numbers of those after it do not fit.
    let behind_first = places(&bytes)[1];
    bytes.splice(behind_first..behind_first, chunk(1));
    bytes
}

#[test]
fn chunks_of_a_later_minor_version_are_skipped_when_they_may_be() {
    let bytes = of_later_version(MAY_SKIP);
    let contents = read(&bytes).unwrap();
    assert_eq!(contents.tallies[&99].chunks, 1);
    assert_eq!((contents.hits, contents.damages), (2, vec![]));
    assert_eq!(times(&bytes), [0, 1]);
    let error = read(&of_later_version(0)).unwrap_err();
    let text = error.to_string();
    let version = format!("{MAJOR}.{}", MINOR + 3);
    assert!(text.contains(&version) && text.contains("99"), "{text}");
}

#[test]
fn a_chunk_that_is_not_there_is_told() {
    let mut bytes = sample(3);
    let places = places(&bytes);
    bytes.drain(places[5]..places[6]);
    let contents = read(&bytes).unwrap();
    let at = places[5] as u64;
    let (bytes_skipped, reason) = (0, Reason::Missing(1));
    let wanted = Damage {
        at,
        bytes: bytes_skipped,
        reason,
    };
    assert_eq!(contents.damages, [wanted]);
    assert_eq!((contents.hits, times(&bytes)), (4, vec![0, 1, 4, 5]));
}

#[test]
fn the_last_name_with_functions_counts() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Shared(&mut bytes)).unwrap();
    for function in ["", "first", "second", ""] {
        let names = RecordedNames {
            frames: vec![name(1, function)],
            ..RecordedNames::default()
        };
        writer.json(ChunkKind::Names, 1, &names).unwrap();
    }
    let contents = read(&bytes).unwrap();
    assert_eq!(contents.names[&(7, 1, true)].functions[0].name, "second");
}

#[test]
fn generated_code_is_named_by_what_it_was_then() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Shared(&mut bytes)).unwrap();
    let generated = |from_ns, name: &str| GeneratedName {
        pid: 7,
        address: 0x1000,
        from_ns,
        functions: vec![RecordedFunction {
            name: name.to_owned(),
            ..RecordedFunction::default()
        }],
        source: Some("jitdump".to_owned()),
        path: Some(Text(b"/tmp/jit-7.dump".to_vec())),
        ..GeneratedName::default()
    };
    let all = [generated(10, "first"), generated(20, "second")];
    for name in &all {
        let names = RecordedNames {
            generated: vec![name.clone()],
            ..RecordedNames::default()
        };
        writer.json(ChunkKind::Names, 1, &names).unwrap();
    }
    let contents = read(&bytes).unwrap();
    let at = |time_ns| Some(contents.generated.at(all[0].place(), time_ns)?.1);
    let then = [9, 10, 19, 20].map(at);
    assert_eq!(then, [None, Some(&all[0]), Some(&all[0]), Some(&all[1])]);
}

#[test]
fn what_is_appended_behind_a_cut_chunk_is_found() {
    let whole = sample(3);
    let places = places(&whole);
    // As after a kill in the middle of the write of a chunk.
    let mut bytes = whole[..places[6] + HEADER + 10].to_vec();
    let mut reader = CapsuleReader::new(&bytes[..]).unwrap();
    while reader.next_chunk().unwrap().is_some() {}
    let (id, _) = reader.resume();
    let names = RecordedNames {
        frames: vec![name(9, "later")],
        ..RecordedNames::default()
    };
    let mut writer = Writer::resumed(Shared(&mut bytes), id, 6);
    writer.json(ChunkKind::Names, 1, &names).unwrap();
    let contents = read(&bytes).unwrap();
    assert_eq!(contents.names[&(7, 9, true)].functions[0].name, "later");
    assert_eq!(contents.hits, 4);
    assert_eq!(contents.damages.len(), 1, "{:?}", contents.damages);
}

#[test]
fn what_a_program_puts_into_a_record_is_no_chunk() {
    // A whole chunk of another file, inside of a record of a chunk that is damaged.
    let forged = sample(1);
    let fields = &forged[PREAMBLE..];
    let words = fields.len() / 8;
    let hit = Hit {
        header: header_of::<Hit>(KIND_HIT, words),
        field_words: words as u16,
        ..Hit::default()
    };
    let record = [hit.as_bytes(), fields].concat();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Shared(&mut bytes)).unwrap();
    writer.chunk(ChunkKind::Records, 1, &record).unwrap();
    writer
        .chunk(ChunkKind::Records, 1, &self::hit(5, 0))
        .unwrap();
    bytes[PREAMBLE + HEADER] ^= 1;
    let contents = read(&bytes).unwrap();
    assert_eq!(contents.hits, 1);
    assert!(contents.header.is_none() && contents.probes.is_empty());
}

#[test]
fn fields_that_claim_too_many_parts_are_refused() {
    let probe = |of: &str| {
        format!(
            r#"[{{"id":1,"planned":0,"role":"whole","label":"","binary":"","function":"","offset":0,
            "fields":[{{"name":"x","shape":{{"object":{{"bytes":8,"layout":{of}}}}}}}]}}]"#
        )
    };
    let array = |of: &str| format!(r#"{{"array":{{"count":60000,"stride":0,"of":{of}}}}}"#);
    let body = |layout: &str| {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(Shared(&mut bytes)).unwrap();
        writer
            .chunk(ChunkKind::Probes, 1, probe(layout).as_bytes())
            .unwrap();
        read(&bytes).unwrap()
    };
    assert_eq!(body(r#"{"bytes":8}"#).probes.len(), 1);
    let nested = array(&array(
        r#"{"array":{"count":0,"stride":0,"of":{"bytes":1}}}"#,
    ));
    for hostile in [array(r#"{"bytes":1}"#), nested] {
        let contents = body(&hostile);
        assert!(contents.probes.is_empty());
        assert_eq!(contents.damages.len(), 1);
    }
}

proptest! {
    /// A cut loses the chunk that it goes through, and what is after it.
    #[test]
    fn a_cut_leaves_what_is_in_front_of_it(cut in PREAMBLE..4096usize) {
        let bytes = sample(12);
        let cut = cut.min(bytes.len());
        let whole = places(&bytes).into_iter().skip(1).filter(|end| *end <= cut).count();
        let part = read(&bytes[..cut]).unwrap();
        // Header, probes, objects, stacks; then the records.
        let batches = whole.saturating_sub(4).min(12);
        prop_assert_eq!(part.hits, 2 * batches as u64);
        // What is missing of the padding after a chunk's body is no loss.
        let places = places(&bytes);
        let is_near = |place: &usize| (cut..cut + 8).contains(place);
        prop_assert!(part.end.is_none() || is_near(&bytes.len()));
        prop_assert!(!part.damages.is_empty() || places.iter().any(is_near));
        prop_assert!(part.damages.is_empty() || !places.contains(&cut));
    }

    /// A changed byte costs no more than its chunk, and is noticed.
    #[test]
    fn a_flip_costs_one_chunk(at in 0usize..4096, bit in 0u8..8) {
        let mut bytes = sample(12);
        let places = places(&bytes);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let part = read(&bytes).unwrap();
        let kinds: u64 = part.tallies.values().map(|tally| tally.chunks).sum();
        let all = places.len() as u64 - 1;
        prop_assert!(kinds + 1 >= all, "{} of {}: {:?}", kinds, all, part.damages);
        prop_assert!(part.hits >= 22);
        // Padding means nothing.
        if kinds < all {
            prop_assert!(!part.damages.is_empty());
        }
        let kept = times(&bytes);
        prop_assert!(kept.is_sorted());
        prop_assert_eq!(kept.len() as u64, part.hits);
    }
}
