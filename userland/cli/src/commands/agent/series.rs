// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a metric has added up for each set of labels, over all its runs.

use super::buckets::Buckets;
use libnsprobe::TableRow;
use nsprobe_telemetry::{Family, HistogramPoint, Labels, NumberPoint, Points};
use std::collections::BTreeMap;

/// What one series has added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Total {
    count: u64,
    sum: i128,
    /// Of a histogram, by the exported buckets.
    buckets: Vec<u64>,
}

impl Total {
    fn add(&mut self, other: &Total) {
        self.count += other.count;
        self.sum += other.sum;
        self.buckets
            .resize(self.buckets.len().max(other.buckets.len()), 0);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += more;
        }
    }
}

/// The series of a metric.
#[derive(Debug)]
pub(super) struct Series {
    name: String,
    help: String,
    /// What is added up besides calls.
    summed: bool,
    /// Of a histogram, and whether its values are times.
    buckets: Option<(Buckets, bool)>,
    /// Of earlier runs.
    before: BTreeMap<Labels, Total>,
    /// Of the run that goes on.
    now: BTreeMap<Labels, Total>,
}

impl Series {
    pub(super) fn new(
        name: &str,
        help: &str,
        summed: bool,
        buckets: Option<(Buckets, bool)>,
    ) -> Series {
        Series {
            name: name.to_owned(),
            help: help.to_owned(),
            summed,
            buckets,
            before: BTreeMap::new(),
            now: BTreeMap::new(),
        }
    }

    /// The rows that the run has now, with their labels.
    pub(super) fn set(&mut self, rows: impl Iterator<Item = (Labels, TableRow)>) {
        self.now.clear();
        for (labels, row) in rows {
            let total = Total {
                count: row.count,
                sum: row.sum.into(),
                buckets: match &self.buckets {
                    Some((buckets, _)) => buckets.merged(&row.buckets),
                    None => Vec::new(),
                },
            };
            self.now.entry(labels).or_default().add(&total);
        }
    }

    /// The run is over.
    pub(super) fn end_run(&mut self) {
        for (labels, total) in std::mem::take(&mut self.now) {
            self.before.entry(labels).or_default().add(&total);
        }
    }

    /// What all runs have added up.
    pub(super) fn families(&self) -> Vec<Family> {
        let mut all = self.before.clone();
        for (labels, total) in &self.now {
            all.entry(labels.clone()).or_default().add(total);
        }
        let family = |name: String, help: String, unit, points| Family {
            name,
            help,
            unit,
            points,
        };
        if let Some((buckets, timed)) = &self.buckets {
            let point = |(labels, total): (Labels, Total)| HistogramPoint {
                labels,
                counts: total.buckets,
                sum: buckets.sum(total.sum),
            };
            let points = Points::Histogram {
                bounds: buckets.bounds(),
                points: all.into_iter().map(point).collect(),
            };
            let unit = timed.then_some("seconds");
            // Formats add the unit.
            let name = match timed {
                true => self.name.strip_suffix("_seconds").unwrap_or(&self.name),
                false => &self.name,
            };
            return vec![family(name.to_owned(), self.help.clone(), unit, points)];
        }
        let points = |value: fn(&Total) -> f64| {
            let point = |(labels, total): (&Labels, &Total)| NumberPoint {
                labels: labels.clone(),
                value: value(total),
            };
            all.iter().map(point).collect()
        };
        let calls = Points::Counter(points(|total| total.count as f64));
        // Formats add `_total`.
        let name = self.name.strip_suffix("_total").unwrap_or(&self.name);
        let mut families = vec![family(name.to_owned(), self.help.clone(), None, calls)];
        if self.summed {
            // Values below zero let it fall, which no counter does.
            let sums = Points::Gauge(points(|total| total.sum as f64));
            let help = format!("{} (sum of the values)", self.help);
            families.push(family(format!("{name}_sum"), help, None, sums));
        }
        families
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(count: u64, sum: i64) -> TableRow {
        TableRow {
            count,
            sum,
            ..TableRow::default()
        }
    }

    fn of(container: &str) -> Labels {
        vec![("container".to_owned(), container.to_owned())]
    }

    fn values(family: &Family) -> Vec<f64> {
        match &family.points {
            Points::Counter(points) | Points::Gauge(points) => {
                points.iter().map(|point| point.value).collect()
            }
            Points::Histogram { .. } => panic!("{family:?}"),
        }
    }

    #[test]
    fn what_earlier_runs_have_counted_stays() {
        let mut series = Series::new("calls_total", "Calls", true, None);
        series.set([(of("a"), row(1, -5)), (of("a"), row(2, 1))].into_iter());
        series.set([(of("a"), row(4, -5)), (of("b"), row(1, 0))].into_iter());
        series.end_run();
        series.set([(of("b"), row(2, 9))].into_iter());
        let [calls, sums] = &series.families()[..] else {
            panic!("{series:?}")
        };
        assert_eq!(
            (calls.name.as_str(), values(calls)),
            ("calls", vec![4.0, 3.0])
        );
        assert_eq!(
            (sums.name.as_str(), values(sums)),
            ("calls_sum", vec![-5.0, 9.0])
        );
    }
}
