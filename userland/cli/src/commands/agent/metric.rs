// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job of a metric: what `count` or `hist` counts, added up.

use super::buckets::Buckets;
use super::job::Work;
use super::readings::{Reading, Readings};
use super::series::Series;
use super::unnamed::Unnamed;
use crate::args::{Aggregate, AggregatePlan, MetricPlan};
use crate::commands::aggregate::Counting;
use libnsprobe::Counters;
use nsprobe_trace::attach::run::{Pace, Run};
use nsprobe_trace::attach::tracer::Tracer;
use nsprobe_trace::signals::Stop;
use std::time::{Duration, Instant};

/// Interval between readings of a table that fills up: containers are looked for while they are there.
const READ: Duration = Duration::from_secs(1);

/// After how many probed files of later containers a run begins anew, without those that are gone: a
/// probe keeps its file's inode, and so the disk space of a file that was removed.
pub(super) const FILES_MAX: usize = 64;

/// A metric that is measured.
pub(super) struct Measuring {
    plan: AggregatePlan,
    series: Series,
}

impl Measuring {
    pub(super) fn new(metric: MetricPlan, stop: Stop) -> Measuring {
        let mut plan = metric.counted;
        plan.options.stop = Some(stop);
        let buckets = match plan.what {
            Aggregate::Histogram(scale) => {
                let timed = plan.value.is_none();
                Some((Buckets::new(scale, timed), timed))
            }
            Aggregate::Count | Aggregate::Stacks { .. } => None,
        };
        let is_summed = plan.value.is_some() && buckets.is_none();
        Measuring {
            series: Series::new(&metric.name, &metric.help, is_summed, buckets),
            plan,
        }
    }
}

impl Work for Measuring {
    fn work(&mut self, readings: &Readings) -> anyhow::Result<()> {
        while self.run(readings)? {}
        Ok(())
    }
}

impl Measuring {
    /// Measures until it is stopped, or there is nothing more to do; true: another run is due.
    fn run(&mut self, readings: &Readings) -> anyhow::Result<bool> {
        let mut tracer = Tracer::new(&self.plan.options)?;
        let (counting, mut run) = Counting::begin(&self.plan, &mut tracer)?;
        readings.set_up(true);
        let mut reader = RowReader {
            counting,
            unnamed: Unnamed::default(),
            series: &mut self.series,
        };
        let (before, mut read) = (readings.counters(), Instant::now());
        let mut is_worn = false;
        run.follow(READ, |run| {
            reader.counting.step(run)?;
            let asked = readings.asked();
            // Of others nothing is lost until somebody asks.
            let is_due = reader.counting.is_keyed() && read.elapsed() >= READ;
            if asked.is_some() || is_due {
                read = Instant::now();
                reader.read(run)?;
            }
            if let Some(asked) = asked {
                readings.set(asked, reader.reading(run, before, true)?);
            }
            is_worn = run.files_added() >= FILES_MAX;
            Ok(match is_worn {
                true => Pace::Enough("many files were probed".to_owned()),
                false => Pace::Wait,
            })
        })?;
        reader.counting.end_run(&mut run)?;
        reader.read(&run)?;
        reader.end();
        readings.set(0, reader.reading(&run, before, false)?);
        Ok(is_worn)
    }
}

/// Adds the rows of a run to series.
struct RowReader<'a> {
    counting: Counting,
    unnamed: Unnamed,
    series: &'a mut Series,
}

impl RowReader<'_> {
    fn read(&mut self, run: &Run<'_>) -> anyhow::Result<()> {
        let mut rows = self.counting.new_rows(run)?;
        rows.append(&mut self.unnamed.take());
        for row in rows {
            let container = self.counting.container_of(&row);
            if let Some(row) = self.unnamed.keep(row, &container) {
                self.series.add(self.counting.labels(&row, container), &row);
            }
        }
        Ok(())
    }

    /// Adds what has waited for a name.
    fn end(&mut self) {
        for row in self.unnamed.take() {
            let container = self.counting.container_of(&row);
            self.series.add(self.counting.labels(&row, container), &row);
        }
    }

    fn reading(&self, run: &Run<'_>, before: Counters, is_up: bool) -> anyhow::Result<Reading> {
        let mut counters = before;
        counters += run.counters()?;
        Ok(Reading {
            is_up,
            counters,
            families: self.series.families(),
        })
    }
}
