// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: programs fetch what was there, decide which hits count, and do
//! nothing else; returns know their calls.

use crate::binary::Function;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::processes::code_of;
use crate::records::Records;
use crate::session::{errno, probe_at, size, Session, RING_BYTES};
use crate::steps::{constant, field, register, step};
use crate::sys;
use crate::victim::Victim;
use nix::libc;
use nsprobe_common::abi::{self, Probe, Program, Refusal};
use nsprobe_common::program::{Context, Flaw, Operation, Register, Step, STEPS_MAX};
use nsprobe_common::record::HIT_RETURN;
use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;
use zerocopy::IntoBytes;

/// A session on a victim's function with these programs; the probe's id.
fn probed(
    victim: &Victim,
    function: &Function,
    kind: u32,
    [entry, ret]: [&[Step]; 2],
) -> (Session, u32) {
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    let id_of = |steps: &[Step]| match steps {
        [] => 0,
        steps => session.upload(steps, b"").expect("a sound program"),
    };
    let probe = Probe {
        kind,
        entry_program: id_of(entry),
        return_program: id_of(ret),
        ..probe_at(function.offset, abi::PROBE_AT_ENTRY)
    };
    let id = session.attach(victim.file(), probe).expect("a probe");
    (session, id)
}

test! { full, arguments_are_fetched_and_required, module }
fn arguments_are_fetched_and_required() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    // Argument 1 counts from 0: `if arg1 >= 10`.
    let steps = [
        register(0, Register::Rdi),
        constant(1, 10),
        step(Operation::BelowOrEqual, 2, 1, 0, 0, 0),
        step(Operation::Require, 0, 2, 0, 0, 0),
        field(0),
        step(Operation::Context, 3, 0, 0, 0, Context::Pid as u64),
        field(3),
    ];
    let (session, id) = probed(&victim, &function, abi::PROBE_ENTRY, [&steps, &[]]);
    victim.call(100);
    let counters = session.counters(id);
    println!("{counters:?}");
    assert_eq!((counters.recorded, counters.rejected), (90, 10));
    assert_eq!(counters.undecided, 0);
    let records = Records::of(&session);
    let mut arguments: Vec<u64> = Vec::new();
    for (elapsed, fields) in &records.details {
        assert_eq!(
            (*elapsed, fields[0], fields[2]),
            (None, 0b11, victim.pid().into())
        );
        arguments.push(fields[1]);
    }
    arguments.sort_unstable();
    assert_eq!(arguments, (10..100).collect::<Vec<u64>>());
}

test! { core, what_is_not_there_is_absent_and_undecided, module }
fn what_is_not_there_is_absent_and_undecided() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_endbr64");
    let function = victim.function("begins_with_endbr64");
    // An address of the kernel's, one of nobody's, and a division by zero.
    let absent = [
        constant(0, 0xffff_ffff_8100_0000),
        step(Operation::Load, 1, 0, 0, 0, 8),
        field(1),
        constant(2, 16),
        step(Operation::FieldString, 0, 2, 0, 32, 0),
        constant(3, 0),
        step(Operation::Divide, 4, 2, 3, 0, 0),
        field(4),
        field(2),
    ];
    let (session, id) = probed(&victim, &function, abi::PROBE_ENTRY, [&absent, &[]]);
    victim.call(20);
    assert_eq!(session.counters(id).recorded, 20);
    for (_, fields) in &Records::of(&session).details {
        assert_eq!(fields, &[0b1000, 0, 0, 0, 16]);
    }
    let undecided = [&absent[..2], &[step(Operation::Require, 0, 1, 0, 0, 0)]].concat();
    let (session, id) = probed(&victim, &function, abi::PROBE_ENTRY, [&undecided, &[]]);
    victim.call(20);
    let counters = session.counters(id);
    assert_eq!((counters.rejected, counters.undecided), (20, 20));
}

