// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions by which allocators hand out memory and take it back, found by their symbols in
//! the files that a target has mapped, or will map.

use crate::args::spec::ProbeSpec;
use anyhow::{bail, Context};
use nsprobe_symbolize::escaped;
use std::path::Path;

/// A file with these functions is an allocator.
const NEEDED: [&str; 2] = ["malloc", "free"];
/// What stands before the names of C in programs that jemalloc is linked into.
const PREFIXES: [&str; 2] = ["", "je_"];
/// Names of files that allocators are in, by their beginning.
const LIBRARIES: [&str; 2] = ["libc.so", "libc-2."];

/// Functions that a file has all of, as far as they are needed, or none of.
pub(super) struct Family {
    /// Without these the others are not looked for.
    pub(super) needed: Vec<AllocatorFunction>,
    pub(super) others: Vec<AllocatorFunction>,
}

impl Family {
    /// All functions; with each, whether the others need it.
    pub(super) fn all(&self) -> impl Iterator<Item = (bool, &AllocatorFunction)> {
        let needed = self.needed.iter().map(|function| (true, function));
        needed.chain(self.others.iter().map(|function| (false, function)))
    }
}

/// A function of an allocator.
pub(super) struct AllocatorFunction {
    pub(super) spec: ProbeSpec,
    pub(super) name: String,
    /// None of it is probed: it only tells what the file is.
    pub(super) is_mark: bool,
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
    ("valloc", SIZE_FIRST),
    ("pvalloc", SIZE_FIRST),
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

/// The families of functions that a file may have.
pub(super) fn families() -> anyhow::Result<Vec<Family>> {
    let function = |name: String, how: &str, is_mark: bool| {
        let spec = format!("allocator:{name}{how}");
        let spec: ProbeSpec = spec.parse().with_context(|| name.clone())?;
        Ok(AllocatorFunction {
            is_needed: is_mark
                || how.contains("freed")
                || ["malloc", "je_malloc"].contains(&&*name),
            spec,
            name,
            is_mark,
        })
    };
    let mut families = Vec::new();
    for prefix in PREFIXES {
        let all = C
            .iter()
            .map(|(name, how)| function(format!("{prefix}{name}"), how, false));
        let all: Vec<AllocatorFunction> = all.collect::<anyhow::Result<_>>()?;
        let is_needed = |one: &AllocatorFunction| {
            NEEDED
                .iter()
                .any(|name| one.name.strip_prefix(prefix) == Some(name))
        };
        let (needed, others) = all.into_iter().partition(is_needed);
        families.push(Family { needed, others });
    }
    let cxx = CXX
        .iter()
        .map(|(name, how)| function((*name).to_owned(), how, false));
    families.push(Family {
        needed: vec![function(OF_JEMALLOC.to_owned(), FREED, true)?],
        others: cxx.collect::<anyhow::Result<_>>()?,
    });
    Ok(families)
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
        let names = |of: &[AllocatorFunction]| -> Vec<String> {
            of.iter().map(|function| function.name.clone()).collect()
        };
        let [c, prefixed, cxx] = &families[..] else {
            panic!("{}", families.len());
        };
        assert_eq!(names(&c.needed), ["malloc", "free"]);
        assert_eq!(names(&prefixed.needed), ["je_malloc", "je_free"]);
        assert_eq!((c.others.len(), prefixed.others.len()), (13, 13));
        assert_eq!(
            (names(&cxx.needed), cxx.others.len()),
            (vec!["mallctl".to_owned()], 16)
        );
        let needed = c.others.iter().filter(|function| function.is_needed);
        let names: Vec<&str> = needed.map(|function| &*function.name).collect();
        let wanted = [
            "realloc",
            "free_sized",
            "free_aligned_sized",
            "rallocx",
            "dallocx",
            "sdallocx",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn libraries_are_known_by_name() {
        for (path, may) in [
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", true),
            ("/opt/libjemalloc.so.2", true),
            ("/usr/lib/libcrypto.so.3", false),
        ] {
            assert_eq!(may_allocate(Path::new(path)), may, "{path}");
        }
    }
}
