// SPDX-License-Identifier: MIT OR Apache-2.0
//! `jit-PID.dump`: pieces of code with the times at which they were there, and lines
//! (Linux, `tools/perf/Documentation/jitdump-specification.txt`, version 1).
//!
//! The code itself is in the file, too: it is passed over, not read.

use crate::elf::{u32_at, u64_at};
use crate::jit::{GeneratedPiece, JitLine, JitNameThen, Pieces, LINES_MAX};
use object::elf::EM_X86_64;
use std::rc::Rc;

const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 40;
/// Flag: times are of the processor's own clock, which nothing else here knows.
const ARCH_TIMESTAMPS: u64 = 1;

/// What V8 has in the header's unused word. It tells lines as of where the code would lie
/// in a file of perf's: after this number of bytes of headers.
const MARK_OF_V8: u32 = 0xdead_beef;
const V8_SHIFT: u64 = 0x40;

const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;

/// What each record begins with: its kind, its length, its time.
const PREFIX_BYTES: u64 = 16;
/// What else one of code has in front of its name.
const LOAD_BYTES: u64 = 40;
/// Longest name, in bytes, and longest record of lines.
const NAME_BYTES_MAX: u64 = 4 << 10;
const DEBUG_BYTES_MAX: u64 = 16 << 20;
/// Most records that are read at a time.
const RECORDS_MAX: usize = 1 << 17;

/// What a process's dump says, as far as it was read.
#[derive(Debug, Default)]
pub struct JitDump {
    pieces: Pieces,
    /// Where the next record begins; 0 before the header was read.
    next: u64,
    has_times: bool,
    /// How far the addresses of lines are after the code's.
    shift: u64,
    /// Lines of the code that comes next, and where it will be.
    lines: Option<(u64, Vec<JitLine>)>,
    is_damaged: bool,
}

impl JitDump {
    /// Takes the records that the program has appended since: `read` gives the bytes
    /// from an offset on, or nothing where the file is shorter.
    ///
    /// What is no such file, or a damaged one, says nothing from there on. Returns
    /// whether that was all; the rest is for another call.
    pub fn append(&mut self, mut read: impl FnMut(u64, usize) -> Option<Vec<u8>>) -> bool {
        if self.next == 0 && !self.is_damaged {
            let Some(header) = read(0, HEADER_BYTES as usize) else {
                return true;
            };
            self.is_damaged = self.header(&header).is_none();
        }
        for _ in 0..RECORDS_MAX {
            if self.is_damaged || !self.record(&mut read) {
                return true;
            }
        }
        false
    }

    /// What was at the address at that time (CLOCK_MONOTONIC, in nanoseconds).
    pub fn at(&self, address: u64, time_ns: u64) -> JitNameThen {
        self.pieces.at(address, time_ns)
    }

    /// How many pieces had to make room for others, or claimed to be of absurd size.
    pub fn left_out(&self) -> u64 {
        self.pieces.left_out()
    }

    fn header(&mut self, header: &[u8]) -> Option<()> {
        let is_ours = u32_at(header, 0)? == MAGIC
            && u32_at(header, 4)? == VERSION
            && u32_at(header, 12)? == u32::from(EM_X86_64.0);
        let bytes = u64::from(u32_at(header, 8)?);
        self.shift = match u32_at(header, 16)? {
            MARK_OF_V8 => V8_SHIFT,
            _ => 0,
        };
        self.has_times = u64_at(header, 32)? & ARCH_TIMESTAMPS == 0;
        self.next = Some(bytes).filter(|bytes| is_ours && *bytes >= HEADER_BYTES)?;
        Some(())
    }

