// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folded stacks, as the tools around flame graphs read them.

use crate::{text, Profile};
use std::collections::BTreeMap;
use std::io::{Result, Write};

/// Frames from the outermost on with `;` between them, and their number; each stack once, in
/// order.
pub(crate) fn lines(profile: &Profile) -> Vec<String> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for sample in &profile.samples {
        let shown = profile.shown(sample);
        let frames: Vec<String> = shown
            .iter()
            .map(|frame| text::folded(&frame.name))
            .collect();
        *stacks.entry(frames.join(";")).or_default() += Profile::weight(sample);
    }
    let there = stacks.into_iter().filter(|(_, weight)| *weight > 0);
    there
        .map(|(frames, weight)| format!("{frames} {weight}"))
        .collect()
}

pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> Result<()> {
    for line in lines(profile) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn stacks_are_lines() {
        let mut out = Vec::new();
        write(&sample::profile(), &mut out).expect("it takes all");
        assert_eq!(
            String::from_utf8(out).expect("it is text"),
            "[unknown] 5\n\
             container=web:_1;[truncated];serve;read<a, b>;parse_7 40\n\
             container=web:_1;main;serve;read<a, b>;parse_7 100\n\
             container=web:_1;main;serve;read<a, b>;parse_7;[app+0x40] 3\n"
        );
    }
}
