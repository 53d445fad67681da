// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: the stack of a hit is the one that a debugger would show; what is
//! not known is said, never guessed.

use super::capsule::Folder;
use crate::binary::{self, Function};
use crate::module::Module;
use crate::records::Records;
use crate::session::{probe_at, Session, RING_BYTES};
use crate::steps::{field, register};
use crate::sys;
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nsprobe_common::abi::{self, Probe};
use nsprobe_common::program::Register;
use nsprobe_common::record::{Frame, Method, ObjectRecord, StackEnd};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

/// The frame of an instruction that was hit.
pub(super) fn place(id: u32, offset: u64) -> Frame {
    let method = Method::Registers as u8;
    Frame::Object { id, offset, method }
}

pub(super) const WITH_CALLER: u32 = abi::PROBE_STACK | abi::PROBE_AT_ENTRY;

/// Asks for an inode's generation (`include/uapi/linux/fs.h`): `_IOR('v', 1, long)`.
const FS_IOC_GETVERSION: u32 = 0x8008_7601;

const BEGINNINGS: [&str; 7] = [
    "begins_with_push",
    "begins_with_endbr64",
    "begins_with_sub",
    "begins_with_mov",
    "begins_with_lea",
    "begins_with_nop",
    "begins_with_nop10",
];

/// Names of the functions that frames lie in, "?" where a victim has none.
fn names(frames: &[Frame], functions: &[Function], inode: u64, records: &Records) -> Vec<String> {
    let name = |frame: &Frame| {
        let Frame::Object { id, offset, method } = *frame else {
            return String::from("?");
        };
        let object = records.objects.get(&id);
        if object.is_none_or(|object| object.identity.ino != inode) {
            return String::from("elsewhere");
        }
        // A return address is after its call, which may end a function.
        let inside = offset - u64::from(method != Method::Registers as u8);
        let function = functions.iter().find(|function| function.holds(inside));
        function.map_or(String::from("?"), |function| function.name.clone())
    };
    frames.iter().map(name).collect()
}

/// The named stack of one hit of a victim's function.
fn stack_of(victim: &mut Victim, function: &str, flags: u32) -> (Vec<String>, u8) {
    let place = victim.function(function);
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    session.probe(victim.file(), &place, flags);
    victim.call(1);
    let records = Records::of(&session);
    assert_eq!(records.hits.len(), 1);
    let (hit, frames) = &records.hits[0];
    let inode = fs::metadata(victim.file()).expect("it is there").ino();
    let functions = binary::functions(victim.file());
    (names(frames, &functions, inode, &records), hit.stack_end)
}

test! { full, the_caller_is_there_however_a_function_begins, module }
fn the_caller_is_there_however_a_function_begins() {
    let _module = Module::load();
    for function in BEGINNINGS {
        let mut victim = Victim::caller(function);
        let (stack, end) = stack_of(&mut victim, function, WITH_CALLER);
        println!("{stack:?}, end {:?}", StackEnd::from_u8(end));
        let wanted = [function, &format!("call_{function}"), "work", "main"];
        assert_eq!(stack[..4.min(stack.len())], wanted);
    }
    // And that it takes the flag to know: without it the caller is missing.
    let mut victim = Victim::caller("begins_with_lea");
    let (stack, _) = stack_of(&mut victim, "begins_with_lea", abi::PROBE_STACK);
    assert_eq!(stack[..2], ["begins_with_lea", "work"]);
}

