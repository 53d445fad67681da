// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reader against rings in memory, written by the module's protocol.

use super::*;
use crate::sys::fake::{self, FakeKernel};
use nsprobe_common::record::{Header, Hit, Lost, ObjectRecord, KIND_HIT, KIND_LOST, KIND_OBJECT};
use proptest::prelude::*;
use zerocopy::IntoBytes;

fn header<T>(kind: u16, words: usize) -> Header {
    Header {
        word: (size_of::<T>() + 8 * words) as u32,
        kind,
        reserved: 0,
    }
}

/// A hit whose frame words repeat its sequence, so that torn ones are seen.
fn hit(time_ns: u64, sequence: u32, words: usize) -> Vec<u8> {
    let hit = Hit {
        header: header::<Hit>(KIND_HIT, words),
        time_ns,
        sequence,
        words: words as u16,
        ..Hit::default()
    };
    let mut bytes = hit.as_bytes().to_vec();
    for _ in 0..words {
        bytes.extend_from_slice(&pattern(sequence).to_ne_bytes());
    }
    bytes
}

fn pattern(sequence: u32) -> u64 {
    u64::from(sequence) | 1 << 44
}

fn lost(count: u64) -> Vec<u8> {
    let lost = Lost {
        header: header::<Lost>(KIND_LOST, 0),
        count,
        ..Lost::default()
    };
    lost.as_bytes().to_vec()
}

fn object(id: u32, time_ns: u64) -> Vec<u8> {
    let object = ObjectRecord {
        header: header::<ObjectRecord>(KIND_OBJECT, 0),
        time_ns,
        id,
        ..ObjectRecord::default()
    };
    object.as_bytes().to_vec()
}

fn one(start: u64) -> (FakeKernel, Reader) {
    let (kernel, ring) = fake::ring(4096, start);
    (kernel, Reader::new(vec![ring], true))
}

/// The sequences of the hits in a batch, whose frames must be whole.
fn sequences(batch: &Batch<'_>) -> Vec<u32> {
    let hits = batch.records().filter_map(|record| match record {
        Record::Hit(hit, details) => {
            let frames = details.frames;
            assert_eq!(frames.0.len(), usize::from(hit.words));
            assert!(frames.0.iter().all(|&word| word == pattern(hit.sequence)));
            Some(hit.sequence)
        }
        _ => None,
    });
    hits.collect()
}

#[test]
fn records_come_once_and_in_order() {
    let (mut kernel, mut reader) = one(0);
    assert!(reader.collect_rest().unwrap().is_empty());
    kernel.write(&hit(1, 1, 0));
    kernel.write(&hit(2, 2, 3));
    assert_eq!(sequences(&reader.collect_rest().unwrap()), [1, 2]);
    assert!(reader.collect_rest().unwrap().is_empty());
}

#[test]
fn a_record_that_wraps_is_whole() {
    let (mut kernel, mut reader) = one(4096 - 80);
    kernel.write(&hit(1, 7, 20));
    assert_eq!(sequences(&reader.collect_rest().unwrap()), [7]);
    // The positions themselves wrap at 2^64.
    let (mut kernel, mut reader) = one(u64::MAX - 79);
    kernel.write(&hit(1, 8, 20));
    assert_eq!(sequences(&reader.collect_rest().unwrap()), [8]);
}

#[test]
fn the_reader_stops_at_a_busy_record() {
    let (mut kernel, mut reader) = one(0);
    kernel.write(&hit(1, 1, 0));
    let first = hit(2, 2, 0);
    let busy = kernel.reserve(first.len()).unwrap();
    kernel.write(&hit(3, 3, 0));
    assert_eq!(sequences(&reader.collect_rest().unwrap()), [1]);
    kernel.commit(busy, &first, false);
    assert_eq!(sequences(&reader.collect_rest().unwrap()), [2, 3]);
}

#[test]
fn discarded_records_are_skipped_and_their_room_comes_back() {
    let (mut kernel, mut reader) = one(0);
    for round in 0..100 {
        let record = hit(round, round as u32, 30);
        let at = kernel.reserve(record.len()).unwrap();
        kernel.commit(at, &record, true);
        assert!(reader.collect_rest().unwrap().is_empty());
    }
    assert_eq!(kernel.lost, 0);
}

#[test]
fn losses_are_counted_from_the_records() {
    let (mut kernel, mut reader) = one(0);
    while kernel.write(&hit(1, 0, 0)) {}
    kernel.write(&hit(1, 0, 0));
    assert_eq!(kernel.lost, 2);
    drop(reader.collect_rest().unwrap());
    kernel.write(&lost(2));
    drop(reader.collect_rest().unwrap());
    assert_eq!(reader.lost(), 2);
    assert_eq!(reader.lost_in_rings(), 2);
}

#[test]
fn corrupt_records_are_errors_that_name_the_place() {
    for word in [0u32, 4, 12, 4096, 64] {
        let (mut kernel, mut reader) = one(4096);
        let mut record = hit(1, 1, 0);
        let at = kernel.reserve(record.len()).unwrap();
        record[..4].copy_from_slice(&word.to_ne_bytes());
        kernel.commit(at, &record, false);
        let error = reader.collect_rest().unwrap_err().to_string();
        assert!(
            error.contains("CPU 0 is corrupt at position 4096"),
            "{error}"
        );
    }
}

