// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of threads: switches and wake-ups have their numbers alone.

use crate::types::Value;
use std::collections::HashMap;

/// Most names: as many as there can be threads (`PID_MAX_LIMIT`).
const NAMES_MAX: usize = 4 << 20;
/// In place of an unknown name.
const UNKNOWN: &str = "?";

/// The names that threads had last. One that has ended keeps its own until its number comes
/// back: it is switched away from once more.
#[derive(Debug, Default)]
pub(super) struct ThreadNames {
    known: HashMap<u32, [u8; 16]>,
}

impl ThreadNames {
    /// Thread `tid` has this name.
    pub(super) fn set(&mut self, tid: u32, name: [u8; 16]) {
        if self.known.len() < NAMES_MAX || self.known.contains_key(&tid) {
            self.known.insert(tid, name);
        }
    }

    /// There is no thread `tid` any more.
    pub(super) fn forget(&mut self, tid: u32) {
        self.known.remove(&tid);
    }

    /// The name of thread `tid`.
    pub(super) fn value(&self, tid: u32) -> Value<'_> {
        match self.known.get(&tid) {
            Some(name) => Value::text(name),
            None => Value::text(UNKNOWN),
        }
    }
}

/// A name up to its first NUL.
pub(super) fn without_padding(name: &[u8; 16]) -> &[u8] {
    let end = name.iter().position(|byte| *byte == 0);
    name.get(..end.unwrap_or(name.len())).unwrap_or_default()
}