/// Function names of gdb's backtrace at the entry of a function.
fn gdb_backtrace(file: &std::path::Path, arguments: &[&str], function: &str) -> Vec<String> {
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-iex", "set debuginfod enabled off"])
        .args([
            "-ex",
            &format!("break *{function}"),
            "-ex",
            "run",
            "-ex",
            "bt",
        ])
        .arg("--args")
        .arg(file)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("gdb: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let frames = text.lines().filter(|line| line.starts_with('#'));
    let name = |line: &str| {
        let behind = line.split_once(" in ").map_or_else(
            || line.split_whitespace().nth(1).unwrap_or("?").to_string(),
            |(_, name)| name.to_string(),
        );
        behind.split([' ', '(']).next().unwrap_or("?").to_string()
    };
    let names: Vec<String> = frames.map(name).collect();
    assert!(!names.is_empty(), "gdb says: {text}");
    names
}

test! { full, a_debugger_sees_the_same_callers, module }
fn a_debugger_sees_the_same_callers() {
    let _module = Module::load();
    for function in ["begins_with_sub", "begins_with_endbr64"] {
        let file = victim::path("call_in_loop");
        let gdb = gdb_backtrace(&file, &[function, "1", "0"], function);
        let mut victim = Victim::caller(function);
        let (stack, _) = stack_of(&mut victim, function, WITH_CALLER);
        println!("gdb {gdb:?}, nsprobe {stack:?}");
        assert_eq!(gdb[..4], stack[..4]);
    }
}

test! { full, a_chain_of_sixteen_is_whole, module }
fn a_chain_of_sixteen_is_whole() {
    let _module = Module::load();
    let mut victim = Victim::start("chain", &[]);
    let (stack, end) = stack_of(&mut victim, "bottom", WITH_CALLER);
    let mut wanted = vec![String::from("bottom")];
    wanted.extend((1..=15).rev().map(|level| format!("level_{level:02}")));
    wanted.push(String::from("main"));
    println!("{stack:?}, end {:?}", StackEnd::from_u8(end));
    assert_eq!(stack[..17], wanted);
}

test! { core, pending_returns_hide_no_caller, module }
/// Tracers that wait for returns put an address of their own on the stack; whoever
/// looks at it meanwhile must see the real one.
fn pending_returns_hide_no_caller() {
    let _module = Module::load();
    let mut victim = Victim::start("chain", &[]);
    let (plain, _) = stack_of(&mut victim, "bottom", WITH_CALLER);
    let file = victim.file().to_path_buf();
    let offset = |name: &str| binary::function(&file, name).offset;
    // Ours on two callers and on the function itself, the kernel's on others, both on one.
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    for name in ["bottom", "level_15", "level_07"] {
        let probe = Probe {
            kind: abi::PROBE_CALL,
            sink: abi::SINK_COUNT,
            ..probe_at(offset(name), 0)
        };
        session.attach(victim.file(), probe).expect("a probe");
    }
    let witnesses = ["level_14", "level_07", "level_01"]
        .map(|name| Witness::of_return(victim.file(), offset(name)));
    let (stack, end) = stack_of(&mut victim, "bottom", WITH_CALLER);
    println!("{stack:?}, end {:?}", StackEnd::from_u8(end));
    assert_eq!(stack[..17], plain[..17]);
    // And at a return, where the own return address is gone from the stack.
    let at_return = Probe {
        kind: abi::PROBE_RETURN,
        ..probe_at(offset("level_12"), abi::PROBE_STACK)
    };
    session.attach(victim.file(), at_return).expect("a probe");
    victim.call(1);
    let records = Records::of(&session);
    let inode = fs::metadata(victim.file()).expect("it is there").ino();
    let functions = binary::functions(victim.file());
    let (_, frames) = records.hits.last().expect("the return");
    let returned = names(frames, &functions, inode, &records);
    println!("{returned:?}");
    let callers: Vec<&str> = plain[5..17].iter().map(String::as_str).collect();
    assert_eq!(returned[..12], callers);
    assert!(witnesses.iter().all(|witness| witness.hits() == 2));
}

test! { full, the_frame_limit_is_kept_and_told, module }
fn the_frame_limit_is_kept_and_told() {
    let _module = Module::load();
    let mut victim = Victim::start("chain", &[]);
    let function = victim.function("bottom");
    let session = Session::with_rings(RING_BYTES);
    for max_frames in [1, 2, 5, 16] {
        let probe = Probe {
            max_frames,
            ..probe_at(function.offset, WITH_CALLER)
        };
        session.attach(victim.file(), probe).expect("a probe");
    }
    // All but the first by what is kept of the rules.
    const CALLS: usize = 20;
    victim.call(CALLS as u64);
    let records = Records::of(&session);
    let mut lengths: Vec<usize> = records
        .hits
        .iter()
        .map(|(_, frames)| frames.len())
        .collect();
    lengths.sort_unstable();
    assert_eq!(
        lengths,
        [1, 2, 5, 16].map(|length| [length; CALLS]).concat()
    );
    for (hit, _) in &records.hits {
        assert_eq!(StackEnd::from_u8(hit.stack_end), Some(StackEnd::Limit));
    }
}

test! { full, the_reported_offset_is_the_first_frame, module }
fn the_reported_offset_is_the_first_frame() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    // After push: the return address is one word up, which the probe does
    // not claim to know.
    let probe = Probe {
        report_offset: function.offset,
        ..probe_at(function.offset + 1, abi::PROBE_STACK)
    };
    session.attach(victim.file(), probe).expect("a probe");
    victim.call(1);
    let records = Records::of(&session);
    let (_, frames) = &records.hits[0];
    let Frame::Object { offset, .. } = frames[0] else {
        panic!("{frames:?}")
    };
    assert_eq!(offset, function.offset);
}