test! { core, a_page_that_never_comes_holds_up_no_handler, module }
/// The instruction waits for the page for ever, and so would a handler that fetched it.
fn a_page_that_never_comes_holds_up_no_handler() {
    let _module = Module::load();
    let mut victim = Victim::start("never_there", &[]);
    let function = victim.function("loads");
    let load = [
        register(0, Register::Rdi),
        step(Operation::Load, 1, 0, 0, 0, 8),
        field(1),
        step(Operation::FieldBytes, 0, 0, 0, 8, 0),
    ];
    let (session, id) = probed(&victim, &function, abi::PROBE_ENTRY, [&load, &[]]);
    victim.begin(1);
    let counted = || session.counters_on(id, abi::CPU_ALL).expect("its id");
    let is_recorded = within(SOON, || counted().recorded == 1);
    // A handler that waits would hold up the end of the session as well.
    drop(victim);
    assert!(is_recorded, "{:?}", counted());
    let records = Records::of(&session);
    let fields: Vec<_> = records.details.iter().map(|(_, fields)| fields).collect();
    assert_eq!(fields, [&[0, 0, 0]]);
}

/// Where a victim has a function.
fn address_of(victim: &Victim, function: &Function) -> u64 {
    let file = victim.file().to_str().expect("a plain name");
    let of_file = code_of(victim.pid())
        .into_iter()
        .filter(|code| code.path == file);
    let mut addresses = of_file.filter_map(|code| {
        let address = code.addresses.start + function.offset.checked_sub(code.offset)?;
        code.addresses.contains(&address).then_some(address)
    });
    addresses.next().expect("its file is mapped")
}

test! { full, memory_is_fetched, module }
fn memory_is_fetched() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let caller = victim.function("call_begins_with_push");
    let caller = address_of(&victim, &caller)..address_of(&victim, &caller) + caller.bytes;
    // At the entry the top of the stack is the return address.
    let steps = [
        register(0, Register::Rsp),
        step(Operation::Load, 1, 0, 0, 0, 8),
        field(1),
        step(Operation::FieldBytes, 0, 0, 0, 8, 0),
        step(Operation::FromProbe, 2, 0, 0, 0, 0),
        register(3, Register::Rip),
        step(Operation::Equal, 4, 2, 3, 0, 0),
        field(4),
    ];
    let (session, _) = probed(&victim, &function, abi::PROBE_ENTRY, [&steps, &[]]);
    victim.call(5);
    let records = Records::of(&session);
    assert_eq!(records.details.len(), 5);
    for (_, fields) in &records.details {
        let [mask, address, length, bytes, same] = fields[..] else {
            panic!("{fields:?}");
        };
        assert_eq!((mask, length, same), (0b111, 8, 1));
        assert_eq!(address, bytes);
        assert!(caller.contains(&address), "{address:#x} of {caller:x?}");
    }
}

test! { full, a_string_in_front_of_nothing_is_fetched_whole, module }
/// The last thing on a stack is the path of its program, with a word of zeroes after it
/// (`create_init_stack_vma` of mm/vma_exec.c).
fn a_string_in_front_of_nothing_is_fetched_whole() {
    const ROOM: i32 = 128;
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let maps = fs::read_to_string(format!("/proc/{}/maps", victim.pid())).expect("it lives");
    let stack = maps.lines().find(|line| line.ends_with("[stack]"));
    let end = stack.and_then(|line| line.split(['-', ' ']).nth(1));
    let end = u64::from_str_radix(end.expect("it has one"), 16).expect("an address");
    let path = victim.file().as_os_str().as_encoded_bytes().to_vec();
    let steps = [
        constant(0, end - 8 - 1 - path.len() as u64),
        step(Operation::FieldString, 0, 0, 0, ROOM, 0),
    ];
    let (session, _) = probed(&victim, &function, abi::PROBE_ENTRY, [&steps, &[]]);
    victim.call(1);
    let records = Records::of(&session);
    let [(_, fields)] = records.details.as_slice() else {
        panic!("{:?}", records.details);
    };
    assert_eq!(fields[..2], [1, path.len() as u64]);
    assert_eq!(fields[2..].as_bytes()[..path.len()], path);
}

