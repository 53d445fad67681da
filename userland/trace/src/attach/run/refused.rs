// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places that the kernel refuses, while others are probed.

use libnsprobe::Error;
use std::collections::BTreeMap;

/// Most labels that are said for one reason.
const LABELS_SHOWN: usize = 5;

/// How many of `planned` probes are armed, and why the others are not: their labels and errors.
pub(super) fn describe(planned: usize, refused: &[(&str, Error)]) -> String {
    let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (label, error) in refused {
        reasons.entry(error.to_string()).or_default().push(label);
    }
    let reasons = reasons.iter().map(|(reason, labels)| {
        let mut shown = labels[..labels.len().min(LABELS_SHOWN)].join(", ");
        if let Some(more @ 1..) = labels.len().checked_sub(LABELS_SHOWN) {
            shown += &format!(" and {more} more");
        }
        format!("{shown}: {reason}")
    });
    let reasons: Vec<String> = reasons.collect();
    let count = refused.len();
    format!(
        "{} of {planned} probes armed; {count} refused: {}",
        planned.saturating_sub(count),
        reasons.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_probes_are_said_by_reason() {
        let one = describe(10_000, &[("app:f+4", Error::NoProcess)]);
        let begin = "9999 of 10000 probes armed; 1 refused: app:f+4: no such process";
        assert!(one.starts_with(begin), "{one}");
        let labels = ["a", "b", "c", "d", "e", "f", "g"];
        let mut many: Vec<_> = labels.map(|at| (at, Error::NoCgroup)).into();
        many.push(("h", Error::NoProcess));
        let many = describe(9, &many);
        for part in [
            "1 of 9 probes armed; 8 refused: ",
            "h: no such process",
            "a, b, c, d, e and 2 more: there is no such control group",
        ] {
            assert!(many.contains(part), "{many}");
        }
    }
}
