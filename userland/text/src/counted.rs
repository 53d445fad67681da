// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of things, in words.

use std::fmt::Display;

/// A number of things, with the noun in the right form: `1 hit`, `2 hits`,
/// `0 processes`. The last word of `noun` is the one that changes; it is a regular one.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ends = |with: &str| noun.ends_with(with);
    let before_y = noun.strip_suffix('y');
    let vowels = ['a', 'e', 'i', 'o', 'u'];
    match before_y {
        _ if count == N::from(1) => format!("{count} {noun}"),
        Some(stem) if !stem.ends_with(vowels) => format!("{count} {stem}ies"),
        _ if ["s", "x", "ch", "sh"].into_iter().any(ends) => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_all_other_numbers_are_plural() {
        assert_eq!(counted(1, "hit"), "1 hit");
        assert_eq!(counted(0, "hit"), "0 hits");
        assert_eq!(counted(21u64, "older hit"), "21 older hits");
        assert_eq!(counted(1usize, "process"), "1 process");
        assert_eq!(counted(2usize, "process"), "2 processes");
        assert_eq!(counted(2i64, "switch"), "2 switches");
        assert_eq!(counted(3u32, "directory"), "3 directories");
        assert_eq!(counted(3u32, "key"), "3 keys");
    }
}
