// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done with capsules where there is no module: they are printed, reported, named,
//! and what is none, or is damaged, is told. The golden text lies in `tests/golden`; after a
//! wanted change, `UPDATE_GOLDEN=1 cargo test -p nsprobe` writes it anew.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod support;

use libnsprobe::common::record::{
    Frame, Header as RecordHeader, Hit, LateStack, Lost, Method, OffRecord, StackEnd, Unmapped,
    HIT_RETURN, KIND_HIT, KIND_LATE_STACK, KIND_LOST, KIND_OFF,
};
use nsprobe_capsule::model::{
    Container, End, FrameName, Function, GeneratedName, Header, KernelName, Names, Object, Probe,
    ProbeTotal, Summary, SymbolName, Text,
};
use nsprobe_capsule::{FileOutput, Kind, Rest, RestKey, Stack, Writer};
use nsprobe_plan::decode::{FieldFormat, Shape};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::{check_golden, Scratch};
use zerocopy::IntoBytes;

const PROGRAM: &str = env!("CARGO_BIN_EXE_nsprobe");
const START_NS: u64 = 5_000_000_000;
/// Where a process has generated code.
const GENERATED: u64 = 0x7f00_0000_1000;

fn nsprobe(scratch: &Scratch, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(arguments)
        .current_dir(&scratch.0)
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// What a user sees of a run: the command, all output, the exit code.
fn transcript(scratch: &Scratch, arguments: &[&str]) -> String {
    let output = nsprobe(scratch, arguments);
    let mut text = format!("$ nsprobe {}\n", arguments.join(" "));
    text.push_str(&String::from_utf8(output.stdout).unwrap());
    text.push_str(&String::from_utf8(output.stderr).unwrap());
    writeln!(text, "[exit {}]\n", output.status.code().unwrap()).unwrap();
    text
}

fn header_of<T>(kind: u16, words: usize) -> RecordHeader {
    RecordHeader {
        word: (size_of::<T>() + 8 * words) as u32,
        kind,
        reserved: 0,
    }
}

fn words(frames: &[Frame]) -> Vec<u64> {
    let encoded = frames.iter().map(|frame| frame.encode());
    encoded
        .flat_map(|(words, count)| words.into_iter().take(count))
        .collect()
}

fn at(offset: u64, method: Method) -> Frame {
    Frame::Object {
        id: 1,
        offset,
        method: method as u8,
    }
}

/// A hit of thread `tid`, so many microseconds after the start.
fn hit(us: u64, tid: u32, change: impl FnOnce(&mut Hit)) -> Hit {
    let mut comm = [0; 16];
    comm[..3].copy_from_slice(b"app");
    let mut hit = Hit {
        header: header_of::<Hit>(KIND_HIT, 0),
        time_ns: START_NS + 1000 * us,
        probe: 1,
        sequence: 1,
        pid: 100,
        tid,
        ns_pid: 1,
        ns_tid: tid - 99,
        pidns_inum: 4026532000,
        stack: 9,
        stack_end: StackEnd::Outermost as u8,
        comm,
        ..Hit::default()
    };
    change(&mut hit);
    hit
}

/// The bytes of a hit with what follows it.
fn with(mut hit: Hit, elapsed: Option<u64>, kernel: &[u64], fields: &[u64]) -> Vec<u8> {
    let mut all: Vec<u64> = elapsed.into_iter().collect();
    hit.flags |= elapsed.map_or(0, |_| HIT_RETURN);
    hit.field_words = fields.len() as u16;
    all.extend(kernel.iter().chain(fields));
    hit.header = header_of::<Hit>(KIND_HIT, all.len());
    [hit.as_bytes(), all.as_bytes()].concat()
}

/// Some of each kind of record.
fn records() -> Vec<Vec<u8>> {
    let text = u64::from_le_bytes(*b"GET /\x1b[3");
    let lost = Lost {
        header: header_of::<Lost>(KIND_LOST, 0),
        time_ns: START_NS + 3_000_000,
        count: 4,
        first_ns: START_NS + 2_500_000,
    };
    let late = |tid| LateStack {
        header: header_of::<LateStack>(KIND_LATE_STACK, 0),
        time_ns: START_NS + 4_100_000,
        hit_ns: START_NS + 4_000_000,
        probe: 1,
        tid,
        stack: 10,
        words: 0,
        stack_end: StackEnd::Outermost as u8,
        pages: 1,
    };
    let off = OffRecord {
        header: header_of::<OffRecord>(KIND_OFF, 0),
        time_ns: START_NS + 9_000_000,
        probe: 2,
        limit: 1000,
    };
    let waits = |hit: &mut Hit| {
        hit.stack = 0;
        hit.stack_end = StackEnd::Late as u8;
    };
    let copied = |hit: &mut Hit| hit.stack_end = StackEnd::Copied as u8;
    let nowhere = |hit: &mut Hit| hit.stack_end = StackEnd::NoRow as u8;
    let returned = |hit: &mut Hit| {
        hit.probe = 2;
        hit.stack = 77;
    };
    let fields = [0b1111, 8, text, 0x7fff_0000_1100, 0x1100];
    vec![
        with(hit(1000, 100, |_| ()), None, &[0xffff_8000_0010], &fields),
        with(hit(2000, 101, nowhere), None, &[], &[0b0001, 0, 0, 0]),
        lost.as_bytes().to_vec(),
        with(hit(4000, 100, waits), None, &[], &[0b0001, 0, 0, 0]),
        late(100).as_bytes().to_vec(),
        with(hit(5000, 102, copied), None, &[], &[0, 0, 0, 0]),
        with(hit(6000, 100, returned), Some(1_234_567), &[], &[]),
        with(hit(7000, 102, waits), None, &[], &[0, 0, 0, 0]),
        off.as_bytes().to_vec(),
    ]
}

fn function(name: &str, line: Option<u32>, inlined: bool) -> Function {
    Function {
        name: name.into(),
        offset: (!inlined).then_some(0x12),
        file: line.map(|_| "/build/app.c".into()),
        line,
        inlined,
    }
}

fn names() -> Names {
    let frame = |offset, exact, functions: Vec<Function>| FrameName {
        object: 1,
        offset,
        exact,
        source: (!functions.is_empty()).then(|| "dwarf".into()),
        functions,
        ..FrameName::default()
    };
    let inlined = function("read<char\u{1b}>", Some(7), true);
    Names {
        frames: vec![
            frame(0x1000, true, vec![function("parse", Some(12), false)]),
            frame(
                0x2000,
                false,
                vec![inlined, function("serve", Some(30), false)],
            ),
            FrameName {
                unresolved: Some("offset 0x3000 is between the known functions".into()),
                doubtful: true,
                ..frame(0x3000, false, vec![])
            },
            frame(0x4000, false, vec![function("main", None, false)]),
        ],
        kernel: vec![KernelName {
            address: 0xffff_8000_0010,
            start: 0xffff_8000_0000,
            name: "do_syscall_64".into(),
            module: None,
        }],
        symbols: vec![SymbolName {
            probe: 1,
            address: 0x1100,
            name: "handler".into(),
        }],
        generated: vec![
            generated(START_NS, "LazyCompile:~tick \u{1b}"),
            generated(START_NS + 4_500_000, "LazyCompile:*tick"),
        ],
    }
}

/// The code at [`GENERATED`], from a time on.
fn generated(from_ns: u64, name: &str) -> GeneratedName {
    GeneratedName {
        pid: 100,
        address: GENERATED,
        from_ns,
        functions: vec![function(name, Some(3), false)],
        source: Some("jitdump".into()),
        path: Some(Text(b"/tmp/jit-1.dump".to_vec())),
        ..GeneratedName::default()
    }
}

fn probe(id: u32, function: &str, fields: Vec<FieldFormat>) -> Probe {
    Probe {
        id,
        planned: id.into(),
        role: "whole".into(),
        label: "not for output\u{1b}".into(),
        binary: "/usr/bin/app".into(),
        function: function.into(),
        offset: 0x1000,
        fields,
    }
}

/// A capsule with all that there may be.
fn write_sample(path: &Path) {
    let file = File::create(path).unwrap();
    let mut writer = Writer::new(FileOutput::new(file, 0, 4096).unwrap()).unwrap();
    let header = Header {
        nsprobe: "0.1.0".into(),
        abi: 12,
        module: "0.1.0".into(),
        kernel: "7.2.12".into(),
        machine: "x86_64".into(),
        host: Text(b"box\xff".to_vec()),
        command: ["nsprobe", "record", "-o", "x"]
            .map(|w| Text(w.into()))
            .to_vec(),
        target: "container web".into(),
        start_ns: START_NS,
        start_real_ns: 1_800_000_000_000_000_000,
        stack: true,
        kernel_stack: true,
        names: true,
        count: None,
        kernel_build: "#1 SMP Debian\x1b".into(),
        cpus: 2,
        boot_id: "6a0a\n".into(),
        suspended_ns: 1_500_000_000,
    };
    let fields = [("text", Shape::Text { most: 64 }), ("f", Shape::Symbol)];
    let fields = fields.map(|(name, shape)| FieldFormat::new(name, shape));
    let probes = [
        probe(1, "parse", fields.to_vec()),
        probe(2, "reply", vec![]),
    ];
    let object = Object {
        id: 1,
        inode: 77,
        build_id: "00c0ffee".into(),
        path: Some(Text(b"/usr/bin/app\n".to_vec())),
        origin: Some("kernel".into()),
        ..Object::default()
    };
    let container = Container {
        pid_namespace: 4026532000,
        name: Some("web".into()),
        pid: 100,
        ..Container::default()
    };
    writer.json(Kind::Header, 1, &header).unwrap();
    writer.json(Kind::Containers, 1, &[container]).unwrap();
    writer.json(Kind::Probes, 2, &probes).unwrap();
    writer.json(Kind::Objects, 1, &[object]).unwrap();
    let inner = [at(0x1000, Method::Registers), at(0x2000, Method::Row)];
    let outer = [
        at(0x3000, Method::Row),
        Frame::Address {
            address: GENERATED,
            why: Unmapped::Anonymous as u8,
            method: Method::FramePointer as u8,
        },
        at(0x4000, Method::FramePointer),
    ];
    let mut body = Vec::new();
    for (id, words) in [
        (9, words(&inner)),
        (10, words(&[&inner[..], &outer].concat())),
    ] {
        Stack { id, words }.push_to(&mut body);
    }
    writer.chunk(Kind::Stacks, 2, &body).unwrap();
    let records = records();
    writer
        .chunk(Kind::Records, 2, &records[..3].concat())
        .unwrap();
    writer
        .chunk(Kind::Records, 4, &records[3..].concat())
        .unwrap();
    let mut body = Vec::new();
    let rest = Rest {
        of: RestKey {
            time_ns: START_NS + 5_000_000,
            tid: 102,
            probe: 1,
        },
        end: StackEnd::Outermost as u8,
        words: words(&outer),
    };
    rest.push_to(&mut body);
    writer.chunk(Kind::Rests, 1, &body).unwrap();
    writer.json(Kind::Names, 8, &names()).unwrap();
    let counters = |recorded: u64, lost: u64| {
        let all = [
            ("hits", recorded + lost),
            ("recorded", recorded),
            ("lost_full", lost),
        ];
        all.map(|(name, count)| (name.to_owned(), count)).into()
    };
    let total = |id, counters| ProbeTotal {
        id,
        counters,
        ..ProbeTotal::default()
    };
    let with_losses = ProbeTotal {
        cpus: [(0, counters(5, 0)), (1, counters(1, 4))].into(),
        ..total(1, counters(6, 4))
    };
    let summary = Summary {
        elapsed_ns: 2_500_000_000,
        ended_by: "the time is over".into(),
        received: 7,
        unwritten: 1,
        probes: vec![with_losses, total(2, counters(1, 0))],
        names: vec!["/usr/bin/app: DWARF of the probed file".into()],
        ..Summary::default()
    };
    writer.json(Kind::Summary, 2, &summary).unwrap();
    writer.json(Kind::End, 1, &End { hits: 6 }).unwrap();
    writer.finish().unwrap();
}

#[test]
fn a_capsule_is_printed_reported_and_told_of() {
    let scratch = Scratch::new("capsule");
    write_sample(Path::new(&scratch.path("x")));
    let mut text = String::new();
    for arguments in [
        &["script", "x"][..],
        &["script", "x", "--json"],
        &["report", "x"],
        &["report", "x", "--folded", "-q"],
        &[
            "report", "x", "--by", "tid,comm", "--json", "--top", "2", "-q",
        ],
        &["info", "x"],
        &["info", "x", "--json"],
    ] {
        text.push_str(&transcript(&scratch, arguments));
    }
    check_golden("capsule.txt", &text);
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn what_is_no_capsule_or_is_damaged_is_told_with_code_1() {
    let scratch = Scratch::new("damaged");
    write_sample(Path::new(&scratch.path("whole")));
    let whole = fs::read(scratch.path("whole")).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(scratch.path(name), bytes).unwrap();
    write("empty", b"");
    write(
        "text",
        b"This is no capsule, but some text that is longer than its header.\n",
    );
    write("short", &whole[..20]);
    let mut bytes = whole.clone();
    bytes[8] = 9;
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    write("later", &bytes);
    write("cut", &whole[..whole.len() * 2 / 3]);
    let mut bytes = whole.clone();
    let place = whole
        .windows(8)
        .rposition(|bytes| bytes == b"\x8anschunk")
        .unwrap();
    bytes.truncate(place);
    write("unfinished", &bytes);
    let mut bytes = whole;
    // In the first of the chunks with records: its second hit.
    let place = bytes
        .windows(4)
        .position(|bytes| bytes == b"app\0")
        .unwrap();
    bytes[place] = b'A';
    write("flipped", &bytes);
    fs::create_dir(scratch.path("folder")).unwrap();
    let made = Command::new("mkfifo").arg(scratch.path("fifo")).status();
    assert!(made.unwrap().success());
    let mut text = String::new();
    for file in ["none", "folder", "fifo", "empty", "text", "short", "later"] {
        text.push_str(&transcript(&scratch, &["script", file]));
    }
    for file in ["cut", "unfinished", "flipped"] {
        text.push_str(&transcript(&scratch, &["script", "-q", file]));
    }
    text.push_str(&transcript(&scratch, &["info", "flipped"]));
    check_golden("capsule-damaged.txt", &text);
}

/// A place in this program, as `nsprobe list` and readelf tell it.
fn place_of_main(scratch: &Scratch) -> (String, String) {
    let listed = nsprobe(scratch, &["list", "--json", &format!("{PROGRAM}:main")]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let line = listed
        .lines()
        .find(|line| line.contains("\"symbol\":\"main\""));
    let line: serde_json::Value = serde_json::from_str(line.unwrap()).unwrap();
    let offset = line["file_offset"].as_str().unwrap().to_owned();
    let notes = Command::new("readelf")
        .args(["-n", PROGRAM])
        .output()
        .unwrap();
    let notes = String::from_utf8(notes.stdout).unwrap();
    let id = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    (id.expect("a build-id").to_owned(), offset)
}

fn symbolize(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(PROGRAM)
        .arg("symbolize")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn places_are_named_from_files_of_their_build_ids() {
    let scratch = Scratch::new("symbolize");
    let (build_id, offset) = place_of_main(&scratch);
    let by_id = scratch.0.join(".build-id").join(&build_id[..2]);
    fs::create_dir_all(&by_id).unwrap();
    std::os::unix::fs::symlink(PROGRAM, by_id.join(&build_id[2..])).unwrap();
    let somewhere = scratch.0.join("a/b");
    fs::create_dir_all(&somewhere).unwrap();
    fs::copy(PROGRAM, somewhere.join("any name")).unwrap();
    // A file that only claims, by its name, to be the one.
    let liar = scratch.0.join("liar/.build-id").join(&build_id[..2]);
    fs::create_dir_all(&liar).unwrap();
    fs::copy("/bin/true", liar.join(&build_id[2..])).unwrap();
    let input = format!("{build_id}+{offset}\n\n{build_id} {offset}\n00ff+0x10\n");
    for directory in [&scratch.0, &somewhere] {
        let directory = directory.to_str().unwrap();
        let output = symbolize(&["--debug-dir", directory], &input);
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let [first, second, third] = lines.as_slice() else {
            panic!("{text}")
        };
        assert!(
            first.starts_with(&format!("{build_id}+{offset} main+0x0")),
            "{text}"
        );
        assert_eq!(first, second);
        assert_eq!(*third, "00ff+0x10 ? (no file with that build-id was found)");
    }
    let liar = scratch.0.join("liar");
    let output = symbolize(&["--debug-dir", liar.to_str().unwrap()], &input);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.lines().all(|line| line.ends_with("was found)")),
        "{text}"
    );
}

/// As central servers have them: the program itself is on other machines.
#[test]
fn a_debug_file_alone_names_places() {
    let scratch = Scratch::new("symbolize-alone");
    let (build_id, offset) = place_of_main(&scratch);
    let debug = scratch.path("some.debug");
    let words = ["--only-keep-debug", PROGRAM, &debug];
    let made = Command::new("objcopy").args(words).status().unwrap();
    assert!(made.success());
    let input = format!("{build_id}+{offset}\n{build_id}+0xffffffff\n");
    let output = symbolize(&["--debug-dir", scratch.0.to_str().unwrap()], &input);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with(&format!("{build_id}+{offset} main+0x0")),
        "{text}"
    );
    assert!(text.lines().nth(1).unwrap().contains(" ? ("), "{text}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.matches("without its program").count(), 1, "{errors}");
}

/// Names by symbols alone have a reason where there is more.
#[test]
fn debug_information_that_is_not_used_has_a_reason() {
    let scratch = Scratch::new("symbolize-damaged");
    let (build_id, offset) = place_of_main(&scratch);
    fs::write(scratch.path("garbage"), [0xff; 64]).unwrap();
    let update = format!("--update-section=.debug_abbrev={}", scratch.path("garbage"));
    let words = [&update, PROGRAM, &scratch.path("damaged")];
    assert!(Command::new("objcopy")
        .args(words)
        .status()
        .unwrap()
        .success());
    let input = format!("{build_id}+{offset}\n{build_id}+{offset}\n");
    let output = symbolize(&["--debug-dir", scratch.0.to_str().unwrap()], &input);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("main+0x0\n").count(), 2, "{text}");
    let errors = String::from_utf8(output.stderr).unwrap();
    let reason = "damaged: its debug information is not used: ";
    assert_eq!(errors.matches(reason).count(), 1, "{errors}");
}

#[test]
fn places_are_read_and_named_as_json() {
    let scratch = Scratch::new("symbolize-json");
    let (build_id, offset) = place_of_main(&scratch);
    fs::copy(PROGRAM, scratch.path("program")).unwrap();
    let place =
        |more: &str| format!("{{\"build_id\":\"{build_id}\",\"offset\":\"{offset}\"{more}}}\n");
    let input = place("") + &place(",\"return_address\":true");
    let scratch_path = scratch.0.to_str().unwrap();
    let output = symbolize(&["--json", "--debug-dir", scratch_path], &input);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["functions"][0]["name"], "main", "{text}");
    assert_eq!(lines[0]["type"], "place");
    // In front of main is another function, or none.
    assert_ne!(lines[1]["functions"][0]["name"], "main", "{text}");
    for (input, part) in [("nonsense\n", "line 1"), ("ab+0x1\nab\n", "line 2")] {
        let output = symbolize(&["--debug-dir", scratch_path], input);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(part), "{errors}");
    }
    let output = symbolize(&["--debug-dir", "/no/such/directory"], "");
    assert_eq!(output.status.code(), Some(1));
}

