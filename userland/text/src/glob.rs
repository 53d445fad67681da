// SPDX-License-Identifier: MIT OR Apache-2.0
//! Globs over function names: `*` is any text, `?` any one byte.

/// Whether the text is a glob rather than a name.
pub fn is_glob(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Whether the glob fits the whole name. The work is bounded by the product of
/// the lengths: only the last `*` is ever tried again.
pub fn glob_fits(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.as_bytes(), name.as_bytes());
    let (mut g, mut n) = (0, 0);
    let mut again: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                again = Some((g + 1, n));
                g += 1;
            }
            Some(wanted) if *wanted == b'?' || name.get(n) == Some(wanted) => {
                g += 1;
                n += 1;
            }
            _ => match again {
                Some((behind_star, from)) => {
                    again = Some((behind_star, from + 1));
                    (g, n) = (behind_star, from + 1);
                }
                None => return false,
            },
        }
    }
    glob.iter().skip(g).all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_fit_whole_names() {
        for (glob, name, fits) in [
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
            ("mal*", "malloc", true),
            ("mal", "malloc", false),
            ("*al*c", "malloc", true),
            ("m?lloc", "malloc", true),
            ("*::method", "ns::Class::method", true),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*d", "aXbXbXc", false),
            ("**a", "bbba", true),
        ] {
            assert_eq!(glob_fits(glob, name), fits, "{glob} {name}");
        }
    }
}
