// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: tens of thousands of probes, on one file or on a thousand, each count their own
//! hits, and are gone with one detach.

use super::{figure, must_refuse, reached, Progress};
use crate::binary;
use crate::module::Module;
use crate::places::probes;
use crate::session::{probe_at, Session};
use crate::victim::{self, Victim};
use nix::libc;
use nsprobe_common::abi::{Refusal, PROBES_MAX};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const PROBES: u64 = 65_536;
/// Places of `soak_inode`.
const PLACES: u64 = 64;
/// How often each is hit.
const HITS: u64 = 3;

/// Whether each probe has as many hits, all of them counted.
fn each_has(session: &Session, ids: &[u32], hits: u64) -> Result<u64, String> {
    for &id in ids {
        let counters = session.counters(id);
        if (counters.hits, counters.aggregated) != (hits, hits) {
            return Err(format!("{hits} are wanted of probe {id}: {counters:?}"));
        }
    }
    Ok(hits * ids.len() as u64)
}

pub(super) fn on_one_inode() {
    const PART: &str = "probes_one_inode";
    let _module = Module::load();
    let asked = figure(PROBES).min(PROBES);
    let mut victim = Victim::start("many_places", &[]);
    let places = victim.function("places");
    let file = File::open(victim.file()).expect("the victim's file is there");
    let session = Session::with_rings(4096);
    let mut probes = probes(&file, &places, asked);
    let start = Instant::now();
    session
        .attach_all(&mut probes)
        .expect("all can be attached");
    let attached = start.elapsed();
    assert_eq!(u64::from(session.info().probes), asked);
    let changed = victim.changed_bytes(places.offset, places.bytes);
    assert_eq!(changed, asked, "breakpoints");
    victim.call(HITS);
    let ids: Vec<u32> = probes.iter().map(|probe| probe.id).collect();
    let hits = each_has(&session, &ids, HITS).expect("each has its hits");
    must_refuse(
        PART,
        "a hit more than there was",
        each_has(&session, &ids, HITS + 1),
    );
    let start = Instant::now();
    session.detach(&ids).expect("all are attached");
    let detached = start.elapsed();
    println!(
        "soak: {PART}: {asked} probes attached in {attached:.2?}, {hits} hits, detached in \
         {detached:.2?}"
    );
    assert_eq!(session.info().probes, 0);
    let changed = victim.changed_bytes(places.offset, places.bytes);
    assert_eq!(changed, 0, "breakpoints are left");
    victim.call(1);
    each_has(&session, &ids, HITS).expect("no hit comes behind the detach");
    reached(PART, asked, asked, "probes");
}

/// Files of their own with the same content; gone with the value.
struct Copies {
    folder: PathBuf,
    files: Vec<PathBuf>,
}

impl Copies {
    fn new(of: &Path, count: u64) -> Copies {
        let folder = PathBuf::from("/var/tmp/soak-copies");
        // One that was killed leaves it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("/var/tmp is writable");
        let files = (0..count).map(|number| folder.join(number.to_string()));
        let copies = Copies {
            files: files.collect(),
            folder,
        };
        for file in &copies.files {
            fs::copy(of, file).expect("there is room");
        }
        copies
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(super) fn on_many_inodes() {
    const PART: &str = "probes_many_inodes";
    let _module = Module::load();
    let asked = figure(PROBES).min(PROBES);
    let mut progress = Progress::new(PART, asked);
    let program = victim::path("soak_inode");
    let places = binary::function(&program, "places");
    let copies = Copies::new(&program, asked.div_ceil(PLACES));
    let session = Session::with_rings(4096);
    let mut ids: Vec<Vec<u32>> = Vec::new();
    let start = Instant::now();
    for copy in &copies.files {
        // A session holds the inode, not the descriptor.
        let file = File::open(copy).expect("it was made");
        let mut probes = probes(&file, &places, PLACES);
        session
            .attach_all(&mut probes)
            .expect("all can be attached");
        ids.push(probes.iter().map(|probe| probe.id).collect());
        progress.at(ids.len() as u64 * PLACES);
    }
    let attached = start.elapsed();
    let there = ids.len() as u64 * PLACES;
    assert_eq!(u64::from(session.info().probes), there);
    // All but the last are run; whose hits it was is seen at once.
    let (last, others) = copies.files.split_last().expect("one at least");
    let run = |file: &PathBuf| {
        let status = Command::new(file).status().expect("a program");
        assert!(status.success(), "{}: {status}", file.display());
    };
    for (file, ids) in others.iter().zip(&ids) {
        each_has(&session, ids, 0).expect("it did not run yet");
        run(file);
        each_has(&session, ids, 1).expect("each is hit once");
    }
    let of_last = &ids[ids.len() - 1];
    must_refuse(
        PART,
        "a program that did not run",
        each_has(&session, of_last, 1),
    );
    run(last);
    let all: Vec<u32> = ids.concat();
    let hits = each_has(&session, &all, 1).expect("each is hit once");
    let start = Instant::now();
    session.detach(&all).expect("all are attached");
    let detached = start.elapsed();
    println!(
        "soak: {PART}: {there} probes on {} inodes attached in {attached:.2?}, {hits} hits, \
         detached in {detached:.2?}",
        copies.files.len()
    );
    assert_eq!(session.info().probes, 0);
    run(last);
    each_has(&session, &all, 1).expect("no hit comes behind the detach");
    reached(PART, asked, there, "probes");
}

/// Ids are used once in a session: when all are, it makes no more, and others do.
pub(super) fn until_there_are_no_more() {
    const PART: &str = "probes_of_a_session";
    let _module = Module::load();
    let most = u64::from(PROBES_MAX);
    let asked = figure(most).min(most);
    let mut progress = Progress::new(PART, asked);
    let mut victim = Victim::start("many_places", &[]);
    let places = victim.function("places");
    let file = File::open(victim.file()).expect("the victim's file is there");
    let program = victim.file().to_owned();
    let session = Session::with_rings(4096);
    let first = session.probe(victim.file(), &places, 0);
    let start = Instant::now();
    let mut made = 1;
    while made < asked {
        let mut probes = probes(&file, &places, (asked - made).min(PROBES));
        session.attach_all(&mut probes).expect("there are ids");
        let ids: Vec<u32> = probes.iter().map(|probe| probe.id).collect();
        session.detach(&ids).expect("all are attached");
        made += ids.len() as u64;
        assert_eq!(ids.last().copied().map(u64::from), Some(made));
        progress.at(made);
    }
    println!("soak: {PART}: {made} probes in {:.2?}", start.elapsed());
    let refused = |session: &Session| {
        let again = session.attach(&program, probe_at(places.offset, 0));
        again
            .err()
            .map(|(error, reply)| (error.raw_os_error(), reply.reason))
    };
    let no_more = Some((Some(libc::ENOSPC), Refusal::TooMany as u32));
    if asked == most {
        assert_eq!(refused(&session), no_more);
    }
    let other = Session::with_rings(4096);
    match refused(&other) {
        None => println!("soak: {PART}: control: another session: is not refused"),
        Some(why) => panic!("another session: {why:?}"),
    }
    victim.call(HITS);
    assert_eq!(session.counters(first).hits, HITS);
    session.detach(&[first]).expect("it is attached");
    reached(PART, asked, made, "probes");
}
