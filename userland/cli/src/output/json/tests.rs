// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON lines against their documentation.

use super::*;
use libnsprobe::common::record::{Frame, Hit, Lost, Method, StackEnd};
use libnsprobe::Counters;
use nsprobe_spec::decode::{FieldFormat, FieldValue, WordShape};
use nsprobe_symbolize::{FileOffset, FoundIn, FrameSource, NamesFrom, SourceFrame};
use nsprobe_trace::hits::view::{FrameView, HitView};
use nsprobe_trace::names::named::NamedFrame;
use nsprobe_trace::names::NamesNote;
use nsprobe_trace::summary::{MissedCalls, ProbeSummary, Summary};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Result;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const DOCUMENTATION: &str = include_str!("../../../../../docs/json.md");

fn parsed(write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Value {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    let line = out.strip_suffix(b"\n").unwrap();
    assert!(line.iter().all(|byte| (b' '..=b'~').contains(byte)));
    serde_json::from_slice(line).unwrap()
}

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.insert(key.clone());
                keys(value, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

fn frames() -> [FrameView; 2] {
    let named = NamedFrame {
        functions: vec![SourceFrame {
            function: "f".into(),
            function_offset: Some(1),
            file: Some("f.c".into()),
            line: Some(2),
            inlined: false,
        }],
        source: Some(FrameSource::Dwarf),
        from: NamesFrom::File(Arc::new("/x.debug".into()), FoundIn::Container),
        function_start: Some(0x1a00),
        unresolved: Some("no".into()),
        path: Some("/x".into()),
        build_id: "ab".into(),
        doubtful: true,
    };
    let object = Frame::Object {
        id: 1,
        offset: 0x1a40,
        method: Method::StackTop as u8,
    };
    let address = Frame::Address {
        address: 0x7fff_0000,
        why: 1,
        method: Method::FramePointer as u8,
    };
    [object, address].map(|frame| FrameView {
        frame,
        named: Rc::new(named.clone()),
    })
}

/// Strings of at most 4 bytes: one that is there, and one of which there may be more.
fn strings() -> ([FieldFormat; 2], [FieldValue; 2]) {
    let formats = ["name", "path"].map(|name| FieldFormat::new(name, WordShape::Text { most: 4 }));
    let values = [(&b"abc"[..], false), (b"abcd", true)].map(|(bytes, cut)| FieldValue::Text {
        bytes: bytes.to_vec(),
        cut,
    });
    (formats, values)
}

fn a_row() -> Value {
    let (formats, values) = strings();
    let view = RowView {
        of: "total",
        at: Duration::from_secs(1),
        key: crate::output::fields::Json {
            formats: &formats,
            values: &values,
        },
        row: &libnsprobe::TableRow::default(),
        has_values: false,
        scale: None,
        frames: None,
        other: None,
    };
    parsed(|out| row(out, &view))
}

fn a_hit() -> Value {
    let mut record = Hit {
        time_ns: 2_500_000_000,
        stack_end: StackEnd::Fault as u8,
        ..Hit::default()
    };
    record.comm[..4].copy_from_slice(b"a\xff\x1bb");
    let (formats, values) = strings();
    let view = HitView {
        elapsed_ns: None,
        formats: &formats,
        values: &values,
        hit: &record,
        start_ns: 2_000_000_000,
        label: "x:f",
        binary: "/x",
        function: "f",
        frames: &frames(),
        kernel: &[],
        container: Some("wéb"),
    };
    parsed(|out| hit(out, &view))
}

fn a_summary() -> Value {
    let summary = Summary {
        elapsed: Duration::from_secs(1),
        ended_by: "interrupted".into(),
        printed: 0,
        received: 0,
        overwritten: 0,
        untraced: None,
        has_stacks: true,
        probes: vec![ProbeSummary {
            id: 1,
            binary: "/x".into(),
            function: "f".into(),
            label: "x:f".into(),
            offset: FileOffset(16),
            counters: Counters::default(),
            missed: MissedCalls::default(),
            cpus: [(3, Counters::default())].into(),
        }],
        tasks: [].into(),
        late: 0,
        finished: 0,
        rows: None,
        held: None,
        failure: None,
        names: vec![NamesNote::plain("/x: DWARF".to_owned())],
    };
    parsed(|out| self::summary(out, &summary))
}

#[test]
fn lines_are_ascii_and_lose_nothing() {
    let name = "a\"\\\n\u{1b}[31m\u{202e}\u{7f}\u{9b}é😀";
    assert_eq!(parsed(|out| line(out, &name)), Value::from(name));
}

#[test]
fn a_hit_says_what_it_must() {
    let hit = a_hit();
    assert_eq!(hit["type"], "hit");
    assert_eq!(hit["time_s"], 0.5);
    assert_eq!(hit["comm"], "a\u{fffd}\u{1b}b");
    assert_eq!(hit["stack_end"], "fault");
    assert_eq!(hit["stack"][0]["file_offset"], "0x1a40");
    assert_eq!(hit["stack"][0]["how"], "stack-top");
    assert_eq!(hit["stack"][1]["address"], "0x7fff0000");
    assert_eq!(hit["stack"][1].get("object"), None);
}

#[test]
fn strings_of_which_there_may_be_more_are_named() {
    for (value, strings) in [(a_hit(), "fields"), (a_row(), "key")] {
        assert_eq!(value[strings]["path"], "abcd");
        assert_eq!(value["truncated"], serde_json::json!(["path"]));
    }
}

#[test]
fn every_key_is_documented() {
    let lost_record = Lost::default();
    let mut found = BTreeSet::new();
    keys(&a_hit(), &mut found);
    keys(&a_row(), &mut found);
    keys(&parsed(|out| lost(out, &lost_record, 0)), &mut found);
    keys(&a_summary(), &mut found);
    for key in found {
        let quoted = format!("`{key}`");
        assert!(
            DOCUMENTATION.contains(&quoted),
            "{key} is not in docs/json.md"
        );
    }
}