const KEEP_ARGUMENT: [Step; 2] = [
    Step {
        operation: Operation::Register as u8,
        to: 0,
        a: 0,
        b: 0,
        small: Register::Rdi as i32,
        large: 0,
    },
    Step {
        operation: Operation::Keep as u8,
        to: 0,
        a: 0,
        b: 0,
        small: 1,
        large: 0,
    },
];

test! { core, a_return_knows_its_call, module }
fn a_return_knows_its_call() {
    let _module = Module::load();
    for name in [
        "begins_with_push",
        "begins_with_endbr64",
        "begins_with_nop10",
    ] {
        let mut victim = Victim::caller(name);
        let function = victim.function(name);
        // Both functions return their argument plus one.
        let at_return = [
            step(Operation::Kept, 0, 0, 0, 1, 0),
            field(0),
            register(1, Register::Rax),
            field(1),
            step(Operation::Context, 2, 0, 0, 0, Context::Elapsed as u64),
            field(2),
        ];
        let (session, id) = probed(
            &victim,
            &function,
            abi::PROBE_CALL,
            [&KEEP_ARGUMENT, &at_return],
        );
        let started = Instant::now();
        victim.call(200);
        let longest = started.elapsed().as_nanos() as u64;
        assert_eq!(session.counters(id).recorded, 400, "{name}");
        let records = Records::of(&session);
        let mut returned = Vec::new();
        for ((hit, _), (elapsed, fields)) in records.hits.iter().zip(&records.details) {
            if hit.flags & HIT_RETURN == 0 {
                assert_eq!((*elapsed, fields.len()), (None, 0));
                continue;
            }
            let elapsed = elapsed.expect("its entry was seen");
            assert_eq!(fields[0], 0b111, "{name}");
            assert_eq!(fields[2], fields[1] + 1, "{name}");
            assert_eq!(fields[3], elapsed);
            assert!(
                (1..=longest).contains(&elapsed),
                "{elapsed} of {longest} ns"
            );
            returned.push(fields[1]);
        }
        returned.sort_unstable();
        assert_eq!(returned, (0..200).collect::<Vec<u64>>(), "{name}");
    }
}

test! { full, a_return_knows_its_time_without_a_program_at_its_entry, module }
/// The entry is recorded, too, and keeps nothing but its time.
fn a_return_knows_its_time_without_a_program_at_its_entry() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let at_return = [
        step(Operation::Context, 0, 0, 0, 0, Context::Elapsed as u64),
        field(0),
    ];
    let (session, id) = probed(&victim, &function, abi::PROBE_CALL, [&[], &at_return]);
    let started = Instant::now();
    victim.call(200);
    let longest = started.elapsed().as_nanos() as u64;
    assert_eq!(session.counters(id).recorded, 400);
    let records = Records::of(&session);
    let hits = records.hits.iter().zip(&records.details);
    let returns = hits.filter(|((hit, _), _)| hit.flags & HIT_RETURN != 0);
    let times = returns.map(|(_, (elapsed, fields))| {
        let elapsed = elapsed.expect("its entry was seen");
        assert_eq!(fields[..], [1, elapsed]);
        assert!(elapsed > 0);
        elapsed
    });
    let times: Vec<u64> = times.collect();
    assert_eq!(times.len(), 200);
    // One after the other, they fit into the time of all calls.
    let sum: u64 = times.iter().sum();
    assert!(sum <= longest, "{sum} of {longest} ns");
}