    /// Reads a record, if it is all there.
    fn record(&mut self, read: &mut impl FnMut(u64, usize) -> Option<Vec<u8>>) -> bool {
        let Some(prefix) = read(self.next, PREFIX_BYTES as usize) else {
            return false;
        };
        let kind = u32_at(&prefix, 0).unwrap_or(u32::MAX);
        let bytes = u64::from(u32_at(&prefix, 4).unwrap_or(0));
        let time = u64_at(&prefix, 8).unwrap_or(0);
        let time = if self.has_times { time } else { 0 };
        let Some(body_bytes) = bytes.checked_sub(PREFIX_BYTES) else {
            self.is_damaged = true;
            return false;
        };
        // The last byte shows whether the program has written it all.
        if body_bytes > 0 && read(self.next + bytes - 1, 1).is_none() {
            return false;
        }
        let limit = match kind {
            CODE_LOAD => LOAD_BYTES + NAME_BYTES_MAX,
            CODE_MOVE => 64,
            DEBUG_INFO if body_bytes <= DEBUG_BYTES_MAX => body_bytes,
            _ => 0,
        };
        let body = read(self.next + PREFIX_BYTES, body_bytes.min(limit) as usize);
        let body = body.unwrap_or_default();
        // One that contradicts itself is skipped; its length still holds.
        let _ = match kind {
            CODE_LOAD => self.load(&body, time),
            CODE_MOVE => self.move_code(&body, time),
            DEBUG_INFO => self.debug_info(&body),
            _ => None,
        };
        self.next += bytes;
        true
    }

    fn load(&mut self, body: &[u8], time_ns: u64) -> Option<()> {
        let (start, bytes) = (u64_at(body, 16)?, u64_at(body, 24)?);
        let lines = self.lines.take().filter(|(at, _)| *at == start);
        // V8 has been seen to write names of files that it had freed, and no end of them:
        // what is no line of this code makes all others doubtful.
        let end = start.checked_add(bytes)?;
        let inside = |line: &JitLine| (start..end).contains(&line.address);
        let lines = lines.filter(|(_, lines)| lines.iter().all(inside));
        let (name, _) = text(body.get(LOAD_BYTES as usize..)?)?;
        self.pieces.add(GeneratedPiece {
            start,
            bytes,
            name: name.into(),
            time_ns,
            lines: lines.map(|(_, lines)| lines).unwrap_or_default(),
        });
        Some(())
    }

    fn move_code(&mut self, body: &[u8], time_ns: u64) -> Option<()> {
        let (old, new) = (u64_at(body, 16)?, u64_at(body, 24)?);
        let moved = self.pieces.newest_at(old)?.clone();
        let address = |line: &JitLine| new.checked_add(line.address.checked_sub(old)?);
        let lines = moved.lines.iter();
        let lines = lines.filter_map(|line| {
            Some(JitLine {
                address: address(line)?,
                ..line.clone()
            })
        });
        let piece = GeneratedPiece {
            start: new,
            bytes: u64_at(body, 32)?,
            time_ns,
            lines: lines.collect(),
            ..moved.clone()
        };
        self.pieces.add(piece);
        Some(())
    }

    fn debug_info(&mut self, body: &[u8]) -> Option<()> {
        let start = u64_at(body, 0)?;
        let count = usize::try_from(u64_at(body, 8)?).ok()?.min(LINES_MAX);
        let mut rest = body.get(16..)?;
        let mut lines: Vec<JitLine> = Vec::new();
        for _ in 0..count {
            let (address, line) = (u64_at(rest, 0)?, u32_at(rest, 8)?);
            rest = rest.get(16..)?;
            // This stands for the name of the entry before.
            let file = match rest.strip_prefix(b"\xff\0") {
                Some(behind) => {
                    rest = behind;
                    Rc::clone(&lines.last()?.file)
                }
                None => {
                    let (file, behind) = text(rest)?;
                    rest = behind;
                    file.into()
                }
            };
            let address = address.checked_sub(self.shift)?;
            lines.push(JitLine {
                address,
                file,
                line,
            });
        }
        // Records end on a multiple of eight bytes.
        if rest.len() >= 8 {
            return None;
        }
        lines.sort_by_key(|line| line.address);
        self.lines = Some((start, lines));
        Some(())
    }
}

