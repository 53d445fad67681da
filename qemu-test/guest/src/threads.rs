// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads beside a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells other threads to stop, also when what they were started for has failed: they would
/// be waited for else.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
