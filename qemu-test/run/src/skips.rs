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

/// Debian's kernels are built without; those of `scripts/debug-kernel.sh` have it.
const NO_FAULTS: &str = "no FAULT_INJECTION in this kernel";

/// Debian's kernels have them, those of `scripts/debug-kernel.sh` do not.
const NO_TYPES: &str = "no BTF in this kernel";

/// The ends of the names of `scripts/debug-kernel.sh`.
const DEBUG_KERNELS: [&str; 2] = ["-lockdep", "-kasan"];

/// Whether a test may be skipped for a reason, with this kernel.
pub(crate) fn is_allowed(kernel: &str, name: &str, reason: &str) -> bool {
    let is_debug = DEBUG_KERNELS.iter().any(|end| kernel.ends_with(end));
    let lacks = if is_debug { NO_TYPES } else { NO_FAULTS };
    let test = name.rsplit('.').next().unwrap_or(name);
    let mut allowed = ALLOWED.iter().filter(|(_, begin)| *begin == lacks);
    allowed.any(|(name, begin)| *name == test && reason.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_lacks_is_skipped_and_nothing_else() {
        let test = "probes_are_attached_or_not";
        let stock = "7.2.12+deb13-amd64";
        assert!(is_allowed(stock, test, NO_FAULTS));
        assert!(is_allowed(stock, &format!("sanitized.{test}"), NO_FAULTS));
        assert!(!is_allowed(stock, test, "no victim"));
        assert!(!is_allowed(
            stock,
            "attach_and_detach_under_fire",
            NO_FAULTS
        ));
        // One that has lost the option would skip them all.
        assert!(!is_allowed("7.2.12+deb13-amd64-lockdep", test, NO_FAULTS));
        assert!(!is_allowed("7.2.12+deb13-amd64-kasan", test, NO_FAULTS));
        let types = "a_kernel_that_is_locked_down_lets_nothing_be_traced";
        assert!(is_allowed("7.2.12+deb13-amd64-lockdep", types, NO_TYPES));
        assert!(!is_allowed(stock, types, NO_TYPES));
    }

    #[test]
    fn each_debug_kernel_is_known() {
        let script = include_str!("../../../scripts/debug-kernel.sh");
        for end in DEBUG_KERNELS {
            let variant = end.trim_start_matches('-');
            assert!(script.contains(&format!("{variant})")), "{variant}");
        }
    }
}
