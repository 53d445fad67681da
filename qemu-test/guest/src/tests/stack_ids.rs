// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a stack that is told by an id is the one that was there; ids hold, and without
//! room for more the frames are in the record.

use crate::module::Module;
use crate::records::Records;
use crate::session::{errno, probe_at, size, Session, RING_BYTES};
use crate::sys;
use crate::victim::Victim;
use nix::libc;
use nsprobe_common::abi::{self, Refusal, Stack, STACK_TABLE_WORDS};
use nsprobe_common::record::{Frame, Frames, WORDS_MAX};
use std::collections::{BTreeSet, HashMap, HashSet};

const BY_ID: u32 = abi::PROBE_STACK | abi::PROBE_AT_ENTRY | abi::PROBE_STACK_IDS;
const INLINE: u32 = abi::PROBE_STACK | abi::PROBE_AT_ENTRY;

/// Asks for a stack with room for this number of words.
pub(super) fn ask(session: &Session, id: u32, room: usize) -> (std::io::Result<Vec<u64>>, Stack) {
    let mut words = vec![0u64; room];
    let mut stack = Stack {
        size: size::<Stack>(),
        id,
        words: room as u32,
        frames: words.as_mut_ptr() as u64,
        ..Stack::default()
    };
    let answer = sys::ioctl(session, abi::STACK, &mut stack).map(|_| {
        words.truncate(stack.words as usize);
        words
    });
    (answer, stack)
}

fn frames_of(session: &Session, id: u32) -> Vec<Frame> {
    let (words, _) = ask(session, id, WORDS_MAX);
    Frames(&words.expect("it is there")).collect()
}

/// Frames without the numbers that each session has of its own.
fn places(frames: &[Frame], records: &Records) -> Vec<(u64, u64)> {
    let place = |frame: &Frame| match *frame {
        Frame::Object { id, offset, .. } => (records.objects[&id].identity.ino, offset),
        Frame::Address { address, .. } => (0, address),
    };
    frames.iter().map(place).collect()
}

test! { full, equal_stacks_have_one_id_and_all_their_frames, module }
fn equal_stacks_have_one_id_and_all_their_frames() {
    let _module = Module::load();
    let mut victim = Victim::start("chain", &[]);
    let function = victim.function("bottom");
    let sessions = [BY_ID, INLINE].map(|flags| {
        let session = Session::with_rings(RING_BYTES);
        session.probe(victim.file(), &function, flags);
        session
    });
    let [by_id, inline] = &sessions;
    victim.call(1000);
    let [told, whole] = sessions.each_ref().map(Records::of);
    assert_eq!((told.hits.len(), whole.hits.len()), (1000, 1000));
    let ids: HashSet<u32> = told.hits.iter().map(|(hit, _)| hit.stack).collect();
    println!("{} ids: {ids:?}", ids.len());
    // The loop calls it from one place; the first call may still resolve symbols.
    assert!(!ids.contains(&0) && ids.len() <= 2);
    for ((hit, frames), (other, wanted)) in told.hits.iter().zip(&whole.hits) {
        assert!(frames.is_empty() && hit.words == 0 && other.stack == 0);
        assert_eq!(hit.stack_end, other.stack_end);
        let frames = frames_of(by_id, hit.stack);
        assert_eq!(frames.len(), wanted.len());
        assert_eq!(places(&frames, &told), places(wanted, &whole));
    }
    // A stack's bytes are in the ring once or never.
    let word_bytes = 8 * frames_of(by_id, told.hits[0].0.stack).len();
    assert!(word_bytes > 17 * 8);
    let none = ask(inline, 1, WORDS_MAX).0;
    assert_eq!(errno(none, "no ids here"), libc::ENOENT);
}

