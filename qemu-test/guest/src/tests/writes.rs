// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a program may change what it is traced for when everybody allows it, as
//! often as was said, and each change is told with what was there before; where one
//! may not write, nothing changes.

use crate::binary::{self, Function};
use crate::command::{self, Running};
use crate::module::{self, Module};
use crate::oracle::{end_of_log, within};
use crate::records::Records;
use crate::session::{errno, probe_at, Session, RING_BYTES};
use crate::steps::{constant, register, step};
use crate::victim::Victim;
use crate::witness::Witness;
use nix::libc;
use nsprobe_common::abi::{self, Probe, Refusal};
use nsprobe_common::program::{Flaw, Operation, Register, Step};
use nsprobe_common::record::{Frame, WriteRecord, WRITE_MEMORY, WRITE_REGISTER, WRITE_RETURN};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::time::Duration;

fn set(to: Register, slot: u8) -> Step {
    step(Operation::SetRegister, 0, slot, 0, to as i32, 0)
}

/// Writes the low `bytes` of slot `value` where slot `address` says.
fn store(address: u8, value: u8, bytes: u64) -> Step {
    step(Operation::Store, 0, address, value, 0, bytes)
}

fn changeable() -> Victim {
    Victim::start("changeable", &[])
}

fn may_modify() -> Session {
    let mut session = Session::open();
    session
        .setup(RING_BYTES, abi::SETUP_MODIFY)
        .expect("the module allows it");
    session
}

/// Attaches a probe with a program at its entry; its id.
fn attach(session: &Session, victim: &Victim, function: &str, steps: &[Step], probe: Probe) -> u32 {
    let program = session.upload(steps, b"").expect("a sound program");
    let place = victim.function(function).offset;
    let probe = Probe {
        offset: place,
        entry_program: if probe.kind == abi::PROBE_RETURN {
            0
        } else {
            program
        },
        return_program: if probe.kind == abi::PROBE_RETURN {
            program
        } else {
            0
        },
        ..probe
    };
    session
        .attach(victim.file(), probe)
        .unwrap_or_else(|(error, reply)| panic!("{error} {reply:?}"))
}

/// A probe at an entry whose program may write ten times.
fn entry() -> Probe {
    Probe {
        max_writes: 10,
        ..probe_at(0, abi::PROBE_AT_ENTRY)
    }
}

fn writes(session: &Session) -> Vec<WriteRecord> {
    // Each CPU has its own ring.
    let mut writes = Records::of(session).writes;
    writes.sort_by_key(|write| write.time_ns);
    writes
}

/// What a probe's writes came to: made, failed, withheld.
fn outcome(session: &Session, id: u32) -> (u64, u64, u64) {
    let counters = session.counters(id);
    (
        counters.written,
        counters.write_failed,
        counters.write_withheld,
    )
}

test! { full, an_argument_is_changed }
fn an_argument_is_changed() {
    let _module = Module::load_with("allow_modify=1");
    let mut victim = changeable();
    let session = may_modify();
    assert_ne!(session.info().features & abi::FEATURE_MODIFY, 0);
    let steps = [constant(0, 41), set(Register::Rdi, 0)];
    let id = attach(&session, &victim, "increment", &steps, entry());
    assert_eq!(victim.order("a 7"), 42);
    assert_eq!(victim.order("s 7"), 1007, "another function is as it was");
    session.detach(&[id]).expect("it is attached");
    assert_eq!(victim.order("a 7"), 8);
    assert_eq!(outcome(&session, id), (1, 0, 0));
    let told = writes(&session);
    assert_eq!(told.len(), 1);
    let write = told[0];
    assert_eq!((write.what, write.done), (WRITE_REGISTER, 1));
    assert_eq!(write.place, Register::Rdi as u64);
    assert_eq!((write.before, write.after), (7, 41));
    assert_eq!((write.probe, write.pid), (id, victim.pid()));
}

test! { full, a_return_value_is_changed }
fn a_return_value_is_changed() {
    let _module = Module::load_with("allow_modify=1");
    let mut victim = changeable();
    let session = may_modify();
    let steps = [constant(0, 99), set(Register::Rax, 0)];
    let probe = Probe {
        kind: abi::PROBE_RETURN,
        ..entry()
    };
    let id = attach(&session, &victim, "increment", &steps, probe);
    assert_eq!(victim.order("a 7"), 99);
    assert_eq!(outcome(&session, id), (1, 0, 0));
    assert_eq!(writes(&session)[0].before, 8);
    drop(session);
    assert_eq!(victim.order("a 7"), 8);
}

