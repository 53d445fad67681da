// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: every record says what the call was: nothing in it is another call's, none is
//! there twice, and those that are missing are counted as lost, and announced.
//!
//! The victim passes its thread, the number of the call and a hash of both; a program
//! fetches the three. What a record must be like follows from these, byte by byte.

use crate::container::{pid_namespace, pid_space};
use crate::figures;
use crate::lab::{Lab, Traced, Watched};
use crate::oracle::{within, SOON};
use crate::session::{probe_at, Ring};
use crate::steps::{field, register};
use nsprobe_common::abi::{self, Probe};
use nsprobe_common::program::Register;
use nsprobe_common::record::{Details, Header, Hit, Record, KIND_HIT};
use std::collections::HashSet;
use zerocopy::IntoBytes;

/// One record in this number has a stack.
const WITH_STACK: u64 = 10;
const THREADS: u64 = 4;
/// Calls of each thread at a time.
const CHUNK: u64 = 50_000;
const RING_BYTES: u64 = 16 << 20;
/// The three arguments, and in front of them the mask of those that are there.
const FIELD_WORDS: u16 = 4;

test! { core, every_record_says_what_its_call_was, module, cpus = 2 }
fn every_record_says_what_its_call_was() {
    let lab = Lab::new();
    let asked = 500_000 / figures::parts(25) as u64;
    let stacks = asked.div_ceil(WITH_STACK);
    check(&lab, asked - stacks, 0);
    check(&lab, stacks, abi::PROBE_STACK | abi::PROBE_AT_ENTRY);
}

/// Has calls made until this number of records is checked.
fn check(lab: &Lab, asked: u64, flags: u32) {
    let words = [&THREADS.to_string(), "begins_with_push"];
    let mut victim = lab.victim("numbered_calls", &words, "begins_with_push");
    let session = lab.session(RING_BYTES);
    let steps = [
        register(0, Register::Rdi),
        register(1, Register::Rsi),
        register(2, Register::Rdx),
        field(0),
        field(1),
        field(2),
    ];
    let probe = Probe {
        entry_program: session.upload(&steps, b"").expect("a sound program"),
        ..probe_at(0, flags)
    };
    let id = session.attach(&victim, probe);
    let rings = session.rings();
    let before = victim.kernel_hits();
    let mut checker = Checker::new(&victim, id, rings.len());
    let mut calls = 0;
    let mut call = |checker: &mut Checker, each: u64| {
        calls += each * THREADS;
        victim.begin(each);
        while session.counters(id).hits < calls {
            checker.drain_all(&rings);
        }
        assert_eq!(victim.finish(), calls);
        checker.drain_all(&rings);
        calls
    };
    while checker.records < asked {
        let left = (asked - checker.records).div_ceil(THREADS);
        call(&mut checker, left.min(CHUNK));
    }
    // The next record of a CPU announces what was lost there.
    let all_told = within(SOON, || {
        call(&mut checker, 100);
        checker.announced == session.counters(id).lost_full
    });
    let calls = call(&mut checker, 1);
    assert!(all_told, "{} are announced", checker.announced);
    assert_eq!(victim.kernel_hits() - before, calls);
    println!(
        "{}",
        checker
            .balanced(&session, calls)
            .expect("what is missing is lost")
    );
    controls(&mut checker, &session, calls);
}

