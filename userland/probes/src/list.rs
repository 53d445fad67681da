// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions and static probes of a file, in parts: there may be a million of them.

use crate::find::{indirect, is_indirect, several};
use crate::Refused;
use nsprobe_spec::UsdtScope;
use nsprobe_symbolize::{Binary, DebugSet, FileOffset, Function, FunctionKind, Usdt};
use nsprobe_text::glob_fits;
use serde::{Deserialize, Serialize};

/// Bytes of names after which a part ends.
const PART_BYTES: usize = 8 << 20;

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFunction {
    /// Its readable name, with the version where another function has the same.
    pub name: String,
    /// Its name as the symbol table has it.
    pub symbol: String,
    /// Its version, as `@VERSION`, or `@@VERSION` of the default.
    pub version: Option<String>,
    /// Where its code begins in the file.
    pub file_offset: FileOffset,
    /// Its length in bytes; 0 when the symbol table does not say.
    pub size: u64,
}

/// A static probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedUsdt {
    /// Its provider.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// How many arguments it has.
    pub arguments: u32,
    /// Where its `nop` is.
    pub file_offset: FileOffset,
    /// Whether it has a semaphore.
    pub has_semaphore: bool,
}

/// A part of what a file has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Functions.
    pub functions: Vec<ListedFunction>,
    /// Static probes: in the last part.
    pub usdt: Vec<ListedUsdt>,
    /// From which function on there is more.
    pub next: Option<u64>,
}

/// Lists from the so-many-th function on: all of them, or those whose name fits the glob or
/// holds the text. `shown` is how errors call the file. A stripped file, which has few names,
/// is refused without `files`: its debug files are needed.
///
/// # Errors
/// Why there is nothing to be listed.
pub fn list(
    binary: &Binary,
    files: Option<&DebugSet>,
    shown: &str,
    pattern: Option<&str>,
    from: u64,
) -> Result<Listing, Refused> {
    if files.is_none() && binary.is_stripped() {
        return Err(Refused::NeedsDebugFiles);
    }
    let because = |why: String| Refused::Because(vec![why]);
    let usdt = usdt(binary, pattern).map_err(|why| because(why.to_string()))?;
    let separate = files.and_then(|files| files.separate(binary));
    let binaries: Vec<&Binary> = [binary].into_iter().chain(separate).collect();
    let functions = match find(&binaries, shown, pattern) {
        // A search for a static probe need not find a function, too.
        Err(_) if !usdt.is_empty() => Vec::new(),
        functions => functions.map_err(because)?,
    };
    let versioned = several(&functions);
    let mut listing = Listing::default();
    let mut bytes = 0;
    let start = usize::try_from(from).unwrap_or(usize::MAX);
    for (number, function) in functions.into_iter().enumerate().skip(start) {
        if bytes >= PART_BYTES {
            listing.next = Some(number as u64);
            return Ok(listing);
        }
        let version = function.version.as_deref();
        let mut name = function.demangled();
        let is_wanted = pattern.is_some_and(|pattern| pattern.contains('@'));
        if is_wanted || versioned.contains(&*function.name) {
            name.push_str(version.unwrap_or_default());
        }
        let listed = ListedFunction {
            name,
            symbol: function.name.clone(),
            version: version.map(str::to_owned),
            file_offset: function.file_offset,
            size: function.size,
        };
        bytes += listed.name.len() + listed.symbol.len();
        listing.functions.push(listed);
    }
    listing.usdt = usdt;
    Ok(listing)
}

/// The functions of a file and its debug file that fit; or why there is none.
fn find<'a>(
    binaries: &[&'a Binary],
    shown: &str,
    pattern: Option<&str>,
) -> Result<Vec<&'a Function>, String> {
    if !binaries.iter().any(|binary| binary.has_symbols()) {
        return Err(format!(
            "{shown} has no symbols (it is stripped): none of its functions has a name; install \
             its debug symbols, or use a build that keeps its symbol table"
        ));
    }
    let fitting = |wanted: Option<&str>| -> Vec<&'a Function> {
        let all = binaries.iter().flat_map(|binary| {
            let mut found: Vec<&Function> = match wanted {
                None => binary.functions().iter().collect(),
                Some(wanted) => binary.find_functions(wanted),
            };
            // The resolver of an indirect function runs once; a probe there misleads.
            // Nor are pieces of functions called, though one may be asked for by its own name,
            // as labels may.
            found.retain(|function| {
                let is_asked_for = pattern == Some(&function.name);
                match function.kind {
                    FunctionKind::Function => is_asked_for || !binary.is_piece(function),
                    FunctionKind::Label => is_asked_for,
                    FunctionKind::IndirectResolver => false,
                }
            });
            found
        });
        let mut all: Vec<&Function> = all.collect();
        if binaries.len() > 1 {
            all.sort_by_key(|function| function.address);
            all.dedup_by(|b, a| a.address == b.address && a.name == b.name);
        }
        all
    };
    let Some(pattern) = pattern else {
        return Ok(fitting(None));
    };
    let mut found = fitting(Some(&glob(pattern)));
    if found.is_empty() {
        found = fitting(Some(pattern));
    }
    if found.is_empty() {
        let resolver = binaries.iter().find_map(|binary| {
            let all = binary.find_functions(pattern);
            let resolver = all.into_iter().find(|function| is_indirect(function))?;
            Some(indirect(binary, shown, &resolver.name))
        });
        if let Some(resolver) = resolver {
            return Err(resolver);
        }
        let nearest = binaries.iter().flat_map(|file| file.nearest(pattern, 3));
        let mut nearest: Vec<String> = nearest.collect();
        nearest.sort();
        nearest.dedup();
        let nearest = match nearest.is_empty() {
            true => String::new(),
            false => format!(" (similar: {})", nearest.join(", ")),
        };
        return Err(format!("no function of {shown} fits {pattern}{nearest}"));
    }
    Ok(found)
}

/// The static probes that fit, each name once.
fn usdt(
    binary: &Binary,
    pattern: Option<&str>,
) -> Result<Vec<ListedUsdt>, nsprobe_symbolize::SymbolizeError> {
    let glob = glob(pattern.unwrap_or("*"));
    let called = |probe: &Usdt| format!("{}:{}", probe.provider, probe.name);
    let mut probes = binary.usdt()?;
    probes.retain(|probe| glob_fits(&glob, &called(probe)));
    probes.sort_by_key(called);
    probes.dedup_by_key(|probe| called(probe));
    let listed = probes.into_iter().map(|probe| ListedUsdt {
        arguments: UsdtScope::argument_count(&probe) as u32,
        provider: probe.provider,
        name: probe.name,
        file_offset: probe.file_offset,
        has_semaphore: probe.semaphore.is_some(),
    });
    Ok(listed.collect())
}

/// A glob as it is, and a part of a name as one.
fn glob(pattern: &str) -> String {
    match pattern.contains(['*', '?']) {
        true => pattern.to_owned(),
        false => format!("*{pattern}*"),
    }
}