test! { full, a_return_is_of_the_place_that_its_entry_is_of, module }
/// Also where the breakpoint is after the place that is reported.
fn a_return_is_of_the_place_that_its_entry_is_of() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_endbr64");
    let function = victim.function("begins_with_endbr64");
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    let own_address = [step(Operation::FromProbe, 0, 0, 0, 0, 0), field(0)];
    let program = session.upload(&own_address, b"").expect("a sound program");
    for ahead in [0, 4] {
        let probe = Probe {
            kind: abi::PROBE_CALL,
            entry_program: program,
            return_program: program,
            report_offset: function.offset,
            ..probe_at(function.offset + ahead, 0)
        };
        let id = session.attach(victim.file(), probe).expect("a probe");
        victim.call(3);
        session.detach(&[id]).expect("it is attached");
    }
    let records = Records::of(&session);
    let ends = records.hits.iter().map(|(hit, _)| hit.flags & HIT_RETURN);
    assert_eq!(ends.filter(|is_return| *is_return != 0).count(), 6);
    let place = vec![1, address_of(&victim, &function)];
    let all: BTreeSet<_> = records.details.iter().map(|(_, fields)| fields).collect();
    assert_eq!(all, BTreeSet::from([&place]), "{all:x?}");
    assert_eq!(records.details.len(), 12);
}

test! { full, a_return_alone_knows_no_entry, module }
fn a_return_alone_knows_no_entry() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let at_return = [register(0, Register::Rax), field(0)];
    let (session, id) = probed(&victim, &function, abi::PROBE_RETURN, [&[], &at_return]);
    victim.call(50);
    assert_eq!(session.counters(id).recorded, 50);
    let records = Records::of(&session);
    for ((hit, _), (elapsed, fields)) in records.hits.iter().zip(&records.details) {
        assert_ne!(hit.flags & HIT_RETURN, 0);
        assert_eq!((*elapsed, fields[0]), (None, 1));
    }
    let returned: u64 = records.details.iter().map(|(_, fields)| fields[1]).sum();
    assert_eq!(returned, (1..=50).sum::<u64>());
    drop(session);
    assert!(victim.text_is_restored(function.offset));
    victim.call(5);
}

test! { full, nested_calls_return_in_order, module }
/// Each return is that of the newest call that has not returned, and knows how long ago that
/// one's entry was.
fn nested_calls_return_in_order() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let outer = victim.function("work");
    let inner = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    let ids = [&outer, &inner].map(|function| {
        let probe = Probe {
            kind: abi::PROBE_CALL,
            ..probe_at(function.offset, abi::PROBE_AT_ENTRY)
        };
        session.attach(victim.file(), probe).expect("a probe")
    });
    victim.call(10);
    assert_eq!(session.counters(ids[0]).recorded, 2);
    assert_eq!(session.counters(ids[1]).recorded, 20);
    let records = Records::of(&session);
    let hits = records.hits.iter().zip(&records.details);
    let mut hits: Vec<_> = hits
        .map(|((hit, _), (elapsed, _))| (hit, *elapsed))
        .collect();
    hits.sort_by_key(|(hit, _)| hit.time_ns);
    let (mut under_way, mut deepest) = (Vec::new(), 0);
    for (hit, elapsed) in hits {
        if hit.flags & HIT_RETURN == 0 {
            under_way.push(hit);
            deepest = under_way.len().max(deepest);
            continue;
        }
        let entry = under_way.pop().expect("its entry came before");
        assert_eq!(hit.probe, entry.probe);
        assert_eq!(elapsed, Some(hit.time_ns - entry.time_ns), "{hit:?}");
    }
    assert_eq!((under_way.len(), deepest), (0, 2));
}

