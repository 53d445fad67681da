// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capsules with tasks: each hit is in the container that its thread was in then.
//!
//! The sample has a thread that moves from the host into the container `web`, a namespace
//! number that the containers `old` and `new` have one after the other, and a container of
//! which only the number is known.

use crate::support::{check_golden, Scratch};
use libnsprobe::common::record::{Header as RecordHeader, Hit, StackEnd, KIND_HIT, KIND_TASK};
use libnsprobe::common::task::{
    TaskLevel, TaskRecord, TASK_ALIVE, TASK_CGROUP, TASK_EXIT, TASK_FORK, TASK_LAST,
};
use nsprobe_capsule::model::{
    Container, ProbeTotal, RecordedProbe, RecordingEnd, RecordingHeader, Summary,
};
use nsprobe_capsule::{ChunkKind, FileOutput, Writer};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use zerocopy::IntoBytes;

/// A pid namespace: its id and its inode number.
type Space = (u64, u32);

const HOST: Space = (4, 4026531836);
/// The kernel gives the number of one that is gone to the next.
const OLD: Space = (58, 4026532001);
const NEW: Space = (59, OLD.1);
const UNNAMED: Space = (60, 4026532002);
const MS: u64 = 1_000_000;

fn header(kind: u16, bytes: usize) -> RecordHeader {
    RecordHeader {
        word: bytes as u32,
        kind,
        reserved: 0,
    }
}

/// A task at so many milliseconds: its levels, the outer first, and its control group.
fn task(what: u16, ms: u64, start: u64, levels: &[(Space, u32)], cgroup: u64) -> Vec<u8> {
    let levels: Vec<TaskLevel> = levels
        .iter()
        .map(|&((id, inum), tid)| TaskLevel {
            id,
            inum,
            tid,
            pid: tid,
            ppid: 1,
        })
        .collect();
    let mut comm = [0; 16];
    comm[..3].copy_from_slice(b"app");
    let record = TaskRecord {
        header: header(KIND_TASK, size_of::<TaskRecord>() + levels.as_bytes().len()),
        time_ns: ms * MS,
        start_ns: start * MS,
        cgroup,
        what,
        levels: levels.len() as u8,
        flags: if what == TASK_EXIT { TASK_LAST } else { 0 },
        comm,
        ..TaskRecord::default()
    };
    [record.as_bytes(), levels.as_bytes()].concat()
}

fn hit(ms: u64, pid: u32, ns_pid: u32, (pidns_id, pidns_inum): Space) -> Vec<u8> {
    let hit = Hit {
        header: header(KIND_HIT, size_of::<Hit>()),
        time_ns: ms * MS,
        probe: 1,
        pid,
        tid: pid,
        ns_pid,
        ns_tid: ns_pid,
        pidns_id,
        pidns_inum,
        stack_end: StackEnd::None as u8,
        ..Hit::default()
    };
    hit.as_bytes().to_vec()
}

fn container(name: &str, cgroup: u64, space: Space, known_ms: u64) -> Container {
    Container {
        pid_namespace_id: space.0,
        pid_namespace: space.1,
        name: Some(name.into()),
        cgroup,
        runtime: Some("podman".into()),
        known_ns: known_ms * MS,
        ..Container::default()
    }
}

fn write_sample(path: &Path, with_tasks: bool) {
    let file = File::create(path).unwrap();
    let mut writer = Writer::new(FileOutput::new(file, 0, 4096).unwrap()).unwrap();
    writer
        .json(ChunkKind::Header, 1, &RecordingHeader::default())
        .unwrap();
    let probe = RecordedProbe {
        id: 1,
        role: "whole".into(),
        binary: "/usr/bin/app".into(),
        function: "f".into(),
        planned: 0,
        label: String::new(),
        offset: 0,
        fields: Vec::new(),
    };
    writer.json(ChunkKind::Probes, 1, &[probe]).unwrap();
    let before = [
        task(TASK_ALIVE, 1, 0, &[(HOST, 1)], 1),
        task(TASK_ALIVE, 1, 0, &[(HOST, 50)], 5),
    ];
    let records = [
        hit(10, 50, 50, HOST),
        task(TASK_CGROUP, 15, 0, &[(HOST, 50)], 7),
        hit(20, 50, 50, HOST),
        task(TASK_FORK, 30, 30, &[(HOST, 60), (OLD, 1)], 8),
        hit(40, 60, 1, OLD),
        task(TASK_EXIT, 45, 30, &[(HOST, 60), (OLD, 1)], 8),
        task(TASK_FORK, 50, 50, &[(HOST, 60), (NEW, 1)], 9),
        hit(60, 60, 1, NEW),
        hit(61, 60, 1, NEW),
        task(TASK_FORK, 70, 70, &[(HOST, 70), (UNNAMED, 1)], 1),
        hit(80, 70, 1, UNNAMED),
    ];
    let is_task = |record: &&Vec<u8>| record[4..6] == KIND_TASK.to_le_bytes();
    let records = records
        .iter()
        .filter(|record| with_tasks || !is_task(record));
    let records: Vec<u8> = records.flatten().copied().collect();
    if with_tasks {
        writer.chunk(ChunkKind::Tasks, 2, &before.concat()).unwrap();
    }
    writer.chunk(ChunkKind::Records, 6, &records).unwrap();
    let mut containers = vec![
        // Its name is found when the next has its number.
        container("old", 0, OLD, 60),
        container("new", 0, NEW, 55),
    ];
    if with_tasks {
        containers.push(container("w\u{1b}b", 7, (0, 0), 16));
    }
    writer
        .json(ChunkKind::Containers, containers.len(), &containers)
        .unwrap();
    let summary = Summary {
        received: 6,
        probes: vec![ProbeTotal {
            id: 1,
            counters: [("hits", 6), ("recorded", 6)]
                .map(|(name, count)| (name.to_owned(), count))
                .into(),
            ..ProbeTotal::default()
        }],
        ..Summary::default()
    };
    writer.json(ChunkKind::Summary, 0, &summary).unwrap();
    writer
        .json(ChunkKind::End, 1, &RecordingEnd { hits: 6 })
        .unwrap();
    writer.finish().unwrap();
}