/// The offset in its file that a frame names.
fn offset(frame: &Frame) -> Option<u64> {
    match frame {
        Frame::Object { offset, .. } => Some(*offset),
        Frame::Address { .. } => None,
    }
}

/// How far past a function's entry its `ret` is.
fn distance_to_ret(victim: &Victim, function: &Function) -> u64 {
    let last = function.bytes - 1;
    let bytes = crate::victim::from_file(victim.file(), function.offset + last);
    assert_eq!(bytes[0], 0xc3, "{} ends otherwise", function.name);
    last
}

fn returns(victim: &Victim, function: &str) -> [Step; 2] {
    let function = victim.function(function);
    let ret = distance_to_ret(victim, &function);
    [constant(0, 5), step(Operation::Return, 0, 0, 0, 0, ret)]
}

test! { core, a_function_is_left_out }
fn a_function_is_left_out() {
    let _module = Module::load_with("allow_modify=1");
    let mut victim = changeable();
    let session = may_modify();
    assert_eq!(victim.order("s 7"), 1007);
    let steps = returns(&victim, "skippable");
    let with_stack = Probe {
        flags: abi::PROBE_AT_ENTRY | abi::PROBE_STACK,
        ..entry()
    };
    let id = attach(&session, &victim, "skippable", &steps, with_stack);
    assert_eq!(victim.order("s 7"), 1005, "its body has run");
    assert_eq!(victim.order("s 7"), 1005, "its body has run");
    session.detach(&[id]).expect("it is attached");
    assert_eq!(victim.order("s 7"), 2007);
    assert_eq!(outcome(&session, id), (2, 0, 0));
    let records = Records::of(&session);
    let told = &records.writes;
    assert!(told.iter().all(|write| write.what == WRITE_RETURN));
    assert_eq!((told.len(), told[0].after), (2, 5));
    // The stack is that of the hit, not of where the task goes on.
    let entry = victim.function("skippable").offset;
    let main = victim.function("main");
    for (_, frames) in records.hits_of(id) {
        let offsets: Vec<u64> = frames.iter().filter_map(offset).collect();
        assert_eq!(offsets[0], entry);
        assert!(main.holds(offsets[1]), "{frames:?}");
    }
}

test! { full, a_function_is_left_out_while_others_wait_for_its_return }
fn a_function_is_left_out_while_others_wait_for_its_return() {
    let _module = Module::load_with("allow_modify=1");
    let mut victim = changeable();
    let place = victim.function("skippable").offset;
    let witness = Witness::new(victim.file(), place);
    let session = may_modify();
    let steps = returns(&victim, "skippable");
    let other = Session::with_rings(RING_BYTES);
    let call = Probe {
        kind: abi::PROBE_CALL,
        ..probe_at(place, 0)
    };
    let call = other.attach(victim.file(), call).expect("a good probe");
    let id = attach(&session, &victim, "skippable", &steps, entry());
    for _ in 0..5 {
        assert_eq!(victim.order("s 7"), 5);
    }
    assert_eq!(outcome(&session, id), (5, 0, 0));
    assert_eq!(witness.hits(), 5);
    let counters = other.counters(call);
    assert_eq!((counters.hits, counters.recorded), (10, 10));
}

test! { full, a_global_is_changed }
fn a_global_is_changed() {
    let _module = Module::load_with("allow_modify=1");
    let mut victim = changeable();
    let session = may_modify();
    let distance = binary::distance(victim.file(), "look", "knob");
    let steps = [
        step(Operation::FromProbe, 1, 0, 0, 0, distance),
        constant(0, 0x1122_3344_5566_7788),
        store(1, 0, 2),
    ];
    let id = attach(&session, &victim, "look", &steps, entry());
    assert_eq!(victim.order("g 1"), 0x7788);
    assert_eq!(victim.order("g 65536"), 0x17788);
    assert_eq!(outcome(&session, id), (2, 0, 0));
    let told = writes(&session);
    assert_eq!((told[0].what, told[0].bytes), (WRITE_MEMORY, 2));
    assert_eq!((told[0].before, told[0].after), (1, 0x7788));
    assert_eq!((told[1].before, told[1].after), (0, 0x7788));
    session.detach(&[id]).expect("it is attached");
    assert_eq!(victim.order("g 3"), 3);
}

