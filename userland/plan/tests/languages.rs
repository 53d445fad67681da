// SPDX-License-Identifier: MIT OR Apache-2.0
//! C++ and Rust programs: values by debug information against the source's.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use nsprobe_plan::debug::{DebugInfo, Function};
use nsprobe_plan::{Place, Scope};
use std::path::Path;
use support::{open, path, stop, Folder, Stop};

/// What an expression is found to be.
enum Wanted {
    Number(i64),
    Text(&'static str),
    Error(&'static str),
}
use Wanted::{Error, Number, Text};

fn only(debug: &DebugInfo<'_>, name: &str) -> Function {
    let mut found = debug.functions_named(name).unwrap();
    found.retain(|function| !function.inlined);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found.remove(0)
}

/// Checks expressions at an address of a function, at its entry or its body.
fn check(program: &Path, name: &str, at_body: bool, wanted: &[(&str, Wanted)]) {
    let binary = open(program);
    let debug = DebugInfo::new(&binary, None, None).unwrap();
    let function = only(&debug, name);
    let returned = wanted.iter().any(|(text, _)| text.starts_with("$retval"));
    let address = match at_body {
        true => debug.body_pc(&function).unwrap(),
        false => function.entry,
    };
    let place = match returned {
        true => Stop::ReturnOf(function.entry.0),
        false => Stop::At(address.0),
    };
    let Some(stopped) = stop(program, &place, &[]) else {
        return;
    };
    let scope = debug.scope(&function, address).unwrap();
    for (expression, wanted) in wanted {
        let typed = path(&scope, &stopped, expression);
        let typed = match (typed, wanted) {
            (Err(why), Error(says)) => {
                assert!(why.contains(says), "{name} {expression}: {why}");
                continue;
            }
            (typed, _) => typed.unwrap_or_else(|why| panic!("{name} {expression}: {why}")),
        };
        match wanted {
            Number(number) => {
                let found = stopped.number(&typed).map(|found| found as i64);
                assert_eq!(found, Some(*number), "{name} {expression} {typed:?}");
            }
            Text(text) => {
                let at = stopped.number(&typed).unwrap();
                let bytes = stopped.read(at, text.len()).unwrap();
                assert_eq!(bytes, text.as_bytes(), "{name} {expression} {typed:?}");
            }
            Error(says) => panic!("{name} {expression}: {typed:?}, not: {says}"),
        }
    }
}

const CXX_VARIANTS: [&[&str]; 4] = [
    &["-O0", "-gdwarf-4"],
    &["-O0", "-gdwarf-5", "-fdebug-types-section"],
    &["-O2", "-gdwarf-5"],
    &["-O2", "-gdwarf-4", "-fdebug-types-section"],
];

#[test]
fn cxx_objects_are_looked_into() {
    let folder = Folder::new("cxx");
    for flags in CXX_VARIANTS {
        let program = folder.build("g++", "values.cc", flags).unwrap();
        println!("{flags:?}");
        for at_body in [false, true] {
            check(
                &program,
                "shop::Item::cost",
                at_body,
                &[
                    ("this.id", Number(1001)),
                    ("this.weight", Number(7)),
                    ("this.state", Number(250)),
                    ("this.reference.*", Number(31)),
                    ("this.name._M_dataplus._M_p", Text("a name that is longer")),
                    ("this.name._M_string_length", Number(43)),
                    ("factor", Number(-5)),
                    ("other.id", Number(1002)),
                    ("other.name._M_dataplus._M_p", Text("short\0")),
                    ("s", Number(3)),
                    ("shop::stock", Number(12)),
                    ("stock", Number(12)),
                    ("hidden_stock", Number(13)),
                    ("Item::count", Number(99)),
                    ("count", Number(99)),
                    ("calls", Number(6)),
                    ("by_value::calls", Number(17)),
                ],
            );
            check(
                &program,
                "Box::get",
                at_body,
                &[("this.value", Number(40)), ("plus", Number(-2))],
            );
        }
    }
}

#[test]
fn cxx_objects_by_value_are_references() {
    let folder = Folder::new("cxx-by-value");
    for flags in CXX_VARIANTS {
        let program = folder.build("g++", "values.cc", flags).unwrap();
        println!("{flags:?}");
        for at_body in [false, true] {
            check(
                &program,
                "by_value",
                at_body,
                &[
                    ("item.id", Number(1001)),
                    ("item.weight", Number(7)),
                    ("text._M_dataplus._M_p", Text("text\0")),
                    ("inner.code", Number(65000)),
                    ("last", Number(-9)),
                    ("calls", Number(17)),
                    ("shop::calls", Number(6)),
                    ("count", Error("there is no variable")),
                ],
            );
        }
        check(
            &program,
            "give_reference",
            false,
            &[("$retval.*", Number(7))],
        );
        check(
            &program,
            "give_string",
            false,
            &[
                ("$retval._M_string_length", Number(50)),
                ("$retval._M_dataplus._M_p", Text("zzzz")),
            ],
        );
        check(
            &program,
            "give_handle",
            false,
            &[("$retval", Error("C++ class is passed"))],
        );
        check(&program, "give_string", false, &[("length", Number(50))]);
    }
}

#[test]
fn rust_values_are_found() {
    let folder = Folder::new("rust");
    for (at_body, flags) in [
        (true, &["-g", "-Copt-level=0"][..]),
        (false, &["-g", "-Copt-level=0"]),
        (true, &["-g", "-Copt-level=2"]),
        (false, &["-g", "-Copt-level=2"]),
        (false, &["-g", "-Copt-level=3", "-Cpanic=abort"]),
        (
            false,
            &["-g", "-Copt-level=0", "-Cforce-frame-pointers=yes"],
        ),
    ] {
        let Some(program) = folder.build("rustc", "values.rs", flags) else {
            return;
        };
        println!("{flags:?} {at_body}");
        check(
            &program,
            "values::scalars",
            at_body,
            &[
                ("a", Number(-3)),
                ("b", Number(4_000_000_000)),
                ("c", Number(-5_000_000_000)),
                ("d", Number(1)),
                ("e", Number(0xdf)),
                ("LIMIT", Number(77)),
            ],
        );
        check(
            &program,
            "strings",
            at_body,
            &[
                ("text.data_ptr", Text("a text")),
                ("text.length", Number(6)),
                ("numbers.data_ptr.*", Number(500)),
                ("numbers.length", Number(2)),
                ("account.id", Number(4242)),
                ("account.delta", Number(-300)),
                ("account.open", Number(1)),
                ("account.name.vec.len", Number(7)),
                ("level", Number(200)),
            ],
        );
        check(&program, "scalars", false, &[("$retval", Number(-17))]);
        check(&program, "strings", false, &[("$retval", Number(4742))]);
    }
}

#[test]
fn a_struct_in_two_registers_is_in_pieces() {
    let folder = Folder::new("pieces");
    let Some(program) = folder.build("rustc", "values.rs", &["-g", "-Copt-level=2"]) else {
        return;
    };
    let binary = open(&program);
    let debug = DebugInfo::new(&binary, None, None).unwrap();
    let strings = only(&debug, "strings");
    let scope = debug.scope(&strings, strings.entry).unwrap();
    let text = scope.variable("text").unwrap().value.unwrap();
    let Place::Pieces(pieces) = text.place else {
        panic!("{text:?}");
    };
    assert_eq!(pieces.len(), 2);
}
