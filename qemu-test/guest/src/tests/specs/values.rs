// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `$NAME` means and how formats show a value, each against what is known without
//! nsprobe.

use super::{handle, program, trace, Both};
use crate::command::{self, Running};
use crate::container::{pid_namespace, pid_space};
use crate::debug_files::tool;
use crate::module::Module;
use crate::sys;
use crate::tests::waits::child_of;
use crate::victim::{self, Victim};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// The numbers of a line of a thread's status.
fn status(pid: u32, tid: u32, key: &str) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
    let status = status.expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let numbers = line.unwrap_or_else(|| panic!("no {key} in {status}"));
    let numbers = numbers.split_whitespace().map(str::parse);
    numbers.map(|number| number.expect("a number")).collect()
}

test! { full, built_ins_are_those_of_the_task }
/// A user's program with two threads, in a pid namespace of its own and on one CPU.
fn built_ins_are_those_of_the_task() {
    const USER: u32 = 1234;
    let _module = Module::load();
    let online = fs::read_to_string("/sys/devices/system/cpu/online").expect("sysfs");
    let cpu = online.trim().rsplit(['-', ',']).next().unwrap_or("0");
    let file = victim::path("family");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "taskset", "-c", cpu]);
    command.args(["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups"]);
    let mut victim = Victim::start_command(command.arg(&file), &file);
    let outer = victim.pid();
    let pid = child_of(outer);
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let threads = threads.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    let second = threads.into_iter().find(|tid| *tid != pid);
    let second: u32 = second.expect("two threads");

    let file = file.display();
    let names = [
        "pid", "tid", "nspid", "nstid", "pidns", "uid", "cpu", "time", "probe", "pidnsid",
    ];
    let fields: Vec<String> = names.iter().map(|name| format!("{name}=${name}")).collect();
    let fields = fields.join(", ");
    let specs = [
        format!("{file}:main({fields})"),
        format!("{file}:member({fields})"),
    ];
    let required = format!("{file}:member({fields}) if $nstid != $nspid && $uid == {USER}");
    let pid_word = pid.to_string();
    let words = ["trace", "--json", "-p", &pid_word];
    let all = words.into_iter().chain(specs.iter().map(String::as_str));
    let mut running = Running::start(&all.collect::<Vec<&str>>());
    running.attached(2);
    let mut choosy = Running::start(&[&words[..], &[&required]].concat());
    choosy.attached(3);
    let before = sys::monotonic_ns();
    victim.order("m 2");
    let between = sys::monotonic_ns();
    victim.order("t 3");
    let after = sys::monotonic_ns();
    let [hits, chosen] = [running, choosy].map(|trace| {
        let (code, lines, errors) = trace.finish();
        assert_eq!(code, Some(0), "{errors}");
        let lines = lines.iter();
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let hits = lines.filter(|line| line["type"] == "hit");
        hits.collect::<Vec<Value>>()
    });
    let calls = |probe: u32, tid: u32| {
        let is_it = |hit: &&Value| hit["probe"] == probe && hit["tid"] == tid;
        hits.iter().filter(is_it).count()
    };
    let counts = [calls(2, pid), calls(2, second)];
    assert_eq!((counts, hits.len()), ([2, 3], 5), "{hits:#?}");
    assert_eq!(chosen.len(), 3, "{chosen:#?}");
    assert!(chosen.iter().all(|hit| hit["tid"] == second), "{chosen:#?}");
    for hit in hits.iter().chain(&chosen) {
        let (tid, times) = match hit["tid"] == pid {
            true => (pid, before..between),
            false => (second, between..after),
        };
        let fields = &hit["fields"];
        let last = |key| status(pid, tid, key).last().copied().expect("one");
        let number = |name: &str| fields[name].as_u64().unwrap_or_else(|| panic!("{hit}"));
        let got = names[..7].iter().map(|name| number(name) as u32);
        let cpu = cpu.parse().expect("a number");
        let user = status(pid, tid, "Uid:")[1];
        let wanted = [
            pid,
            tid,
            last("NStgid:"),
            last("NSpid:"),
            pid_namespace(pid),
            user,
            cpu,
        ];
        assert_eq!(got.collect::<Vec<u32>>(), wanted, "{names:?} of {hit}");
        assert_eq!((user, last("NStgid:")), (USER, 1), "it is no test");
        assert!(times.contains(&number("time")), "{times:?}: {hit}");
        assert_eq!(fields["time"], hit["time_ns"]);
        assert_eq!(fields["probe"], hit["probe"]);
        assert_eq!(number("pidnsid"), pid_space(pid).id, "{hit}");
        assert_eq!(fields["pidnsid"], hit["pid_namespace_id"]);
    }
}

