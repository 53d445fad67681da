// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process has mapped, as `/proc/PID/maps` tells it.
//!
//! The process chooses the paths. The kernel writes a newline in one as `\012`
//! and leaves every other byte, the backslash too, as it is: a path that holds
//! the four characters `\012` cannot be told from one with a newline.

use crate::{Result, TargetError};
use nsprobe_text::nearest;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Most names that an error lists.
const NAMES_MAX: usize = 12;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Where in the file it begins, in bytes.
    pub file_offset: u64,
    /// The device of the file, as `makedev` packs it; 0 without a file. On
    /// overlayfs it need not be what `stat` says.
    pub dev: u64,
    /// The inode number of the file; 0 without one.
    pub ino: u64,
    /// Whether it is executable now.
    pub executable: bool,
    /// Whether it is writable now.
    pub writable: bool,
    /// Whether writes go to the file, or would.
    pub shared: bool,
    /// The file's path as the kernel prints it, or a name like `[vdso]`; empty
    /// for anonymous memory. The process chooses it: escape it before printing.
    pub path: PathBuf,
    /// Whether the file is no longer at that path.
    pub deleted: bool,
}

impl Mapping {
    /// Where an offset of the file is mapped, when it is.
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        let into = file_offset.checked_sub(self.file_offset)?;
        let address = self.start.checked_add(into)?;
        (self.ino != 0 && address < self.end).then_some(address)
    }
}

/// A library that processes have mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Its path as the processes see it.
    pub path: PathBuf,
    /// The device, as in [`Mapping::dev`].
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
    /// Whether the file is no longer at that path (upgraded since).
    pub deleted: bool,
    /// The processes that have it mapped.
    pub pids: Vec<u32>,
}

