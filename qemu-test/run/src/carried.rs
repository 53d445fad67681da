// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capsules that the guest has left in its folder `out`: here, on another machine, they
//! must give the report that they gave there.

use crate::guest::Guest;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The test that leaves one there when it passes.
pub(crate) const WRITER: &str = "a_real_program_is_reported_on_another_machine";

/// What is wrong with them, a sentence each. Beside `NAME.nsprobe` lies what `nsprobe
/// report` has printed of it, `NAME.report`. Where the writer has passed there must be one.
pub(crate) fn problems(guest: &Guest, has_writer_passed: bool) -> Result<Vec<String>> {
    let out = guest.folder.join("out");
    let capsules = capsules(&out)?;
    let mut problems = Vec::new();
    if capsules.is_empty() && has_writer_passed {
        problems.push(format!(
            "{WRITER} passed, and no capsule is in {}",
            out.display()
        ));
    }
    for capsule in capsules {
        problems.extend(problem(&guest.payload, &capsule)?);
    }
    Ok(problems)
}

fn capsules(out: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(out).with_context(|| out.display().to_string())? {
        let file = entry?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == "nsprobe")
        {
            found.push(file);
        }
    }
    Ok(found)
}

fn problem(payload: &Path, capsule: &Path) -> Result<Option<String>> {
    let Ok(wanted) = fs::read(capsule.with_extension("report")) else {
        return Ok(Some(format!(
            "{} has no report beside it",
            capsule.display()
        )));
    };
    let program = payload.join("nsprobe");
    let got = Command::new(&program)
        .args(["report", "-q"])
        .arg(capsule)
        .stdin(Stdio::null())
        .output()
        .with_context(|| program.display().to_string())?;
    let lines = got.stdout.iter().filter(|byte| **byte == b'\n').count();
    eprintln!(
        "{}: {lines} lines of report on this machine",
        capsule.display()
    );
    let is_same = got.status.success() && got.stdout == wanted;
    Ok((!is_same).then(|| {
        format!(
            "{} is reported otherwise here than in the guest: {}",
            capsule.display(),
            String::from_utf8_lossy(&got.stderr)
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writer_is_a_test() {
        let tests = include_str!("../../guest/src/tests/capsule.rs");
        assert!(tests.contains(&format!("fn {WRITER}() {{")));
    }

    #[test]
    fn a_capsule_that_is_missing_is_a_problem() {
        let folder = std::env::temp_dir().join(format!("nsprobe-out-{}", std::process::id()));
        fs::create_dir_all(folder.join("out")).expect("it is writable");
        let guest = Guest::in_folder(&folder);
        let of = |has_passed| problems(&guest, has_passed).expect("the folder is there");
        assert_eq!(of(false), [""; 0]);
        assert!(of(true)[0].contains(WRITER));
        fs::write(folder.join("out/web.nsprobe"), "").expect("it is writable");
        assert!(of(false)[0].contains("no report beside it"));
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
