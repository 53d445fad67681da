// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines, inlined functions and locals: where they are, and what gdb prints there.

use crate::support::{open, path, stops, Folder, Stop};
use nsprobe_spec::dwarf::{DebugInfo, DwarfError, LinePlace};
use nsprobe_spec::Scope;
use std::fs;
use std::path::Path;
use std::process::Command;

const VARIANTS: [&[&str]; 2] = [&["-O2", "-gdwarf-4"], &["-O0", "-gdwarf-5"]];

/// The line of the fixture that is marked so.
fn marked(source: &str, mark: &str) -> u32 {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture");
    let text = fs::read_to_string(fixture.join(source)).unwrap();
    let mark = format!("// LINE: {mark}");
    let at = text.lines().position(|line| line.ends_with(&mark)).unwrap();
    at as u32 + 1
}

/// gdb's text as a number: `7`, `-3`, `97 'a'`, `true`.
fn number(text: &str) -> Option<i64> {
    match text.split(' ').next()? {
        "true" => Some(1),
        "false" => Some(0),
        digits => digits.parse().ok(),
    }
}

/// At each place of a line: what we find is what gdb prints. Where gdb knows no
/// value we have none either.
fn agrees_with_gdb(program: &Path, line: u32, expressions: &[&str]) -> usize {
    let binary = open(program);
    let debug = DebugInfo::new(&binary, None, None).unwrap();
    let code = debug.line("values.c", line).unwrap();
    assert_eq!(code.line, line);
    let mut agreed = 0;
    let at = |place: &LinePlace| (Stop::At(place.address.0), expressions);
    let wanted: Vec<_> = code.places.iter().map(at).collect();
    let Some(stopped) = stops(program, &wanted) else {
        return usize::MAX;
    };
    for (place, stopped) in code.places.iter().zip(stopped) {
        let stopped = stopped.unwrap();
        let function = place.function.as_ref().unwrap();
        let scope = debug.scope(function, place.address).unwrap();
        for (expression, theirs) in expressions.iter().zip(&stopped.printed) {
            let ours = path(&scope, &stopped, expression)
                .ok()
                .and_then(|typed| stopped.number(&typed))
                .map(|found| found as i64);
            let told = (program, line, place.address, expression);
            assert_eq!(ours, number(theirs), "{told:x?}: {theirs}");
            agreed += usize::from(ours.is_some());
        }
    }
    agreed
}

#[test]
fn locals_are_what_gdb_prints() {
    let folder = Folder::new("locals");
    for flags in VARIANTS {
        let program = folder.build("gcc", "values.c", flags).unwrap();
        println!("{flags:?}");
        let check = |mark, expressions: &[&str]| {
            agrees_with_gdb(&program, marked("values.c", mark), expressions)
        };
        let found = check(
            "loop",
            &["count", "total", "i", "twice", "squares[2]", "text[1]"],
        );
        assert!(found >= 3, "{flags:?}: {found}");
        let found = check("shadow", &["count", "total", "text[1]"]);
        assert!(found >= 1, "{flags:?}: {found}");
        let found = check("end", &["count", "total", "variable[0]", "text[1]"]);
        assert!(found >= 1, "{flags:?}: {found}");
    }
}

#[test]
fn all_instances_of_an_inlined_function_are_found_with_their_arguments() {
    let folder = Folder::new("inlined");
    for flags in VARIANTS {
        let program = folder.build("gcc", "values.c", flags).unwrap();
        println!("{flags:?}");
        let line = marked("values.c", "clamp");
        let binary = open(&program);
        let debug = DebugInfo::new(&binary, None, None).unwrap();
        let instances = debug.functions_named("clamp").unwrap();
        let inlined = instances.iter().filter(|instance| instance.inlined);
        assert_eq!(inlined.count(), 2, "{flags:?}: {instances:?}");
        let mut holders: Vec<String> = instances
            .iter()
            .map(|instance| {
                let chain = debug.functions_at(instance.entry).unwrap();
                assert_eq!(chain.last().unwrap().name, "clamp", "{chain:?}");
                chain[0].name.clone()
            })
            .collect();
        holders.sort();
        assert_eq!(holders, ["first_user", "second_user"]);
        let found = agrees_with_gdb(&program, line, &["value", "limit", "result"]);
        assert!(found >= 2, "{flags:?}: {found}");
        // Names of the function around are found after those of its own.
        let instance = &instances[0];
        let scope = debug.scope(instance, instance.entry).unwrap();
        assert!(scope.variable("x").or(scope.variable("y")).is_ok());
        assert!(scope.result(1).unwrap_err().to_string().contains("inlined"));
    }
}

