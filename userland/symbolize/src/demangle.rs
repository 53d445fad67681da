// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readable names of C++ (Itanium) and Rust (legacy and v0) symbols.
//!
//! Mangled names are small programs that can grow without bound: what goes in
//! and what comes out is capped, and the raw name is the answer behind a cap.

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};
use std::fmt::{self, Write};

/// Longest name that is demangled, in bytes.
pub const RAW_BYTES_MAX: usize = 4 << 10;
/// Longest readable name, in bytes.
pub const READABLE_BYTES_MAX: usize = 16 << 10;
/// Deepest nesting in a C++ name.
const RECURSION_MAX: u32 = 96;

/// The readable name, with parameters (C++) and without the hash (Rust); the
/// raw name where it is not mangled or a limit is hit.
pub fn demangle(raw: &str) -> String {
    readable(raw, DemangleOptions::new()).unwrap_or_else(|| raw.to_owned())
}

/// The readable name without C++ parameters and return type:
/// `ns::Class::method`.
pub fn demangle_without_parameters(raw: &str) -> String {
    let options = DemangleOptions::new().no_params().no_return_type();
    readable(raw, options).unwrap_or_else(|| raw.to_owned())
}

/// Whether the name may be mangled at all: a quick look.
pub(crate) fn is_mangled(raw: &str) -> bool {
    ["_Z", "__Z", "_R", "_GLOBAL_"]
        .iter()
        .any(|start| raw.starts_with(start))
}

fn readable(raw: &str, options: DemangleOptions) -> Option<String> {
    if raw.len() > RAW_BYTES_MAX || !is_mangled(raw) {
        return None;
    }
    let mut out = Bounded(String::new());
    // Rust first: its legacy names are valid C++ names, with the hash in them.
    if let Ok(rust) = rustc_demangle::try_demangle(raw) {
        write!(out, "{rust:#}").ok()?;
    } else {
        let limits = ParseOptions::default().recursion_limit(RECURSION_MAX);
        let (symbol, tail) = BorrowedSymbol::with_tail_and_options(raw.as_bytes(), &limits).ok()?;
        let options = options.recursion_limit(RECURSION_MAX);
        symbol.structured_demangle(&mut out, &options).ok()?;
        // Compilers append what they did: `.cold`, `.part.0`, `.isra.0`.
        write!(out, "{}", std::str::from_utf8(tail).ok()?).ok()?;
    }
    Some(out.0)
}

/// Text that refuses to grow beyond [`READABLE_BYTES_MAX`].
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > READABLE_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_language_is_read() {
        for (raw, full, short) in [
            ("malloc", "malloc", "malloc"),
            (
                "_ZN2ns5Class6methodEiPKc",
                "ns::Class::method(int, char const*)",
                "ns::Class::method",
            ),
            (
                "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
                "core::fmt::Formatter::pad",
                "core::fmt::Formatter::pad",
            ),
            ("_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar", "foo::bar"),
            ("_Z3addii.cold", "add(int, int) [clone .cold]", "add"),
            ("_Zbroken", "_Zbroken", "_Zbroken"),
        ] {
            assert_eq!(demangle(raw), full);
            assert!(demangle_without_parameters(raw).starts_with(short), "{raw}");
        }
    }

    #[test]
    fn bombs_stay_raw() {
        let long = format!("_Z1a{}", "PK".repeat(RAW_BYTES_MAX));
        assert_eq!(demangle(&long), long);
        let deep = format!("_Z1a{}i", "P".repeat(RAW_BYTES_MAX - 10));
        assert!(demangle(&deep).len() <= READABLE_BYTES_MAX);
        // Each level doubles what the one before it said.
        let doubling = format!("_Z1f1AI{}E", "S_S0_".repeat(800));
        assert!(demangle(&doubling).len() <= READABLE_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn any_name_has_a_bounded_answer(raw in "_(Z|R|ZN)[A-Za-z0-9_]{0,200}") {
            prop_assert!(demangle(&raw).len() <= READABLE_BYTES_MAX);
            prop_assert!(demangle_without_parameters(&raw).len() <= READABLE_BYTES_MAX);
        }
    }
}
