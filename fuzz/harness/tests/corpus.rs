// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays what fuzzing has found, through the very same functions.

use nsprobe_fuzz_harness::SEAMS;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest that a small input may take, on a machine that does other things, too.
const LIMIT: Duration = Duration::from_secs(10);

fn fuzz() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[test]
fn the_corpus_breaks_no_promise() {
    let mut replayed = 0;
    for (name, seam) in SEAMS {
        let files = fs::read_dir(fuzz().join("corpus").join(name));
        let files = files.unwrap_or_else(|error| panic!("fuzz/corpus/{name}: {error}"));
        for file in files {
            let path = file.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            let begun = Instant::now();
            seam(&bytes);
            assert!(begun.elapsed() < LIMIT, "{path:?}: {:?}", begun.elapsed());
            replayed += 1;
        }
    }
    assert!(replayed > 100, "{replayed}");
}

/// Each seam has its target, and no target is without one.
#[test]
fn every_seam_is_fuzzed() {
    let files = fs::read_dir(fuzz().join("fuzz_targets")).unwrap();
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let targets: BTreeSet<String> = files.map(|file| stem(&file.unwrap().path())).collect();
    let seams: BTreeSet<String> = SEAMS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets, seams);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in seams {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