/// The text up to its NUL, and what is after that.
fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let (text, rest) = bytes.split_at(end);
    let text = String::from_utf8_lossy(text).into_owned();
    (end as u64 <= NAME_BYTES_MAX).then_some((text, rest.get(1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Vec<u8> {
        let words = [MAGIC, VERSION, 40, 62, 0, 1];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend([0; 16]);
        bytes
    }

    fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((body.len() as u32 + 16).to_le_bytes());
        bytes.extend(time.to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn load(time: u64, start: u64, name: &[u8]) -> Vec<u8> {
        // Process and thread, address, address of the code, its bytes, its number.
        let mut body = words(&[0, start, start, 4, 0]);
        body.extend(name);
        body.extend(b"\0\x90\x90\x90\x90");
        record(CODE_LOAD, time, &body)
    }

    fn dump() -> Vec<u8> {
        let mut lines = words(&[0x1000, 2, 0x1000, 7]);
        lines.extend(b"a.js\0");
        lines.extend(words(&[0x1002, 9]));
        lines.extend(b"\xff\0");
        let moved = words(&[0, 0x1000, 0x1000, 0x2000, 4, 0]);
        [
            header(),
            record(DEBUG_INFO, 10, &lines),
            load(10, 0x1000, b"first"),
            record(4, 11, &[0; 20]),
            load(20, 0x1000, b"second"),
            record(CODE_MOVE, 30, &moved),
        ]
        .concat()
    }

    fn read(data: &[u8]) -> JitDump {
        let mut dump = JitDump::default();
        go_on(&mut dump, data);
        dump
    }

    fn go_on(dump: &mut JitDump, data: &[u8]) {
        assert!(dump.append(|at, bytes| Some(data.get(at as usize..)?.get(..bytes)?.to_vec())));
    }

    fn shown(dump: &JitDump, address: u64, time: u64) -> String {
        dump.at(address, time).name.map_or("-".into(), |found| {
            let line = found.line.unwrap_or(0);
            format!(
                "{}+{} {}:{line}",
                found.name,
                found.offset,
                found.file.unwrap_or_default()
            )
        })
    }

    #[test]
    fn records_are_read_and_count_by_their_times() {
        let dump = read(&dump());
        for (address, time, wanted) in [
            (0x1000, 9, "-"),
            (0x1001, 10, "first+1 a.js:7"),
            (0x1003, 19, "first+3 a.js:9"),
            (0x1003, 20, "second+3 :0"),
            (0x1004, 20, "-"),
            (0x2003, 29, "-"),
        ] {
            assert_eq!(shown(&dump, address, time), wanted);
        }
    }

    #[test]
    fn lines_that_cannot_be_are_left_out() {
        let mut data = dump();
        // The second line's address.
        let at = data
            .windows(8)
            .position(|bytes| bytes == words(&[0x1002]))
            .unwrap();
        data[at + 1] = 0x20;
        assert_eq!(shown(&read(&data), 0x1003, 19), "first+3 :0");
        let mut of_v8 = dump();
        of_v8[16..20].copy_from_slice(&MARK_OF_V8.to_le_bytes());
        assert_eq!(shown(&read(&of_v8), 0x1003, 19), "first+3 :0");
        for line in [0x1000u64, 0x1002] {
            // The first such word is where the code is.
            let words: Vec<usize> = (40..of_v8.len() - 8)
                .filter(|at| of_v8[*at..*at + 8] == line.to_le_bytes())
                .collect();
            let at = if line == 0x1000 { words[1] } else { words[0] };
            of_v8[at] += 0x40;
        }
        assert_eq!(shown(&read(&of_v8), 0x1003, 19), "first+3 a.js:9");
    }

    #[test]
    fn what_grows_is_read_on() {
        let data = dump();
        let whole = read(&data);
        let mut grown = JitDump::default();
        for length in (0..=data.len()).step_by(7).chain([data.len()]) {
            go_on(&mut grown, &data[..length]);
        }
        for address in (0xff0..0x1010).chain(0x1ff0..0x2010) {
            for time in 0..40 {
                assert_eq!(shown(&whole, address, time), shown(&grown, address, time));
            }
        }
    }

    #[test]
    fn what_is_no_dump_says_nothing() {
        for at in [0, 4, 12] {
            let mut data = dump();
            data[at] ^= 1;
            assert_eq!(shown(&read(&data), 0x1001, 10), "-");
        }
        // A record without a length would be read for ever.
        let mut data = dump();
        data[44..48].fill(0);
        assert_eq!(shown(&read(&data), 0x1001, 10), "-");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(
            changes in prop::collection::vec((0usize..340, any::<u8>()), 1..24),
        ) {
            let mut data = dump();
            for (at, byte) in changes {
                if let Some(place) = data.get_mut(at) {
                    *place = byte;
                }
            }
            let dump = read(&data);
            let _ = (dump.at(0x1001, 40), dump.at(0x2001, 40));
        }
    }
}
