// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions by name, and what is said when there are none.

use anyhow::{anyhow, bail};
use nsprobe_plan::syntax::Place;
use nsprobe_symbolize::{Binary, Function, FunctionKind};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Names that a message suggests.
const SUGGESTIONS: usize = 3;

/// The functions of that name, each place once, and how many resolvers of
/// indirect functions were left out.
pub(crate) fn find<'a>(
    binary: &'a Binary,
    path: &Path,
    name: &str,
) -> anyhow::Result<(Vec<&'a Function>, usize)> {
    let mut found = binary.find_functions(name);
    if found.is_empty() {
        return Err(not_found(binary, path, name));
    }
    let all = found.len();
    found.retain(|function| function.kind != FunctionKind::IndirectResolver);
    let resolvers = all - found.len();
    if found.is_empty() {
        bail!(
            "{name} in {} is an indirect function: its code at that name runs once and only \
             chooses an implementation; probe that instead{}",
            path.display(),
            suggest(" (similar names: ", &binary.nearest(name, SUGGESTIONS), ")")
        );
    }
    found.sort_by_key(|function| function.file_offset);
    found.dedup_by_key(|function| function.file_offset);
    Ok((found, resolvers))
}

/// The names that several of the functions have, told apart by their versions.
pub(crate) fn several<'a>(functions: &[&'a Function]) -> HashSet<&'a str> {
    let versioned = functions.iter().filter(|one| one.version.is_some());
    let mut first = HashMap::new();
    versioned
        .filter(|one| *first.entry(&*one.name).or_insert(&one.version) != &one.version)
        .map(|one| &*one.name)
        .collect()
}

/// Whether the place is functions by a name that the file does not know: a debug file may.
pub(crate) fn is_unnamed(binary: &Binary, place: &Place) -> bool {
    match place {
        Place::Functions { name, .. } => binary.find_functions(name).is_empty(),
        _ => false,
    }
}

fn not_found(binary: &Binary, path: &Path, name: &str) -> anyhow::Error {
    let path = path.display();
    if !binary.has_symbols() {
        return anyhow!(
            "{path} has no symbols (it is stripped): none of its functions can be found by name; \
             install its debug symbols, or use a build that keeps its symbol table"
        );
    }
    let pieces = binary.pieces_of(name);
    if !pieces.is_empty() {
        let names = pieces.iter().take(SUGGESTIONS).map(|piece| &*piece.name);
        return anyhow!(
            "{name} in {path} is no whole function: the compiler left only pieces of it ({}), \
             where calls go on that began elsewhere; --inlined probes where it begins, by debug \
             information",
            names.collect::<Vec<_>>().join(", ")
        );
    }
    anyhow!(
        "no function {name} in {path}{}; `nsprobe list {path}` shows all",
        suggest(" (did you mean ", &binary.nearest(name, SUGGESTIONS), "?)")
    )
}

fn suggest(before: &str, names: &[String], after: &str) -> String {
    if names.is_empty() {
        String::new()
    } else {
        format!("{before}{}{after}", names.join(", "))
    }
}