/// The build-id that the kernel found in it; empty when none.
pub(super) fn build_id_of(object: &ObjectRecord) -> &[u8] {
    &object.identity.build_id[..object.identity.build_id_len as usize]
}

test! { full, objects_are_the_mapped_files, module }
fn objects_are_the_mapped_files() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    session.probe(victim.file(), &function, WITH_CALLER);
    victim.call(1);
    let records = Records::of(&session);
    let (_, frames) = &records.hits[0];
    let Frame::Object { id, .. } = frames[0] else {
        panic!("{frames:?}")
    };
    let announced = records.objects.get(&id).expect("announced before its use");
    let asked = session.object(id, 0).expect("known");
    assert_eq!(announced.identity, asked.identity);
    assert_eq!(asked.fd, -1);
    let file = fs::metadata(victim.file()).expect("it is there");
    let identity = asked.identity;
    println!("{identity:?}");
    assert_eq!(
        (identity.ino, identity.file_bytes),
        (file.ino(), file.len())
    );
    assert_eq!(identity.dev, file.dev());
    assert_eq!(identity.pid, victim.pid());
    let mut generation = 0u64;
    let opened = fs::File::open(victim.file()).expect("it is there");
    sys::ioctl(&opened, FS_IOC_GETVERSION, &mut generation).expect("the file system has them");
    assert_ne!(generation, 0, "the victim's file is none to tell by");
    assert_eq!(u64::from(identity.generation), generation);
    let ctime = file.ctime() as u64 * 1_000_000_000 + file.ctime_nsec() as u64;
    assert_eq!(identity.ctime_ns, ctime);
    let bytes = fs::read(victim.file()).expect("it is there");
    let elf = object::File::parse(&*bytes).expect("an ELF file");
    let id = object::Object::build_id(&elf)
        .expect("readable")
        .expect("gcc makes one");
    assert_eq!(build_id_of(announced), id);
}

test! { full, an_object_gives_its_file_once, module }
fn an_object_gives_its_file_once() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    session.probe(victim.file(), &function, WITH_CALLER);
    victim.call(1);
    let records = Records::of(&session);
    let inode = fs::metadata(victim.file()).expect("it is there").ino();
    let object = records.objects.values().find(|o| o.identity.ino == inode);
    let id = object.expect("the victim's file is an object").id;
    let given = session
        .object(id, abi::OBJECT_FD)
        .expect("held since it was seen");
    let file = fs::File::from(sys::adopt(given.fd));
    assert_eq!(file.metadata().expect("open").ino(), inode);
    let again = session.object(id, abi::OBJECT_FD);
    let got = crate::session::errno(again, "a second file");
    assert_eq!(got, nix::libc::ESTALE);
    session.object(id, 0).expect("its identity is kept");
}

test! { full, wild_frame_pointers_end_the_stack, module }
fn wild_frame_pointers_end_the_stack() {
    let _module = Module::load();
    let mut victim = Victim::start("wild_frame_pointer", &[]);
    let function = victim.function("with_wild_frame_pointer");
    let session = Session::with_rings(RING_BYTES);
    let id = session.probe(victim.file(), &function, WITH_CALLER);
    let wild = victim.call(1);
    let counters = session.counters(id);
    println!("{counters:?}");
    assert_eq!(counters.recorded, wild);
    assert!(counters.stacks_cut > 0 && counters.stacks_cut <= wild);
    let records = Records::of(&session);
    for (hit, frames) in &records.hits {
        let end = StackEnd::from_u8(hit.stack_end);
        println!("{} frames, end {end:?}", frames.len());
        assert!(end.is_some() && frames.len() <= abi::FRAMES_MAX as usize);
        for frame in frames {
            if let Frame::Address { address, .. } = frame {
                assert!(*address < 1 << 47, "{address:#x} is not of user space");
            }
        }
    }
}

/// What the kernel fills memory with that is nobody's (`include/linux/poison.h`), where it is
/// told to: slabs not yet used and freed, red zones of both kinds, pages.
const POISONS: [u8; 5] = [0x5a, 0x6b, 0xbb, 0xcc, 0xaa];

/// Whether a number is an address of the kernel's.
fn is_of_kernel(number: u64) -> bool {
    (0xffff_8000_0000_0000..u64::MAX).contains(&number)
}