test! { full, what_cannot_be_written_is_not }
fn what_cannot_be_written_is_not() {
    let _module = Module::load_with("allow_modify=1");
    let mut victim = changeable();
    let session = may_modify();
    let text = [
        step(Operation::FromProbe, 1, 0, 0, 0, 0),
        constant(0, 0xcc),
        store(1, 0, 1),
    ];
    let elsewhere = |address: u64| [constant(1, address), constant(0, 7), store(1, 0, 8)];
    let no_ret = [constant(0, 5), step(Operation::Return, 0, 0, 0, 0, 1)];
    let nowhere = [
        constant(0, 5),
        step(Operation::Return, 0, 0, 0, 0, u64::MAX / 2),
    ];
    // Of a page that is there and the next one: the stack pointer's and the one after, which
    // may not be there, or the one in front, which is.
    let across = |from: i64| {
        [
            register(1, Register::Rsp),
            constant(2, !4095),
            step(Operation::And, 1, 1, 2, 0, 0),
            constant(2, from as u64),
            step(Operation::Add, 1, 1, 2, 0, 0),
            constant(0, 7),
            store(1, 0, 8),
        ]
    };
    for steps in [
        &text[..],
        &elsewhere(0),
        &elsewhere(8),
        &elsewhere(0xffff_ffff_8100_0000),
        &elsewhere(0xffff_8880_0000_0000),
        &elsewhere(0x8000_0000_0000),
        &elsewhere(0x7fff_ffff_fffc),
        &elsewhere(u64::MAX),
        &no_ret,
        &nowhere,
        &across(4095),
        &across(-1),
    ] {
        let id = attach(&session, &victim, "skippable", steps, entry());
        let before = victim.order("a 1");
        assert_eq!(before, 2);
        let called = victim.order("s 7");
        assert_eq!(called % 1000, 7, "{steps:?}");
        assert_eq!(outcome(&session, id), (0, 1, 0), "{steps:?}");
        session.detach(&[id]).expect("it is attached");
        let told = writes(&session);
        assert_eq!((told.len(), told[0].done), (1, 0), "{steps:?}");
        assert!(victim.text_is_restored(victim.function("skippable").offset));
    }
    for register in [Register::Rsp, Register::Rip] {
        let (_, reply) = session
            .upload(&[constant(0, 1), set(register, 0)], b"")
            .expect_err("not to be set");
        assert_eq!((reply.flaw, reply.flaw_step), (Flaw::NotWritable as u32, 1));
    }
    // Of the flags, only what arithmetic sets.
    let flags = [
        register(1, Register::Flags),
        constant(0, u64::MAX),
        set(Register::Flags, 0),
    ];
    let id = attach(&session, &victim, "increment", &flags, entry());
    assert_eq!(victim.order("a 7"), 8);
    assert_eq!(outcome(&session, id), (1, 0, 0));
}

test! { core, no_more_is_written_than_was_said_and_recorded }
/// Changes whose records had no room in the ring were made all the same.
fn no_more_is_written_than_was_said_and_recorded() {
    let _module = Module::load_with("allow_modify=1");
    let mut victim = changeable();
    let session = may_modify();
    let steps = [constant(0, 41), set(Register::Rdi, 0)];
    let three = Probe {
        max_writes: 3,
        ..entry()
    };
    let id = attach(&session, &victim, "increment", &steps, three);
    let got: Vec<u64> = (0..5).map(|_| victim.order("a 7")).collect();
    assert_eq!(got, [42, 42, 42, 8, 8]);
    assert_eq!(outcome(&session, id), (3, 0, 2));
    assert_eq!(session.counters(id).recorded, 5);
    assert_eq!(writes(&session).len(), 3);
    session.detach(&[id]).expect("it is attached");

    // The reader is stopped, and the ring small.
    let mut session = Session::open();
    let both = session.setup(4096, abi::SETUP_MODIFY | abi::SETUP_OVERWRITE);
    assert_eq!(errno(both, "changes overwritten"), libc::EINVAL);
    session.setup(4096, abi::SETUP_MODIFY).expect("rings");
    let many = Probe {
        max_writes: 1000,
        ..entry()
    };
    let id = attach(&session, &victim, "increment", &steps, many);
    let changed = |victim: &mut Victim| {
        let got = (0..60).map(|_| victim.order("a 7"));
        got.filter(|got| *got == 42).count() as u64
    };
    let made = changed(&mut victim);
    let counters = session.counters(id);
    println!("{counters:?}");
    assert!((1..60).contains(&made), "{made}");
    assert_eq!(outcome(&session, id), (made, 0, 60 - made));
    assert_eq!(counters.recorded + counters.lost_full, 60);
    let recorded = writes(&session);
    assert_eq!(recorded.len() as u64, made);
    assert!(recorded.iter().all(|write| write.done == 1));
    // With room they go on, after a record of the gap.
    assert!(changed(&mut victim) > made / 2);
}

