// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is sent is what comes, unless it is more than a query can bring.

use super::*;
use crate::OwnedSink;
use nsprobe_common::program::{Operation, Step};
use nsprobe_spec::decode::WordShape;
use nsprobe_spec::{Layout, Spec};

fn probe_query() -> ProbeQuery {
    ProbeQuery {
        spec: Spec::parse("f").unwrap(),
        typed: "f".to_owned(),
        path: "/app".to_owned(),
        sink: OwnedSink::Record,
        at_return: false,
        max_probes: 2,
        inlined: false,
        exact: false,
        fast_nops: false,
        changes: Vec::new(),
        return_probes: false,
        force: false,
    }
}

fn nested(depth: usize) -> FieldFormat {
    let array = |of| Layout::Array {
        count: 1,
        stride: 8,
        of: Box::new(of),
    };
    let layout = (0..depth).fold(Layout::Bytes(8), |of, _| array(of));
    FieldFormat::new("field", WordShape::Object { bytes: 8, layout })
}

fn probes() -> Probes {
    Probes {
        probes: vec![Probe {
            offset: FileOffset(16),
            breakpoint: FileOffset(20),
            semaphore: None,
            at_function: true,
            at_return: true,
            entry: Some(0),
            ret: None,
            exits: Some(ExitProbes {
                is_go: false,
                returns: vec![FileOffset(32)],
                left: vec![(FileOffset(8), Some(0))],
                by_argument: vec![(FileOffset(12), 0)],
                handed_on: vec![FileOffset(13)],
            }),
            format: 0,
            function: "f".to_owned(),
        }],
        programs: vec![StepProgram {
            steps: vec![
                Step {
                    operation: Operation::Constant as u8,
                    to: 1,
                    large: u64::MAX,
                    small: -1,
                    ..Step::default()
                },
                Step::default(),
            ],
            data: vec![1, 2, 3],
        }],
        formats: vec![vec![nested(8)]],
        keys: vec![FieldFormat::new("comm", WordShape::Comm)],
        notes: vec!["a note".to_owned()],
    }
}

fn sent(probes: &Probes) -> Option<Probes> {
    postcard::from_bytes(&postcard::to_stdvec(probes).unwrap()).ok()
}

#[test]
fn what_is_sent_comes() {
    let probes = probes();
    assert!(probes.is_sound(&probe_query()));
    assert_eq!(sent(&probes), Some(probes));
}

#[test]
fn types_that_nest_without_end_do_not_come() {
    let mut deep = probes();
    deep.formats = vec![vec![nested(500)]];
    assert_eq!(sent(&deep), None);
    // The same without writing it: as deep as a message may be long.
    let begin = r#"[[{"name":"x","shape":{"object":{"bytes":8,"layout":"#;
    let text = begin.to_owned() + &r#"{"array":{"count":1,"stride":1,"of":"#.repeat(1 << 20);
    let none: (Vec<u8>, Vec<u8>) = Default::default();
    let bytes = postcard::to_stdvec(&(none, text, "[]", 0u8)).unwrap();
    assert!(postcard::from_bytes::<Probes>(&bytes).is_err());
}

#[test]
fn what_no_wish_brings_is_not_sound() {
    let is_sound = |change: &dyn Fn(&mut Probes)| {
        let mut changed = probes();
        change(&mut changed);
        changed.is_sound(&probe_query())
    };
    assert!(is_sound(&|probes| probes
        .probes
        .extend(probes.probes.clone())));
    assert!(!is_sound(&|probes| {
        probes.probes = vec![probes.probes[0].clone(); 3];
    }));
    assert!(!is_sound(&|probes| probes.probes[0].entry = Some(1)));
    assert!(!is_sound(&|probes| probes.probes[0].ret = Some(u32::MAX)));
    assert!(!is_sound(&|probes| probes.probes[0].format = 1));
    assert!(!is_sound(&|probes| {
        let exits = probes.probes[0].exits.as_mut().unwrap();
        exits.left[0].1 = Some(1);
    }));
    assert!(!is_sound(&|probes| {
        let exits = probes.probes[0].exits.as_mut().unwrap();
        exits.returns = vec![FileOffset(0); EXITS_MAX];
    }));
    assert!(!is_sound(&|probes| {
        probes.keys = vec![nested(0); FIELDS_MAX + 1];
    }));
    assert!(!is_sound(&|probes| {
        let mut many = nested(0);
        many.shape = WordShape::Object {
            bytes: 8,
            layout: Layout::Array {
                count: u16::MAX,
                stride: 0,
                of: Box::new(Layout::Bytes(0)),
            },
        };
        probes.formats = vec![vec![many]];
    }));
    // A caller that requests no changes gets no program that makes any.
    for operation in [Operation::SetRegister, Operation::Store, Operation::Return] {
        let change = |probes: &mut Probes| {
            probes.programs[0].steps[1].operation = operation as u8;
        };
        assert!(!is_sound(&change));
    }
}
