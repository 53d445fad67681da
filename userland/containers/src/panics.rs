// SPDX-License-Identifier: MIT OR Apache-2.0
//! Panics of threads that are in a container.
//!
//! With `RUST_BACKTRACE` the standard library's panic hook names the frames of the stack. For
//! that it opens our program and its libraries by their paths, and parses what it finds: in a
//! thread that has joined a container's mount namespace that is whatever the container has put
//! there, parsed by a process with all our rights. So a panic of such a thread says where it was
//! and what went wrong, and nothing more.

use std::cell::Cell;
use std::io::{stderr, Write};
use std::panic::{set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static IS_AWAY: Cell<bool> = const { Cell::new(false) };
}

/// No panic of this thread opens a file from now on, until the thread ends.
pub(crate) fn look_at_no_file() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| match IS_AWAY.get() {
            // A panic in a hook ends the process: where stderr is closed, nothing is printed.
            true => {
                let _ = writeln!(
                    stderr(),
                    "a thread in a container's mount namespace {panic}"
                );
            }
            false => before(panic),
        }));
    });
    IS_AWAY.set(true);
}
