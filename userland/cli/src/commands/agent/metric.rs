// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job of a metric: what `count` or `hist` counts, read when it is asked for.

use super::buckets::Buckets;
use super::job::Work;
use super::readings::{Reading, Readings};
use super::series::Series;
use crate::args::{Aggregate, AggregatePlan, MetricPlan};
use crate::commands::aggregate::Counting;
use libnsprobe::Counters;
use nsprobe_trace::attach::run::{Pace, Run};
use nsprobe_trace::attach::tracer::Tracer;
use nsprobe_trace::signals::Stop;
use std::time::Duration;

/// Interval between looks whether a reading is asked for.
const PAUSE: Duration = Duration::from_millis(100);

/// A metric that is measured.
pub(super) struct Measuring {
    plan: AggregatePlan,
    series: Series,
    /// Hits of earlier runs.
    before: Counters,
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
            before: Counters::default(),
        }
    }
}

impl Work for Measuring {
    fn work(&mut self, readings: &Readings) -> anyhow::Result<()> {
        let mut tracer = Tracer::new(&self.plan.options)?;
        let (mut counting, mut run) = Counting::begin(&self.plan, &mut tracer)?;
        readings.set_up(true);
        let (series, before) = (&mut self.series, self.before);
        run.follow(PAUSE, |run| {
            counting.step(run)?;
            if let Some(asked) = readings.asked() {
                readings.set(asked, read(&mut counting, run, series, before, true)?);
            }
            Ok(Pace::Wait)
        })?;
        counting.end_run(&mut run)?;
        let last = read(&mut counting, &run, series, before, false)?;
        self.series.end_run();
        self.before = last.counters;
        readings.set(0, last);
        Ok(())
    }
}

fn read(
    counting: &mut Counting,
    run: &Run<'_>,
    series: &mut Series,
    before: Counters,
    is_up: bool,
) -> anyhow::Result<Reading> {
    series.set(counting.labelled(run)?.into_iter());
    let mut counters = before;
    counters += run.counters()?;
    Ok(Reading {
        is_up,
        counters,
        families: series.families(),
    })
}
