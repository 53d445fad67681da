// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capsules that the guest has left in its folder `out`: here, on another machine, they
//! must give the report that they gave there.

use crate::guest::Guest;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// What is wrong with them, a sentence each. Beside `NAME.nsprobe` lies what `nsprobe
/// report` has printed of it, `NAME.report`.
pub(crate) fn problems(guest: &Guest) -> Result<Vec<String>> {
    let out = guest.folder.join("out");
    let mut problems = Vec::new();
    for entry in fs::read_dir(&out).with_context(|| out.display().to_string())? {
        let capsule = entry?.path();
        if capsule
            .extension()
            .is_some_and(|extension| extension == "nsprobe")
        {
            problems.extend(problem(&guest.payload, &capsule)?);
        }
    }
    Ok(problems)
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