test! { full, formats_show_what_they_say }
/// Each format of one number, which has something in all its bytes.
fn formats_show_what_they_say() {
    const FACTOR: i64 = 0x1f2e_3d4c_5b6a_7988;
    let _module = Module::load();
    let formats = [
        "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "x8", "x16", "x32", "x64", "hex",
        "ptr", "bits", "char", "bool",
    ];
    let fields = formats.map(|format| format!("{format}=number*{FACTOR:#x}-77:{format}"));
    let fields = fields.join(", ");
    let spec = handle(&format!("({fields}, zero=number-3:bool, letter=flag:char)"));
    let (both, _) = trace("trace", &[&spec], 30);
    let found = both.fields();
    assert_eq!(found.len(), 30);
    let value = |index: usize| (index as i64).wrapping_mul(FACTOR).wrapping_sub(77);
    for (index, found) in found.into_iter().enumerate() {
        let value = value(index);
        let wanted = json!({
            "u8": value as u8, "u16": value as u16, "u32": value as u32, "u64": value as u64,
            "s8": value as i8, "s16": value as i16, "s32": value as i32, "s64": value,
            "x8": format!("{:#x}", value as u8), "x16": format!("{:#x}", value as u16),
            "x32": format!("{:#x}", value as u32), "x64": format!("{value:#x}"),
            "hex": format!("{value:#x}"), "ptr": format!("{value:#x}"),
            "bits": format!("{value:#b}"), "char": char::from(value as u8),
            "bool": true, "zero": index != 3, "letter": char::from(b'A' + (index % 26) as u8),
        });
        assert_eq!(*found, wanted, "call {index}: {value:#x}");
    }
    // For people; of the calls the last one is looked at.
    let program = program();
    let got = command::run(&["trace", "-q", &spec, "--", &program, "12"]).succeeded();
    let hits = got.lines().filter(|line| line.contains("u8="));
    let line = hits.last().expect("a hit");
    let value = value(11);
    for wanted in [
        format!("u8={}", value as u8),
        format!("u16={}", value as u16),
        format!("s8={}", value as i8),
        format!("s32={}", value as i32),
        format!("s64={value}"),
        format!("x16={:#x}", value as u16),
        format!("ptr={value:#x}"),
        format!("bits={value:#b}"),
        "bool=true".to_owned(),
        "letter='L'".to_owned(),
    ] {
        let is_there = line.split_whitespace().any(|word| word == wanted);
        assert!(is_there, "no {wanted} in {line}");
    }
}

/// Events of `perf probe` on the victim; they go with the value.
struct PerfEvents;

const PERF_DATA: &str = "/tmp/nsprobe-perf.data";

/// What the table in docs/spec.md for users of perf probe calls the same: an event's name, what
/// perf is asked for, and what nsprobe is. LINE is that of the marked line.
const SAME: [(&str, &str, &str); 5] = [
    (
        "entry",
        "handle number flag n=%si:u32 at=+16(%di):x64 url=request->url:string who=$comm",
        "handle(number, flag, n=%si:u32, at=+16(%di):x64, url=request->url, who=$comm)",
    ),
    ("params", "handle $params", "handle($params)"),
    (
        "returned__return",
        "handle%return value=$retval",
        "handle(value=$retval)",
    ),
    ("line", "requests.c:LINE local", "requests.c:LINE(local)"),
    ("chosen", "handle number", "handle(number) if number > 3"),
];