/// A trace for babeltrace2: the hits with their context, fields and stacks.
#[test]
fn a_capsule_is_exported_with_its_hits() {
    let scratch = Scratch::new("exported");
    write_sample(Path::new(&scratch.path("x")));
    let output = nsprobe(&scratch, &["export", "ctf", "x", "t"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(
        told.contains("9 events in 2 streams, 5 discarded: t\n"),
        "{told}"
    );
    let mut command = Command::new("babeltrace2");
    let output = match command.arg(scratch.path("t")).output() {
        // `make check` installs it. It escapes backslashes once more.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        output => output.unwrap(),
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let context = "{ procname = \"app\", pid = 100, tid = 100, vpid = 1, vtid = 1, \
                   pid_ns = 4026532000, container = \"web\" }";
    let first = text
        .lines()
        .find(|line| line.contains("nsprobe:app:parse: "));
    let first = first.unwrap();
    assert!(first.contains(context), "{first}");
    for part in [
        "text = \"GET /\\\\x1b[3\", f = 0x7FFF00001100, f_name = \"handler\", absent = \"\"",
        "stack_objects = [ [0] = 1, [1] = 1 ]",
        "stack_offsets = [ [0] = 0x1000, [1] = 0x2000 ]",
        "stack_names = [ [0] = \"parse+0x12\", [1] = \"read<char\\\\x1b> in serve+0x12\" ]",
        "stack_end = \"outermost\"",
        "kernel_stack_names = [ [0] = \"do_syscall_64+0x10\" ]",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    assert!(text.contains("nsprobe:app:reply%return: "), "{text}");
    assert!(
        text.contains("elapsed_ns = 1234567, absent = \"\""),
        "{text}"
    );
    assert!(text.contains("absent = \"f\""), "{text}");
    assert!(text.contains("path = \"/usr/bin/app\\\\n\""), "{text}");
}
