// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job of a recording: capsules one after the other, of which the oldest go.

use super::job::Work;
use super::own;
use super::readings::{Reading, Readings};
use crate::args::{RecordPlan, RecordingPlan};
use crate::commands::record::record;
use crate::output::summary;
use anyhow::Context;
use nsprobe_telemetry::{Family, NumberPoint, Points};
use nsprobe_trace::signals::Stop;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use time::macros::format_description;
use time::OffsetDateTime;

/// How the names of files end.
const ENDING: &str = ".nsprobe";
/// A file has this part of all bytes at most.
const PARTS: u64 = 4;

/// A recording that goes on.
pub(super) struct Recording {
    plan: RecordPlan,
    files: Files,
    stop: Stop,
}

/// The files of a recording: `NAME-20260131T235959.123.nsprobe`, in UTC.
struct Files {
    directory: PathBuf,
    name: String,
    max_bytes: u64,
    max_age: Duration,
}

/// A file that is complete.
struct Complete {
    path: PathBuf,
    bytes: u64,
    written: Option<SystemTime>,
}

impl Recording {
    pub(super) fn new(recording: RecordingPlan, stop: Stop) -> Recording {
        let mut plan = recording.record;
        plan.trace.options.stop = Some(stop.clone());
        plan.trace.options.timeout = Some(recording.rotate);
        Recording {
            plan,
            files: Files {
                directory: recording.directory,
                name: recording.name,
                max_bytes: recording.max_bytes,
                max_age: recording.max_age,
            },
            stop,
        }
    }

    /// Records into one file.
    fn record(&mut self, readings: &Readings) -> anyhow::Result<()> {
        let others: u64 = self.files.prune()?.iter().map(|file| file.bytes).sum();
        self.plan.record.output = self.files.next()?;
        let (files, mut counters) = (&self.files, readings.counters());
        let before = counters;
        let most = files.max_bytes / PARTS;
        let mut is_up = false;
        let (summary, _) = record(&self.plan, |run, bytes| {
            if let Some(asked) = readings.asked() {
                let mut counters = before;
                counters += run.counters()?;
                let families = vec![files.family(others + bytes)];
                let reading = Reading {
                    is_up: true,
                    counters,
                    families,
                };
                readings.set(asked, reading);
            } else if !is_up {
                readings.set_up(true);
            }
            is_up = true;
            Ok((bytes >= most).then(|| "the file is full".to_owned()))
        })?;
        for probe in &summary.probes {
            counters += probe.counters;
        }
        // Losses, and what failed.
        summary::tell(&summary, crate::args::Detail::Quiet)?;
        let bytes: u64 = self.files.prune()?.iter().map(|file| file.bytes).sum();
        readings.set(
            0,
            Reading {
                is_up: false,
                counters,
                families: vec![self.files.family(bytes)],
            },
        );
        Ok(())
    }
}

impl Work for Recording {
    fn work(&mut self, readings: &Readings) -> anyhow::Result<()> {
        while !self.stop.is_set() {
            self.record(readings)?;
        }
        Ok(())
    }
}

impl Files {
    /// The path of the next file, in a directory that is there.
    fn next(&self) -> anyhow::Result<PathBuf> {
        let directory = &self.directory;
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(directory);
        made.with_context(|| format!("cannot make {}", directory.display()))?;
        let format =
            format_description!("[year][month][day]T[hour][minute][second].[subsecond digits:3]");
        let now = OffsetDateTime::now_utc().format(&format)?;
        Ok(directory.join(format!("{}-{now}{ENDING}", self.name)))
    }

    /// The complete files, the oldest first.
    fn all(&self) -> Vec<Complete> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        let mut all: Vec<Complete> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let time = name.strip_prefix(&self.name)?.strip_prefix('-')?;
                let time = time.strip_suffix(ENDING)?;
                let is_time = |byte: u8| byte.is_ascii_digit() || byte == b'T' || byte == b'.';
                let metadata = entry.metadata().ok()?;
                (metadata.is_file() && time.bytes().all(is_time)).then(|| Complete {
                    path: entry.path(),
                    bytes: metadata.len(),
                    written: metadata.modified().ok(),
                })
            })
            .collect();
        all.sort_by(|one, other| one.path.cmp(&other.path));
        all
    }

    /// Removes what is too old, and the oldest until there is room for one more; returns the rest.
    fn prune(&self) -> anyhow::Result<Vec<Complete>> {
        let mut all = self.all();
        let mut bytes: u64 = all.iter().map(|file| file.bytes).sum();
        let most = self.max_bytes - self.max_bytes / PARTS;
        let mut failed = Ok(());
        all.retain(|file| {
            let age = file.written.and_then(|time| time.elapsed().ok());
            let is_old = age.is_some_and(|age| age > self.max_age);
            if bytes <= most && !is_old {
                return true;
            }
            match fs::remove_file(&file.path) {
                Ok(()) => {
                    bytes -= file.bytes;
                    false
                }
                Err(error) => {
                    failed = Err(error).context(format!("cannot remove {}", file.path.display()));
                    true
                }
            }
        });
        failed?;
        Ok(all)
    }

    fn family(&self, bytes: u64) -> Family {
        let labels = own::of_job(&self.name);
        Family {
            name: "nsprobe_recording".to_owned(),
            help: "What the files of a recording take".to_owned(),
            unit: Some("bytes"),
            points: Points::Gauge(vec![NumberPoint {
                labels,
                value: bytes as f64,
            }]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_go_and_others_stay() {
        let directory = std::env::temp_dir().join(format!("nsprobe-files-{}", std::process::id()));
        let files = Files {
            directory: directory.clone(),
            name: "web".to_owned(),
            max_bytes: 40,
            max_age: Duration::from_secs(3600),
        };
        assert!(files.next().unwrap().starts_with(&directory));
        for name in [
            "web-20260101T000000.001",
            "web-20260101T000000.002",
            "web-20260102T000000.000",
        ] {
            fs::write(directory.join(format!("{name}{ENDING}")), [0; 12]).unwrap();
        }
        for name in ["web-mine.nsprobe", "webs-20260101T000000.001.nsprobe", "x"] {
            fs::write(directory.join(name), [0; 100]).unwrap();
        }
        let left = files.prune().unwrap();
        let names: Vec<_> = left
            .iter()
            .map(|file| file.path.file_name().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "web-20260101T000000.002.nsprobe",
                "web-20260102T000000.000.nsprobe"
            ]
        );
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 5);
        fs::remove_dir_all(&directory).unwrap();
    }
}
