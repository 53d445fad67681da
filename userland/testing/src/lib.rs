// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests need of the machine: tools, compilers, files, the rights of root.
//!
//! A test that lacks one is skipped, and prints why. With `NSPROBE_STRICT=1`, which
//! `make check` sets, it fails instead: a green run has then left nothing out.

use std::fmt::Display;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

/// Whether a test that lacks something fails.
pub fn is_strict() -> bool {
    std::env::var_os("NSPROBE_STRICT").is_some_and(|value| value == "1")
}

/// Says what a test lacks.
///
/// # Panics
///
/// When tests are strict.
#[track_caller]
pub fn lacking(what: impl Display) {
    lacking_when(is_strict(), what);
}

#[track_caller]
fn lacking_when(strict: bool, what: impl Display) {
    assert!(
        !strict,
        "{what}: NSPROBE_STRICT=1 lets no test be skipped for it"
    );
    println!("skipped: {what}");
}

/// Says that a test does not fit the machine, strict or not. For what no machine can have
/// together: the host's tests of the module run where it is loaded, others where it is not.
pub fn unfit(why: impl Display) {
    println!("skipped: {why}");
}

/// Runs a tool; none where it is not installed.
///
/// # Panics
///
/// When it is there and cannot be run, or is lacking and tests are strict.
#[track_caller]
pub fn output(command: &mut Command) -> Option<Output> {
    present(command.output(), command)
}

/// What came of starting a tool; none where it is not installed.
///
/// # Panics
///
/// As [`output`].
#[track_caller]
pub fn present<T>(started: std::io::Result<T>, command: &Command) -> Option<T> {
    match started {
        Ok(started) => Some(started),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let program = command.get_program().to_string_lossy();
            lacking(format_args!("{program} is not installed"));
            None
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// Runs a compiler, an assembler or the like, that must succeed; false where it is not
/// installed.
///
/// # Panics
///
/// When it fails, or as [`output`].
#[track_caller]
pub fn success(command: &mut Command) -> bool {
    let Some(output) = output(command) else {
        return false;
    };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
    true
}

/// A compiler without options: of C (`gcc`, `cc`), of C++ (`g++`, `c++`), or another.
pub fn compiler(program: &str) -> Command {
    if !["gcc", "cc", "g++", "c++"].contains(&program) {
        return Command::new(program);
    }
    let machine = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build.compiler(program).cpp(program.ends_with("++"));
    build.host(&machine).target(&machine).opt_level(0);
    build.no_default_flags(true).cargo_metadata(false);
    build.get_compiler().to_command()
}

/// Whether a file of the machine is there.
///
/// # Panics
///
/// When it is not, and tests are strict.
#[track_caller]
pub fn file(path: &Path) -> bool {
    let found = path.exists();
    if !found {
        lacking(format_args!("there is no {}", path.display()));
    }
    found
}

/// Whether the tests run as root, as user namespaces have it or the machine.
///
/// # Panics
///
/// When they do not, and tests are strict.
#[track_caller]
pub fn root(what: &str) -> bool {
    let uid = std::fs::metadata("/proc/self").map(|found| found.uid());
    let is_root = matches!(uid, Ok(0));
    if !is_root {
        lacking(format_args!("{what} needs the rights of root"));
    }
    is_root
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::panic::catch_unwind;
    use std::path::PathBuf;

    /// Promise: strict tests fail for what they lack, and say it; others go on.
    #[test]
    fn what_is_lacking_fails_a_strict_test_alone() {
        lacking_when(false, "a tool is not installed");
        let failed = catch_unwind(|| lacking_when(true, "a tool is not installed"));
        let why = failed.expect_err("it must fail");
        let why = why.downcast_ref::<String>().expect("a formatted text");
        assert!(why.starts_with("a tool is not installed"), "{why}");
    }

    /// Promise: a tool that is there and fails is no missing tool.
    #[test]
    fn a_tool_that_fails_fails_the_test() {
        assert!(success(&mut Command::new("true")));
        let failed = catch_unwind(|| success(&mut Command::new("false")));
        failed.expect_err("it must fail");
        let failed = catch_unwind(|| output(&mut Command::new("/")));
        failed.expect_err("a folder is no program");
    }

    fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                rust_files(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }

    /// Promise: tests are skipped by this crate alone, so that none escapes `NSPROBE_STRICT`.
    #[test]
    fn no_test_skips_by_itself() {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        rust_files(&project.join("common/tests"), &mut files);
        rust_files(&project.join("fuzz/harness/tests"), &mut files);
        for crates in fs::read_dir(project.join("userland")).expect("readable") {
            let tests = crates.expect("readable").path().join("tests");
            if tests.is_dir() {
                rust_files(&tests, &mut files);
            }
        }
        assert!(files.len() > 50, "{} files", files.len());
        for path in files {
            let text = fs::read_to_string(&path).expect("readable");
            for (number, line) in (1..).zip(text.lines()) {
                let prints = line.contains("print") && line.contains("skipped");
                let passes = line.contains("ErrorKind::NotFound");
                let place = format!("{}:{number}", path.display());
                assert!(!prints && !passes, "{place}: use nsprobe_testing: {line}");
            }
        }
    }

    /// Promise: no file of tests lies beside `tests/main.rs` without a line in it, and never runs.
    #[test]
    fn every_file_of_tests_is_in_its_program() {
        let userland = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for crates in fs::read_dir(userland).expect("readable") {
            let tests = crates.expect("readable").path().join("tests");
            let Ok(main) = fs::read_to_string(tests.join("main.rs")) else {
                continue;
            };
            for entry in fs::read_dir(&tests).expect("readable") {
                let path = entry.expect("readable").path();
                let name = path.file_stem().and_then(|name| name.to_str());
                if path.extension().is_some_and(|end| end == "rs") && name != Some("main") {
                    let line = format!("mod {};", name.expect("a name"));
                    assert!(main.contains(&line), "{}: {line}", tests.display());
                }
            }
        }
    }
}