/// The third argument of a call: what `hash` in the victim's source says.
fn hash(thread: u64, number: u64) -> u64 {
    let x = (thread << 40 | number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Each record that is not as it must be has to be refused.
fn controls(checker: &mut Checker, session: &Watched, calls: u64) {
    let (hit, fields, frames) = checker.last.clone().expect("there were records");
    let cpu = hit.cpu;
    let again = checker.take(cpu, &hit, &fields, &frames);
    must_refuse("a record that was there before", again);
    // One that is to come, whose fields do not fit each other.
    let thread = fields[1];
    let number = checker.seen[thread as usize].len() as u64 + 1_000_000;
    let next = Hit {
        sequence: number as u32,
        ..hit
    };
    let wrong = [0b111, thread, number, hash(thread, number) ^ 1 << 17];
    must_refuse(
        "one wrong bit in a hash",
        checker.take(cpu, &next, &wrong, &frames),
    );
    let right = [0b111, thread, number, hash(thread, number)];
    let other = Hit {
        tid: next.tid + 1,
        ..next
    };
    must_refuse(
        "another thread's number",
        checker.take(cpu, &other, &right, &frames),
    );
    must_refuse(
        "another CPU's ring",
        checker.take(cpu + 1, &next, &right, &frames),
    );
    let early = Hit { time_ns: 1, ..next };
    must_refuse(
        "a time before the last",
        checker.take(cpu, &early, &right, &frames),
    );
    checker.records -= 1;
    must_refuse("one record less", checker.balanced(session, calls));
    checker.records += 1;
}

/// Panics unless the check has refused what is wrong.
fn must_refuse<T: std::fmt::Debug>(what: &str, verdict: Result<T, String>) {
    assert!(verdict.is_err(), "{what} is not refused: {verdict:?}");
}

type Fields = [u64; FIELD_WORDS as usize];

/// What the records so far were.
struct Checker {
    /// What all records have in common.
    like: Hit,
    records: u64,
    /// Losses, as they were announced.
    announced: u64,
    /// By thread: the numbers of its calls.
    seen: Vec<HashSet<u64>>,
    /// By thread: its number in the kernel.
    tids: Vec<Option<u32>>,
    /// By CPU: the sequence numbers.
    sequences: Vec<HashSet<u32>>,
    /// By CPU and thread: number and time of its last call there.
    order: Vec<Vec<Option<(u64, u64)>>>,
    /// By thread: how its stacks end, and the words of their frames.
    frames: Vec<Option<(u8, Vec<u64>)>>,
    last: Option<(Hit, Fields, Vec<u64>)>,
}

impl Checker {
    fn new(victim: &Traced, id: u32, cpus: usize) -> Checker {
        let mut comm = [0; 16];
        comm[..14].copy_from_slice(b"numbered_calls");
        let pid = victim.pid();
        let threads = THREADS as usize;
        Checker {
            like: Hit {
                probe: id,
                field_words: FIELD_WORDS,
                pid,
                ns_pid: pid,
                pidns_id: pid_space(pid).id,
                pidns_inum: pid_namespace(pid),
                comm,
                ..Hit::default()
            },
            records: 0,
            announced: 0,
            seen: vec![HashSet::new(); threads],
            tids: vec![None; threads],
            sequences: vec![HashSet::new(); cpus],
            order: vec![vec![None; threads]; cpus],
            frames: vec![None; threads],
            last: None,
        }
    }

    fn drain_all(&mut self, rings: &[Ring]) {
        for (cpu, ring) in (0..).zip(rings) {
            self.drain(cpu, ring).expect("every record is right");
        }
    }

    /// Checks what a CPU's ring holds, and empties it.
    fn drain(&mut self, cpu: u16, ring: &Ring) -> Result<(), String> {
        let words = ring.read(true);
        let mut bytes = words.as_bytes();
        loop {
            let parsed = Record::parse(bytes).map_err(|corrupt| format!("{corrupt:?}"))?;
            let Some((record, length)) = parsed else {
                return match bytes.len() {
                    0 => Ok(()),
                    left => Err(format!("{left} bytes are left over")),
                };
            };
            bytes = &bytes[length..];
            match record {
                Some(Record::Hit(hit, details)) => {
                    self.take(cpu, hit, &fields_of(&details)?, details.frames.0)?;
                }
                Some(Record::Lost(lost)) => self.announced += lost.count,
                Some(Record::Object(_)) | None => {}
                Some(other) => return Err(format!("{other:?} was not asked for")),
            }
        }
    }

    /// Checks a record of a CPU's ring.
    fn take(&mut self, cpu: u16, hit: &Hit, fields: &Fields, frames: &[u64]) -> Result<(), String> {
        let [mask, thread, number, hashed] = *fields;
        let told = || format!("{hit:?} {fields:x?}");
        if mask != 0b111 || thread >= self.tids.len() as u64 || hash(thread, number) != hashed {
            return Err(format!("fields that no call had: {}", told()));
        }
        let index = thread as usize;
        let tid = self.tids[index].unwrap_or(hit.tid);
        let (end, same) = match &self.frames[index] {
            Some((end, same)) => (*end, same.as_slice() == frames),
            None => (hit.stack_end, true),
        };
        let wanted = Hit {
            header: Header {
                word: size_of::<Hit>() as u32 + 8 * u32::from(hit.words + FIELD_WORDS),
                kind: KIND_HIT,
                reserved: 0,
            },
            time_ns: hit.time_ns,
            sequence: hit.sequence,
            cpu,
            words: hit.words,
            stack_end: end,
            tid,
            ns_tid: tid,
            ..self.like
        };
        if hit.as_bytes() != wanted.as_bytes() || !same {
            return Err(format!("{} is not {wanted:?} or {frames:?}", told()));
        }
        let place = &mut self.order[usize::from(cpu)][index];
        if place.is_some_and(|(before, time)| number <= before || hit.time_ns < time) {
            return Err(format!("{} comes behind {place:?}", told()));
        }
        if !self.seen[index].insert(number) {
            return Err(format!("{} was there before", told()));
        }
        if !self.sequences[usize::from(cpu)].insert(hit.sequence) {
            return Err(format!("the sequence number of {} is taken", told()));
        }
        if self.tids[index].is_none() && self.tids.contains(&Some(tid)) {
            return Err(format!("the thread of {} is another one", told()));
        }
        *place = Some((number, hit.time_ns));
        self.tids[index] = Some(tid);
        self.frames[index].get_or_insert_with(|| (end, frames.to_vec()));
        self.last = Some((*hit, *fields, frames.to_vec()));
        self.records += 1;
        Ok(())
    }

    /// Whether what was read is what was recorded, and the rest is counted as lost.
    fn balanced(&self, session: &Watched, calls: u64) -> Result<String, String> {
        let counters = session.counters(self.like.probe);
        let text = format!(
            "{calls} calls = {} records that are right + {} lost, {} of them announced; {} of \
             {} frames end early",
            self.records,
            counters.lost_full,
            self.announced,
            counters.stacks_cut,
            counters.recorded
        );
        let fits = counters.hits == calls
            && counters.recorded == self.records
            && counters.recorded + counters.lost_full == calls
            && self.announced <= counters.lost_full;
        if fits {
            Ok(text)
        } else {
            Err(format!("{text}: {counters:?}"))
        }
    }
}

fn fields_of(details: &Details<'_>) -> Result<Fields, String> {
    let fields = details.fields.try_into();
    fields.map_err(|_| format!("{} words of fields", details.fields.len()))
}
