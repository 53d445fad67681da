// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of the kernel's that a test changes.

use std::fs;

/// A value in a file of the kernel's; as it was before with the value's end.
pub(crate) struct Setting {
    file: String,
    before: String,
}

impl Setting {
    /// Puts another value there.
    pub(crate) fn new(file: &str, value: &str) -> Setting {
        let before = fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
        fs::write(file, value).unwrap_or_else(|error| panic!("{file}: {value}: {error}"));
        Setting {
            file: file.to_owned(),
            before: before.trim().to_owned(),
        }
    }

    /// Puts one more value there.
    pub(crate) fn put(&self, value: &str) {
        let _ = fs::write(&self.file, value);
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, &self.before);
    }
}
