// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions by which allocators hand out memory and take it back, found by their symbols in
//! the files that a target has mapped, or will map.

use crate::spec::ProbeSpec;
use anyhow::{bail, Context};
use nsprobe_text::escaped;
use std::path::Path;

/// A file with these functions is an allocator.
const MARKS: [&str; 2] = ["malloc", "free"];
/// What stands before the names of C in programs that jemalloc is linked into.
const PREFIXES: [&str; 2] = ["", "je_"];
/// Names of files that allocators are in, by their beginning.
const LIBRARIES: [&str; 3] = ["libc.so", "libc-2.", "ld-musl-"];

/// Functions that a file has if it has those that mark them.
pub(super) struct Family {
    pub(super) marks: Vec<ProbeSpec>,
    pub(super) functions: Vec<AllocatorFunction>,
}

/// A function of an allocator.
pub(super) struct AllocatorFunction {
    pub(super) spec: ProbeSpec,
    pub(super) name: String,
    /// Without it, what is shown would be wrong and not only less.
    pub(super) is_needed: bool,
}

/// How functions are probed: registers need no debug information.
const SIZE_FIRST: &str = "%return(block=%rax, bytes=entry(%rdi))";
/// Functions with these four may have their block from another probed one, and take it over.
const SIZE_FIRST_NESTED: &str = "%return(freed=%rax, block=%rax, bytes=entry(%rdi))";
const SIZE_SECOND: &str = "%return(freed=%rax, block=%rax, bytes=entry(%rsi))";
const COUNT_AND_SIZE: &str = "%return(freed=%rax, block=%rax, bytes=entry(%rdi * %rsi))";
const BY_POINTER: &str =
    "%return(freed=*(u64 *)entry(%rdi), block=*(u64 *)entry(%rdi), bytes=entry(%rdx)) if %eax == 0";
/// A call that fails leaves the old block as it is, and one for no bytes may give it back.
const MOVED: &str =
    "%return(freed=entry(%rdi), block=%rax, bytes=entry(%rsi)) if %rax != 0 || entry(%rsi) == 0";
const FREED: &str = "(freed=%rdi)";
/// At the return: most of these call `free`, which then has ended the span.
const FREED_WITHIN: &str = "%return(freed=entry(%rdi))";

/// The functions of C, of libraries and of jemalloc. `reallocarray` calls `realloc`, `strdup` and
/// the like call `malloc`.
const C: [(&str, &str); 15] = [
    ("malloc", SIZE_FIRST),
    ("calloc", COUNT_AND_SIZE),
    ("realloc", MOVED),
    ("aligned_alloc", SIZE_SECOND),
    ("memalign", SIZE_SECOND),
    ("posix_memalign", BY_POINTER),
    ("valloc", SIZE_FIRST_NESTED),
    ("pvalloc", SIZE_FIRST_NESTED),
    ("free", FREED),
    ("free_sized", FREED),
    ("free_aligned_sized", FREED),
    ("mallocx", SIZE_FIRST),
    ("rallocx", MOVED),
    ("dallocx", FREED),
    ("sdallocx", FREED),
];
/// A function that jemalloc alone has.
const OF_JEMALLOC: &str = "mallctl";
/// The operators of C++ in jemalloc. Others call functions of C, and so do those of it that align.
const CXX: [(&str, &str); 16] = [
    ("_Znwm", SIZE_FIRST),
    ("_Znam", SIZE_FIRST),
    ("_ZnwmRKSt9nothrow_t", SIZE_FIRST),
    ("_ZnamRKSt9nothrow_t", SIZE_FIRST),
    ("_ZdlPv", FREED_WITHIN),
    ("_ZdaPv", FREED_WITHIN),
    ("_ZdlPvRKSt9nothrow_t", FREED_WITHIN),
    ("_ZdaPvRKSt9nothrow_t", FREED_WITHIN),
    ("_ZdlPvm", FREED_WITHIN),
    ("_ZdaPvm", FREED_WITHIN),
    ("_ZdlPvSt11align_val_t", FREED_WITHIN),
    ("_ZdaPvSt11align_val_t", FREED_WITHIN),
    ("_ZdlPvSt11align_val_tRKSt9nothrow_t", FREED_WITHIN),
    ("_ZdaPvSt11align_val_tRKSt9nothrow_t", FREED_WITHIN),
    ("_ZdlPvmSt11align_val_t", FREED_WITHIN),
    ("_ZdaPvmSt11align_val_t", FREED_WITHIN),
];

