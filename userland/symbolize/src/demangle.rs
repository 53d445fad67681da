// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readable names of C++ (Itanium) and Rust (legacy and v0) symbols.

/// The readable name, with parameters (C++) and without the hash (Rust); the
/// raw name where it is not mangled or a limit is hit.
pub fn demangle(raw: &str) -> String {
    todo!("{raw}")
}

/// The readable name without C++ parameters and return type:
/// `ns::Class::method`.
pub fn demangle_without_parameters(raw: &str) -> String {
    todo!("{raw}")
}