test! { core, nobody_writes_without_everybodys_leave }
fn nobody_writes_without_everybodys_leave() {
    let victim;
    let parameter = "/sys/module/nsprobe/parameters/allow_modify";
    {
        let _module = Module::load();
        victim = changeable();
        assert_eq!(fs::read_to_string(parameter).expect("sysfs").trim(), "N");
        let on = fs::OpenOptions::new().write(true).open(parameter);
        // Root may open what is read-only; sysfs takes nothing.
        assert!(on.is_err() || fs::write(parameter, "1").is_err());
        let mut session = Session::open();
        let refused = session.setup(RING_BYTES, abi::SETUP_MODIFY);
        assert_eq!(errno(refused, "no parameter"), libc::EACCES);
    }
    let _module = Module::load_with("allow_modify=1");
    assert_eq!(fs::read_to_string(parameter).expect("sysfs").trim(), "Y");
    let place = victim.function("skippable").offset;
    let refused = |session: &Session, probe: Probe, steps: &[Step], wanted, reason| {
        let program = session.upload(steps, b"").expect("a sound program");
        let probe = match probe.kind {
            abi::PROBE_RETURN => Probe {
                return_program: program,
                ..probe
            },
            _ => Probe {
                entry_program: program,
                ..probe
            },
        };
        let (error, reply) = session
            .attach(victim.file(), probe)
            .expect_err("not allowed");
        assert_eq!(error.raw_os_error(), Some(wanted), "{probe:?}");
        assert_eq!(Refusal::from_u32(reply.reason), Some(reason), "{probe:?}");
    };
    let good = Probe {
        offset: place,
        ..entry()
    };
    let change = [constant(0, 41), set(Register::Rdi, 0)];
    let leave = returns(&victim, "skippable");
    let reads_only = Session::with_rings(RING_BYTES);
    refused(
        &reads_only,
        good,
        &change,
        libc::EPERM,
        Refusal::MayNotWrite,
    );
    let session = may_modify();
    let unlimited = Probe {
        max_writes: 0,
        ..good
    };
    refused(
        &session,
        unlimited,
        &change,
        libc::EINVAL,
        Refusal::NoWriteLimit,
    );
    let inside = Probe { flags: 0, ..good };
    refused(&session, inside, &leave, libc::EINVAL, Refusal::NotAtEntry);
    let at_return = Probe {
        kind: abi::PROBE_RETURN,
        ..good
    };
    refused(
        &session,
        at_return,
        &leave,
        libc::EINVAL,
        Refusal::NotAtEntry,
    );
    let harmless = [constant(0, 41)];
    refused(
        &session,
        good,
        &harmless,
        libc::EINVAL,
        Refusal::UnknownValue,
    );
    // They are of a task at any place of its.
    let program = session.upload(&change, b"").expect("a sound program");
    for kind in [abi::PROBE_SAMPLE, abi::PROBE_WAIT, abi::PROBE_WAKE] {
        let placeless = Probe {
            fd: -1,
            kind,
            flags: 0,
            offset: 99,
            entry_program: program,
            ..good
        };
        let (_, reply) = session
            .attach_all(&mut [placeless])
            .expect_err("not allowed");
        assert_eq!(reply.reason, Refusal::Mismatch as u32, "{placeless:?}");
    }
    assert_eq!(session.info().probes, 0);
    assert!(module::is_loaded());
}

