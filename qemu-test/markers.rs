// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's log must never say: looked for by the runner on the console, and by the
//! guest after each test.

/// A part of a line that means a failed run, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) text: &'static str,
    pub(crate) reason: &'static str,
}

const fn marker(text: &'static str, reason: &'static str) -> Marker {
    Marker { text, reason }
}

/// The first match of a line counts, so the telling ones come first.
const MARKERS: &[Marker] = &[
    marker("leaking uprobe", "a probe outlived its process's memory"),
    marker("KFENCE:", "use of freed or foreign kernel memory"),
    marker("KASAN:", "use of freed or foreign kernel memory"),
    marker("UBSAN:", "undefined behaviour in the kernel"),
    marker("refcount_t:", "a reference count went wrong"),
    marker("list_add corruption", "a kernel list is damaged"),
    marker("list_del corruption", "a kernel list is damaged"),
    marker("soft lockup", "a CPU did not schedule"),
    marker("hard LOCKUP", "a CPU took no interrupts"),
    // After ten seconds of a grace period it says "rcu_tasks grace period", which is well.
    marker(
        "rcu_tasks detected",
        "a task does not pass through the scheduler",
    ),
    marker("rcu_preempt detected", "an RCU reader does not end"),
    marker("detected stall", "an RCU reader does not end"),
    marker("allocation stall", "the kernel found no memory for long"),
    marker("blocked for more than", "a task hangs in the kernel"),
    marker("possible circular locking", "a lock order is broken"),
    marker("possible recursive locking", "a lock is taken twice"),
    marker("suspicious RCU usage", "an RCU rule is broken"),
    marker("scheduling while atomic", "it slept where it must not"),
    marker("sleeping function called", "it slept where it must not"),
    marker("Bad page state", "a page was freed in use"),
    marker("BUG kmalloc", "slab memory was overwritten"),
    marker("Object already free", "slab memory was freed twice"),
    marker("Redzone overwritten", "slab memory was overwritten"),
    marker("Poison overwritten", "freed slab memory was written"),
    marker("pagealloc:", "a freed page was written"),
    marker("general protection", "the kernel used a wild pointer"),
    marker("nable to handle", "the kernel used a wild pointer"),
    marker("Oops", "the kernel crashed"),
    marker("BUG:", "the kernel found a bug"),
    marker("kernel BUG at", "the kernel found a bug"),
    marker("WARNING:", "the kernel warned"),
    marker("Kernel panic", "the kernel stopped"),
    marker("Out of memory:", "the guest ran out of memory"),
    marker("Call Trace:", "the kernel printed a stack"),
    marker("corrupt", "something of the kernel's is damaged"),
];

/// The marker that a line holds.
pub(crate) fn find(line: &str) -> Option<&'static Marker> {
    // What a program wrote there itself is no trouble of the kernel's.
    if line.contains("nsprobe-guest:") {
        return None;
    }
    MARKERS.iter().find(|marker| line.contains(marker.text))
}
