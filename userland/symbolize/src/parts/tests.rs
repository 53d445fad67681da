// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: reading a section in parts gives what is in it, or fails.

use super::*;
use gimli::EndianSlice;
use proptest::prelude::*;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

/// Where the section begins in the file.
const BEFORE: u64 = 100;

/// A file that is not shared, with a section in it.
fn file(section: &[u8], keeper: &Keeper) -> (File, SectionBytes) {
    let fd = rustix::fs::memfd_create("section", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(fd);
    file.write_all(&[0xff; BEFORE as usize]).unwrap();
    file.write_all(section).unwrap();
    file.write_all(b"behind it").unwrap();
    let watched = WatchedFile::new(file.try_clone().unwrap()).unwrap();
    let bytes = SectionBytes::in_file(Arc::new(watched), BEFORE, section.len(), keeper);
    (file, bytes)
}

/// Bytes that differ, with a NUL now and then.
fn section(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * at / 7 % 251) as u8).collect()
}

/// What can be done with a reader.
#[derive(Clone, Debug)]
enum Step {
    U8,
    U32,
    Leb128,
    Slice(usize),
    Skip(usize),
    SkipAll,
    Split(usize),
    Truncate(usize),
    Find(u8),
    Text,
    All,
    Back(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = 0..40_000usize;
    let step = prop_oneof![
        Just(Step::U8),
        Just(Step::U32),
        Just(Step::Leb128),
        length.clone().prop_map(Step::Slice),
        length.clone().prop_map(Step::Skip),
        Just(Step::SkipAll),
        length.clone().prop_map(Step::Split),
        (30_000..100_000usize).prop_map(Step::Truncate),
        any::<u8>().prop_map(Step::Find),
        Just(Step::Text),
        Just(Step::All),
        (0..100_000usize).prop_map(Step::Back),
    ];
    prop::collection::vec(step, 1..40)
}

/// Runs the step, and returns its result.
fn take<R: Reader<Offset = usize>>(reader: &mut R, all: &R, step: &Step) -> String {
    let told = |reader: &R| reader.to_slice().map(|bytes| bytes.into_owned());
    let result = match step {
        Step::U8 => format!("{:?}", reader.read_u8().ok()),
        Step::U32 => format!("{:?}", reader.read_u32().ok()),
        Step::Leb128 => format!("{:?}", reader.clone().read_uleb128().ok()),
        Step::Slice(length) => {
            let mut out = vec![0; *length];
            format!("{:?}", reader.read_slice(&mut out).ok().map(|()| out))
        }
        Step::Skip(length) => format!("{:?}", reader.skip(*length).ok()),
        Step::SkipAll => format!("{:?}", reader.skip(reader.len()).ok()),
        Step::Split(length) => {
            let first = reader.split(*length).ok();
            format!("{:?}", first.map(|first| told(&first)))
        }
        Step::Truncate(length) => format!("{:?}", reader.truncate(*length).ok()),
        Step::Find(byte) => format!("{:?}", reader.find(*byte).ok()),
        Step::Text => {
            let text = reader.clone().read_null_terminated_slice().ok();
            format!("{:?}", text.map(|text| told(&text)))
        }
        Step::All => format!("{:?}", told(reader)),
        Step::Back(to) => {
            *reader = all.clone();
            format!("{:?}", reader.skip(*to).ok())
        }
    };
    format!("{result} {} {}", reader.len(), reader.offset_from(all))
}

proptest! {
    #[test]
    fn it_reads_what_is_there(length in 0..100_000usize, steps in steps()) {
        // Also one that ends with a part.
        let length = if length % 4 == 0 { length / PART_BYTES * PART_BYTES } else { length };
        let section = section(length);
        let keeper = Keeper::default();
        let (_file, in_file) = file(&section, &keeper);
        let whole = SectionBytes::in_memory(Arc::from(&*section), &keeper);
        for all in [in_file, whole] {
        let wanted = EndianSlice::new(&section, LittleEndian);
        let (mut reader, mut slice) = (all.clone(), wanted);
        for step in &steps {
            let (got, wanted) = (take(&mut reader, &all, step), take(&mut slice, &wanted, step));
            prop_assert!(got == wanted, "{:?}", step);
        }
        }
    }
}

#[test]
fn parts_are_shared_and_those_without_a_reader_may_go() {
    let keeper = Keeper::default();
    let (_file, all) = file(&section(4 * PART_BYTES), &keeper);
    let mut first = all.clone();
    let mut second = all.clone();
    first.read_u8().unwrap();
    second.skip(1).unwrap();
    second.read_u8().unwrap();
    assert!(Arc::ptr_eq(&first.part, &second.part));
    let parts = &all.part.of;
    keeper.0.lock().unwrap().clear();
    first.skip(PART_BYTES).unwrap();
    assert_eq!(first.read_u8(), Ok(section(PART_BYTES + 2)[PART_BYTES + 1]));
    let read = parts.read.lock().unwrap();
    let there = |number: usize| read[number].upgrade().is_some();
    assert!(there(0) && there(1) && !there(2));
    drop(read);
    drop(second);
    assert!(parts.read.lock().unwrap()[0].upgrade().is_none());
}

#[test]
fn what_was_written_to_the_file_is_not_read() {
    let (file, mut bytes) = file(&section(4 * PART_BYTES), &Keeper::default());
    bytes.read_u8().unwrap();
    // The clock of files stands still for some milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(20));
    file.write_all_at(b"other", BEFORE + 2 * PART_BYTES as u64)
        .unwrap();
    let mut later = bytes.clone();
    assert_eq!(later.skip(2 * PART_BYTES), Err(Error::Io));
    // What was read before is what it was.
    assert_eq!(bytes.read_u8(), Ok(section(2)[1]));
    file.set_len(BEFORE + 10).unwrap();
    let mut out = [0; PART_BYTES];
    assert_eq!(later.read_slice(&mut out), Err(Error::Io));
}

#[test]
fn a_file_is_closed_with_its_last_reader() {
    let keeper = Keeper::default();
    let (_file, mut bytes) = file(&section(2 * PART_BYTES), &keeper);
    bytes.read_u8().unwrap();
    let parts = Arc::downgrade(&bytes.part.of);
    drop(bytes);
    assert!(parts.upgrade().is_some(), "a part is kept");
    drop(keeper);
    assert!(parts.upgrade().is_none());
}
