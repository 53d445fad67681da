// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values that are the address of a function, by its name.

use nsprobe_spec::decode::FieldValue;
use std::fmt;

/// Looks up the functions of a file by their addresses.
pub trait FunctionNames: fmt::Debug {
    /// The function that holds an address by the file's own count, and the distance from
    /// its beginning.
    fn function_at(&self, address: u64) -> Option<String>;
}

/// Puts the names of functions in place of their addresses, as far as they are known.
pub fn name_symbols(values: &mut [FieldValue], functions: &dyn FunctionNames) {
    for value in values {
        if let FieldValue::Symbol { address, in_file } = *value {
            if let Some(name) = functions.function_at(in_file) {
                *value = FieldValue::Named(name, address as i64);
            }
        }
    }
}