test! { full, stacks_that_differ_in_one_frame_are_told_apart, module, seconds = 120 }
/// Thousands of stacks, each with one frame or more that the one before had not, at equal
/// addresses: what the module remembers of the last walk must not show.
fn stacks_that_differ_in_one_frame_are_told_apart() {
    let _module = Module::load();
    const CALLS: usize = 6000;
    for depth in ["8", "40"] {
        let mut victim = Victim::start("many_stacks", &[depth]);
        let function = victim.function("end_of_path");
        let sessions = [BY_ID, INLINE].map(|flags| {
            let session = Session::with_rings(16 << 20);
            session.probe(victim.file(), &function, flags);
            session
        });
        victim.call(CALLS as u64);
        let [told, whole] = sessions.each_ref().map(Records::of);
        assert_eq!((told.hits.len(), whole.hits.len()), (CALLS, CALLS));
        let (mut sorted, mut wanted) = (told.hits.clone(), whole.hits.clone());
        sorted.sort_by_key(|(hit, _)| hit.time_ns);
        wanted.sort_by_key(|(hit, _)| hit.time_ns);
        let mut known: HashMap<Vec<(u64, u64)>, u32> = HashMap::new();
        for (number, ((hit, _), (other, frames))) in sorted.iter().zip(&wanted).enumerate() {
            assert_ne!(hit.stack, 0);
            assert_eq!(hit.stack_end, other.stack_end);
            let wanted = places(frames, &whole);
            assert_eq!(places(&frames_of(&sessions[0], hit.stack), &told), wanted);
            // The victim's own oracle: bit by bit of the call's number, from the inside.
            let path: Vec<bool> = path_of(&wanted);
            let depth: usize = depth.parse().expect("a number");
            let bits = (1..=depth).map(|bit| number >> bit & 1 == 1);
            assert_eq!(path, bits.collect::<Vec<_>>(), "call {number}");
            let id = *known.entry(wanted).or_insert(hit.stack);
            assert_eq!(id, hit.stack, "one stack, two ids");
        }
        let all: usize = if depth == "8" { 1 << 8 } else { CALLS / 2 };
        println!("depth {depth}: {} stacks", known.len());
        assert!((all..all + 3).contains(&known.len()), "{}", known.len());
    }
}

/// Which way each call went, innermost first: `go` is called from two places, and the
/// return addresses in `left` and `right` tell which.
fn path_of(places: &[(u64, u64)]) -> Vec<bool> {
    let own = places[1].0;
    let frames: Vec<u64> = places
        .iter()
        .filter(|(inode, _)| *inode == own)
        .map(|(_, offset)| *offset)
        .collect();
    // end_of_path, go, (left | right, go) ..., main.
    let sides: Vec<u64> = frames[2..frames.len() - 1]
        .iter()
        .step_by(2)
        .copied()
        .collect();
    let low = sides.iter().min().copied().unwrap_or(0);
    let high = sides.iter().max().copied().unwrap_or(0);
    // Of a path that goes one way only, which way it is: `right` is after `left`.
    let functions = crate::binary::functions(&crate::victim::path("many_stacks"));
    let left = functions.iter().find(|function| function.name == "left");
    let left = left.expect("it has symbols");
    assert!(low == high || left.holds(low - 1) != left.holds(high - 1));
    sides.iter().map(|side| left.holds(side - 1)).collect()
}

test! { full, without_room_frames_are_in_the_record, module, seconds = 180 }
fn without_room_frames_are_in_the_record() {
    let _module = Module::load();
    let mut victim = Victim::start("many_stacks", &["60"]);
    let function = victim.function("end_of_path");
    let session = Session::with_rings(64 << 20);
    let id = session.probe(victim.file(), &function, BY_ID);
    // Each stack has 120 frames and one word more.
    const CALLS: usize = 12_000;
    victim.call(CALLS as u64);
    let counters = session.counters(id);
    assert_eq!((counters.recorded, counters.lost_full), (CALLS as u64, 0));
    let records = Records::of(&session);
    let (told, inline): (Vec<_>, Vec<_>) = records.hits.iter().partition(|(hit, _)| hit.stack != 0);
    println!("{} by id, {} with frames", told.len(), inline.len());
    assert!(told.len() > 6000 && inline.len() > 1000);
    let first = told[0].0;
    let (words, answer) = ask(&session, first.stack, WORDS_MAX);
    assert!(
        answer.used as usize <= STACK_TABLE_WORDS && answer.used > STACK_TABLE_WORDS as u32 / 2
    );
    let frames: Vec<Frame> = Frames(&words.expect("ids hold")).collect();
    for (hit, frames) in &inline {
        assert_eq!(hit.stack_end, first.stack_end);
        assert_eq!(path_of(&places(frames, &records)).len(), 60);
    }
    assert_eq!(frames.len(), inline[0].1.len());
}

