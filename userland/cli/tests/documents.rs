// SPDX-License-Identifier: MIT OR Apache-2.0
//! The documents name folders, files and identifiers that exist, and ARCHITECTURE.md all folders of
//! sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Paths of all files from the project's folder on.
fn files(folder: &Path, paths: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_symlink() || name.starts_with('.') || name == "build" || name == "target" {
            continue;
        }
        if path.is_dir() {
            files(&path, paths);
        } else {
            let path = path.strip_prefix(ROOT).unwrap();
            paths.push(path.to_str().unwrap().to_owned());
        }
    }
}

/// What a document has between backquotes.
fn quoted(document: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(ROOT).join(document)).unwrap();
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The words of all sources.
fn words(paths: &[String]) -> BTreeSet<String> {
    let endings = [".rs", ".c", ".h", ".sh", "Makefile"];
    let is_source = |path: &&String| endings.iter().any(|end| path.ends_with(end));
    let texts = paths.iter().filter(is_source).map(|path| {
        let bytes = fs::read(Path::new(ROOT).join(path)).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    texts
        .flat_map(|text| {
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn the_documents_name_what_is_there() {
    let mut paths = Vec::new();
    files(Path::new(ROOT), &mut paths);
    let mut wrong = Vec::new();
    let architecture = quoted("ARCHITECTURE.md");
    for name in &architecture {
        let is_path = name.contains('/')
            && name
                .chars()
                .all(|c| c.is_alphanumeric() || "/._-".contains(c));
        if is_path && !name.starts_with('/') && !Path::new(ROOT).join(name).exists() {
            wrong.push(format!("ARCHITECTURE.md: {name} is not there"));
        }
    }
    let words = words(&paths);
    for name in quoted("docs/internals.md") {
        // One of ours, or of the kernel that our sources use or mention.
        let is_identifier = name
            .chars()
            .all(|c| c.is_alphanumeric() || "_:".contains(c));
        let mut parts = name.split(':').filter(|_| is_identifier);
        if let Some(part) = parts.find(|part| !part.is_empty() && !words.contains(*part)) {
            wrong.push(format!("docs/internals.md: {name}: no source has {part}"));
        }
        if name.ends_with(".rs") && !paths.iter().any(|path| path.ends_with(&name)) {
            wrong.push(format!("docs/internals.md: {name} is not there"));
        }
    }

    let mut folders = BTreeMap::<&str, u32>::new();
    for path in &paths {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let is_test = folder.starts_with("userland/")
            && (folder.contains("/tests") || folder.ends_with("/examples"));
        if [".rs", ".c", ".sh"].iter().any(|end| path.ends_with(end)) && !is_test {
            *folders.entry(folder).or_default() += 1;
        }
    }
    for (folder, sources) in folders {
        if sources > 1 && !architecture.contains(&format!("{folder}/")) {
            wrong.push(format!("ARCHITECTURE.md does not name {folder}/"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
