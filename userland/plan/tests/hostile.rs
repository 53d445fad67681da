// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damaged debug information: an error or a wrong answer, never a crash.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use nsprobe_plan::debug::{DebugInfo, Error};
use nsprobe_plan::{Scope, Shape, TypeId, Variable};
use nsprobe_symbolize::Address;
use object::{Object, ObjectSection};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, Once};
use support::{open, Folder};

/// Looks into a type, and into what it consists of.
fn look_into(scope: &dyn Scope, id: TypeId, depth: u32) -> usize {
    let Ok(kind) = scope.resolve(id) else {
        return 0;
    };
    let inner: Vec<TypeId> = match kind.shape {
        Shape::Pointer { to, .. } => vec![to],
        Shape::Array { of, .. } => vec![of],
        Shape::Struct { id, .. } => {
            let members = scope.members(id).unwrap_or_else(|_| [].into());
            members.iter().take(8).map(|m| m.type_id).collect()
        }
        _ => Vec::new(),
    };
    let below = inner.into_iter().take_while(|_| depth > 0);
    below
        .map(|id| look_into(scope, id, depth - 1))
        .sum::<usize>()
        + 1
}

fn look_at(scope: &dyn Scope, variables: Vec<Variable>) -> usize {
    let typed = variables.into_iter().filter_map(|v| v.value.ok());
    typed
        .map(|typed| match typed.kind.shape {
            Shape::Pointer { to: id, .. }
            | Shape::Array { of: id, .. }
            | Shape::Struct { id, .. } => look_into(scope, id, 4),
            _ => 1,
        })
        .sum()
}

/// Asks everything there is to ask; how much was answered.
fn ask_everything(program: &Path, names: &[&str]) -> usize {
    let binary = open(program);
    let debug = match DebugInfo::new(&binary, None, None) {
        Ok(debug) => debug,
        Err(_) => return 0,
    };
    let mut answers = 0;
    let mut ask = |address: Address| {
        let functions = debug.functions_at(address).unwrap_or_default();
        for function in functions {
            let _ = debug.body_pc(&function);
            let Ok(scope) = debug.scope(&function, address) else {
                continue;
            };
            answers += look_at(&scope, scope.parameters().unwrap_or_default());
            answers += look_at(&scope, scope.locals().unwrap_or_default());
            answers += usize::from(scope.retval().is_ok());
            for name in ["sink", "nodes", "no_such", "shop::stock"] {
                let found = scope.variable(name).into_iter().collect();
                answers += look_at(&scope, found);
            }
        }
    };
    for name in names {
        for symbol in binary.find_functions(name) {
            for into in [0, 1, 20] {
                ask(Address(symbol.address.0 + into));
            }
        }
        for function in debug.functions_named(name).unwrap_or_default() {
            ask(function.entry);
        }
    }
    for line in [1, 70, 90] {
        for source in ["values.c", "values.cc"] {
            answers += debug.line(source, line).map_or(0, |code| code.places.len());
        }
    }
    answers
}

/// Where the debug sections are in the file.
fn debug_ranges(bytes: &[u8]) -> Vec<(usize, usize)> {
    let file = object::File::parse(bytes).unwrap();
    let wanted = |name: &str| name.starts_with(".debug_") || name == ".eh_frame";
    let sections = file.sections().filter(|s| s.name().is_ok_and(wanted));
    sections
        .filter_map(|section| section.file_range())
        .map(|(offset, bytes)| (offset as usize, bytes as usize))
        .collect()
}

/// The source files of ours that panicked. The parser's panics are caught, as
/// errors; our own code must not need that.
static PANICKED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn watch_panics() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        match place.contains("gimli") {
            true => {}
            false => {
                PANICKED.lock().unwrap().push(place);
                hook(info);
            }
        }
    }));
}

fn survives(compiler: &str, source: &str, flags: &[&str], names: &[&str], cases: u32) {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(watch_panics);
    let folder = Folder::new(&format!("hostile-{source}"));
    let Some(program) = folder.build(compiler, source, flags) else {
        return;
    };
    let whole = ask_everything(&program, names);
    assert!(whole > 10, "{whole}");
    let bytes = fs::read(&program).unwrap();
    let ranges = debug_ranges(&bytes);
    let change = (0..ranges.len(), any::<prop::sample::Index>(), any::<u8>());
    let changes = prop::collection::vec(change, 1..12);
    let damaged = folder.path("damaged");
    let mut config = Config::with_cases(cases);
    config.failure_persistence = None;
    let run = TestRunner::new(config).run(&changes, |changes| {
        let mut copy = bytes.clone();
        for (section, at, value) in changes {
            let (offset, length) = ranges[section];
            if length > 0 {
                copy[offset + at.index(length)] = value;
            }
        }
        fs::write(&damaged, copy).unwrap();
        ask_everything(&damaged, names);
        Ok(())
    });
    run.unwrap();
    assert_eq!(*PANICKED.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn damaged_c_does_not_crash() {
    for flags in [
        &["-O0", "-gdwarf-5"][..],
        &["-O2", "-gdwarf-4"],
        &["-O2", "-gdwarf-5", "-fdebug-types-section"],
    ] {
        let names = [
            "scalars",
            "structs",
            "pointers",
            "locals",
            "clamp",
            "give_wide",
        ];
        survives("gcc", "values.c", flags, &names, 100);
    }
}

#[test]
fn damaged_cxx_does_not_crash() {
    let names = ["by_value", "shop::Item::cost", "give_string"];
    let flags = ["-O1", "-gdwarf-5", "-fdebug-types-section"];
    survives("g++", "values.cc", &flags, &names, 25);
}

#[test]
fn traps_are_told_apart() {
    let folder = Folder::new("traps");
    let program = folder.build("gcc", "hostile.s", &[]).unwrap();
    let binary = open(&program);
    let debug = DebugInfo::new(&binary, None, None).unwrap();
    let trap = &debug.functions_named("trap").unwrap()[0];
    let scope = debug.scope(trap, trap.entry).unwrap();
    for (name, says) in [
        ("circle", "typedefs lead in a circle"),
        ("arrays", "arrays lead in a circle"),
        ("doubled", "too complicated"),
        ("branch", "DW_OP_bra"),
        ("empty", "the stack is empty"),
        ("framed", "frame base refers to itself"),
        ("nested", "DW_OP_entry_value"),
        ("pushed", "too complicated"),
        ("far", "damaged"),
    ] {
        let error = match scope.variable(name) {
            Ok(variable) => variable.value.unwrap_err(),
            Err(error) => error,
        };
        assert!(error.message.contains(says), "{name}: {error}");
    }
    let itself = scope.variable("itself").unwrap();
    assert!(look_at(&scope, vec![itself]) > 4);
    assert_eq!(scope.parameters().unwrap().len(), 10);
    let inside = debug.functions_at(Address(trap.entry.0 + 1)).unwrap();
    assert_eq!(inside.len(), 1);
}

#[test]
fn a_file_without_debug_information_says_so() {
    let folder = Folder::new("absent");
    let program = folder.build("gcc", "values.c", &["-O0"]).unwrap();
    let binary = open(&program);
    let error = DebugInfo::new(&binary, None, None).unwrap_err();
    assert_eq!(error, Error::Absent);
}
