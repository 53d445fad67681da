// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file system of control groups, version 2.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where it is mounted; with version 1 beside it, one directory below.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Deepest groups below a container's that are looked at.
const DEPTH_MAX: usize = 16;

/// The directory of a group, if it can be seen from here.
pub(super) fn directory(path: &str) -> Option<PathBuf> {
    // Above the root that we see, nothing has a path.
    let below = path.strip_prefix('/')?;
    if below.split('/').any(|part| part == "..") {
        return None;
    }
    let mut roots = ROOTS.iter().map(Path::new);
    let root = roots.find(|root| root.join("cgroup.procs").is_file())?;
    Some(root.join(below))
}

/// The path of a group, given by its directory or by its path.
pub(super) fn path_of(text: &str) -> Option<String> {
    let mut roots = ROOTS.iter().rev();
    let within = roots.find_map(|root| Path::new(text).strip_prefix(root).ok());
    let below = within.unwrap_or(Path::new(text));
    let parts = below
        .to_str()?
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".");
    let path: String = parts.flat_map(|part| ["/", part]).collect();
    (!path.is_empty()).then_some(path)
}

/// The inode number of a group's directory, which is its id.
pub(super) fn id_of(path: &str) -> Option<u64> {
    fs::metadata(directory(path)?)
        .ok()
        .map(|metadata| metadata.ino())
}

/// Who owns a group's directory.
pub(super) fn owner(path: &str) -> Option<u32> {
    let metadata = fs::metadata(directory(path)?).ok()?;
    Some(metadata.uid())
}

/// Whether its processes are frozen (`cgroup.events`).
pub(super) fn is_frozen(path: &str) -> bool {
    let events = directory(path).map(|directory| directory.join("cgroup.events"));
    let text = events.and_then(|file| fs::read_to_string(file).ok());
    text.is_some_and(|text| text.lines().any(|line| line == "frozen 1"))
}

/// The ids of a group and those below it, at most `most`.
pub(super) fn ids_below(path: &str, most: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    let mut waiting: Vec<(PathBuf, usize)> =
        directory(path).map(|top| (top, 0)).into_iter().collect();
    while let Some((directory, depth)) = waiting.pop() {
        let Ok(metadata) = fs::metadata(&directory) else {
            continue;
        };
        ids.push(metadata.ino());
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        let inner = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let left = most.saturating_sub(ids.len() + waiting.len());
        let left = if depth < DEPTH_MAX { left } else { 0 };
        waiting.extend(inner.take(left).map(|entry| (entry.path(), depth + 1)));
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_named_in_several_ways() {
        for text in [
            "/sys/fs/cgroup/a/b/",
            "/a/b",
            "a/b",
            "/sys/fs/cgroup/unified/a//b",
        ] {
            assert_eq!(path_of(text).as_deref(), Some("/a/b"), "{text}");
        }
        for text in ["", "/", "/sys/fs/cgroup", "/sys/fs/cgroup/"] {
            assert_eq!(path_of(text), None, "{text}");
        }
        assert_eq!(directory("/../x"), None);
        assert_eq!(directory("x"), None);
    }
}