/// What a command prints of the sample.
fn printed(with_tasks: bool, arguments: &[&str]) -> String {
    // Tests run beside each other.
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let scratch = Scratch::new(&format!("capsule-tasks-{call}"));
    write_sample(Path::new(&scratch.path("x")), with_tasks);
    let output = Command::new(env!("CARGO_BIN_EXE_nsprobe"))
        .args(arguments)
        .arg(scratch.path("x"))
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The values of a key in the lines that have one.
fn values(text: &str, key: &str) -> Vec<serde_json::Value> {
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|line: &serde_json::Value| line["type"] == "hit" || line["type"] == "row")
        .map(|line| line[key].clone())
        .collect()
}

#[test]
fn a_hit_is_in_the_container_of_that_moment() {
    let text = printed(true, &["script", "--json", "-q"]);
    let null = serde_json::Value::Null;
    assert_eq!(
        values(&text, "container"),
        [
            null.clone(),
            "w\u{1b}b".into(),
            "old".into(),
            "new".into(),
            "new".into(),
            null
        ]
    );
}

#[test]
fn people_see_containers_and_the_tree() {
    let verbs = [
        &["script", "-q"][..],
        &["report", "--by", "container", "-q"],
        &["info"],
    ];
    let texts: Vec<String> = verbs.iter().map(|verb| printed(true, verb)).collect();
    check_golden("capsule-tasks.txt", &texts.join("\n"));
}

#[test]
fn hits_are_counted_by_container() {
    let text = printed(true, &["report", "--by", "container", "--json", "-q"]);
    let rows: Vec<(serde_json::Value, serde_json::Value)> = values(&text, "key")
        .into_iter()
        .map(|key| key["container"].clone())
        .zip(values(&text, "count"))
        .collect();
    let find = |name: serde_json::Value| {
        let found: Vec<_> = rows.iter().filter(|(key, _)| *key == name).collect();
        assert_eq!(found.len(), 1, "{name} in {rows:?}");
        found[0].1.as_u64().unwrap()
    };
    assert_eq!(find("new".into()), 2);
    assert_eq!(find("old".into()), 1);
    assert_eq!(find("w\u{1b}b".into()), 1);
    assert_eq!(find("pid:[4026532002]".into()), 1);
    assert_eq!(find("(host)".into()), 1);
}

#[test]
fn the_tree_has_those_that_ended() {
    let text = printed(true, &["info"]);
    assert!(
        text.contains(&format!("tree:      pid:[{}]", HOST.1)),
        "{text}"
    );
    assert!(
        text.contains("container: old pid:[4026532001] (podman)\n"),
        "{text}"
    );
    let told: serde_json::Value =
        serde_json::from_str(&printed(true, &["info", "--json"])).unwrap();
    assert_eq!(told["task_records"], 7);
    let tree = told["tree"].as_array().unwrap();
    let tasks: usize = tree
        .iter()
        .map(|namespace| namespace["tasks"].as_array().unwrap().len())
        .sum();
    assert_eq!((tree.len(), tasks), (4, 5));
    let exit = &tree[1]["tasks"][0]["ended"];
    assert_eq!(
        (&exit["how"], &exit["time_ns"]),
        (&"exit".into(), &(45 * MS).into())
    );
}

/// As one of before there were tasks in capsules, or with `--no-tasks`.
#[test]
fn without_tasks_the_namespace_alone_tells() {
    let text = printed(false, &["script", "--json", "-q"]);
    let null = serde_json::Value::Null;
    assert_eq!(
        values(&text, "container"),
        [
            null.clone(),
            null.clone(),
            "old".into(),
            "new".into(),
            "new".into(),
            null
        ]
    );
    assert!(!printed(false, &["info"]).contains("tree:"));
}
