// SPDX-License-Identifier: MIT OR Apache-2.0
//! A capsule with all that there may be.

use libnsprobe::common::record::{
    Frame, Header as RecordHeader, Hit, LateStack, Lost, Method, OffRecord, StackEnd, Unmapped,
    HIT_KERNEL, HIT_RETURN, KIND_HIT, KIND_LATE_STACK, KIND_LOST, KIND_OFF,
};
use nsprobe_capsule::model::{
    Container, FrameName, GeneratedName, KernelName, Object, ProbeTotal, RecordedFunction,
    RecordedNames, RecordedProbe, RecordingEnd, RecordingHeader, Summary, SymbolName, Text,
};
use nsprobe_capsule::{ChunkKind, FileOutput, Rest, RestKey, Stack, Writer};
use nsprobe_spec::decode::{FieldFormat, WordShape};
use std::fs::File;
use std::path::Path;
use zerocopy::IntoBytes;

const START_NS: u64 = 5_000_000_000;
/// Where a process has generated code.
const GENERATED: u64 = 0x7f00_0000_1000;

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
        pidns_id: 58,
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
    let copied = |hit: &mut Hit| {
        hit.stack_end = StackEnd::Copied as u8;
        hit.flags = HIT_KERNEL;
    };
    // Where a sample was taken, and who had called that.
    let interrupted = [0xffff_8000_000f, 0xffff_8000_0010];
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
        with(hit(5000, 102, copied), None, &interrupted, &[0, 0, 0, 0]),
        with(hit(6000, 100, returned), Some(1_234_567), &[], &[]),
        with(hit(7000, 102, waits), None, &[], &[0, 0, 0, 0]),
        off.as_bytes().to_vec(),
    ]
}

fn function(name: &str, line: Option<u32>, inlined: bool) -> RecordedFunction {
    RecordedFunction {
        name: name.into(),
        offset: (!inlined).then_some(0x12),
        file: line.map(|_| "/build/app.c".into()),
        line,
        inlined,
    }
}

fn names() -> RecordedNames {
    let frame = |offset, exact, functions: Vec<RecordedFunction>| FrameName {
        object: 1,
        offset,
        exact,
        source: (!functions.is_empty()).then(|| "dwarf".into()),
        functions,
        ..FrameName::default()
    };
    let inlined = function("read<char\u{1b}>", Some(7), true);
    RecordedNames {
        frames: vec![
            frame(0x1000, true, vec![function("parse", Some(12), false)]),
            frame(
                0x2000,
                false,
                vec![inlined, function("serve", Some(30), false)],
            ),
            FrameName {
                function_start: Some(0x2f80),
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

fn probe(id: u32, function: &str, fields: Vec<FieldFormat>) -> RecordedProbe {
    RecordedProbe {
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
pub(crate) fn write_sample(path: &Path) {
    let file = File::create(path).unwrap();
    let mut writer = Writer::new(FileOutput::new(file, 0, 4096).unwrap()).unwrap();
    let header = RecordingHeader {
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
    let fields = [
        ("text", WordShape::Text { most: 64 }),
        ("f", WordShape::Symbol),
    ];
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
        pid_namespace_id: 58,
        pid_namespace: 4026532000,
        name: Some("web".into()),
        pid: 100,
        ..Container::default()
    };
    writer.json(ChunkKind::Header, 1, &header).unwrap();
    writer.json(ChunkKind::Containers, 1, &[container]).unwrap();
    writer.json(ChunkKind::Probes, 2, &probes).unwrap();
    writer.json(ChunkKind::Objects, 1, &[object]).unwrap();
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
    writer.chunk(ChunkKind::Stacks, 2, &body).unwrap();
    let records = records();
    writer
        .chunk(ChunkKind::Records, 2, &records[..3].concat())
        .unwrap();
    writer
        .chunk(ChunkKind::Records, 4, &records[3..].concat())
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
    writer.chunk(ChunkKind::Rests, 1, &body).unwrap();
    writer.json(ChunkKind::Names, 8, &names()).unwrap();
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
    writer.json(ChunkKind::Summary, 2, &summary).unwrap();
    writer
        .json(ChunkKind::End, 1, &RecordingEnd { hits: 6 })
        .unwrap();
    writer.finish().unwrap();
}
