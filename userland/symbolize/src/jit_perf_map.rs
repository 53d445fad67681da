// SPDX-License-Identifier: MIT OR Apache-2.0
//! `perf-PID.map`: a line for each piece of code, `START BYTES NAME`, the numbers in
//! hexadecimal, the name up to the end of the line (Linux,
//! `tools/perf/Documentation/jit-interface.txt`).

use crate::jit::{GeneratedPiece, JitName, Pieces};

/// Longest line, in bytes; a longer one is skipped.
const LINE_BYTES_MAX: usize = 8 << 10;

/// What a process's map says, as far as it was read.
#[derive(Debug, Default)]
pub struct PerfMap {
    pieces: Pieces,
    /// The beginning of a line that the program is still writing.
    begun: Vec<u8>,
    /// Whether the current, incomplete line is too long.
    skips: bool,
}

impl PerfMap {
    /// Takes what the program has appended since.
    pub fn append(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            self.go_on(line);
            let line = std::mem::take(&mut self.begun);
            if !std::mem::take(&mut self.skips) {
                self.line(&line);
            }
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.go_on(bytes);
    }

    /// The name of the address: of several pieces that cover it, the one reported last.
    pub fn at(&self, address: u64) -> Option<JitName> {
        self.pieces.at(address, 0).name
    }

    /// How many pieces had to make room for others, or claimed to be of absurd size.
    pub fn left_out(&self) -> u64 {
        self.pieces.left_out()
    }

    fn go_on(&mut self, part: &[u8]) {
        self.skips |= self.begun.len() + part.len() > LINE_BYTES_MAX;
        if self.skips {
            self.begun.clear();
        } else {
            self.begun.extend(part);
        }
    }

    fn line(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let mut words = text.trim_end_matches('\r').splitn(3, ' ');
        let mut number = || hexadecimal(words.next()?);
        let (Some(start), Some(bytes)) = (number(), number()) else {
            return;
        };
        let Some(name) = words.next().filter(|name| !name.is_empty()) else {
            return;
        };
        self.pieces.add(GeneratedPiece {
            start,
            bytes,
            name: name.into(),
            ..GeneratedPiece::default()
        });
    }
}

fn hexadecimal(word: &str) -> Option<u64> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    // `from_str_radix` would take a sign.
    let all = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(map: &PerfMap, address: u64) -> Option<String> {
        map.at(address).map(|found| found.name)
    }

    #[test]
    fn lines_of_a_runtime_are_read() {
        let mut map = PerfMap::default();
        map.append(b"7ffb49fe5200 378 JS:~middle /a.js:3:16\n0x1000 0x10 plain\r\n");
        map.append(b"7ffb49fe5200 100 JS:*middle /a.js:3:16\n");
        assert_eq!(
            name(&map, 0x7ffb49fe52ff).as_deref(),
            Some("JS:*middle /a.js:3:16")
        );
        assert_eq!(
            name(&map, 0x7ffb49fe5300).as_deref(),
            Some("JS:~middle /a.js:3:16")
        );
        let found = map.at(0x100f).unwrap();
        assert_eq!((found.name.as_str(), found.offset), ("plain", 15));
        assert_eq!(map.at(0x1010), None);
    }

    #[test]
    fn a_line_counts_when_it_is_whole() {
        let mut map = PerfMap::default();
        map.append(b"1000 10 fi");
        assert_eq!(map.at(0x1000), None);
        map.append(b"rst\n2000 10");
        assert_eq!(name(&map, 0x1000).as_deref(), Some("first"));
        map.append(b" second\n");
        assert_eq!(name(&map, 0x2000).as_deref(), Some("second"));
    }

    #[test]
    fn hostile_lines_are_left_out() {
        let mut map = PerfMap::default();
        map.append(b"\n \n1000\n1000 10\n1000 10 \n+1000 10 sign\n-1 10 sign\n1000 g x\n");
        map.append(b"fffffffffffffffff 10 too many digits\n0 ffffffffffffffff all\n");
        let mut long = b"3000 10 ".to_vec();
        long.resize(3 * LINE_BYTES_MAX, b'a');
        map.append(&long);
        map.append(b"still the same line\n4000 10 \xff\x1b[31m\n");
        assert!([0, 0x1000, 0x3000].iter().all(|at| map.at(*at).is_none()));
        assert_eq!(name(&map, 0x4000).as_deref(), Some("\u{fffd}\u{1b}[31m"));
        assert_eq!(map.left_out(), 1);
    }

    proptest! {
        #[test]
        fn parts_do_not_matter(
            text in "([0-9a-f]{1,5} [0-9a-f]{1,3} [a-z ]{0,6}\n|[ -~]{0,20}\n){0,12}",
            cuts in prop::collection::vec(0usize..200, 0..6),
        ) {
            let mut whole = PerfMap::default();
            whole.append(text.as_bytes());
            let mut parts = PerfMap::default();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| (*cut).min(text.len())).collect();
            cuts.sort_unstable();
            let mut from = 0;
            for to in cuts.into_iter().chain([text.len()]) {
                parts.append(&text.as_bytes()[from..to]);
                from = to;
            }
            for address in (0..0x10_0000).step_by(0x35) {
                prop_assert_eq!(whole.at(address), parts.at(address));
            }
        }

        #[test]
        fn no_bytes_are_too_much(bytes: Vec<u8>) {
            let mut map = PerfMap::default();
            map.append(&bytes);
            let _ = map.at(0);
        }
    }
}
