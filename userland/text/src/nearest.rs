// SPDX-License-Identifier: MIT OR Apache-2.0
//! The most similar names, for messages about a name that does not exist.

/// Longest name that is compared, in characters: the work grows by its square.
const NAME_CHARS_MAX: usize = 64;

/// The names among `names` most similar to `wanted`, best first, at most
/// `count`, each once. Without those that have nothing in common.
pub fn nearest(wanted: &str, names: impl IntoIterator<Item = String>, count: usize) -> Vec<String> {
    let limit = wanted.chars().count().div_ceil(2).max(2);
    let mut ranked: Vec<(usize, String)> = names
        .into_iter()
        .map(|name| (rank(wanted, &name, limit), name))
        .filter(|(rank, _)| *rank <= limit)
        .collect();
    ranked.sort();
    ranked.dedup();
    ranked.truncate(count);
    ranked.into_iter().map(|(_, name)| name).collect()
}

/// How different the names are, or more than `limit`: one that holds the other counts as close.
fn rank(wanted: &str, name: &str, limit: usize) -> usize {
    let holds = |long: &str, short: &str| short.len() >= 3 && long.contains(short);
    if holds(name, wanted) || holds(wanted, name) {
        1
    } else if wanted.len().abs_diff(name.len()) > 4 * limit {
        // A character has at most four bytes; a large file has many names.
        usize::MAX
    } else {
        edit_distance(&wanted.to_lowercase(), &name.to_lowercase())
    }
}

/// Levenshtein's distance: insertions, deletions and replacements.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(NAME_CHARS_MAX).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().take(NAME_CHARS_MAX).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (slot, cb) in row.iter_mut().skip(1).zip(&b) {
            let above = *slot;
            left = (diagonal + usize::from(ca != *cb))
                .min(left + 1)
                .min(above + 1);
            diagonal = above;
            *slot = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn distances_are_levenshteins() {
        for (a, b, distance) in [
            ("", "", 0),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!(edit_distance(a, b), distance, "{a} {b}");
            assert_eq!(edit_distance(b, a), distance, "{b} {a}");
        }
    }

    #[test]
    fn the_most_similar_come_first_and_strangers_not_at_all() {
        let known = names(&["web", "wob", "database", "web", "webserver"]);
        assert_eq!(
            nearest("web", known.clone(), 3),
            ["web", "webserver", "wob"]
        );
        assert!(nearest("zzzz", known, 3).is_empty());
    }
}
