// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe export ctf`: tasks of nested pid namespaces come out as LTTng would have told them,
//! read by babeltrace2, from whose output the tree of the containers is built again.

use crate::support::Scratch;
use libnsprobe::common::record::{Header as RecordHeader, Lost, KIND_LOST};
use libnsprobe::common::record::{KIND_SWITCH, KIND_TASK, KIND_WAKE};
use libnsprobe::common::task::{
    SwitchRecord, TaskLevel, TaskRecord, WakeRecord, SWITCH_FROM_IDLE, TASK_ALIVE, TASK_CGROUP,
    TASK_EXEC, TASK_EXIT, TASK_FORK, TASK_KERNEL, TASK_LAST, TASK_NAME, TASK_NAMESPACES,
    TASK_ZOMBIE, WAKE_BEGUN, WAKE_NEW,
};
use nsprobe_capsule::model::{Container, Object, RecordingEnd, RecordingHeader, Summary, Text};
use nsprobe_capsule::{ChunkKind, FileOutput, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};
use zerocopy::IntoBytes;

const PROGRAM: &str = env!("CARGO_BIN_EXE_nsprobe");
const START_NS: u64 = 7_000_000_000;
const HOST: u32 = 4026531836;

fn level(inum: u32, tid: u32, pid: u32, ppid: u32) -> TaskLevel {
    TaskLevel {
        id: inum.into(),
        inum,
        tid,
        pid,
        ppid,
    }
}

/// A task's record, so many microseconds after the start.
fn task(
    us: u64,
    what: u16,
    comm: &str,
    levels: &[TaskLevel],
    maker: &[TaskLevel],
    change: impl FnOnce(&mut TaskRecord),
) -> Vec<u8> {
    let mut record = TaskRecord {
        time_ns: START_NS + 1000 * us,
        what,
        levels: levels.len() as u8,
        parent_levels: maker.len() as u8,
        cgroup: 42,
        cpu: 1,
        priority: 120,
        namespaces: [
            11,
            12,
            13,
            14,
            0xefff_fffd,
            16,
            17,
            levels[levels.len() - 1].inum,
        ],
        ..TaskRecord::default()
    };
    record.comm[..comm.len()].copy_from_slice(comm.as_bytes());
    change(&mut record);
    let bytes = record.as_bytes().len() + levels.as_bytes().len() + maker.as_bytes().len();
    record.header = RecordHeader {
        word: bytes as u32,
        kind: KIND_TASK,
        reserved: 0,
    };
    [record.as_bytes(), levels.as_bytes(), maker.as_bytes()].concat()
}

fn header<T>(kind: u16) -> RecordHeader {
    RecordHeader {
        word: size_of::<T>() as u32,
        kind,
        reserved: 0,
    }
}

/// Three levels of namespaces, as the dump knows them.
fn nested() -> [TaskLevel; 3] {
    [
        level(HOST, 900, 900, 800),
        level(501, 9, 9, 1),
        level(502, 1, 1, 0),
    ]
}

fn dump() -> Vec<Vec<u8>> {
    let host = |pid| [level(HOST, pid, pid, 1)];
    let zombie = |record: &mut TaskRecord| record.flags = TASK_ZOMBIE;
    let sleeps = |record: &mut TaskRecord| record.state = 1;
    vec![
        task(10, TASK_ALIVE, "kthreadd", &host(2), &[], |record| {
            record.flags = TASK_KERNEL;
        }),
        task(11, TASK_ALIVE, "inner\x1b[1m", &nested(), &[], sleeps),
        task(12, TASK_ALIVE, "gone", &host(7), &[], zombie),
    ]
}

