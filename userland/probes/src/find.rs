// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions by name, and what is said when there are none.

use anyhow::{anyhow, bail};
use nsprobe_spec::syntax::ProbePoint;
use nsprobe_symbolize::{Binary, Function, FunctionKind};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Names that a message suggests.
const SUGGESTIONS: usize = 3;
/// Implementations of an indirect function that a message names.
const INDIRECT_MAX: usize = 8;

/// The functions of that name, each place once, and how many resolvers of
/// indirect functions are not among them.
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
    found.retain(|function| !is_indirect(function));
    let resolvers = all - found.len();
    if found.is_empty() {
        bail!(indirect(binary, &path.display().to_string(), name));
    }
    found.sort_by_key(|function| function.file_offset);
    found.dedup_by_key(|function| function.file_offset);
    Ok((found, resolvers))
}

/// The names that several of the functions have and that only their versions distinguish.
pub(crate) fn several<'a>(functions: &[&'a Function]) -> HashSet<&'a str> {
    let versioned = functions.iter().filter(|one| one.version.is_some());
    let mut first = HashMap::new();
    versioned
        .filter(|one| *first.entry(&*one.name).or_insert(&one.version) != &one.version)
        .map(|one| &*one.name)
        .collect()
}

/// Whether the place is functions by a name that the file does not know, or knows as that of an
/// indirect one alone: a debug file may know more.
pub(crate) fn is_unnamed(binary: &Binary, place: &ProbePoint) -> bool {
    match place {
        ProbePoint::Functions { name, .. } => {
            let found = binary.find_functions(name);
            found.iter().all(|function| is_indirect(function))
        }
        _ => false,
    }
}

/// Whether a file has any function, or an indirect one, by the name of a place.
pub(crate) fn knows(binary: &Binary, place: &ProbePoint) -> bool {
    match place {
        ProbePoint::Functions { name, .. } => !binary.find_functions(name).is_empty(),
        _ => false,
    }
}

pub(crate) fn is_indirect(function: &Function) -> bool {
    function.kind == FunctionKind::IndirectResolver
}

/// Why an indirect function is not probed, and what to probe instead.
pub(crate) fn indirect(binary: &Binary, shown: &str, name: &str) -> String {
    let bare = |name: &str| name.trim_start_matches('_').to_owned();
    // glibc calls them so: __memcmp_sse2; memcmp_ifunc is what chooses.
    let prefix = format!("{}_", bare(name));
    let is_one = |found: &str| bare(found).starts_with(&prefix) && !found.ends_with("_ifunc");
    let mut names: Vec<&str> = binary
        .functions()
        .iter()
        .filter(|function| !is_indirect(function) && is_one(&function.name))
        .map(|function| &*function.name)
        .collect();
    names.sort_unstable();
    names.dedup();
    let advice = match names.as_slice() {
        [] => "by a name that debug symbols of the file have (installed in the container or on \
               this machine)"
            .to_owned(),
        names => {
            let more = if names.len() > INDIRECT_MAX {
                ", …"
            } else {
                ""
            };
            let names: Vec<&str> = names.iter().take(INDIRECT_MAX).copied().collect();
            format!("which may be {}{more}", names.join(", "))
        }
    };
    format!(
        "{name} in {shown} is an indirect function: its code at that name runs once and only \
         chooses an implementation; probe that instead, {advice}"
    )
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
