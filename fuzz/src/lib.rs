// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all targets share.
#![forbid(unsafe_code)]

pub use libfuzzer_sys;

use std::panic::{catch_unwind, set_hook};
use std::sync::{Mutex, PoisonError};

/// What the last panic said.
static SAID: Mutex<String> = Mutex::new(String::new());

/// A target that gives its bytes to the seam of that name.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(
            init: $crate::leave_panics_to_their_catchers(),
            |bytes: &[u8]| $crate::run($name, bytes)
        );
    };
}

/// libFuzzer's binding aborts at each panic, also at those of parsers that nsprobe catches,
/// after which the file costs its names alone.
pub fn leave_panics_to_their_catchers() {
    set_hook(Box::new(|panic| {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        *said = panic.to_string();
    }));
}

/// Gives the bytes to the seam; a panic that nobody has caught ends the target.
pub fn run(name: &str, bytes: &[u8]) {
    if catch_unwind(|| nsprobe_fuzz_harness::run(name, bytes)).is_err() {
        let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        eprintln!("{said}");
        std::process::abort();
    }
}
