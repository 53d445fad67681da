// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a metric is, whatever it is written as.

/// Names and values that distinguish the points of a family; neither is escaped.
pub type Labels = Vec<(String, String)>;

/// A metric with all its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name, without what a format adds to it: `_total`, or its unit.
    pub name: String,
    /// What it is, for people.
    pub help: String,
    /// Its unit, such as `seconds`; none for a number of things.
    pub unit: Option<&'static str>,
    /// Its values.
    pub points: Points,
}

/// The values of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Points {
    /// They only grow, until the agent starts anew.
    Counter(Vec<NumberPoint>),
    /// They go up and down.
    Gauge(Vec<NumberPoint>),
    /// How values are spread.
    Histogram {
        /// The greatest value of each bucket but the last, rising.
        bounds: Vec<f64>,
        /// The values.
        points: Vec<HistogramPoint>,
    },
}

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberPoint {
    /// Of what.
    pub labels: Labels,
    /// How much.
    pub value: f64,
}

/// How the values of one thing are spread.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramPoint {
    /// Of what.
    pub labels: Labels,
    /// Values in each bucket alone: one more than the family has bounds.
    pub counts: Vec<u64>,
    /// Their sum.
    pub sum: f64,
}

impl HistogramPoint {
    /// Values in all buckets.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}