/// A child of the innermost task; then one that came into its namespace from outside.
fn records() -> Vec<Vec<u8>> {
    let child = [
        level(HOST, 901, 901, 900),
        level(501, 10, 10, 9),
        level(502, 2, 2, 1),
    ];
    let joined = [
        level(HOST, 950, 950, 700),
        level(501, 11, 11, 0),
        level(502, 3, 3, 0),
    ];
    let outside = [level(HOST, 700, 700, 1)];
    let thread = [
        level(HOST, 902, 901, 900),
        level(501, 12, 10, 9),
        level(502, 4, 2, 1),
    ];
    let switch = SwitchRecord {
        header: header::<SwitchRecord>(KIND_SWITCH),
        time_ns: START_NS + 30_000,
        prev_tid: 0,
        next_tid: 901,
        prev_state: 0,
        cpu: 1,
        prev_priority: 120,
        next_priority: 120,
        flags: SWITCH_FROM_IDLE,
    };
    let wake = |what, us: u64| WakeRecord {
        header: header::<WakeRecord>(KIND_WAKE),
        time_ns: START_NS + 1000 * us,
        tid: 901,
        cpu: 1,
        target_cpu: 0,
        what,
        priority: 99,
        ..WakeRecord::default()
    };
    let lost = Lost {
        header: header::<Lost>(KIND_LOST),
        time_ns: START_NS + 50_000,
        count: 5,
        first_ns: START_NS + 45_000,
    };
    vec![
        task(20, TASK_FORK, "inner", &child, &nested(), |_| ()),
        wake(WAKE_NEW, 21).as_bytes().to_vec(),
        switch.as_bytes().to_vec(),
        task(31, TASK_FORK, "nsenter", &joined, &outside, |_| ()),
        task(32, TASK_FORK, "inner", &thread, &child, |_| ()),
        task(33, TASK_EXEC, "app", &child, &[], |record| {
            (record.object, record.value) = (1, 902);
        }),
        wake(WAKE_BEGUN, 34).as_bytes().to_vec(),
        task(35, TASK_NAME, "worker", &child, &[], |_| ()),
        task(36, TASK_NAMESPACES, "worker", &child, &[], |_| ()),
        task(37, TASK_CGROUP, "worker", &child, &[], |record| {
            record.cgroup = 43;
        }),
        lost.as_bytes().to_vec(),
        task(60, TASK_EXIT, "worker", &child, &[], |record| {
            (record.flags, record.value, record.cpu) = (TASK_LAST, 9, 0);
        }),
    ]
}

fn write_capsule(path: &Path) {
    let file = File::create(path).unwrap();
    let mut writer = Writer::new(FileOutput::new(file, 0, 4096).unwrap()).unwrap();
    let header = RecordingHeader {
        nsprobe: "0.1.0".into(),
        kernel: "7.2.12".into(),
        machine: "x86_64".into(),
        host: Text(b"box\"\n".to_vec()),
        start_ns: START_NS,
        start_real_ns: 1_800_000_000_000_000_000,
        ..RecordingHeader::default()
    };
    let object = Object {
        id: 1,
        path: Some(Text(b"/usr/bin/app".to_vec())),
        ..Object::default()
    };
    let container = Container {
        pid_namespace_id: 502,
        pid_namespace: 502,
        name: Some("web".into()),
        ..Container::default()
    };
    let summary = Summary {
        elapsed_ns: 1_000_000,
        unwritten: 7,
        ..Summary::default()
    };
    writer.json(ChunkKind::Header, 1, &header).unwrap();
    writer.json(ChunkKind::Containers, 1, &[container]).unwrap();
    writer.json(ChunkKind::Objects, 1, &[object]).unwrap();
    writer.chunk(ChunkKind::Tasks, 3, &dump().concat()).unwrap();
    writer
        .chunk(ChunkKind::Records, 0, &records().concat())
        .unwrap();
    writer.json(ChunkKind::Summary, 0, &summary).unwrap();
    writer
        .json(ChunkKind::End, 1, &RecordingEnd { hits: 0 })
        .unwrap();
    writer.finish().unwrap();
}

fn export(scratch: &Scratch, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    let command = command.args(["export", "ctf"]).args(arguments);
    command.current_dir(&scratch.0).output().unwrap()
}

/// An event: its name and its fields, as babeltrace2 prints them.
type Event = (String, BTreeMap<String, String>);

/// All events, and how many were discarded; `None`, with a printed reason, without
/// babeltrace2.
fn read(trace: &Path) -> Option<(Vec<Event>, u64)> {
    let mut command = Command::new("babeltrace2");
    let output = nsprobe_testing::output(command.arg("--names=payload").arg(trace))?;
    let mut discarded = 0;
    for line in String::from_utf8(output.stderr).unwrap().lines() {
        let count = line.strip_prefix("WARNING: Tracer discarded ");
        let count = count.unwrap_or_else(|| panic!("{line}"));
        discarded += count.split(' ').next().unwrap().parse::<u64>().unwrap();
    }
    let text = String::from_utf8(output.stdout).unwrap();
    Some((text.lines().map(event).collect(), discarded))
}

