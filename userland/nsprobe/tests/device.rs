// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library against the real module: a function of this very program is
//! probed and called. Skipped where there is no device; in the guest it runs as
//! any other program.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use libnsprobe::common::record::{Frame, Record, StackEnd};
use libnsprobe::{Device, Error, Filter, Probe, Reader, SetupOptions};
use std::fs::{self, File};
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

/// The victim. Its name and shape do not matter, its place in the file does.
#[inline(never)]
extern "C" fn called(value: u64) -> u64 {
    black_box(value).wrapping_mul(3)
}

fn call(times: u64) {
    for value in 0..times {
        black_box(called(value));
    }
}

/// Where the victim lies in our own file.
fn victim() -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let address = called as *const () as u64;
    maps.lines()
        .find_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let offset = hex(words.nth(1)?);
            (hex(start)..hex(end))
                .contains(&address)
                .then(|| address - hex(start) + offset)
        })
        .unwrap()
}

fn has_device() -> bool {
    let found = Path::new("/dev/nsprobe").exists();
    if !found {
        nsprobe_needs::unfit("there is no /dev/nsprobe");
    }
    found
}

fn this_program() -> File {
    File::open("/proc/self/exe").unwrap()
}

/// The hits of a batch; each must be whole, of this process, and not before
/// `last_ns`.
fn check_hits<'a>(records: impl Iterator<Item = Record<'a>>, last_ns: &mut u64) -> u64 {
    let mut hits = 0;
    for record in records {
        if let Record::Hit(hit, details) = record {
            let mut frames = details.frames;
            assert!(hit.time_ns >= *last_ns);
            *last_ns = hit.time_ns;
            assert_eq!(hit.pid, std::process::id());
            assert!(matches!(frames.next(), Some(Frame::Object { .. })));
            assert_ne!(StackEnd::from_u8(hit.stack_end), Some(StackEnd::None));
            hits += 1;
        }
    }
    hits
}

#[test]
fn every_call_is_a_record_or_a_counted_loss() {
    if !has_device() {
        return;
    }
    const CALLS: u64 = 10_000;
    let options = SetupOptions::with_ring_bytes(64 << 10);
    let (mut session, mut reader) = Device::open().unwrap().setup(&options).unwrap();
    let filter = Filter::pids([std::process::id()]).with_own_process();
    session.filter(&filter).unwrap();
    let file = this_program();
    let ids = session
        .attach(&[Probe::entry(&file, victim()).with_stack()])
        .unwrap();
    let (mut hits, mut last_ns) = (0, 0);
    for _ in 0..CALLS / 100 {
        call(100);
        session.wait(Duration::ZERO).unwrap();
        let batch = reader.collect(Reader::settled()).unwrap();
        hits += check_hits(batch.records(), &mut last_ns);
    }
    session.detach(&ids).unwrap();
    call(10);
    hits += check_hits(reader.collect_rest().unwrap().records(), &mut last_ns);
    let counters = session.counters(ids[0]).unwrap();
    assert_eq!(counters.hits, CALLS);
    assert!(counters.balance(), "{counters:?}");
    assert_eq!(counters.recorded, hits);
    assert_eq!(counters.lost_full, reader.lost_in_rings());
}

#[test]
fn an_object_s_file_can_be_claimed_once() {
    if !has_device() {
        return;
    }
    let device = Device::open().unwrap();
    let (mut session, mut reader) = device.setup(&SetupOptions::default()).unwrap();
    session
        .filter(&Filter::default().with_own_process())
        .unwrap();
    let file = this_program();
    session
        .attach(&[Probe::entry(&file, victim()).with_stack()])
        .unwrap();
    call(1);
    let batch = reader.collect_rest().unwrap();
    let object = batch.records().find_map(|record| match record {
        Record::Object(object) => Some((object.id, object.identity)),
        _ => None,
    });
    let (id, identity) = object.expect("no object was announced");
    assert_eq!(session.object(id).unwrap(), Some(identity));
    let claimed = session.claim(id).unwrap().expect("no file is held");
    assert_eq!(claimed.metadata().unwrap().len(), identity.file_bytes);
    assert!(session.claim(id).unwrap().is_none());
    assert_eq!(session.object(id + 1000).unwrap(), None);
}

#[test]
fn refusals_name_the_probe_and_the_reason() {
    if !has_device() {
        return;
    }
    let device = Device::open().unwrap();
    let (mut session, _reader) = device.setup(&SetupOptions::default()).unwrap();
    assert!(matches!(
        session.filter(&Filter::pids([u32::MAX / 2])),
        Err(Error::NoProcess)
    ));
    let file = this_program();
    let bad = Probe::entry(&file, 1 << 39);
    match session.attach(&[Probe::entry(&file, victim()), bad]) {
        Err(error @ Error::Attach { index: 1, .. }) => {
            assert!(error.to_string().contains("behind the end"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let null = File::open("/dev/null").unwrap();
    let error = session.attach(&[Probe::entry(&null, 0)]).unwrap_err();
    assert!(error.to_string().contains("regular file"), "{error}");
}