#[test]
fn lines_without_code_lead_to_the_next_that_has_some() {
    let folder = Folder::new("lines");
    let program = folder.build("gcc", "values.c", VARIANTS[1]).unwrap();
    let binary = open(&program);
    let debug = DebugInfo::new(&binary, None, None).unwrap();
    // The SPDX line.
    let code = debug.line("fixture/values.c", 1).unwrap();
    assert!(code.line > 1 && !code.places.is_empty());
    assert_eq!(
        code.places[0].function.as_ref().unwrap().name,
        "scalars",
        "{code:?}"
    );
    for (file, line) in [("values.c", 100_000), ("other.c", 1), ("alues.c", 1)] {
        let error = debug.line(file, line).unwrap_err();
        assert!(matches!(error, DwarfError::Unknown { .. }), "{error}");
    }
}

/// The addresses of a function's instructions, as objdump finds them.
fn instructions(program: &Path, function: &str) -> Vec<u64> {
    let mut objdump = Command::new("objdump");
    objdump.args(["--wide", &format!("--disassemble={function}")]);
    let Some(output) = nsprobe_testing::output(objdump.arg(program)) else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let address = |line: &str| {
        let (digits, _) = line.strip_prefix("    ")?.split_once(":\t")?;
        u64::from_str_radix(digits, 16).ok()
    };
    text.lines().filter_map(address).collect()
}

/// In the middle of optimized code, variables move from instruction to
/// instruction: a value that we find is the one that gdb prints.
#[test]
fn values_agree_with_gdb_wherever_they_are() {
    let folder = Folder::new("wherever");
    let mut agreed = 0;
    for flags in [&["-O2", "-gdwarf-5"][..], &["-Og", "-gdwarf-4"]] {
        let program = folder.build("gcc", "values.c", flags).unwrap();
        let binary = open(&program);
        let debug = DebugInfo::new(&binary, None, None).unwrap();
        for (name, expressions) in [
            ("locals", &["count", "total", "squares[3]", "text[0]"][..]),
            ("structs", &["p.second", "w.c", "b.numbers[1]", "yes"]),
        ] {
            let addresses = instructions(&program, name).into_iter().step_by(5);
            let addresses: Vec<u64> = addresses.collect();
            let perhaps = |address: &u64| (Stop::Perhaps(*address), expressions);
            let wanted: Vec<_> = addresses.iter().map(perhaps).collect();
            let stopped = stops(&program, &wanted).unwrap_or_default();
            for (address, stopped) in addresses.into_iter().zip(stopped) {
                let at = nsprobe_symbolize::Address(address);
                let Some(stopped) = stopped else {
                    continue;
                };
                let functions = debug.functions_at(at).unwrap();
                let scope = debug.scope(&functions[0], at).unwrap();
                for (expression, theirs) in expressions.iter().zip(&stopped.printed) {
                    let Ok(typed) = path(&scope, &stopped, expression) else {
                        continue;
                    };
                    let ours = stopped.number(&typed).map(|found| found as i64);
                    assert_eq!(ours, number(theirs), "{flags:?} {address:#x} {expression}");
                    agreed += 1;
                }
            }
        }
    }
    println!("{agreed} values agree");
    let has_both = ["gdb", "objdump"]
        .map(|tool| nsprobe_testing::output(Command::new(tool).arg("--version")).is_some());
    assert!(has_both != [true; 2] || agreed > 50, "{agreed}");
}

/// What gdb says of where breakpoints on functions would be; `None`, with a printed reason,
/// without gdb.
fn gdb_breakpoints(program: &Path, functions: &[&str]) -> Option<Vec<u64>> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch"]);
    for function in functions {
        gdb.args(["-ex", &format!("break {function}")]);
    }
    let output = nsprobe_testing::output(gdb.arg(program))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let places = text.lines().filter_map(|line| {
        let (_, at) = line.strip_prefix("Breakpoint ")?.split_once(" at 0x")?;
        let digits = at.split(|c: char| !c.is_ascii_hexdigit()).next()?;
        u64::from_str_radix(digits, 16).ok()
    });
    let places: Vec<u64> = places.collect();
    assert_eq!(places.len(), functions.len(), "{text}");
    Some(places)
}

#[test]
fn bodies_begin_where_gdb_breaks() {
    let folder = Folder::new("bodies");
    for flags in VARIANTS {
        let program = folder.build("gcc", "values.c", flags).unwrap();
        let binary = open(&program);
        let debug = DebugInfo::new(&binary, None, None).unwrap();
        let names = ["scalars", "structs", "pointers", "locals", "give_big"];
        let Some(theirs) = gdb_breakpoints(&program, &names) else {
            return;
        };
        for (name, theirs) in names.into_iter().zip(theirs) {
            let function = &debug.functions_named(name).unwrap()[0];
            let ours = debug.body_pc(function).unwrap();
            assert_eq!(ours.0, theirs, "{flags:?} {name}");
        }
    }
}
