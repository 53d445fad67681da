// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stacks of a capsule in the formats that others open: each has what `report` has.

use crate::capsule::sample::write_sample;
use crate::support::Scratch;
use opentelemetry_proto::tonic::profiles::v1development::ProfilesData;
use prost::Message;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nsprobe");
/// Hits of the sample.
const HITS: u64 = 6;
const FORMATS: [(&str, &str); 5] = [
    ("flamegraph", "x.svg"),
    ("folded", "x.folded"),
    ("pprof", "x.pb.gz"),
    ("otlp", "x.otlp"),
    ("speedscope", "x.speedscope.json"),
];

fn nsprobe(scratch: &Scratch, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    let command = command.args(arguments).current_dir(&scratch.0);
    command.output().unwrap()
}

fn export_words(scratch: &Scratch, words: &str) -> Output {
    let words: Vec<&str> = ["export"].into_iter().chain(words.split(' ')).collect();
    nsprobe(scratch, &words)
}

/// Exports the sample, by its containers; what was written.
fn export(scratch: &Scratch, format: &str, name: &str) -> Vec<u8> {
    let words = ["export", format, "x", "--by", "container", "-o", name];
    let output = nsprobe(scratch, &words);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    let stacks = told.lines().next();
    assert_eq!(stacks, Some(&*format!("nsprobe: 6 stacks in {name}")));
    // As `report` tells it.
    assert!(told.contains("1 hit not in the capsule"), "{told}");
    fs::read(scratch.path(name)).unwrap()
}

fn sample(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    write_sample(Path::new(&scratch.path("x")));
    scratch
}

/// Stacks, their frames from the outermost on, and their numbers.
type Stacks = BTreeMap<Vec<String>, u64>;

fn folded(text: &str) -> Stacks {
    let mut stacks = Stacks::new();
    for (frames, count) in text.lines().map(|line| line.rsplit_once(' ').unwrap()) {
        let frames = frames.split(';').map(str::to_owned).collect();
        *stacks.entry(frames).or_default() += count.parse::<u64>().unwrap();
    }
    stacks
}

/// The sum of all values.
fn of_otlp(bytes: &[u8]) -> i64 {
    let data = ProfilesData::decode(bytes).unwrap();
    let scopes = data
        .resource_profiles
        .iter()
        .flat_map(|one| &one.scope_profiles);
    let samples = scopes
        .flat_map(|one| &one.profiles)
        .flat_map(|one| &one.samples);
    samples.flat_map(|sample| &sample.values).sum()
}

fn of_speedscope(bytes: &[u8]) -> Stacks {
    let file: Value = serde_json::from_slice(bytes).unwrap();
    let frames = file["shared"]["frames"].as_array().unwrap();
    let profile = &file["profiles"][0];
    let name = |index: &Value| frames[index.as_u64().unwrap() as usize]["name"].as_str();
    let names = |stack: &Value| {
        let indices = stack.as_array().unwrap().iter();
        indices.map(|i| name(i).unwrap().to_owned()).collect()
    };
    let samples = profile["samples"].as_array().unwrap().iter().map(names);
    let weights = profile["weights"].as_array().unwrap().iter();
    let mut stacks = Stacks::new();
    for (stack, weight) in samples.zip(weights) {
        *stacks.entry(stack).or_default() += weight.as_u64().unwrap();
    }
    stacks
}

