// SPDX-License-Identifier: MIT OR Apache-2.0
//! DWARF: frames of an address, and what names mean there.

use crate::elf::{ask, is_shown_safely};
use crate::image::{self, split, Section, TEXT_ADDRESS, TEXT_BYTES, TEXT_OFFSET};
use nsprobe_spec::dwarf::DebugInfo;
use nsprobe_spec::{Scope, Shape, TypeId, Variable};
use nsprobe_symbolize::{Address, Binary, FileOffset};

/// The sections in the order in which they stand in the bytes.
const SECTIONS: [&str; 13] = [
    ".debug_abbrev",
    ".debug_info",
    ".debug_line",
    ".debug_str",
    ".debug_line_str",
    ".debug_ranges",
    ".debug_rnglists",
    ".debug_addr",
    ".debug_str_offsets",
    ".debug_aranges",
    ".debug_loc",
    ".debug_loclists",
    ".debug_types",
];
/// How far apart the places are that are asked for, in bytes.
const STEP: usize = 0x1d;

fn open(bytes: &[u8]) -> Binary {
    let parts = split(bytes, SECTIONS.len());
    let sections = SECTIONS.iter().zip(&parts);
    let sections = sections.filter(|(_, part)| !part.is_empty());
    let sections: Vec<_> = sections
        .map(|(name, part)| Section::plain(name, part))
        .collect();
    image::open(&sections)
}

/// Names of places, and units that are in other files.
pub(crate) fn frames(bytes: &[u8]) {
    let binary = open(bytes);
    for into in (0..TEXT_BYTES).step_by(STEP) {
        ask(&binary, FileOffset(TEXT_OFFSET + into));
    }
    for unit in binary.split_units().unwrap_or_default() {
        assert!(!unit.name.as_os_str().is_empty());
    }
}

/// Functions, lines, variables and their types, as specs ask for them.
pub(crate) fn types(bytes: &[u8]) {
    let binary = open(bytes);
    let Ok(debug) = DebugInfo::new(&binary, None, None) else {
        return;
    };
    for into in (0..TEXT_BYTES).step_by(STEP) {
        scope(&debug, Address(TEXT_ADDRESS + into));
    }
    for name in ["main", "work", "shop::*"] {
        let functions = debug.functions_named(name).unwrap_or_default();
        for function in functions.iter().take(4) {
            is_shown_safely(&function.name);
            let _ = debug.body_pc(function);
        }
    }
    for line in [1, 9, 14] {
        let _ = debug.line("seed.c", line);
    }
}

fn scope(debug: &DebugInfo<'_>, address: Address) {
    let functions = debug.functions_at(address).unwrap_or_default();
    for function in functions.iter().take(4) {
        let Ok(scope) = debug.scope(function, address) else {
            continue;
        };
        variables(&scope, scope.parameters().unwrap_or_default());
        variables(&scope, scope.locals().unwrap_or_default());
        let _ = (scope.result(1), scope.result(2), scope.goid());
        variables(&scope, scope.variable("total").into_iter().collect());
    }
}

fn variables(scope: &dyn Scope, variables: Vec<Variable>) {
    let typed = variables.into_iter().filter_map(|one| one.value.ok());
    for typed in typed.take(8) {
        if let Some(inner) = inner(&typed.kind.shape) {
            look_into(scope, inner, 3);
        }
    }
}

fn inner(shape: &Shape) -> Option<TypeId> {
    match shape {
        Shape::Pointer { to: id, .. } | Shape::Array { of: id, .. } | Shape::Struct { id, .. } => {
            Some(*id)
        }
        _ => None,
    }
}

/// Looks into a type, and into what it consists of.
fn look_into(scope: &dyn Scope, id: TypeId, depth: u32) {
    let Ok(kind) = scope.resolve(id) else {
        return;
    };
    if depth == 0 {
        return;
    }
    if let Shape::Struct { id, .. } = kind.shape {
        let members = scope.members(id).unwrap_or_else(|_| [].into());
        for member in members.iter().take(4) {
            look_into(scope, member.type_id, depth - 1);
        }
    } else if let Some(id) = inner(&kind.shape) {
        look_into(scope, id, depth - 1);
    }
}
