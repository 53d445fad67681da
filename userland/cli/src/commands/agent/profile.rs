// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job of a profile: stacks, sent at even intervals.

use super::belts::{slowed, Belts};
use super::job::Work;
use super::metric::FILES_MAX;
use super::outputs::{now_unix_ns, Outputs};
use super::readings::{Reading, Readings};
use crate::args::{AggregatePlan, ProfilePlan};
use crate::commands::aggregate::Counting;
use crate::output::pictures::About;
use libnsprobe::{Counters, Rows, TableRow};
use nix::unistd::{sysconf, SysconfVar};
use nsprobe_telemetry::{Family, NumberPoint, Points};
use nsprobe_trace::attach::run::{Pace, Run};
use nsprobe_trace::attach::tracer::Tracer;
use nsprobe_trace::placeless::Placeless;
use nsprobe_trace::signals::Stop;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between readings of the kernel's table.
const READ: Duration = Duration::from_secs(1);
/// Most stacks of an interval.
const STACKS_MAX: usize = 20_000;
/// Fewest and most rows of the kernel's table, which is emptied at each reading.
const ROWS_MIN: u64 = 512;
const ROWS_MAX: u32 = 4096;
/// Memory for names and the files that they come from, in bytes.
const NAMES_BYTES: u64 = 64 << 20;

/// A profile that goes on.
pub(super) struct Profiling {
    name: String,
    command: String,
    plan: AggregatePlan,
    interval: Duration,
    outputs: Arc<Outputs>,
    belts: Arc<Belts>,
    /// What is taken when nothing is slowed.
    placeless: Option<Placeless>,
    /// Hits whose stacks there was no room for.
    dropped: u64,
}

impl Profiling {
    pub(super) fn new(
        profile: ProfilePlan,
        outputs: Arc<Outputs>,
        belts: Arc<Belts>,
        stop: Stop,
    ) -> Profiling {
        let mut plan = profile.counted;
        plan.options.stop = Some(stop);
        plan.rows = plan.rows.min(ROWS_MAX);
        if let Some(hz) = plan.options.placeless.and_then(Placeless::samples_hz) {
            // Twice what comes between two readings.
            let cpus = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
            let rows = u64::from(hz) * cpus.map_or(1, |cpus| cpus as u64) * 2;
            plan.rows = plan.rows.min(rows.max(ROWS_MIN) as u32);
        }
        Profiling {
            name: profile.name,
            command: profile.command,
            placeless: plan.options.placeless,
            belts,
            plan,
            interval: profile.interval,
            outputs,
            dropped: 0,
        }
    }

    /// Sends the stacks of an interval.
    fn send(
        &self,
        counting: &mut Counting,
        run: &Run<'_>,
        interval: Interval,
    ) -> anyhow::Result<()> {
        let about = About {
            command: vec![format!("nsprobe {}", self.command)],
            start_unix_ns: interval.start_unix_ns,
            elapsed: interval.begun.elapsed(),
        };
        let profile = counting.profile(run, &interval.rows, &about);
        self.outputs.profile(&self.name, &profile)
    }

    fn reading(
        &self,
        run: &Run<'_>,
        before: Counters,
        dropped: u64,
        is_up: bool,
    ) -> anyhow::Result<Reading> {
        let mut counters = before;
        counters += run.counters()?;
        let dropped = Family {
            name: "nsprobe_profile_dropped".to_owned(),
            help: "Hits that are in no profile, as it had too many stacks".to_owned(),
            unit: None,
            points: Points::Counter(vec![NumberPoint {
                labels: vec![("job".to_owned(), self.name.clone())],
                value: dropped as f64,
            }]),
        };
        Ok(Reading {
            is_up,
            counters,
            families: vec![dropped],
        })
    }
}

/// The stacks of an interval.
struct Interval {
    rows: Vec<TableRow>,
    start_unix_ns: u64,
    begun: Instant,
}

impl Interval {
    fn begin() -> Interval {
        Interval {
            rows: Vec::new(),
            start_unix_ns: now_unix_ns(),
            begun: Instant::now(),
        }
    }

    /// Adds rows; returns how many hits there was no room for.
    fn add(&mut self, rows: Vec<TableRow>) -> u64 {
        self.rows.extend(rows);
        match self.rows.len() > 2 * STACKS_MAX {
            true => self.add_up(),
            false => 0,
        }
    }

    /// Adds up the rows of each stack; returns how many hits there was no room for.
    fn add_up(&mut self) -> u64 {
        let rows = Rows {
            rows: std::mem::take(&mut self.rows),
            ..Rows::default()
        };
        self.rows = rows.added_up().rows;
        let more = self.rows.split_off(self.rows.len().min(STACKS_MAX));
        more.iter().map(|row| row.count).sum()
    }
}

impl Work for Profiling {
    fn work(&mut self, readings: &Readings) -> anyhow::Result<()> {
        // At another rate, should that change.
        while !self.plan.options.stop.as_ref().is_some_and(Stop::is_set) {
            let level = self.belts.level();
            self.plan.options.placeless = self.placeless.map(|usual| slowed(usual, level));
            self.plan.options.rows.names_bytes = NAMES_BYTES >> level;
            self.run(level, readings)?;
        }
        Ok(())
    }
}

impl Profiling {
    /// Takes profiles until it is stopped, or another run is due: at another rate, or without files
    /// that have gone.
    fn run(&mut self, level: u32, readings: &Readings) -> anyhow::Result<()> {
        let before = readings.counters();
        let mut tracer = Tracer::new(&self.plan.options)?;
        let (mut counting, mut run) = Counting::begin(&self.plan, &mut tracer)?;
        readings.set_up(true);
        let mut interval = Interval::begin();
        let (mut dropped, mut read) = (self.dropped, Instant::now());
        run.follow(READ, |run| {
            counting.step(run)?;
            if read.elapsed() >= READ {
                read = Instant::now();
                let rows = counting.new_rows(run)?;
                // Containers are looked for while they are there.
                rows.iter().for_each(|row| drop(counting.container_of(row)));
                dropped += interval.add(rows);
                self.belts.look();
            }
            if interval.begun.elapsed() >= self.interval {
                let mut over = std::mem::replace(&mut interval, Interval::begin());
                dropped += over.add_up();
                self.send(&mut counting, run, over)?;
            }
            if let Some(asked) = readings.asked() {
                readings.set(asked, self.reading(run, before, dropped, true)?);
            }
            let stays = self.belts.level() == level && run.files_added() < FILES_MAX;
            Ok(match stays {
                true => Pace::Wait,
                false => Pace::Enough("another run is due".to_owned()),
            })
        })?;
        counting.end_run(&mut run)?;
        dropped += interval.add(counting.new_rows(&run)?) + interval.add_up();
        self.send(&mut counting, &run, interval)?;
        readings.set(0, self.reading(&run, before, dropped, false)?);
        drop(run);
        self.dropped = dropped;
        Ok(())
    }
}
