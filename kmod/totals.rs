// SPDX-License-Identifier: GPL-2.0-only
//! The number of sessions and probes in the whole module.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of the session opened last.
static LAST_SESSION: AtomicU32 = AtomicU32::new(0);
/// Sessions open in the whole module.
pub(crate) static SESSIONS: AtomicU32 = AtomicU32::new(0);
/// Probes attached in the whole module.
pub(crate) static PROBES: AtomicU32 = AtomicU32::new(0);

/// One session counted in [`SESSIONS`], and its number.
pub(crate) struct Tally(pub(crate) u32);

impl Tally {
    pub(crate) fn new() -> Self {
        SESSIONS.fetch_add(1, Relaxed);
        Tally(LAST_SESSION.fetch_add(1, Relaxed).wrapping_add(1))
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        SESSIONS.fetch_sub(1, Relaxed);
    }
}
