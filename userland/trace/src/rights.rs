// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this process may do: without the rights to trace, each later error names a wrong cause.

use std::fs;

const SYS_PTRACE: (u32, &str) = (19, "CAP_SYS_PTRACE");
const SYS_ADMIN: (u32, &str) = (21, "CAP_SYS_ADMIN");
const SYSLOG: (u32, &str) = (34, "CAP_SYSLOG");
const PERFMON: (u32, &str) = (38, "CAP_PERFMON");

/// This process may not trace.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process lacks {}: tracing needs CAP_PERFMON and CAP_SYS_PTRACE, or CAP_SYS_ADMIN, as \
     root has them",
    .0.join(" and ")
)]
pub struct Lacking(Vec<&'static str>);

/// Fails if this process lacks the capabilities of a tracer.
pub(crate) fn check() -> Result<(), Lacking> {
    match lacking() {
        lacking if lacking.is_empty() => Ok(()),
        lacking => Err(Lacking(lacking)),
    }
}

/// The capabilities of a tracer that this process lacks.
pub fn lacking() -> Vec<&'static str> {
    lacking_of(effective())
}

/// Whether this process may see addresses of the kernel.
pub fn may_see_kernel() -> bool {
    has(effective(), SYSLOG)
}

/// The effective capabilities; all where they cannot be read: then the kernel judges.
fn effective() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    set.unwrap_or(u64::MAX)
}

fn has(effective: u64, (bit, _): (u32, &str)) -> bool {
    effective & (1 << bit) != 0
}

/// What a tracer needs and these do not have.
fn lacking_of(effective: u64) -> Vec<&'static str> {
    if has(effective, SYS_ADMIN) {
        return Vec::new();
    }
    let needed = [PERFMON, SYS_PTRACE].into_iter();
    needed
        .filter(|capability| !has(effective, *capability))
        .map(|(_, name)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_capability_is_named() {
        assert_eq!(lacking_of(0), ["CAP_PERFMON", "CAP_SYS_PTRACE"]);
        assert_eq!(lacking_of(1 << 38), ["CAP_SYS_PTRACE"]);
        assert!(lacking_of(1 << 38 | 1 << 19).is_empty() && lacking_of(1 << 21).is_empty());
    }
}
