// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe export flamegraph`, `folded`, `pprof`, `otlp`, `speedscope`: the stacks of a capsule as a
//! profile.

use crate::args::{Detail, PicturePlan};
use crate::commands::report::{self, Counted};
use crate::output::pictures::{About, PictureFile};
use anyhow::bail;
use nsprobe_trace::recording::capsule::Capsule;
use std::process::ExitCode;
use std::time::Duration;

pub(crate) fn run(plan: &PicturePlan) -> anyhow::Result<ExitCode> {
    let mut capsule = Capsule::open(&plan.file)?;
    capsule.require_hits(&plan.file)?;
    let path = plan.file.display();
    if !capsule.has_stacks() {
        bail!("{path} has no stacks: record with --stack");
    }
    if capsule.contents.hits == 0 {
        bail!("{path} has no hits");
    }
    let picture = PictureFile::create(plan.format, &plan.output, plan.replace)?;
    let summary = report::summary(&capsule);
    let about = about(&capsule, summary.as_ref().map(|summary| summary.elapsed));
    let style = report::style(&capsule, None);
    let mut counted = Counted::read(&mut capsule, &plan.by, style)?;
    let rows = &counted.rows.rows;
    let profile = counted.printer.profile(&mut counted.offline, rows, &about);
    picture.write(&profile, plan.detail == Detail::Quiet)?;
    report::tell(&capsule, &plan.file, summary, plan.detail)
}

fn about(capsule: &Capsule, elapsed: Option<Duration>) -> About {
    let header = capsule.contents.header.as_ref();
    let words = header.map(|header| header.command.iter());
    About {
        command: words
            .into_iter()
            .flatten()
            .map(|word| String::from_utf8_lossy(&word.0).into_owned())
            .collect(),
        start_unix_ns: header.map_or(0, |header| header.start_real_ns),
        elapsed: elapsed.unwrap_or_default(),
    }
}
