// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events of tasks have the fields that lttng-modules gives them.

use nsprobe_ctf::kernel::{classes, StatedumpShape};
use nsprobe_ctf::{EventClass, Type};
use std::collections::BTreeMap;
use std::fs;

/// The fields of each event, a line for each.
type Layouts = BTreeMap<String, Vec<String>>;

fn golden(version: &str) -> Layouts {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let text = fs::read_to_string(format!("{folder}/lttng-{version}.txt")).unwrap();
    let mut layouts = Layouts::new();
    let mut event = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            Some(field) => layouts.get_mut(&event).unwrap().push(field.to_owned()),
            None => {
                event = line.to_owned();
                layouts.insert(event.clone(), Vec::new());
            }
        }
    }
    layouts
}

fn kind(kind: &Type) -> String {
    match kind {
        Type::Integer { base: 16, bits, .. } => format!("hex{bits}"),
        Type::Integer { bits, signed, .. } => {
            let sign = if *signed { "" } else { "u" };
            format!("{sign}int{bits}")
        }
        Type::Name { bytes } => format!("char[{bytes}]"),
        Type::Text => "string".to_owned(),
        Type::Float => "float".to_owned(),
        Type::Sequence {
            length_bits,
            element,
        } => format!("{}[u{length_bits}]", self::kind(element)),
    }
}

fn fields(class: &EventClass) -> Vec<String> {
    let fields = class.fields.iter();
    fields
        .map(|field| format!("{} {}", field.name(), kind(field.kind())))
        .collect()
}

#[test]
fn events_are_laid_out_as_lttng_s() {
    for shape in [StatedumpShape::Old, StatedumpShape::New] {
        let [major, minor, patch] = shape.version();
        // What the older version has not is as the newer one's.
        let mut wanted = golden("2.16.0");
        wanted.extend(golden(&format!("{major}.{minor}.{patch}")));
        let mut met = 0;
        for class in classes(shape) {
            if class.name.starts_with("nsprobe_") {
                continue;
            }
            assert_eq!(
                Some(&fields(&class)),
                wanted.get(&class.name),
                "{}",
                class.name
            );
            met += 1;
        }
        assert_eq!(met, wanted.len(), "{shape:?}");
    }
}

/// The text of lttng-modules' metadata, from a trace of Debian's lttng-modules.
#[test]
fn fields_are_declared_as_lttng_declares_them() {
    let all = classes(StatedumpShape::New);
    let fork = all
        .iter()
        .find(|class| class.name == "sched_process_fork")
        .unwrap();
    let lines: Vec<String> = fork
        .fields
        .iter()
        .flat_map(|field| field.declarations())
        .collect();
    let int = "integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; }";
    let text = "integer { size = 8; align = 8; signed = 1; encoding = UTF8; base = 10; }";
    let unsigned = "integer { size = 32; align = 8; signed = 0; encoding = none; base = 10; }";
    let byte = "integer { size = 8; align = 8; signed = 0; encoding = none; base = 10; }";
    assert_eq!(
        lines,
        [
            format!("{text} _parent_comm[16];"),
            format!("{int} _parent_tid;"),
            format!("{int} _parent_pid;"),
            format!("{unsigned} _parent_ns_inum;"),
            format!("{text} _child_comm[16];"),
            format!("{int} _child_tid;"),
            format!("{byte} __vtids_length;"),
            format!("{int} _vtids[ __vtids_length ];"),
            format!("{int} _child_pid;"),
            format!("{unsigned} _child_ns_inum;"),
        ]
    );
}
