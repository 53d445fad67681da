// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a metric has added up for each set of labels, over all its runs.

use super::buckets::Buckets;
use crate::output::tables::CONTAINER;
use libnsprobe::TableRow;
use nsprobe_telemetry::{Family, HistogramPoint, Labels, NumberPoint, Points};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Most series of a metric, and of one container of them: it leaves some to others.
const SERIES_MAX: usize = 4096;
const OF_CONTAINER_MAX: usize = SERIES_MAX / 8 * 7;
/// How long a series stays that nothing is added to.
const KEPT: Duration = Duration::from_secs(3600);
/// Interval between looks for such.
const LOOK: Duration = Duration::from_secs(60);
/// The label of what there is no series for, as OpenTelemetry's metrics have it; Prometheus has `_` for
/// the dots.
const OVERFLOW: &str = "otel.metric.overflow";

/// What one series has added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Total {
    /// When something was added last.
    used: Option<Instant>,
    count: u64,
    sum: i128,
    /// Of a histogram, by the exported buckets.
    buckets: Vec<u64>,
}

impl Total {
    fn add(&mut self, other: &Total) {
        self.used = other.used;
        self.count += other.count;
        self.sum += other.sum;
        self.buckets
            .resize(self.buckets.len().max(other.buckets.len()), 0);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += more;
        }
    }
}

/// The id, or else the name, of the container that a series is of.
fn container(labels: &Labels) -> Option<&str> {
    let find = |wanted: &str| labels.iter().find(|(name, _)| name == wanted);
    let found = find("container_id").or_else(|| find(CONTAINER));
    found.map(|(_, value)| value.as_str())
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
    totals: BTreeMap<Labels, Total>,
    /// How many of them are of a container.
    containers: HashMap<String, usize>,
    /// When it was looked for series that are not used any more.
    looked: Instant,
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
            totals: BTreeMap::new(),
            containers: HashMap::new(),
            looked: Instant::now(),
        }
    }

    /// Whether there may be one more series, and one more of its container.
    fn has_room(&self, labels: &Labels) -> bool {
        let of = container(labels).and_then(|of| self.containers.get(of));
        self.totals.len() < SERIES_MAX && of.is_none_or(|count| *count < OF_CONTAINER_MAX)
    }

    /// Adds a row.
    pub(super) fn add(&mut self, mut labels: Labels, row: &TableRow) {
        let now = Instant::now();
        if self.looked + LOOK < now {
            self.looked = now;
            let is_used = |total: &Total| total.used.is_some_and(|used| used + KEPT >= now);
            self.totals.retain(|_, total| is_used(total));
            self.containers.clear();
            let containers = self.totals.keys().filter_map(container);
            for of in containers {
                *self.containers.entry(of.to_owned()).or_default() += 1;
            }
        }
        if !self.totals.contains_key(&labels) {
            if !self.has_room(&labels) {
                labels = vec![(OVERFLOW.to_owned(), "true".to_owned())];
            } else if let Some(of) = container(&labels) {
                *self.containers.entry(of.to_owned()).or_default() += 1;
            }
        }
        let total = Total {
            used: Some(now),
            count: row.count,
            sum: row.sum.into(),
            buckets: match &self.buckets {
                Some((buckets, _)) => buckets.merged(&row.buckets),
                None => Vec::new(),
            },
        };
        self.totals.entry(labels).or_default().add(&total);
    }

    /// What was added up.
    pub(super) fn families(&self) -> Vec<Family> {
        let all = &self.totals;
        let family = |name: String, help: String, unit, points| Family {
            name,
            help,
            unit,
            points,
        };
        if let Some((buckets, timed)) = &self.buckets {
            let point = |(labels, total): (&Labels, &Total)| HistogramPoint {
                labels: labels.clone(),
                counts: total.buckets.clone(),
                sum: buckets.sum(total.sum),
            };
            let points = Points::Histogram {
                bounds: buckets.bounds(),
                points: all.iter().map(point).collect(),
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
    fn rows_of_the_same_labels_are_added_up() {
        let mut series = Series::new("calls_total", "Calls", true, None);
        series.add(of("a"), &row(4, -5));
        series.add(of("b"), &row(1, 0));
        series.add(of("b"), &row(2, 9));
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

    #[test]
    fn what_there_is_no_series_for_is_counted_together_and_a_container_leaves_some_to_others() {
        let mut series = Series::new("calls", "Calls", false, None);
        let label = |name: &str, value: String| (name.to_owned(), value);
        for number in 0..SERIES_MAX + 10 {
            let key = label("arg1", number.to_string());
            series.add(vec![key, of("greedy").remove(0)], &row(1, 0));
        }
        series.add(of("other"), &row(3, 0));
        let families = series.families();
        let Points::Counter(points) = &families[0].points else {
            panic!("{families:?}")
        };
        assert_eq!(points.len(), OF_CONTAINER_MAX + 2);
        let value = |name: &str| {
            let found = points.iter().find(|point| point.labels[0].1 == name);
            found.map(|point| point.value)
        };
        assert_eq!(
            value("true"),
            Some((SERIES_MAX + 10 - OF_CONTAINER_MAX) as f64)
        );
        assert_eq!(value("other"), Some(3.0));
    }
}