/// `[TIME] (+DELTA) [HOST] NAME: { cpu_id }, { field = value, … }`.
fn event(line: &str) -> Event {
    let (head, fields) = line.split_once(": {").unwrap();
    let name = head.rsplit(' ').next().unwrap().to_owned();
    let fields = fields.rsplit_once("{ ").map_or("", |(_, fields)| fields);
    let fields = fields.trim_end_matches(" }").split(", ");
    let fields = fields.filter_map(|field| field.split_once(" = "));
    let fields = fields.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()));
    (name, fields.collect())
}

fn number(event: &Event, field: &str) -> i64 {
    let value = event.1.get(field);
    let value = value.unwrap_or_else(|| panic!("no {field}: {event:?}"));
    value
        .parse()
        .unwrap_or_else(|_| panic!("{field}: {event:?}"))
}

fn of<'a>(events: &'a [Event], name: &str) -> Vec<&'a Event> {
    events.iter().filter(|(found, _)| found == name).collect()
}

#[test]
fn tasks_are_told_as_lttng_tells_them() {
    let scratch = Scratch::new("export");
    write_capsule(Path::new(&scratch.path("x")));
    let output = export(&scratch, &["x", "old"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}");
    let metadata = fs::read_to_string(scratch.path("old/metadata")).unwrap();
    for line in [
        "\ttracer_name = \"lttng-modules\";",
        "\tdomain = \"kernel\";",
        "\ttracer_major = 2;",
        "\ttracer_minor = 11;",
        "\thostname = \"box\\\"\\\\n\";",
        "\tnsprobe_version = \"0.1.0\";",
        "\toffset = 1799999993000000000;",
    ] {
        assert!(
            metadata.lines().any(|found| found == line),
            "{line}\n{metadata}"
        );
    }
    let Some((events, discarded)) = read(&scratch.0.join("old")) else {
        return;
    };
    assert_eq!(discarded, 12);
    let events_told = format!(
        "nsprobe: {} events in 3 streams, 12 discarded: old",
        events.len()
    );
    assert_eq!(told.lines().next(), Some(&*events_told));
    let states = of(&events, "lttng_statedump_process_state");
    let inner: Vec<_> = states
        .into_iter()
        .filter(|e| number(e, "tid") == 900)
        .collect();
    let levels: Vec<_> = inner
        .iter()
        .map(|e| {
            [
                "ns_level", "ns_inum", "vtid", "vpid", "vppid", "pid", "ppid",
            ]
            .map(|f| number(e, f))
        })
        .collect();
    assert_eq!(
        levels,
        [
            [2, 502, 1, 1, 0, 900, 800],
            [1, 501, 9, 9, 1, 900, 800],
            [0, HOST.into(), 900, 900, 800, 900, 800],
        ]
    );
    // It prints question marks with a backslash in front.
    assert_eq!(inner[0].1["name"], "inner\\?[1m");
    let wake = of(&events, "sched_wakeup_new");
    assert_eq!(
        (number(wake[0], "prio"), number(wake[0], "target_cpu")),
        (-1, 0)
    );
    let switch = of(&events, "sched_switch");
    assert_eq!(switch[0].1["prev_comm"], "swapper/1");
    assert_eq!(switch[0].1["next_comm"], "inner");
    let exec = of(&events, "sched_process_exec");
    assert_eq!(exec[0].1["filename"], "/usr/bin/app");
    assert_eq!(
        (number(exec[0], "tid"), number(exec[0], "old_tid")),
        (901, 902)
    );
    assert_eq!(of(&events, "sched_process_exit")[0].1["comm"], "worker");
    assert_eq!(number(of(&events, "nsprobe_task_exit")[0], "status"), 9);
}

/// What a task is called in each pid namespace, from the outermost on.
type Tree = BTreeMap<i64, (i64, Vec<i64>)>;

/// The tree, as a reader builds it that knows LTTng's events alone: for each task its own
/// namespace, and its numbers.
fn tree(events: &[Event], shape: &str) -> Tree {
    let dumped = match shape {
        "old" => "lttng_statedump_process_state",
        _ => "lttng_statedump_process_pid_ns",
    };
    let mut tree = Tree::new();
    for event in events {
        match event.0.as_str() {
            name if name == dumped => {
                let task = tree.entry(number(event, "tid")).or_default();
                if task.1.is_empty() {
                    task.0 = number(event, "ns_inum");
                }
                task.1.insert(0, number(event, "vtid"));
            }
            "sched_process_fork" => {
                let count = number(event, "_vtids_length");
                let numbers = (0..count).map(|index| number(event, &format!("[{index}]")));
                let task = (number(event, "child_ns_inum"), numbers.collect());
                tree.insert(number(event, "child_tid"), task);
            }
            _ => {}
        }
    }
    tree
}

#[test]
fn the_tree_of_containers_is_in_the_trace() {
    let scratch = Scratch::new("export-tree");
    write_capsule(Path::new(&scratch.path("x")));
    for shape in ["old", "new"] {
        let output = export(&scratch, &["x", shape, "--statedump-shape", shape]);
        assert!(output.status.success(), "{output:?}");
        let Some((events, _)) = read(&scratch.0.join(shape)) else {
            return;
        };
        // The sequence is printed as `vtids = [ [0] = 901, … ]`.
        let events: Vec<Event> = events.into_iter().map(flat).collect();
        let wanted: Tree = [
            (2, (HOST.into(), vec![2])),
            (7, (HOST.into(), vec![7])),
            (900, (502, vec![900, 9, 1])),
            (901, (502, vec![901, 10, 2])),
            (902, (502, vec![902, 12, 4])),
            (950, (502, vec![950, 11, 3])),
        ]
        .into();
        assert_eq!(tree(&events, shape), wanted, "{shape}");
        let nodes: BTreeSet<_> = of(&events, "nsprobe_pid_namespace")
            .into_iter()
            .map(|e| ["ns_inum", "parent_ns_inum", "ns_level"].map(|f| number(e, f)))
            .collect();
        let host = i64::from(HOST);
        assert_eq!(nodes, [[501, host, 1], [502, 501, 2], [host, 0, 0]].into());
        let containers = of(&events, "nsprobe_container");
        assert_eq!(
            (number(containers[0], "ns_inum"), &*containers[0].1["name"]),
            (502, "web")
        );
        let starts = of(&events, "lttng_statedump_start").len();
        assert_eq!((starts, of(&events, "lttng_statedump_end").len()), (1, 1));
        let names: Vec<&str> = events.iter().map(|(name, _)| &**name).collect();
        let place = |name| names.iter().position(|found| *found == name).unwrap();
        assert!(place("lttng_statedump_start") < place("lttng_statedump_process_pid_ns"));
        assert!(place("lttng_statedump_end") < place("sched_process_fork"));
    }
}

/// The elements of a sequence are fields of the same event.
fn flat((name, mut fields): Event) -> Event {
    if let Some(first) = fields.remove("vtids") {
        let first = first.trim_start_matches("[ [0] = ").to_owned();
        fields.insert("[0]".to_owned(), first);
    }
    for value in fields.values_mut() {
        *value = value.trim_end_matches(" ]").to_owned();
    }
    (name, fields)
}

#[test]
fn what_cannot_be_exported_is_told_and_leaves_nothing() {
    let scratch = Scratch::new("export-errors");
    write_capsule(Path::new(&scratch.path("x")));
    fs::create_dir(scratch.path("there")).unwrap();
    fs::write(
        scratch.path("text"),
        "no capsule, but a text of some length: long enough",
    )
    .unwrap();
    for (arguments, code, why) in [
        (
            &["x", "there"][..],
            1,
            "there exists: a trace needs a folder of its own",
        ),
        (
            &["x", "no/such"],
            1,
            "cannot write no/such: No such file or directory",
        ),
        (&["x", "text/y"], 1, "cannot write text/y: Not a directory"),
        (
            &["none", "y"],
            1,
            "cannot open none: No such file or directory",
        ),
        (&["text", "y"], 1, "cannot read text: "),
        (&["x", ".."], 1, ".. is no name for a new folder"),
        (&["x"], 2, "<DIRECTORY>"),
        (
            &["x", "y", "--statedump-shape", "odd"],
            2,
            "invalid value 'odd'",
        ),
    ] {
        let output = export(&scratch, arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(why), "{arguments:?}: {told}");
        assert_eq!(output.status.code(), Some(code), "{told}");
    }
    let mut left: Vec<_> = fs::read_dir(&scratch.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["text", "there", "x"]);
}
