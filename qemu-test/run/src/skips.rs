// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that may be skipped, each with the reason that it must give. Every other skip fails
//! the run: what the tests need is in the guest's image by construction.

/// Test (of any stage), and how the reason that it prints begins.
const ALLOWED: &[(&str, &str)] = &[];

/// Whether a test may be skipped for a reason.
pub(crate) fn is_allowed(name: &str, reason: &str) -> bool {
    let test = name.rsplit('.').next().unwrap_or(name);
    let mut allowed = ALLOWED.iter();
    allowed.any(|(name, begin)| *name == test && reason.starts_with(begin))
}
