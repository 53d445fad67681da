// SPDX-License-Identifier: MIT OR Apache-2.0
//! A folder that others can write to is not used; what is broken in it is written anew.

use super::entry::tests::table;
use super::*;
use std::fs;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicU32, Ordering};

const DIGEST: Digest = Digest([0xab; 32]);
const OTHER: Digest = Digest([0xcd; 32]);

/// A folder that is removed with everything in it.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new() -> TemporaryFolder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nsprobe-cache-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new folder");
        TemporaryFolder(path)
    }

    fn cache(&self) -> Cache {
        Cache::open(&self.0.join("rows")).expect("it can be made")
    }

    fn entry(&self, digest: Digest) -> PathBuf {
        self.0.join("rows").join(format!("{digest}.rows"))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn refused(path: &Path) -> String {
    match Cache::open(path) {
        Err(error @ CacheError::Refused { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_kept_is_found() {
    let folder = TemporaryFolder::new();
    let cache = folder.cache();
    assert_eq!(cache.find(DIGEST), None);
    cache.keep(DIGEST, &table()).expect("there is room");
    assert_eq!(cache.find(DIGEST), Some(table()));
    assert_eq!(cache.find(OTHER), None);
    let metadata = fs::metadata(folder.entry(DIGEST)).expect("it is there");
    assert_eq!(metadata.mode() & 0o777, 0o600);
    let metadata = fs::metadata(folder.0.join("rows")).expect("it is there");
    assert_eq!(metadata.mode() & 0o777, 0o700);
    let files = fs::read_dir(folder.0.join("rows")).expect("readable");
    assert_eq!(files.count(), 1, "nothing but the entry stays");
}

#[test]
fn links_are_refused_whatever_they_look_like() {
    let folder = TemporaryFolder::new();
    drop(folder.cache());
    let link = folder.0.join("link");
    symlink(folder.0.join("rows"), &link).expect("a new link");
    for path in ["link", "link/", "link/."] {
        assert!(refused(&folder.0.join(path)).contains("a link"), "{path}");
    }
    fs::write(folder.0.join("file"), "").expect("writable");
    assert!(refused(&folder.0.join("file")).contains("no directory"));
}

#[test]
fn folders_of_others_are_refused() {
    let folder = TemporaryFolder::new();
    let path = folder.0.join("open");
    fs::create_dir(&path).expect("a new folder");
    for mode in [0o777, 0o1777, 0o770, 0o702] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
        assert!(refused(&path).contains("by others"), "{mode:o}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    assert!(Cache::open(&path).is_ok());
    match std::os::unix::fs::chown(&path, Some(12345), None) {
        Ok(()) => assert!(refused(&path).contains("somebody else")),
        Err(error) => println!("left out, as chown fails: {error}"),
    }
    let missing = Cache::open(&folder.0.join("a/b"));
    assert!(matches!(missing, Err(CacheError::Unavailable { .. })));
}

#[test]
fn broken_entries_are_ignored_and_written_anew() {
    let folder = TemporaryFolder::new();
    let cache = folder.cache();
    cache.keep(OTHER, &table()).expect("there is room");
    let right = fs::read(folder.entry(OTHER)).expect("readable");
    for bytes in [&b""[..], b"nsprows", &right[..right.len() - 1], &right] {
        fs::write(folder.entry(DIGEST), bytes).expect("writable");
        let only_ours = fs::Permissions::from_mode(0o600);
        fs::set_permissions(folder.entry(DIGEST), only_ours).expect("it is ours");
        assert_eq!(cache.find(DIGEST), None, "{} bytes", bytes.len());
        cache.keep(DIGEST, &table()).expect("there is room");
        assert_eq!(cache.find(DIGEST), Some(table()));
    }
}

#[test]
fn entries_that_others_may_have_made_are_ignored() {
    let folder = TemporaryFolder::new();
    let cache = folder.cache();
    cache.keep(DIGEST, &table()).expect("there is room");
    let path = folder.entry(DIGEST);
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
    mode(0o622).expect("it is ours");
    assert_eq!(cache.find(DIGEST), None);
    mode(0o600).expect("it is ours");
    assert_eq!(cache.find(DIGEST), Some(table()));
    fs::rename(&path, folder.0.join("moved")).expect("ours");
    symlink(folder.0.join("moved"), &path).expect("a new link");
    assert_eq!(cache.find(DIGEST), None);
    fs::remove_file(&path).expect("it is there");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .expect("a new FIFO");
    assert_eq!(cache.find(DIGEST), None, "and it did not wait");
    fs::remove_file(&path).expect("it is there");
    fs::create_dir(&path).expect("a new folder");
    assert_eq!(cache.find(DIGEST), None);
}

#[test]
fn a_size_that_lies_takes_no_memory() {
    let folder = TemporaryFolder::new();
    let cache = folder.cache();
    cache.keep(DIGEST, &table()).expect("there is room");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(folder.entry(DIGEST));
    let file = file.expect("it is there");
    file.set_len(8 << 40).expect("sparse");
    assert_eq!(cache.find(DIGEST), None);
}

fn name(number: u8) -> String {
    format!("{}.rows", Digest([number; 32]))
}

/// Makes a file of `bytes` bytes, used `seconds` seconds ago.
fn used(folder: &TemporaryFolder, name: &str, bytes: u64, seconds: u64) {
    let file = fs::File::create(folder.0.join("rows").join(name)).expect("writable");
    file.set_len(bytes).expect("sparse");
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
        .expect("it is ours");
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let folder = TemporaryFolder::new();
    let cache = folder.cache();
    for number in 1..=5 {
        used(&folder, &name(number), 60 << 20, 1000 - u64::from(number));
    }
    used(&folder, "precious", 1 << 30, 100_000);
    used(&folder, "precious.rows", 1 << 30, 100_000);
    let new = format!("{}.0123456789abcdef.new", Digest([9; 32]));
    used(&folder, &new, 10, 1000);
    cache.keep(DIGEST, &table()).expect("there is room");
    let mut left: Vec<_> = fs::read_dir(folder.0.join("rows"))
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().into_string())
        .map(|name| name.expect("ours are"))
        .collect();
    left.sort();
    let mut wanted = vec!["precious".to_owned(), "precious.rows".to_owned()];
    wanted.extend((2..=5).map(name));
    wanted.push(format!("{DIGEST}.rows"));
    wanted.sort();
    assert_eq!(left, wanted);
}

#[test]
fn finding_is_using() {
    let folder = TemporaryFolder::new();
    let cache = folder.cache();
    cache.keep(DIGEST, &table()).expect("there is room");
    let file = fs::File::open(folder.entry(DIGEST)).expect("it is there");
    let long_ago = SystemTime::now() - Duration::from_secs(10_000);
    file.set_modified(long_ago).expect("it is ours");
    assert!(cache.find(DIGEST).is_some());
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    let age = modified.expect("it is there").elapsed().unwrap_or_default();
    assert!(age < Duration::from_secs(100), "{age:?}");
}
