// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values by debug information against those that the source gives, in what gdb
//! saw of the running program.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use nsprobe_plan::debug::{DebugInfo, Function};
use nsprobe_plan::{Scope, Shape};
use nsprobe_symbolize::{Address, Binary};
use std::path::Path;
use support::{open, path, stop, Folder, Stop};

/// What the fixtures are built with.
const VARIANTS: [&[&str]; 8] = [
    &["-O0", "-gdwarf-4"],
    &["-O0", "-gdwarf-5"],
    &["-O0", "-gdwarf-5", "-no-pie", "-fcf-protection=full"],
    &[
        "-O0",
        "-g",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ],
    &["-O1", "-gdwarf-5"],
    &["-O2", "-gdwarf-4", "-gno-strict-dwarf"],
    &["-O2", "-gdwarf-5"],
    &["-O3", "-gdwarf-2", "-fdebug-types-section"],
];

fn function(debug: &DebugInfo<'_>, binary: &Binary, name: &str) -> Function {
    let symbol = binary.find_functions(name);
    let found = debug.functions_at(symbol[0].address).unwrap();
    found
        .into_iter()
        .find(|function| function.name == name && !function.inlined)
        .unwrap()
}

/// Checks the numbers of expressions at an address of a function.
fn check(program: &Path, name: &str, at_body: bool, wanted: &[(&str, i64)]) {
    let binary = open(program);
    let debug = DebugInfo::new(&binary, None, None).unwrap();
    let function = function(&debug, &binary, name);
    let address = match at_body {
        true => debug.body_pc(&function).unwrap(),
        false => function.entry,
    };
    let Some(stopped) = stop(program, &Stop::At(address.0), &[]) else {
        return;
    };
    let scope = debug.scope(&function, address).unwrap();
    for (expression, number) in wanted {
        let typed = path(&scope, &stopped, expression);
        let typed = typed.unwrap_or_else(|why| panic!("{program:?} {name} {expression}: {why}"));
        let found = stopped.number(&typed).map(|found| found as i64);
        assert_eq!(
            found,
            Some(*number),
            "{program:?} {name} {expression} {typed:?}"
        );
    }
}

/// The same in all variants, at the entry and behind the prologue.
fn check_everywhere(name: &str, wanted: &[(&str, i64)]) {
    let folder = Folder::new(name);
    for flags in VARIANTS {
        let program = folder.build("gcc", "values.c", flags).unwrap();
        println!("{program:?}: {flags:?}");
        check(&program, name, false, wanted);
        check(&program, name, true, wanted);
    }
}

#[test]
fn numbers_are_what_the_caller_passed() {
    check_everywhere(
        "scalars",
        &[
            ("a", -1),
            ("b", 65535),
            ("c", -100_000),
            ("d", -5_000_000_000),
            ("e[0]", i64::from(b't')),
            ("f", 6_000_000_000),
            ("g", 4_000_000_000),
            ("h", -8),
            ("global_number", 4711),
            ("static_name[3]", i64::from(b't')),
            ("nodes[1].color", -3),
        ],
    );
}

#[test]
fn structs_by_value_are_looked_into() {
    check_everywhere(
        "structs",
        &[
            ("p.first", 3),
            ("p.second", -4),
            ("w.a", 5),
            ("w.b", 250),
            ("w.c", -6),
            ("b.numbers[0]", 10),
            ("b.numbers[3]", 40),
            ("b.name[0]", i64::from(b'b')),
            ("m.whole", 77),
            ("color", -3),
            ("yes", 1),
        ],
    );
}

#[test]
fn pointers_lead_to_members_of_all_kinds() {
    check_everywhere(
        "pointers",
        &[
            ("n.number", 0x0102_0304),
            ("n.bytes[1]", 3),
            ("n.at.x", 11),
            ("n.at.y", -12),
            ("n.low", 5),
            ("n.middle", -6),
            ("n.high", 0xabcde),
            ("n.color", 200),
            ("n.grid[1][2]", 6),
            ("n.grid[0][1]", 2),
            ("n.yes", 1),
            ("n.next.color", -3),
            ("n.next.name[0]", i64::from(b's')),
            ("h.secret", 99),
            ("names[1][0]", i64::from(b'b')),
        ],
    );
}