/// Of the words of many stacks those are ids that records have had; a frame may look like the
/// beginning of a stack.
fn each_id_is_one_that_a_record_has_had() {
    const CALLS: u64 = 2000;
    let mut victim = Victim::start("many_stacks", &["16"]);
    let function = victim.function("end_of_path");
    let session = Session::with_rings(RING_BYTES);
    session.probe(victim.file(), &function, BY_ID);
    victim.call(CALLS);
    let hits = Records::of(&session).hits;
    let ids: BTreeSet<u32> = hits.iter().map(|(hit, _)| hit.stack).collect();
    // The lowest bit of a call's number makes no other path.
    assert_eq!(ids.len() as u64, CALLS / 2);
    for id in 0..=*ids.iter().nth(100).expect("as many") {
        // Not EINVAL, which tells of many words after such a number.
        let number = ask(&session, id, WORDS_MAX)
            .0
            .err()
            .map(|error| error.raw_os_error());
        let wanted = (!ids.contains(&id)).then_some(Some(libc::ENOENT));
        assert_eq!(number, wanted, "{id}");
    }
}

test! { full, what_is_no_stack_is_refused, module }
fn what_is_no_stack_is_refused() {
    let _module = Module::load();
    let mut victim = Victim::start("chain", &[]);
    let function = victim.function("bottom");
    let session = Session::with_rings(RING_BYTES);
    let none = ask(&session, 1, WORDS_MAX).0;
    assert_eq!(errno(none, "before the first"), libc::ENOENT);
    session.probe(victim.file(), &function, BY_ID);
    victim.call(2);
    let id = Records::of(&session).hits[1].0.stack;
    let right = frames_of(&session, id).len() as u32;
    for wrong in [
        0,
        id + 1,
        id + right,
        id - 1,
        u32::MAX,
        STACK_TABLE_WORDS as u32,
    ] {
        let none = ask(&session, wrong, WORDS_MAX).0;
        assert_eq!(errno(none, "no id"), libc::ENOENT, "{wrong}");
    }
    each_id_is_one_that_a_record_has_had();
    let (short, answer) = ask(&session, id, 3);
    assert_eq!(errno(short, "little room"), libc::EINVAL);
    assert_eq!(answer.words, right);
    let mut nowhere = Stack {
        size: size::<Stack>(),
        id,
        words: WORDS_MAX as u32,
        frames: 1 << 47,
        ..Stack::default()
    };
    let refused = sys::ioctl(&session, abi::STACK, &mut nowhere);
    assert_eq!(errno(refused, "no memory there"), libc::EFAULT);
    // Flags that do not go together.
    for flags in [
        abi::PROBE_STACK_IDS,
        abi::PROBE_LATE,
        abi::PROBE_LATE | abi::PROBE_STACK_IDS,
    ] {
        let refused = session.attach(victim.file(), probe_at(function.offset, flags));
        let (error, reply) = refused.expect_err("without a stack");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{flags:#x}");
        assert_eq!(reply.reason, Refusal::UnknownValue as u32);
    }
    for flags in [BY_ID, INLINE | abi::PROBE_LATE, abi::PROBE_KERNEL_STACK] {
        let counting = abi::Probe {
            sink: abi::SINK_COUNT,
            ..probe_at(function.offset, flags)
        };
        let refused = session.attach(victim.file(), counting);
        let (error, _) = refused.expect_err("without a record");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{flags:#x}");
    }
}
