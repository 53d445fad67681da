// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Debian packages, which `scripts/packages.sh tests` makes.

use crate::command::{output, Output};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(words: &str) -> Output {
    let mut words = words.split(' ');
    output(Command::new(words.next().expect("one")).args(words)).succeeded()
}

fn add_files(folder: &Path, files: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_files(&entry.path(), files);
        }
        files.insert(entry.path());
    }
}

/// Where packages have files, but for what apt and dpkg write for themselves.
fn files() -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for folder in ["/etc", "/usr", "/var/lib/dpkg/info"] {
        add_files(Path::new(folder), &mut files);
    }
    files
}

test! { full, packages_are_installed_used_and_leave_nothing, seconds = 120 }
fn packages_are_installed_used_and_leave_nothing() {
    let folder = fs::read_dir("/payload/packages").expect("the payload has it");
    let packages: Vec<String> = folder
        .flatten()
        .map(|entry| entry.path().display().to_string())
        .collect();
    assert_eq!(packages.len(), 2, "run scripts/packages.sh tests first");
    let before = files();
    // Without lists: nothing but what is installed satisfies what they depend on.
    run(&format!("apt-get -q -y install {}", packages.join(" ")));
    assert_eq!(run("modinfo -F signer nsprobe").stdout, "nsprobe-tests\n");
    let doctor = || output(Command::new("/usr/bin/nsprobe").arg("doctor"));
    let lame = doctor();
    assert_eq!(lame.code, 1, "{lame:#?}");
    assert!(lame.stdout.contains("-> modprobe nsprobe"), "{lame:#?}");
    run("modprobe nsprobe");
    doctor().succeeded();
    let counted = run("/usr/bin/nsprobe count libc.so.6:malloc --json -- /usr/bin/ls /");
    run("rmmod nsprobe");
    assert!(counted.stdout.contains("\"count\":"), "{counted:#?}");
    let release = run("uname -r").stdout;
    let module = format!("nsprobe-modules-{}", release.trim());
    run(&format!("apt-get -q -y purge nsprobe {module}"));
    let after = files();
    let left: Vec<_> = after.symmetric_difference(&before).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!Path::new("/var/cache/nsprobe").exists());
}
