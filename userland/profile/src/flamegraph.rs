// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flame graphs.

use crate::{folded, text::plain, Profile};
use inferno::flamegraph::{from_lines, Options};
use std::io::{self, Result, Write};

/// Writes a flame graph. Equal profiles give equal pictures.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> Result<()> {
    let lines = folded::lines(profile);
    let mut options = Options::default();
    options.title = plain(&profile.title).into_owned();
    options.deterministic = true;
    if let Some(measure) = profile.measures.last() {
        options.count_name = plain(count_name(&measure.kind, &measure.unit)).into_owned();
    }
    let mut svg = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .map_err(io::Error::other)?;
    out.write_all(&svg)
}

/// What the numbers count.
fn count_name<'a>(kind: &'a str, unit: &'a str) -> &'a str {
    match unit {
        "count" => kind,
        unit => unit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn svg(profile: &Profile) -> String {
        let mut out = Vec::new();
        write(profile, &mut out).expect("it takes all");
        String::from_utf8(out).expect("it is text")
    }

    #[test]
    fn a_picture_has_all_functions_and_their_counts() {
        let profile = sample::profile();
        let picture = svg(&profile);
        assert_eq!(picture, svg(&profile));
        for part in [
            "<title>main (103 calls, 69.59%)</title>",
            "<title>read&lt;a, b&gt; (103 calls, 69.59%)</title>",
            "<title>[truncated] (40 calls, 27.03%)</title>",
            "<title>container=web:_1 (143 calls, 96.62%)</title>",
            "a &lt;title&gt;",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
    }

    proptest! {
        #[test]
        fn any_names_give_a_picture_of_all_stacks(
            names in vec("[ab#; 1.]{0,4}|.{0,9}", 4),
            stacks in vec((vec(0usize..4, 0..5), 1..9i64), 1..20),
        ) {
            let mut profile = sample::profile();
            for (location, name) in profile.locations.iter_mut().zip(names) {
                location.lines.truncate(1);
                location.lines[0].name = name;
            }
            profile.samples = stacks
                .iter()
                .map(|(stack, count)| sample::of_stack(stack, *count))
                .collect();
            let total: i64 = stacks.iter().map(|(_, count)| count).sum();
            let picture = svg(&profile);
            sample::check_well_formed(&picture);
            prop_assert!(picture.contains(&format!("total_samples=\"{total}\"")), "{picture}");
        }
    }

    #[test]
    fn hostile_names_leave_it_well_formed() {
        let mut profile = sample::profile();
        for name in ["</title><script>x()</script>", "]]>&\u{0}\u{fffe}\"'", ""] {
            profile.locations[0].lines[0].name = name.to_owned();
            let picture = svg(&profile);
            assert!(!picture.contains("<script>x()"), "{picture}");
            sample::check_well_formed(&picture);
        }
    }
}
