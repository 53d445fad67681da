// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's values that a test changes.

use std::fs;

/// A value in one of the kernel's files. Dropping this puts back what was there before.
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
