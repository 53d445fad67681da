// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values that are the address of a function, or of a description of a type of Go, by its name.

use nsprobe_spec::decode::FieldValue;
use std::fmt;

/// Looks up what is at addresses of a file.
pub trait AddressNames: fmt::Debug {
    /// The function that holds an address by the file's own count, and the distance from
    /// its beginning; or the type of Go that is described there.
    fn name_at(&self, address: u64) -> Option<String>;
}

/// Puts the names of functions, and of Go's types, in place of their addresses, as far as they are
/// known.
pub fn name_addresses(values: &mut [FieldValue], names: &dyn AddressNames) {
    for value in values {
        let unnamed = std::mem::replace(value, FieldValue::Absent);
        *value = unnamed.with_names(|address| names.name_at(address));
    }
}