/// What one call has, by name.
type Values = BTreeMap<String, String>;

impl PerfEvents {
    fn new(line: u32) -> PerfEvents {
        let program = program();
        // A return's name gets its end by itself.
        let event = |(name, asked, _): (&str, &str, &str)| {
            let name = name.trim_end_matches("__return");
            format!("{name}={}", asked.replace("LINE", &line.to_string()))
        };
        let events = SAME.map(event);
        let mut words = vec!["probe", "-q", "-x", &program];
        words.extend(events.iter().flat_map(|event| ["-a", event.as_str()]));
        tool("perf", &words);
        PerfEvents
    }

    /// The values of each call that the kernel records, by event.
    fn record(&self, calls: &str) -> BTreeMap<String, Vec<Values>> {
        let (program, events) = (
            program(),
            SAME.map(|(name, ..)| format!("probe_requests:{name}")),
        );
        let mut record = vec!["record", "-q", "-o", PERF_DATA];
        record.extend(events.iter().flat_map(|event| ["-e", event.as_str()]));
        // Of the last one.
        record.extend(["--filter", "number > 3", "--", &program, calls]);
        tool("perf", &record);
        let script = tool("perf", &["script", "-i", PERF_DATA, "-F", "event,trace"]);
        let mut recorded: BTreeMap<String, Vec<Values>> = BTreeMap::new();
        for line in script.lines() {
            let (event, values) = line.split_once(": ").expect("an event");
            let (_, event) = event.split_once(':').expect("a group");
            let pairs = values.split(' ').filter_map(|word| word.split_once('='));
            let values = pairs.map(|(name, value)| (name.to_owned(), plain(value)));
            let of_it = recorded.entry(event.to_owned()).or_default();
            of_it.push(values.collect());
        }
        recorded
    }
}

impl Drop for PerfEvents {
    fn drop(&mut self) {
        let delete = ["probe", "-q", "-d", "probe_requests:*"];
        let _ = Command::new("perf").args(delete).status();
        let _ = fs::remove_file(PERF_DATA);
    }
}

/// A value without what the two write in different ways: quotes, the base of numbers, and small
/// numbers that one of them shows as letters.
fn plain(value: &str) -> String {
    let value = value.trim_matches('"');
    let number = value.strip_prefix("0x");
    let number = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match (number, value.as_bytes()) {
        (Some(number), _) => number.to_string(),
        (None, [letter @ b'A'..=b'Z']) => letter.to_string(),
        (None, _) => value.to_owned(),
    }
}

/// Of two programs that run one after the other, addresses are not the same.
fn comparable(mut values: Values) -> Values {
    values.remove("request");
    values
}

fn fields_of(both: &Both) -> Vec<Values> {
    let plain = |(name, value): (&String, &Value)| (name.clone(), plain(&value.to_string()));
    let values = |fields: &Value| {
        fields
            .as_object()
            .map(|all| all.iter().map(plain).collect())
    };
    let hits = both.fields().into_iter();
    hits.map(|fields| values(fields).expect("an object"))
        .collect()
}

test! { full, what_comes_from_perf_probe_fetches_the_same, seconds = 180 }
/// Each event of perf and its spec give the same values of the same calls.
fn what_comes_from_perf_probe_fetches_the_same() {
    let _module = Module::load();
    let (both, _) = trace("count", &[&handle("")], 1);
    let line = both.line.to_string();
    let mut recorded = PerfEvents::new(both.line).record("9");
    for (name, _, spec) in SAME {
        let spec = format!("{}:{}", program(), spec.replace("LINE", &line));
        let (both, _) = trace("trace", &[&spec], 9);
        let recorded = recorded.remove(name).unwrap_or_default();
        let [recorded, traced] = [recorded, fields_of(&both)]
            .map(|all| all.into_iter().map(comparable).collect::<Vec<Values>>());
        let calls = if name == "chosen" { 5 } else { 9 };
        assert_eq!((traced.len(), &traced), (calls, &recorded), "{spec}");
        assert!(traced.iter().all(|values| !values.is_empty()), "{traced:?}");
    }
}