impl Library {
    fn file_name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// All mappings in `maps`, in the form of `/proc/PID/maps`; lines that are not understood are
/// skipped.
pub fn parse(maps: &[u8]) -> Vec<Mapping> {
    maps.split(|&byte| byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

/// One line: `START-END PERMS OFFSET MAJOR:MINOR INODE  PATH`. The path comes
/// last and may hold blanks, so the five fields before it are cut off in turn.
fn parse_line(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = cut_field(line)?;
    let (permissions, rest) = cut_field(rest)?;
    let (offset, rest) = cut_field(rest)?;
    let (device, rest) = cut_field(rest)?;
    let (inode, rest) = cut_field(rest)?;
    let (start, end) = cut_pair(range, '-')?;
    let (major, minor) = cut_pair(device, ':')?;
    let ino = inode.parse().ok()?;
    let (path, deleted) = parse_path(rest, ino != 0);
    Some(Mapping {
        start,
        end,
        file_offset: hex(offset)?,
        dev: nix::sys::stat::makedev(major, minor),
        ino,
        executable: permissions.as_bytes().get(2) == Some(&b'x'),
        writable: permissions.as_bytes().get(1) == Some(&b'w'),
        shared: permissions.as_bytes().get(3) == Some(&b's'),
        path,
        deleted,
    })
}

/// The first blank-free field, and what follows the blank after it.
fn cut_field(line: &[u8]) -> Option<(&str, &[u8])> {
    let end = line
        .iter()
        .position(|&byte| byte == b' ')
        .unwrap_or(line.len());
    let (field, rest) = line.split_at_checked(end)?;
    let field = std::str::from_utf8(field).ok()?;
    Some((field, rest.get(1..).unwrap_or_default()))
}

fn cut_pair(field: &str, between: char) -> Option<(u64, u64)> {
    let (first, second) = field.split_once(between)?;
    Some((hex(first)?, hex(second)?))
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// The path, and whether the kernel says that it was deleted. Only a mapping of
/// a file can be: a name like `[anon:x (deleted)]` says nothing.
fn parse_path(padded: &[u8], of_file: bool) -> (PathBuf, bool) {
    let start = padded
        .iter()
        .position(|&byte| byte != b' ')
        .unwrap_or(padded.len());
    let text = padded.get(start..).unwrap_or_default();
    let (text, deleted) = match text.strip_suffix(b" (deleted)") {
        Some(path) if of_file => (path, true),
        _ => (text, false),
    };
    (OsString::from_vec(unescape_newlines(text)).into(), deleted)
}

fn unescape_newlines(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(tail) => {
                out.push(b'\n');
                rest = tail;
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

/// The files that are mapped executable, each once, with the processes that have mapped them.
pub(crate) fn files(processes: impl IntoIterator<Item = (u32, Vec<Mapping>)>) -> Vec<Library> {
    let mut files = BTreeMap::new();
    for (pid, mappings) in processes {
        for mapping in mappings.into_iter().filter(|m| m.executable && m.ino != 0) {
            let key = (mapping.path, mapping.dev, mapping.ino);
            let (_, pids) = files.entry(key).or_insert((mapping.deleted, Vec::new()));
            if pids.last() != Some(&pid) {
                pids.push(pid);
            }
        }
    }
    files
        .into_iter()
        .map(|((path, dev, ino), (deleted, pids))| Library {
            path,
            dev,
            ino,
            deleted,
            pids,
        })
        .collect()
}

/// Those of `files` whose name is `name`; else those whose name begins with it and continues with
/// `.` or `-`, which must be files of one name.
pub(crate) fn find_library(files: Vec<Library>, name: &str) -> Result<Vec<Library>> {
    let exact = |file: &Library| {
        file.path.as_os_str().as_bytes() == name.as_bytes() || file.file_name() == name
    };
    let begins = |file: &Library| {
        let rest = file.file_name().strip_prefix(name).map(str::to_owned);
        rest.is_some_and(|rest| rest.starts_with(['.', '-']))
    };
    let (found, others): (Vec<_>, Vec<_>) = files.into_iter().partition(exact);
    if !found.is_empty() {
        return Ok(found);
    }
    let (found, others): (Vec<_>, Vec<_>) = others.into_iter().partition(begins);
    let mut names: Vec<String> = found.iter().map(Library::file_name).collect();
    names.sort();
    names.dedup();
    match names.len() {
        0 => Err(TargetError::NoSuchLibrary {
            name: name.to_owned(),
            mapped: mapped_names(name, &others),
        }),
        1 => Ok(found),
        _ => Err(TargetError::AmbiguousLibrary {
            name: name.to_owned(),
            matches: names,
        }),
    }
}

/// The file names that are mapped, those similar to `name` first.
fn mapped_names(name: &str, files: &[Library]) -> Vec<String> {
    let mut names = nearest(name, files.iter().map(Library::file_name), NAMES_MAX);
    for file in files {
        let other = file.file_name();
        if names.len() < NAMES_MAX && !names.contains(&other) {
            names.push(other);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAPS: &[u8] = b"\
55d0c0000000-55d0c0001000 r--p 00000000 fe:01 1311                       /usr/bin/redis server\n\
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
7f1000000000-7f1000100000 r-xp 00028000 00:2a 77                         /usr/lib/libc.so.6 (deleted)\n\
7f2000000000-7f2000001000 r-xp 00000000 00:2a 78                         /a\\012b (deleted) (deleted)\n\
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]\n\
7ffe00000000-7ffe00002000 rw-p 00000000 00:00 0                          [anon:x (deleted)]\n\
nonsense\n";

    #[test]
    fn every_kind_of_line_is_understood() {
        let maps = parse(MAPS);
        assert_eq!(maps.len(), 6);
        assert_eq!(maps[0].path, PathBuf::from("/usr/bin/redis server"));
        assert_eq!((maps[0].dev, maps[0].ino), (0xfe01, 1311));
        assert_eq!((maps[1].path.as_os_str().len(), maps[1].ino), (0, 0));
        assert!(maps[2].deleted && maps[2].executable);
        assert_eq!(maps[2].path, PathBuf::from("/usr/lib/libc.so.6"));
        assert_eq!(maps[2].file_offset, 0x28000);
        // A file whose own name ends so, and which was then deleted.
        assert_eq!(maps[3].path, PathBuf::from("/a\nb (deleted)"));
        assert!(!maps[5].deleted);
    }

    #[test]
    fn our_own_mappings_are_understood() {
        let text = std::fs::read("/proc/self/maps").unwrap();
        let lines = text.iter().filter(|&&byte| byte == b'\n').count();
        let maps = parse(&text);
        assert_eq!(maps.len(), lines);
        assert!(maps.windows(2).all(|pair| pair[0].end <= pair[1].start));
        let here = our_code_address();
        assert!(maps
            .iter()
            .any(|m| m.executable && (m.start..m.end).contains(&here)));
    }

    fn our_code_address() -> u64 {
        our_code_address as *const () as u64
    }

    fn library(path: &str, ino: u64) -> Library {
        Library {
            path: path.into(),
            dev: 1,
            ino,
            deleted: false,
            pids: vec![1],
        }
    }

    #[test]
    fn libraries_are_found_by_soname_or_unique_beginning() {
        let files = || {
            vec![
                library("/lib/libc.so.6", 1),
                library("/lib/libssl.so.3", 2),
                library("/lib/libx.so.1", 3),
                library("/lib/libx.so.2", 4),
                library("/chroot/lib/libssl.so.3", 5),
            ]
        };
        assert_eq!(find_library(files(), "libc.so.6").unwrap()[0].ino, 1);
        assert_eq!(find_library(files(), "libssl").unwrap().len(), 2);
        assert_eq!(find_library(files(), "libssl.so").unwrap().len(), 2);
        assert_eq!(find_library(files(), "/lib/libssl.so.3").unwrap().len(), 1);
        assert!(matches!(
            find_library(files(), "libx"),
            Err(TargetError::AmbiguousLibrary { .. })
        ));
        // "lib" is the beginning of all, but no whole word of any.
        let error = find_library(files(), "lib").unwrap_err();
        assert!(
            matches!(&error, TargetError::NoSuchLibrary { mapped, .. } if mapped.len() == 4),
            "{error}"
        );
        let error = find_library(files(), "libsl.so.3").unwrap_err();
        assert!(
            matches!(&error, TargetError::NoSuchLibrary { mapped, .. } if mapped[0] == "libssl.so.3")
        );
    }

    #[test]
    fn a_file_is_listed_once_with_its_processes() {
        let maps = parse(MAPS);
        let files = files([(5, maps.clone()), (9, maps)]);
        assert_eq!(files.len(), 2);
        assert!(files.iter().all(|file| file.pids == [5, 9]));
    }

    proptest! {
        #[test]
        fn damaged_maps_never_panic(at in 0..MAPS.len(), bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            let mut maps = MAPS.to_vec();
            maps.splice(at..at, bytes);
            parse(&maps);
        }
    }
}
