// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions by which allocators hand out memory and take it back, found by their symbols in
//! the files that a target has mapped, or will map.

use crate::args::spec::ProbeSpec;
use anyhow::{bail, Context};
use nsprobe_symbolize::escaped;
use std::path::Path;

/// A file with these functions is an allocator.
pub(super) const NEEDED: [&str; 2] = ["malloc", "free"];
/// What stands before the names of C in programs that jemalloc is linked into.
const PREFIXES: [&str; 2] = ["", "je_"];
/// Names of files that allocators are in, by their beginning.
const LIBRARIES: [&str; 4] = ["libc.so", "libc-2.", "libc.musl", "ld-musl"];

/// A function of an allocator.
pub(super) struct AllocatorFunction {
    pub(super) spec: ProbeSpec,
    pub(super) name: String,
    /// Without it, what is shown would be wrong and not only less.
    pub(super) is_needed: bool,
}

/// How functions are probed: registers need no debug information.
const SIZE_FIRST: &str = "%return(block=%rax, bytes=entry(%rdi))";
const SIZE_SECOND: &str = "%return(block=%rax, bytes=entry(%rsi))";
const COUNT_AND_SIZE: &str = "%return(block=%rax, bytes=entry(%rdi * %rsi))";
const BY_POINTER: &str = "%return(block=*(u64 *)entry(%rdi), bytes=entry(%rdx)) if %eax == 0";
/// A call that fails leaves the old block as it is, and one for no bytes may give it back.
const MOVED: &str =
    "%return(freed=entry(%rdi), block=%rax, bytes=entry(%rsi)) if %rax != 0 || entry(%rsi) == 0";
const FREED: &str = "(freed=%rdi) if %rdi != 0";
/// At the return: most of these call `free`, which then has ended the span.
const FREED_WITHIN: &str = "%return(freed=entry(%rdi)) if entry(%rdi) != 0";

/// The functions of C. `reallocarray` calls `realloc`, `strdup` and the like call `malloc`.
const C: [(&str, &str); 9] = [
    ("malloc", SIZE_FIRST),
    ("calloc", COUNT_AND_SIZE),
    ("realloc", MOVED),
    ("aligned_alloc", SIZE_SECOND),
    ("memalign", SIZE_SECOND),
    ("posix_memalign", BY_POINTER),
    ("valloc", SIZE_FIRST),
    ("pvalloc", SIZE_FIRST),
    ("free", FREED),
];
/// The operators of C++, where the allocator itself has them.
const CXX: [(&str, &str); 20] = [
    ("_Znwm", SIZE_FIRST),
    ("_Znam", SIZE_FIRST),
    ("_ZnwmRKSt9nothrow_t", SIZE_FIRST),
    ("_ZnamRKSt9nothrow_t", SIZE_FIRST),
    ("_ZnwmSt11align_val_t", SIZE_FIRST),
    ("_ZnamSt11align_val_t", SIZE_FIRST),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", SIZE_FIRST),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", SIZE_FIRST),
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
pub(crate) fn may_allocate(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    LIBRARIES.iter().any(|begin| name.starts_with(begin)) || name.contains("malloc")
}

/// The names of all of them.
pub(crate) fn names() -> Vec<String> {
    let c = C.iter().map(|(name, _)| *name);
    let c = c.flat_map(|name| PREFIXES.map(|prefix| format!("{prefix}{name}")));
    c.chain(CXX.iter().map(|(name, _)| (*name).to_owned()))
        .collect()
}

/// The functions that a file may have; in each list those that make it an allocator come first.
pub(super) fn functions() -> anyhow::Result<Vec<Vec<AllocatorFunction>>> {
    let lists = PREFIXES.map(|prefix| {
        let c = C
            .iter()
            .map(move |(name, how)| (format!("{prefix}{name}"), *how));
        let cxx = CXX.iter().filter(|_| prefix.is_empty());
        let cxx = cxx.map(|(name, how)| ((*name).to_owned(), *how));
        let needed: Vec<String> = NEEDED
            .iter()
            .map(|name| format!("{prefix}{name}"))
            .collect();
        let mut all: Vec<(String, &str)> = c.chain(cxx).collect();
        all.sort_by_key(|(name, _)| !needed.contains(name));
        let function = |(name, how): (String, &str)| {
            let spec = format!("allocator:{name}{how}");
            let spec: ProbeSpec = spec.parse().with_context(|| name.clone())?;
            Ok(AllocatorFunction {
                is_needed: how.contains("freed") || needed.contains(&name),
                spec,
                name,
            })
        };
        all.into_iter().map(function).collect()
    });
    lists.into_iter().collect()
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
        let lists = functions().unwrap();
        let names =
            |at: usize| -> Vec<&str> { lists[at].iter().map(|function| &*function.name).collect() };
        assert_eq!(names(0)[..2], ["malloc", "free"]);
        assert_eq!(names(1)[..2], ["je_malloc", "je_free"]);
        assert_eq!((names(0).len(), names(1).len()), (29, 9));
        let needed = lists[0].iter().filter(|function| function.is_needed);
        assert_eq!(needed.count(), 3 + 12);
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