test! { core, no_record_has_a_kernel_address, module }
/// Neither mapped nor by `read()`: nothing of the kernel's memory gets to the reader.
fn no_record_has_a_kernel_address() {
    const CALLS: u64 = 2_000;
    const ROUNDS: u64 = 50;
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_mov");
    let function = victim.function("begins_with_mov");
    let session = Session::with_rings(1 << 22);
    session.only(&[victim.pid()]).expect("it lives");
    // With room that a record need not fill.
    let fields = [register(0, Register::Rdi), field(0)];
    let probe = Probe {
        entry_program: session.upload(&fields, b"").expect("a sound program"),
        ..probe_at(function.offset, WITH_CALLER)
    };
    let id = session.attach(victim.file(), probe).expect("a probe");
    session.probe(victim.file(), &function, abi::PROBE_STACK_IDS | WITH_CALLER);
    let check = |word: u64| {
        assert!(!is_of_kernel(word), "{word:#x} in a record");
        // Of the lower half alone a time may look so.
        let upper = (word >> 32) as u32;
        for poison in POISONS {
            let is_poison = upper == u32::from_ne_bytes([poison; 4]);
            assert!(!is_poison, "{word:#x}: unused memory in a record");
        }
    };
    let mut words = 0;
    for _ in 0..ROUNDS {
        victim.call(CALLS);
        for ring in session.rings() {
            for word in ring.read(true) {
                check(word);
                words += 1;
            }
        }
    }
    let counters = session.counters(id);
    println!("{words} words, {counters:?}");
    assert_eq!(counters.recorded, ROUNDS * CALLS, "{counters:?}");
    assert!(words > 10 * counters.recorded);
    drop(session);
    let session = Session::with_rings(RING_BYTES);
    session.probe(victim.file(), &function, WITH_CALLER);
    victim.call(500);
    let (mut records, mut piece) = (Records::default(), vec![0; 1 << 16]);
    while records.hits.len() < 500 {
        let length = (&session.file).read(&mut piece).expect("records");
        let words = super::readers::words(&piece[..length]);
        words.iter().copied().for_each(check);
        records.add(&words);
    }
}

test! { full, what_is_mapped_anew_is_named_anew, module }
/// Two files take turns at one address: the mappings that the kernel side remembers
/// must not outlive them.
fn what_is_mapped_anew_is_named_anew() {
    let _module = Module::load();
    let files =
        ["even", "odd"].map(|name| format!("/var/tmp/remaps-{}-{name}", std::process::id()));
    let mut victim = Victim::start("remaps", &[&files[0], &files[1]]);
    let inodes = files.map(|file| fs::metadata(file).expect("it is there").ino());
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    session.probe(
        victim.file(),
        &victim.function("in_the_middle"),
        WITH_CALLER,
    );
    const CALLS: usize = 2000;
    victim.call(CALLS as u64);
    let records = Records::of(&session);
    assert_eq!(records.hits.len(), CALLS);
    let mut hits: Vec<_> = records.hits.iter().collect();
    hits.sort_by_key(|(hit, _)| hit.time_ns);
    for (index, (_, frames)) in hits.into_iter().enumerate() {
        let Some(Frame::Object { id, offset, .. }) = frames.get(1) else {
            panic!("call {index}: {frames:?}");
        };
        let inode = records.objects[id].identity.ino;
        assert_eq!((inode, *offset), (inodes[index % 2], 6), "call {index}");
    }
}

test! { full, each_process_has_frames_of_its_own_file, module }
/// Programs that differ in nothing but their files: at the same addresses, after as many
/// changes to their mappings, on one CPU.
fn each_process_has_frames_of_its_own_file() {
    const ROUNDS: usize = 20;
    let _module = Module::load();
    sys::run_on(1);
    let original = victim::path("call_in_loop");
    let folder = Folder::new("alike");
    let session = Session::with_rings(1 << 22);
    let function = binary::function(&original, "begins_with_push");
    let mut victims = ["a", "b", "c", "d"].map(|name| {
        let file = PathBuf::from(folder.path(name));
        fs::copy(&original, &file).expect("there is room");
        session.probe(&file, &function, WITH_CALLER);
        let mut command = Command::new("setarch");
        command.arg("-R").arg(&file).arg("begins_with_push");
        Victim::start_command(&mut command, &file)
    });
    for _ in 0..ROUNDS {
        for victim in &mut victims {
            victim.call(1);
        }
    }
    let records = Records::of(&session);
    assert_eq!(records.hits.len(), ROUNDS * victims.len());
    let functions = binary::functions(&original);
    for victim in &victims {
        let inode = fs::metadata(victim.file()).expect("it is there").ino();
        for (hit, frames) in records
            .hits
            .iter()
            .filter(|(hit, _)| hit.pid == victim.pid())
        {
            let names = names(frames, &functions, inode, &records);
            let wanted = ["begins_with_push", "call_begins_with_push", "work", "main"];
            assert_eq!(names[..4.min(names.len())], wanted, "{hit:?}");
        }
    }
}