test! { full, a_call_that_others_took_the_place_of_has_no_values, module }
/// This number of calls under way is remembered with what their entries kept; one more takes
/// the place of the oldest.
fn a_call_that_others_took_the_place_of_has_no_values() {
    const PLACES: u64 = 1 << 13;
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let session = Session::with_rings(4 << 20);
    session.only(&[victim.pid()]).expect("it lives");
    let at_return = [step(Operation::Kept, 0, 0, 0, 1, 0), field(0)];
    let programs = [&KEEP_ARGUMENT, &at_return].map(|steps| session.upload(steps, b""));
    let [entry_program, return_program] = programs.map(|id| id.expect("a sound program"));
    // The first calls the second, again and again.
    let [outer, inner] = ["work", "begins_with_push"].map(|name| {
        let probe = Probe {
            kind: abi::PROBE_CALL,
            entry_program,
            return_program,
            ..probe_at(victim.function(name).offset, 0)
        };
        session.attach(victim.file(), probe).expect("a probe")
    });
    for (calls, is_there) in [(PLACES - 1, true), (PLACES, false)] {
        victim.call(calls);
        let records = Records::of(&session);
        let returned = |probe: u32| {
            let all = records.hits.iter().zip(&records.details);
            let of =
                all.filter(move |((hit, _), _)| hit.probe == probe && hit.flags & HIT_RETURN != 0);
            of.map(|(_, details)| details).collect::<Vec<_>>()
        };
        let [(elapsed, fields)] = returned(outer)[..] else {
            panic!("{calls} calls: {} returns", returned(outer).len());
        };
        println!("{calls} calls: {elapsed:?}, {fields:x?}");
        assert_eq!((elapsed.is_some(), fields[0] == 1), (is_there, is_there));
        let of_inner = returned(inner);
        let arguments = of_inner.iter().map(|(_, fields)| (fields[0], fields[1]));
        let mut arguments: Vec<(u64, u64)> = arguments.collect();
        arguments.sort_unstable();
        assert_eq!(arguments, (0..calls).map(|n| (1, n)).collect::<Vec<_>>());
    }
}

test! { full, flawed_programs_are_refused_by_step, module }
fn flawed_programs_are_refused_by_step() {
    let _module = Module::load();
    let session = Session::with_rings(RING_BYTES);
    let cases = [
        (vec![field(0)], Flaw::Unwritten, 0),
        (vec![constant(0, 1), Step::default()], Flaw::Unknown, 1),
        (
            vec![constant(0, 1), step(Operation::Load, 1, 0, 0, 0, 3)],
            Flaw::BadSize,
            1,
        ),
        (vec![constant(200, 1)], Flaw::NoSlot, 0),
    ];
    for (steps, flaw, index) in cases {
        let (error, reply) = session.upload(&steps, b"").expect_err("it is flawed");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert_eq!((reply.flaw, reply.flaw_step), (flaw as u32, index));
    }
    for count in [0, STEPS_MAX + 1] {
        let steps = vec![constant(0, 1); count];
        let (error, _) = session.upload(&steps, b"").expect_err("so many steps");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
    let mut wild = Program {
        size: size::<Program>(),
        steps: 8,
        step_count: 1,
        ..Program::default()
    };
    let refused = sys::ioctl(&session, abi::PROGRAM, &mut wild);
    assert_eq!(errno(refused, "a wild address"), libc::EFAULT);
}

test! { full, probes_with_wrong_programs_are_refused, module }
fn probes_with_wrong_programs_are_refused() {
    let _module = Module::load();
    let victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    let sound = session.upload(&[constant(0, 1)], b"").expect("sound");
    let writing = [
        constant(0, 1),
        step(Operation::SetRegister, 0, 0, 0, Register::Rax as i32, 0),
    ];
    let writing = session.upload(&writing, b"").expect("sound");
    let base = probe_at(function.offset, 0);
    let cases = [
        (
            Probe {
                entry_program: 99,
                ..base
            },
            libc::ENOENT,
            Refusal::NoSuchId,
        ),
        (
            Probe {
                entry_program: writing,
                ..base
            },
            libc::EPERM,
            Refusal::MayNotWrite,
        ),
        (
            Probe {
                return_program: sound,
                ..base
            },
            libc::EINVAL,
            Refusal::UnknownValue,
        ),
        (
            Probe { kind: 4, ..base },
            libc::EINVAL,
            Refusal::UnknownValue,
        ),
        (
            Probe {
                flags: abi::PROBE_RETURN_ONLY,
                ..base
            },
            libc::EINVAL,
            Refusal::UnknownValue,
        ),
    ];
    for (probe, code, reason) in cases {
        let (error, reply) = session
            .attach(victim.file(), probe)
            .expect_err("it is wrong");
        assert_eq!(
            (error.raw_os_error(), reply.reason),
            (Some(code), reason as u32)
        );
    }
    assert_eq!(session.info().probes, 0);
    assert!(victim.text_is_restored(function.offset));
}