test! { full, the_log_tells_of_probes_that_may_write }
/// Of those, and of no others.
fn the_log_tells_of_probes_that_may_write() {
    let _module = Module::load_with("allow_modify=1");
    let victim = changeable();
    let session = may_modify();
    let mut log = end_of_log();
    let file = File::open(victim.file()).expect("it is there");
    let mut harmless = [probe_at(victim.function("increment").offset, 0)];
    harmless[0].fd = file.as_raw_fd();
    session.attach_all(&mut harmless).expect("a probe");
    let steps = [constant(0, 41), set(Register::Rdi, 0)];
    attach(&session, &victim, "increment", &steps, entry());
    let mut lines = Vec::new();
    let mut record = [0; 8192];
    // One record at a time, until there is none.
    while let Ok(length) = log.read(&mut record) {
        let text = String::from_utf8_lossy(&record[..length]).into_owned();
        lines.extend(text.lines().next().map(str::to_owned));
    }
    lines.retain(|line| line.contains("may write"));
    let pid = std::process::id();
    let wanted = format!(";nsprobe: process {pid} attaches probes that may write: 1");
    println!("{lines:?}");
    assert!(lines.len() == 1 && lines[0].ends_with(&wanted), "{lines:?}");
}

/// `nsprobe set` on a running victim, from when it is attached.
fn set_while<T>(pid: u32, words: &[&str], act: impl FnOnce() -> T) -> (T, String) {
    let pid = pid.to_string();
    let words = [&["set", "-p", &pid], words].concat();
    let running = Running::start(&words);
    let attached = within(Duration::from_secs(20), || {
        Session::open().info().probes != 0
    });
    assert!(attached, "{words:?}");
    let result = act();
    let (code, errors) = running.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    (result, errors)
}

test! { core, the_program_changes_what_it_is_told_and_no_more }
fn the_program_changes_what_it_is_told_and_no_more() {
    let module = Module::load_with("allow_modify=1");
    let mut victim = changeable();
    let pid = victim.pid();
    let file = victim.file().display().to_string();
    let at = |function: &str| format!("{file}:{function}");
    let (increment, skippable, look) = (at("increment"), at("skippable"), at("look"));

    // An argument, once: what --max-writes says without being asked.
    let condition = format!("{increment} if arg1 > 5");
    let orders = ["a 5", "a 7", "a 7"];
    let (got, told) = set_while(pid, &[&condition, "arg1 = arg1 * 6 - 1"], || {
        orders.map(|order| victim.order(order))
    });
    assert_eq!(got, [6, 42, 8]);
    assert!(
        told.contains("1 change made, 0 failed, 1 withheld"),
        "{told}"
    );
    // What is returned, by its value before.
    let (got, _) = set_while(
        pid,
        &[&increment, "$retval = $retval + 100", "--max-writes", "9"],
        || ["a 1", "a 2"].map(|order| victim.order(order)),
    );
    assert_eq!(got, [102, 103]);
    // A call is left out.
    let runs = victim.order("s 7") / 1000;
    let (got, _) = set_while(pid, &[&skippable, "return 5"], || victim.order("s 7"));
    assert_eq!(got, runs * 1000 + 5, "its body has run");
    // A global, by its name.
    let (got, _) = set_while(pid, &[&look, "knob = knob + 70"], || victim.order("k 7"));
    assert_eq!(got, 77);
    assert_eq!(victim.order("a 1"), 2);

    for (words, part) in [
        (&[increment.as_str(), "arg1"][..], "here = should stand"),
        (&[&increment, "arg1 == 1"], "here = should stand"),
        (&[&increment, "nothing = 1"], "nothing"),
        (&[&increment, "5 = 1"], "cannot be set"),
        (&[&increment, "$retval = 1", "arg1 = 1"], "cannot be set"),
        (
            &[&increment, "$retval = 1", "return 1"],
            "ended at its entry",
        ),
        (&[&increment, "n = 1", "--max-writes", "0"], "0"),
    ] {
        let got = command::run(&[&["set"], words, &["--", "/bin/true"]].concat());
        assert_eq!((got.code, &*got.stdout), (2, ""), "{words:?}: {got:#?}");
        assert!(got.stderr.contains(part), "{words:?}: {got:#?}");
    }
    drop(module);
    let _module = Module::load();
    command::run(&["set", &increment, "arg1 = 1", "--", "/bin/true"]).refused(&["allow_modify=1"]);
}