/// Whether a library may be an allocator, by its name.
pub fn may_allocate(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    LIBRARIES.iter().any(|begin| name.starts_with(begin)) || name.contains("malloc")
}

/// The names of all of them.
pub fn names() -> Vec<String> {
    let c = C.iter().map(|(name, _)| *name);
    let c = c.flat_map(|name| PREFIXES.map(|prefix| format!("{prefix}{name}")));
    c.chain(CXX.iter().map(|(name, _)| (*name).to_owned()))
        .collect()
}

/// The families of functions that a file may have.
pub(super) fn families() -> anyhow::Result<Vec<Family>> {
    let prefixed = PREFIXES.map(|prefix| family(prefix, &MARKS, &C));
    let all = prefixed
        .into_iter()
        .chain([family("", &[OF_JEMALLOC], &CXX)]);
    all.collect()
}

fn family(prefix: &str, marks: &[&str], functions: &[(&str, &str)]) -> anyhow::Result<Family> {
    let spec = |name: &str, how: &str| -> anyhow::Result<ProbeSpec> {
        let text = format!("allocator:{prefix}{name}{how}");
        text.parse().context(text.clone())
    };
    let marks = marks.iter().map(|name| spec(name, FREED));
    let functions = functions.iter().map(|(name, how)| {
        Ok(AllocatorFunction {
            spec: spec(name, how)?,
            name: format!("{prefix}{name}"),
            is_needed: [FREED, FREED_WITHIN, MOVED].contains(how) || *name == "malloc",
        })
    });
    Ok(Family {
        marks: marks.collect::<anyhow::Result<_>>()?,
        functions: functions.collect::<anyhow::Result<_>>()?,
    })
}

/// Fails where a target has no allocator.
pub(super) fn none_found(looked_at: &[String]) -> anyhow::Result<()> {
    let files = match looked_at {
        [] => "it maps no libc and no file whose name has `malloc`".to_owned(),
        files => format!("no symbols malloc and free in {}", files.join(", ")),
    };
    bail!(
        "no allocator found: {}; name its functions, as in --alloc 'BINARY:my_alloc(block=$retval, \
         bytes=arg1)' --free 'BINARY:my_free(freed=arg1)'",
        escaped(&files)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_functions_are_specs() {
        let families = families().unwrap();
        let counts = families
            .iter()
            .map(|one| (one.marks.len(), one.functions.len()));
        assert_eq!(counts.collect::<Vec<_>>(), [(2, 15), (2, 15), (1, 16)]);
        let functions = families[1].functions.iter();
        let others = functions.filter(|function| !function.is_needed);
        let others: Vec<&str> = others.map(|function| &*function.name).collect();
        let wanted = [
            "je_calloc",
            "je_aligned_alloc",
            "je_memalign",
            "je_posix_memalign",
            "je_valloc",
            "je_pvalloc",
            "je_mallocx",
        ];
        assert_eq!(others, wanted);
    }

    #[test]
    fn libraries_are_known_by_name() {
        for (path, may) in [
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", true),
            ("/lib/ld-musl-x86_64.so.1", true),
            ("/opt/libjemalloc.so.2", true),
            ("/usr/lib/libcrypto.so.3", false),
        ] {
            assert_eq!(may_allocate(Path::new(path)), may, "{path}");
        }
    }
}
