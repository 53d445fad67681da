// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles for tests.

use crate::{CodeFile, CodePlace, Measure, Profile, Sample, SourcePoint};

fn line(name: &str, place: Option<(&str, u32)>) -> SourcePoint {
    SourcePoint {
        name: name.to_owned(),
        system_name: format!("long {name}"),
        is_named: !name.starts_with('['),
        file: place.map(|(file, _)| file.to_owned()),
        line: place.map(|(_, line)| line),
    }
}

fn location(mapping: Option<usize>, offset: u64, lines: Vec<SourcePoint>) -> CodePlace {
    CodePlace {
        mapping,
        offset,
        lines,
    }
}

fn measure(kind: &str, unit: &str) -> Measure {
    Measure {
        kind: kind.to_owned(),
        unit: unit.to_owned(),
    }
}

fn sample(stack: &[usize], truncated: bool, value: i64) -> Sample {
    Sample {
        keys: vec![("container".to_owned(), "web; 1".to_owned())],
        stack: stack.to_vec(),
        truncated,
        values: vec![value],
    }
}

/// A sample without a key.
pub(crate) fn of_stack(stack: &[usize], value: i64) -> Sample {
    Sample {
        keys: Vec::new(),
        ..sample(stack, false, value)
    }
}

/// A sample of one frame.
pub(crate) fn of_value(value: i64) -> Sample {
    sample(&[0], false, value)
}

/// Calls: with inlined functions, a stack that is cut, a frame without a name, and a stack
/// without frames.
pub(crate) fn profile() -> Profile {
    let serve = vec![
        line("read<a, b>", Some(("/src/read.h", 7))),
        line("serve", Some(("/src/app.c", 30))),
    ];
    Profile {
        title: "a <title>".to_owned(),
        measures: vec![measure("calls", "count")],
        period_ns: None,
        start_unix_ns: 1_800_000_000_000_000_000,
        duration_ns: 2_500_000_000,
        mappings: ["/usr/bin/app", "/lib/\nc.so"]
            .map(|path| CodeFile {
                path: path.to_owned(),
                build_id: "00c0ffee".to_owned(),
            })
            .to_vec(),
        locations: vec![
            location(
                Some(0),
                0x1000,
                vec![line("parse 7", Some(("/src/app.c", 12)))],
            ),
            location(Some(0), 0x2000, serve),
            location(Some(1), 0x3000, vec![line("main", None)]),
            location(None, 0x7f00, vec![line("[app+0x40]", None)]),
        ],
        samples: vec![
            sample(&[0, 1, 2], false, 100),
            sample(&[0, 1], true, 40),
            sample(&[3, 0, 1, 2], false, 3),
            Sample {
                values: vec![5],
                ..Sample::default()
            },
            sample(&[2], false, 0),
        ],
    }
}

/// A profile of the CPU's time: two samples.
pub(crate) fn cpu() -> Profile {
    Profile {
        measures: vec![measure("samples", "count"), measure("cpu", "nanoseconds")],
        period_ns: Some(10_000_000),
        samples: vec![Sample {
            values: vec![2, 20_000_000],
            ..of_value(0)
        }],
        ..profile()
    }
}

/// Fails when elements of XML are not closed in order, or there is a character that may not be.
pub(crate) fn check_well_formed(xml: &str) {
    let mut reader = quick_xml::Reader::from_str(xml);
    loop {
        match reader.read_event() {
            Ok(quick_xml::events::Event::Eof) => break,
            Ok(_) => {}
            Err(error) => panic!("{error}: {xml}"),
        }
    }
    assert!(!xml.contains(['\u{0}', '\u{fffe}', '\u{ffff}']), "{xml}");
}