#[test]
fn rings_are_merged_by_time_and_objects_come_first() {
    let (mut a, ring_a) = fake::ring(4096, 0);
    let (mut b, ring_b) = fake::ring(4096, 0);
    let mut reader = Reader::new(vec![ring_a, ring_b], true);
    for time in [1, 4, 5] {
        a.write(&hit(time, time as u32, 0));
    }
    for time in [2, 3, 9] {
        b.write(&hit(time, time as u32, 0));
    }
    b.write(&object(5, 10));
    let batch = reader.collect_rest().unwrap();
    assert!(matches!(batch.records().next(), Some(Record::Object(_))));
    assert_eq!(sequences(&batch), [1, 2, 3, 4, 5, 9]);
}

#[test]
fn records_newer_than_the_horizon_wait_for_the_next_round() {
    let (mut a, ring_a) = fake::ring(4096, 0);
    let (mut b, ring_b) = fake::ring(4096, 0);
    let mut reader = Reader::new(vec![ring_a, ring_b], true);
    a.write(&hit(10, 10, 0));
    b.write(&hit(30, 30, 0));
    assert_eq!(sequences(&reader.collect(20).unwrap()), [10]);
    a.write(&hit(25, 25, 0));
    assert_eq!(sequences(&reader.collect_rest().unwrap()), [25, 30]);
}

/// The sequences of what is handed out up to a time.
fn handed_out(ordered: &mut Ordered, until_ns: u64) -> Vec<u32> {
    let mut got = Vec::new();
    while let Some(record) = ordered.next_record(until_ns) {
        if let Record::Hit(hit, _) = record {
            got.push(hit.sequence);
        }
    }
    got
}

#[test]
fn batches_are_merged_by_time_also_where_a_record_comes_late() {
    let (mut a, ring_a) = fake::ring(4096, 0);
    let (mut b, ring_b) = fake::ring(4096, 0);
    let mut reader = Reader::new(vec![ring_a, ring_b], true);
    let mut ordered = Ordered::default();
    for time in [10, 40] {
        a.write(&hit(time, time as u32, 0));
    }
    b.write(&hit(30, 30, 0));
    ordered.push(reader.collect_rest().unwrap().copy());
    assert!(handed_out(&mut ordered, 9).is_empty());
    assert_eq!(handed_out(&mut ordered, 15), [10]);
    // Their writers were held up; one ring has one of them after a later one.
    b.write(&hit(50, 50, 0));
    b.write(&hit(20, 20, 0));
    b.write(&object(5, 60));
    ordered.push(reader.collect_rest().unwrap().copy());
    ordered.push(reader.collect_rest().unwrap().copy());
    assert_eq!(ordered.left().count(), 5);
    // The object comes first.
    assert!(ordered.bytes() > 0 && ordered.has(0));
    assert_eq!(handed_out(&mut ordered, 45), [20, 30, 40]);
    assert!(!ordered.has(49) && ordered.has(50));
    assert_eq!(handed_out(&mut ordered, u64::MAX), [50]);
    assert_eq!((ordered.bytes(), ordered.left().count()), (0, 0));
}

#[test]
fn what_a_busy_record_hides_is_known() {
    let (mut a, ring_a) = fake::ring(4096, 0);
    let (_b, ring_b) = fake::ring(4096, 0);
    let mut reader = Reader::new(vec![ring_a, ring_b], true);
    let whole = |reader: &mut Reader, until_ns| {
        let before = Reader::now();
        drop(reader.collect(until_ns).unwrap());
        reader.read_up_to() >= before
    };
    assert!(whole(&mut reader, u64::MAX));
    a.write(&hit(1, 1, 0));
    assert!(whole(&mut reader, u64::MAX));
    let late = hit(2, 2, 0);
    let busy = a.reserve(late.len()).unwrap();
    a.write(&hit(3, 3, 0));
    // The other ring has nothing: that does not help.
    assert!(!whole(&mut reader, u64::MAX) && !whole(&mut reader, u64::MAX));
    a.commit(busy, &late, false);
    assert!(!whole(&mut reader, 2));
    assert!(whole(&mut reader, 3));
}

#[test]
fn a_concurrent_writer_loses_nothing_silently() {
    const HITS: u32 = 200_000;
    let (mut kernel, ring) = fake::ring(4096, u64::MAX - 4095);
    let mut reader = Reader::new(vec![ring], true);
    let writer = std::thread::spawn(move || {
        for sequence in 0..HITS {
            kernel.write(&hit(u64::from(sequence), sequence, sequence as usize % 9));
        }
        kernel.lost
    });
    let mut got = Vec::new();
    while !writer.is_finished() {
        got.extend(sequences(&reader.collect_rest().unwrap()));
    }
    let lost = writer.join().unwrap();
    got.extend(sequences(&reader.collect_rest().unwrap()));
    assert!(got.is_sorted());
    assert_eq!(got.len() as u64 + lost, u64::from(HITS));
    assert_eq!(reader.lost_in_rings(), lost);
}

proptest! {
    /// Whatever lies in the ring, the reader stays within it.
    #[test]
    fn any_bytes_are_read_within_bounds(
        words in proptest::collection::vec(any::<[u32; 2]>(), 1..64),
        small in any::<bool>(),
        start in 0u64..4096,
    ) {
        let (mut kernel, mut reader) = one(start & !7);
        let mut bytes: Vec<u8> = Vec::new();
        for [word, rest] in words {
            let word = if small { (word % 256) & !7 } else { word };
            bytes.extend_from_slice(word.as_bytes());
            bytes.extend_from_slice(rest.as_bytes());
        }
        let at = kernel.reserve(bytes.len()).unwrap();
        kernel.commit(at, &bytes, false);
        if let Ok(batch) = reader.collect_rest() {
            prop_assert_eq!(batch.records().count(), batch.len());
        };
    }
}