#[test]
fn results_are_found_after_the_return() {
    let folder = Folder::new("results");
    for flags in VARIANTS.into_iter().step_by(2) {
        let program = folder.build("gcc", "values.c", flags).unwrap();
        let binary = open(&program);
        let debug = DebugInfo::new(&binary, None, None).unwrap();
        let returned = |name: &str, wanted: &[(&str, i64)]| {
            let function = function(&debug, &binary, name);
            let scope = debug.scope(&function, function.entry).unwrap();
            let Some(stopped) = stop(&program, &Stop::ReturnOf(function.entry.0), &[]) else {
                return;
            };
            for (expression, number) in wanted {
                let typed = path(&scope, &stopped, expression);
                let typed = typed.unwrap_or_else(|why| panic!("{flags:?} {name}: {why}"));
                let found = stopped.number(&typed).map(|found| found as i64);
                assert_eq!(
                    found,
                    Some(*number),
                    "{flags:?} {name} {expression} {typed:?}"
                );
            }
        };
        returned("scalars", &[("$retval", -42)]);
        returned(
            "give_pair",
            &[("$retval.first", 21), ("$retval.second", -21)],
        );
        returned(
            "give_wide",
            &[("$retval.a", 31), ("$retval.b", 7), ("$retval.c", -8)],
        );
        returned(
            "give_big",
            &[
                ("$retval.numbers[3]", 44),
                ("$retval.name[1]", i64::from(b'i')),
            ],
        );
        returned("give_bool", &[("$retval", 1)]);
        returned("give_char", &[("$retval", 255)]);
        let real = function(&debug, &binary, "give_real");
        let scope = debug.scope(&real, real.entry).unwrap();
        let error = scope.retval().unwrap_err().to_string();
        assert!(error.contains("vector register"), "{error}");
    }
}

#[test]
fn types_are_named_as_the_source_does() {
    let folder = Folder::new("types");
    for flags in VARIANTS {
        let program = folder.build("gcc", "values.c", flags).unwrap();
        let binary = open(&program);
        let debug = DebugInfo::new(&binary, None, None).unwrap();
        let named = |function: &Function, name: &str| {
            let scope = debug.scope(function, function.entry).unwrap();
            scope.variable(name).unwrap().value.unwrap().kind
        };
        let scalars = function(&debug, &binary, "scalars");
        assert_eq!(&*named(&scalars, "f").name, "counter_t");
        assert_eq!(&*named(&scalars, "e").name, "char *");
        assert_eq!(&*named(&scalars, "b").name, "short unsigned int");
        let pointers = function(&debug, &binary, "pointers");
        assert_eq!(&*named(&pointers, "n").name, "struct node *");
        assert_eq!(&*named(&pointers, "names").name, "char **");
        let structs = function(&debug, &binary, "structs");
        let Shape::Enumeration { values, .. } = named(&structs, "color").shape else {
            panic!("an enumeration");
        };
        let values: Vec<(&str, i64)> = values.iter().map(|(n, v)| (&**n, *v as i64)).collect();
        assert_eq!(values, [("RED", 1), ("GREEN", 200), ("BLUE", -3)]);
        let scope = debug.scope(&structs, structs.entry).unwrap();
        let names: Vec<String> = scope
            .parameters()
            .unwrap()
            .iter()
            .map(|parameter| parameter.name.to_string())
            .collect();
        assert_eq!(names, ["p", "w", "b", "real", "m", "color", "yes"]);
    }
}

#[test]
fn what_cannot_be_read_says_why() {
    let folder = Folder::new("why");
    let program = folder.build("gcc", "values.c", VARIANTS[1]).unwrap();
    let binary = open(&program);
    let debug = DebugInfo::new(&binary, None, None).unwrap();
    let structs = function(&debug, &binary, "structs");
    let why = |function: &Function, at: Address, name: &str| {
        let scope = debug.scope(function, at).unwrap();
        match scope.variable(name) {
            Ok(variable) => variable.value.unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    };
    for (name, says) in [
        ("real", "vector register"),
        ("of_thread", "thread-local"),
        ("no_such", "there is no variable `no_such`"),
    ] {
        let error = why(&structs, structs.entry, name);
        assert!(error.contains(says), "{error}");
    }
    let scope = debug.scope(&structs, structs.entry).unwrap();
    for (typo, meant) in [("coler", "color"), ("globl_number", "global_number")] {
        let error = scope.variable(typo).unwrap_err();
        assert!(error.nearest.iter().any(|name| name == meant), "{error:?}");
    }
    let inside = Address(structs.entry.0 + 1);
    let error = why(&structs, inside, "p");
    assert!(error.contains("behind the prologue"), "{error}");
    let locals = function(&debug, &binary, "locals");
    let error = why(&locals, locals.entry, "twice");
    assert!(error.contains("a block that does not hold"), "{error}");
}