/// What of pprof's messages has stacks and their names.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = "2")]
        pub(super) samples: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub(super) mappings: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub(super) locations: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub(super) functions: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub(super) strings: Vec<String>,
        #[prost(int64, tag = "9")]
        pub(super) time_ns: i64,
        #[prost(int64, tag = "10")]
        pub(super) duration_ns: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub(super) locations: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(super) values: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) labels: Vec<Label>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Label {
        #[prost(int64, tag = "1")]
        pub(super) key: i64,
        #[prost(int64, tag = "2")]
        pub(super) value: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Mapping {
        #[prost(int64, tag = "5")]
        pub(super) path: i64,
        #[prost(int64, tag = "6")]
        pub(super) build_id: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Location {
        #[prost(message, repeated, tag = "4")]
        pub(super) lines: Vec<Line>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Line {
        #[prost(uint64, tag = "1")]
        pub(super) function: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Function {
        #[prost(int64, tag = "2")]
        pub(super) name: i64,
    }
}

fn of_pprof(bytes: &[u8]) -> proto::Profile {
    let mut unpacked = Vec::new();
    let mut gzip = flate2::read::GzDecoder::new(bytes);
    gzip.read_to_end(&mut unpacked).unwrap();
    proto::Profile::decode(unpacked.as_slice()).unwrap()
}

/// Labels are frames in front of the stack, as other formats have them.
fn stacks_of(profile: &proto::Profile) -> Stacks {
    let text = |number: i64| &*profile.strings[number as usize];
    let mut stacks = Stacks::new();
    for sample in &profile.samples {
        let labels = sample.labels.iter();
        let mut frames: Vec<String> = labels
            .map(|label| format!("{}={}", text(label.key), text(label.value)))
            .collect();
        let outermost_first = sample.locations.iter().rev();
        for line in outermost_first.flat_map(|id| {
            let lines = &profile.locations[*id as usize - 1].lines;
            lines.iter().rev()
        }) {
            let function = &profile.functions[line.function as usize - 1];
            frames.push(text(function.name).to_owned());
        }
        *stacks.entry(frames).or_default() += sample.values[0] as u64;
    }
    stacks
}

#[test]
fn all_formats_have_the_stacks_of_the_report() {
    let scratch = sample("pictures");
    let written = FORMATS.map(|(format, name)| export(&scratch, format, name));
    let [svg, lines, pprof, otlp, speedscope] = &written;
    let lines = folded(std::str::from_utf8(lines).unwrap());
    assert_eq!(lines.values().sum::<u64>(), HITS);
    let report = nsprobe(&scratch, &["report", "x", "--by", "container", "--folded"]);
    let report = folded(std::str::from_utf8(&report.stdout).unwrap());
    assert_eq!(report, lines);
    assert_eq!(of_speedscope(speedscope), lines);
    assert_eq!(of_otlp(otlp), HITS as i64);
    let pprof = of_pprof(pprof);
    assert_eq!(stacks_of(&pprof), lines);
    let mapping = &pprof.mappings[0];
    let text = |number: i64| &*pprof.strings[number as usize];
    assert_eq!(
        (text(mapping.path), text(mapping.build_id)),
        ("/usr/bin/app\\n", "00c0ffee")
    );
    assert_eq!(
        (pprof.time_ns, pprof.duration_ns),
        (1_800_000_000_000_000_000, 2_500_000_000)
    );
    let svg = std::str::from_utf8(svg).unwrap();
    for frame in lines.keys().flatten() {
        let title = frame.replace('<', "&lt;").replace('>', "&gt;");
        assert!(svg.contains(&format!("<title>{title} (")), "{title}");
    }
    assert!(svg.contains(&format!("<title>all ({HITS} calls, 100%)")));
    assert!(svg.contains("nsprobe record -o x"));
}

#[test]
fn what_cannot_be_drawn_is_told_and_leaves_nothing() {
    let scratch = sample("pictures-errors");
    fs::write(scratch.path("there.svg"), "mine").unwrap();
    fs::create_dir(scratch.path("folder.svg")).unwrap();
    for (words, code, why) in [
        (
            "folded x -o x.txt",
            2,
            "does not end in one of .svg, .folded, .pb.gz, .otlp, .speedscope.json",
        ),
        (
            "folded x -o x.svg",
            2,
            "-o x.svg: names of this format end in .folded",
        ),
        ("folded x", 2, "--output <FILE>"),
        ("folded none -o y.folded", 1, "cannot open none"),
        (
            "flamegraph x -o there.svg",
            1,
            "there.svg exists: choose another name, or",
        ),
        (
            "flamegraph x -o folder.svg --replace",
            1,
            "folder.svg is a directory",
        ),
        (
            "flamegraph x -o no/y.svg",
            1,
            "cannot write no/y.svg: No such file",
        ),
        (
            "flamegraph x -o y.svg --by no",
            1,
            "--by no: no such field was recorded",
        ),
    ] {
        let output = export_words(&scratch, words);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(why), "{words:?}: {told}");
        assert_eq!(output.status.code(), Some(code), "{told}");
    }
    // As on a full disk: what is written is cut off.
    let limited = "trap '' XFSZ; ulimit -f 1; exec \"$0\" export flamegraph x -o y.svg";
    let mut shell = Command::new("bash");
    let shell = shell.args(["-c", limited, PROGRAM]).current_dir(&scratch.0);
    let output = shell.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        told,
        "nsprobe: cannot write y.svg: File too large (os error 27)\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let mut left: Vec<_> = fs::read_dir(&scratch.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["folder.svg", "there.svg", "x"]);
    assert_eq!(fs::read(scratch.path("there.svg")).unwrap(), b"mine");
    export_words(&scratch, "flamegraph x -o there.svg --replace -q");
    let text = fs::read_to_string(scratch.path("there.svg")).unwrap();
    assert!(text.contains("</svg>"), "{text}");
}
