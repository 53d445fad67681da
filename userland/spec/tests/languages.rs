// SPDX-License-Identifier: MIT OR Apache-2.0
//! C++ and Rust programs: values by debug information against the source's.

use crate::support::{open, path, stops, Folder, Stop, Stopped};
use nsprobe_spec::dwarf::{DebugFunction, DebugInfo};
use nsprobe_spec::{Scope, ValuePlace};
use std::path::Path;

/// What an expression is found to be.
enum Wanted {
    Number(i64),
    Text(&'static str),
    Error(&'static str),
}
use Wanted::{Error, Number, Text};

fn only(debug: &DebugInfo<'_>, name: &str) -> DebugFunction {
    let mut found = debug.functions_named(name).unwrap();
    found.retain(|function| !function.inlined);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found.remove(0)
}

/// What is wanted in a function: at its entry, in its body, or after its return.
struct Case {
    function: &'static str,
    at: At,
    wanted: &'static [(&'static str, Wanted)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Entry,
    Body,
    Return,
}

/// Checks expressions in a program, which runs once.
fn check(program: &Path, cases: &[Case]) {
    let binary = open(program);
    let debug = DebugInfo::new(&binary, None, None).unwrap();
    let functions = cases.iter().map(|case| {
        let function = only(&debug, case.function);
        let address = match case.at {
            At::Body => debug.body_pc(&function).unwrap(),
            At::Entry | At::Return => function.entry,
        };
        (function, address)
    });
    let functions: Vec<_> = functions.collect();
    let places = cases.iter().zip(&functions).map(|(case, (_, address))| {
        let expressions: &[&str] = &[];
        match case.at {
            At::Return => (Stop::ReturnOf(address.0), expressions),
            At::Entry | At::Body => (Stop::At(address.0), expressions),
        }
    });
    let Some(stopped) = stops(program, &places.collect::<Vec<_>>()) else {
        return;
    };
    for ((case, (function, address)), stopped) in cases.iter().zip(&functions).zip(stopped) {
        let scope = debug.scope(function, *address).unwrap();
        case.check(&scope, &stopped.unwrap());
    }
}

impl Case {
    fn check(&self, scope: &dyn Scope, stopped: &Stopped) {
        for (expression, wanted) in self.wanted {
            let told = format!("{} {:?} {expression}", self.function, self.at);
            let typed = match (path(scope, stopped, expression), wanted) {
                (Err(why), Error(says)) => {
                    assert!(why.contains(says), "{told}: {why}");
                    continue;
                }
                (typed, _) => typed.unwrap_or_else(|why| panic!("{told}: {why}")),
            };
            match wanted {
                Number(number) => {
                    let found = stopped.number(&typed).map(|found| found as i64);
                    assert_eq!(found, Some(*number), "{told} {typed:?}");
                }
                Text(text) => {
                    let at = stopped.number(&typed).unwrap();
                    let bytes = stopped.read(at, text.len()).unwrap();
                    assert_eq!(bytes, text.as_bytes(), "{told} {typed:?}");
                }
                Error(says) => panic!("{told}: {typed:?}, not: {says}"),
            }
        }
    }
}

const CXX_VARIANTS: [&[&str]; 2] = [
    &["-O0", "-gdwarf-5", "-fdebug-types-section"],
    &["-O2", "-gdwarf-4", "-fdebug-types-section"],
];

const fn case(function: &'static str, at: At, wanted: &'static [(&'static str, Wanted)]) -> Case {
    Case {
        function,
        at,
        wanted,
    }
}

/// An object, what it has, and what is seen from its methods.
const COST: &[(&str, Wanted)] = &[
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
];
const GET: &[(&str, Wanted)] = &[("this.value", Number(40)), ("plus", Number(-2))];
/// Objects by value are references.
const BY_VALUE: &[(&str, Wanted)] = &[
    ("item.id", Number(1001)),
    ("item.weight", Number(7)),
    ("text._M_dataplus._M_p", Text("text\0")),
    ("inner.code", Number(65000)),
    ("last", Number(-9)),
    ("calls", Number(17)),
    ("shop::calls", Number(6)),
    ("count", Error("there is no variable")),
];

#[test]
fn cxx_objects_are_looked_into() {
    let folder = Folder::new("cxx");
    for flags in CXX_VARIANTS {
        let program = folder.build("g++", "values.cc", flags).unwrap();
        println!("{flags:?}");
        let cases = [
            case("shop::Item::cost", At::Entry, COST),
            case("shop::Item::cost", At::Body, COST),
            case("Box::get", At::Entry, GET),
            case("Box::get", At::Body, GET),
            case("by_value", At::Entry, BY_VALUE),
            case("by_value", At::Body, BY_VALUE),
            case("give_reference", At::Return, &[("$retval.*", Number(7))]),
            case(
                "give_string",
                At::Return,
                &[
                    ("$retval._M_string_length", Number(50)),
                    ("$retval._M_dataplus._M_p", Text("zzzz")),
                ],
            ),
            case(
                "give_handle",
                At::Return,
                &[("$retval", Error("C++ class is passed"))],
            ),
            case("give_string", At::Entry, &[("length", Number(50))]),
        ];
        check(&program, &cases);
    }
}

const SCALARS: &[(&str, Wanted)] = &[
    ("a", Number(-3)),
    ("b", Number(4_000_000_000)),
    ("c", Number(-5_000_000_000)),
    ("d", Number(1)),
    ("e", Number(0xdf)),
    ("LIMIT", Number(77)),
];
const STRINGS: &[(&str, Wanted)] = &[
    ("text.data_ptr", Text("a text")),
    ("text.length", Number(6)),
    ("numbers.data_ptr.*", Number(500)),
    ("numbers.length", Number(2)),
    ("account.id", Number(4242)),
    ("account.delta", Number(-300)),
    ("account.open", Number(1)),
    ("account.name.vec.len", Number(7)),
    ("level", Number(200)),
];

#[test]
fn rust_values_are_found() {
    let folder = Folder::new("rust");
    for (at_body, flags) in [
        (true, &["-g", "-Copt-level=0"][..]),
        (true, &["-g", "-Copt-level=2"]),
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
        let mut cases = vec![
            case("values::scalars", At::Entry, SCALARS),
            case("strings", At::Entry, STRINGS),
            case("scalars", At::Return, &[("$retval", Number(-17))]),
            case("strings", At::Return, &[("$retval", Number(4742))]),
        ];
        if at_body {
            cases.push(case("values::scalars", At::Body, SCALARS));
            cases.push(case("strings", At::Body, STRINGS));
        }
        check(&program, &cases);
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
    let ValuePlace::Pieces(pieces) = text.place else {
        panic!("{text:?}");
    };
    assert_eq!(pieces.len(), 2);
}
