// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that may be skipped, each with the reason that it must give. Every other skip fails
//! the run: what the tests need is in the guest's image by construction.

/// Test (of any stage), and how the reason that it prints begins.
const ALLOWED: &[(&str, &str)] = &[
    ("an_open_that_fails_leaves_nothing", NO_FAULTS),
    ("what_is_made_is_made_or_not", NO_FAULTS),
    ("what_is_asked_is_answered_or_not", NO_FAULTS),
    ("records_are_read_or_stay", NO_FAULTS),
    ("files_are_handed_out_or_stay", NO_FAULTS),
    ("probes_are_attached_or_not", NO_FAULTS),
    ("tasks_are_recorded_or_not", NO_FAULTS),
    ("sessions_end_whatever_fails", NO_FAULTS),
    ("breakpoints_are_put_in_or_taken_out", NO_FAULTS),
    ("what_fails_costs_no_memory", NO_FAULTS),
    (
        "a_kernel_that_is_locked_down_lets_nothing_be_traced",
        NO_TYPES,
    ),
];

/// Debian's kernels are built without; that of `scripts/debug-kernel.sh` has it.
const NO_FAULTS: &str = "no FAULT_INJECTION in this kernel";

/// Debian's kernels have them, those of `scripts/debug-kernel.sh` do not.
const NO_TYPES: &str = "no BTF in this kernel";

/// Whether a test may be skipped for a reason.
pub(crate) fn is_allowed(name: &str, reason: &str) -> bool {
    let test = name.rsplit('.').next().unwrap_or(name);
    let mut allowed = ALLOWED.iter();
    allowed.any(|(name, begin)| *name == test && reason.starts_with(begin))
}
