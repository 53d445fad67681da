// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values by debug information against those that the source gives, in what gdb
//! saw of the running program.

use crate::support::{open, path, stops, Folder, Stop, Stopped};
use nsprobe_spec::dwarf::{DebugFunction, DebugInfo};
use nsprobe_spec::{Scope, Shape};
use nsprobe_symbolize::{Address, Binary};

/// What the fixtures are built with.
const VARIANTS: [&[&str]; 4] = [
    &[
        "-O0",
        "-gdwarf-4",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ],
    &["-O0", "-gdwarf-5", "-no-pie", "-fcf-protection=full"],
    &["-O2", "-gdwarf-5"],
    &["-O3", "-gdwarf-2", "-fdebug-types-section"],
];

fn function(debug: &DebugInfo<'_>, binary: &Binary, name: &str) -> DebugFunction {
    let symbol = binary.find_functions(name);
    let found = debug.functions_at(symbol[0].address).unwrap();
    found
        .into_iter()
        .find(|function| function.name == name && !function.inlined)
        .unwrap()
}

/// Numbers that expressions are, in a function.
type Wanted = (&'static str, &'static [(&'static str, i64)]);

/// Checks them in all variants, at the functions' entries and after their prologues.
fn check_everywhere(folder: &str, wanted: &[Wanted]) {
    let folder = Folder::new(folder);
    for flags in VARIANTS {
        let program = folder.build("gcc", "values.c", flags).unwrap();
        println!("{program:?}: {flags:?}");
        let binary = open(&program);
        let debug = DebugInfo::new(&binary, None, None).unwrap();
        let mut places = Vec::new();
        for (name, numbers) in wanted {
            let function = function(&debug, &binary, name);
            let body = debug.body_pc(&function).unwrap();
            for address in [function.entry, body] {
                places.push((function.clone(), address, *numbers));
            }
        }
        let at = |address: &Address| (Stop::At(address.0), &[][..]);
        let at: Vec<_> = places.iter().map(|(_, address, _)| at(address)).collect();
        let Some(stopped) = stops(&program, &at) else {
            return;
        };
        for ((function, address, numbers), stopped) in places.iter().zip(stopped) {
            let scope = debug.scope(function, *address).unwrap();
            let told = format!("{flags:?} {} {address:x?}", function.name);
            check(&scope, &stopped.unwrap(), numbers, &told);
        }
    }
}

/// Checks the numbers of expressions in a program that has stopped.
fn check(scope: &dyn Scope, stopped: &Stopped, wanted: &[(&str, i64)], told: &str) {
    for (expression, number) in wanted {
        let typed = path(scope, stopped, expression);
        let typed = typed.unwrap_or_else(|why| panic!("{told} {expression}: {why}"));
        let found = stopped.number(&typed).map(|found| found as i64);
        assert_eq!(found, Some(*number), "{told} {expression} {typed:?}");
    }
}

/// What the caller passes in registers and on the stack, and globals.
const SCALARS: Wanted = (
    "scalars",
    &[
        ("a", -1),
        ("b", 65535),
        ("c", -100_000),
        ("d", -5_000_000_000),
        ("e[0]", b't' as i64),
        ("f", 6_000_000_000),
        ("g", 4_000_000_000),
        ("h", -8),
        ("global_number", 4711),
        ("static_name[3]", b't' as i64),
        ("nodes[1].color", -3),
    ],
);

/// Structs by value.
const STRUCTS: Wanted = (
    "structs",
    &[
        ("p.first", 3),
        ("p.second", -4),
        ("w.a", 5),
        ("w.b", 250),
        ("w.c", -6),
        ("b.numbers[0]", 10),
        ("b.numbers[3]", 40),
        ("b.name[0]", b'b' as i64),
        ("m.whole", 77),
        ("color", -3),
        ("yes", 1),
    ],
);

/// What pointers lead to: members of all kinds.
const POINTERS: Wanted = (
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
        ("n.next.name[0]", b's' as i64),
        ("h.secret", 99),
        ("names[1][0]", b'b' as i64),
    ],
);

#[test]
fn values_are_what_the_caller_passed() {
    check_everywhere("passed", &[SCALARS, STRUCTS, POINTERS]);
}

const RETURNED: [Wanted; 6] = [
    ("scalars", &[("$retval", -42)]),
    (
        "give_pair",
        &[("$retval.first", 21), ("$retval.second", -21)],
    ),
    (
        "give_wide",
        &[("$retval.a", 31), ("$retval.b", 7), ("$retval.c", -8)],
    ),
    (
        "give_big",
        &[("$retval.numbers[3]", 44), ("$retval.name[1]", b'i' as i64)],
    ),
    ("give_bool", &[("$retval", 1)]),
    ("give_char", &[("$retval", 255)]),
];

#[test]
fn results_are_found_after_the_return() {
    let folder = Folder::new("results");
    for flags in VARIANTS.into_iter().step_by(2) {
        let program = folder.build("gcc", "values.c", flags).unwrap();
        let binary = open(&program);
        let debug = DebugInfo::new(&binary, None, None).unwrap();
        let returned = RETURNED.map(|(name, _)| function(&debug, &binary, name));
        let wanted = returned.each_ref().map(|function| {
            let expressions: &[&str] = &[];
            (Stop::ReturnOf(function.entry.0), expressions)
        });
        let Some(stopped) = stops(&program, &wanted) else {
            return;
        };
        for ((function, stopped), (_, numbers)) in returned.iter().zip(stopped).zip(RETURNED) {
            let scope = debug.scope(function, function.entry).unwrap();
            let told = format!("{flags:?} {}", function.name);
            check(&scope, &stopped.unwrap(), numbers, &told);
        }
        let real = function(&debug, &binary, "give_real");
        let scope = debug.scope(&real, real.entry).unwrap();
        let error = scope.result(1).unwrap_err().to_string();
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
        let named = |function: &DebugFunction, name: &str| {
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
    let why = |function: &DebugFunction, at: Address, name: &str| {
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
