// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the files in which a process describes its generated code, in the child.

use crate::protocol::{Failure, GeneratedFile, GeneratedName, Reply};
use nsprobe_symbolize::{JitDump, PerfMap};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Most bytes of a map that are read at a time, so that no caller waits for long.
const LOOK_BYTES_MAX: u64 = 8 << 20;
/// Bytes that are read at once.
const PART_BYTES: u64 = 1 << 20;

/// The generated code of one process.
#[derive(Debug, Default)]
pub(super) struct ProcessCode {
    map: PerfMap,
    dump: JitDump,
}

impl ProcessCode {
    pub(super) fn read(
        &mut self,
        kind: GeneratedFile,
        from: u64,
        to: u64,
        files: Vec<OwnedFd>,
    ) -> Result<Reply, Failure> {
        let file = files.into_iter().next().ok_or(Failure::UnknownObject)?;
        let file = File::from(file);
        let (is_all, until) = match kind {
            GeneratedFile::Map => self.read_map(&file, from, to),
            GeneratedFile::Dump => self.read_dump(&file, from, to),
        };
        let left_out = match kind {
            GeneratedFile::Map => self.map.left_out(),
            GeneratedFile::Dump => self.dump.left_out(),
        };
        Ok(Reply::ReadGenerated {
            to: until,
            is_all,
            left_out,
        })
    }

    /// Takes the lines of a map, up to as many as a look may.
    fn read_map(&mut self, file: &File, mut from: u64, to: u64) -> (bool, u64) {
        if from == 0 {
            self.map = PerfMap::default();
        }
        let end = to.min(from.saturating_add(LOOK_BYTES_MAX));
        while from < end {
            let length = PART_BYTES.min(end - from);
            match part(file, from, length as usize, to) {
                Some(bytes) => self.map.append(&bytes),
                None => break,
            }
            from += length;
        }
        (from >= to, from)
    }

    fn read_dump(&mut self, file: &File, from: u64, to: u64) -> (bool, u64) {
        if from == 0 {
            self.dump = JitDump::default();
        }
        let is_all = self.dump.append(|at, bytes| part(file, at, bytes, to));
        (is_all, to)
    }

    /// The dump has times, so it is asked first.
    pub(super) fn at(&self, address: u64, time_ns: u64) -> Reply {
        let by_dump = self.dump.at(address, time_ns);
        let found = by_dump.name.map(|name| (GeneratedFile::Dump, name));
        let by_map = || Some((GeneratedFile::Map, self.map.at(address)?));
        Reply::Generated(GeneratedName {
            found: found.or_else(by_map),
            since_ns: by_dump.since_ns,
            until_ns: by_dump.until_ns,
        })
    }
}

/// Bytes of a file that count up to `to`.
fn part(file: &File, at: u64, length: usize, to: u64) -> Option<Vec<u8>> {
    if at.checked_add(length as u64)? > to {
        return None;
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}
