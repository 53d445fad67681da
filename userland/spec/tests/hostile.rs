// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug information that leads in circles or asks for too much: an error that says so.

use crate::support::{open, Folder};
use nsprobe_spec::dwarf::{DebugInfo, DwarfError};
use nsprobe_spec::{Scope, Shape, TypeId, Variable};
use nsprobe_symbolize::Address;

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
    assert_eq!(scope.parameters().unwrap().len(), 11);
    let inside = debug.functions_at(Address(trap.entry.0 + 1)).unwrap();
    assert_eq!(inside.len(), 1);
}

#[test]
fn a_file_without_debug_information_says_so() {
    let folder = Folder::new("absent");
    let program = folder.build("gcc", "values.c", &["-O0"]).unwrap();
    let binary = open(&program);
    let error = DebugInfo::new(&binary, None, None).unwrap_err();
    assert_eq!(error, DwarfError::Absent);
}
