// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics as the text that Prometheus scrapes.

use crate::{Family, HistogramPoint, Labels, Points};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    prometheus_text, text, DescriptorEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// A format of that text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// `application/openmetrics-text`, 1.0.0.
    OpenMetrics,
    /// `text/plain`, 0.0.4.
    Prometheus,
}

impl TextFormat {
    /// The one that suits an `Accept` header.
    pub fn accepted(header: &str) -> TextFormat {
        match header.contains("application/openmetrics-text") {
            true => TextFormat::OpenMetrics,
            false => TextFormat::Prometheus,
        }
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            TextFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            TextFormat::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// The text of metrics.
pub fn exposition(families: Vec<Family>, format: TextFormat) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut out = String::new();
    match format {
        TextFormat::OpenMetrics => text::encode(&mut out, &registry)?,
        TextFormat::Prometheus => prometheus_text::encode(&mut out, &registry)?,
    }
    Ok(out)
}

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| {
            let kind = match &family.points {
                Points::Counter(_) => MetricType::Counter,
                Points::Gauge(_) => MetricType::Gauge,
                Points::Histogram { .. } => MetricType::Histogram,
            };
            let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
            let help = &family.help;
            let metric = encoder.encode_descriptor(&family.name, help, unit.as_ref(), kind)?;
            points(metric, &family.points)
        })
    }
}

fn points(mut metric: MetricEncoder<'_>, points: &Points) -> fmt::Result {
    match points {
        Points::Counter(all) => all.iter().try_for_each(|point| {
            let labels = names(&point.labels);
            let mut metric = metric.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, _, f64>(&point.value, None)
        }),
        Points::Gauge(all) => all.iter().try_for_each(|point| {
            let labels = names(&point.labels);
            metric.encode_family(&labels)?.encode_gauge(&point.value)
        }),
        Points::Histogram { bounds, points } => points.iter().try_for_each(|point| {
            let (labels, buckets) = (names(&point.labels), buckets(bounds, point));
            let mut metric = metric.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(point.sum, point.count(), &buckets, None)
        }),
    }
}

/// The buckets with their bounds, of which the last is infinity.
fn buckets(bounds: &[f64], point: &HistogramPoint) -> Vec<(f64, u64)> {
    let bounds = bounds.iter().copied().chain([f64::INFINITY]);
    bounds.zip(point.counts.iter().copied()).collect()
}

/// Labels with names that Prometheus takes: letters, digits and `_`, each once.
fn names(labels: &Labels) -> Labels {
    let mut all: Labels = Vec::new();
    for (name, value) in labels {
        let plain = |letter: char| match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => letter,
            _ => '_',
        };
        let mut name: String = name.chars().map(plain).collect();
        // Those that begin so are Prometheus's own.
        let own = name.strip_prefix("__").map(str::to_owned);
        name = own.unwrap_or(name);
        if !name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            name.insert(0, '_');
        }
        while all.iter().any(|(known, _)| *known == name) || name == "le" {
            name.push('_');
        }
        all.push((name, value.clone()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NumberPoint;

    fn labels(all: &[(&str, &str)]) -> Labels {
        let owned = all
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        owned.collect()
    }

    fn families() -> Vec<Family> {
        vec![
            Family {
                name: "tls_calls".to_owned(),
                help: "Calls".to_owned(),
                unit: None,
                points: Points::Counter(vec![NumberPoint {
                    labels: labels(&[("container", "a\"b\n"), ("request->user", "x"), ("le", "y")]),
                    value: 3.0,
                }]),
            },
            Family {
                name: "latency".to_owned(),
                help: "Time".to_owned(),
                unit: Some("seconds"),
                points: Points::Histogram {
                    bounds: vec![0.5, 1.0],
                    points: vec![HistogramPoint {
                        labels: Vec::new(),
                        counts: vec![2, 0, 1],
                        sum: 3.5,
                    }],
                },
            },
        ]
    }

    #[test]
    fn both_texts_have_all_points_with_names_that_are_valid() {
        let text = exposition(families(), TextFormat::Prometheus).expect("a string takes all");
        for line in [
            r#"tls_calls_total{container="a\"b\n",request__user="x",le_="y"} 3"#,
            r#"latency_seconds_bucket{le="0.5"} 2"#,
            r#"latency_seconds_bucket{le="1"} 2"#,
            r#"latency_seconds_bucket{le="+Inf"} 3"#,
            "latency_seconds_sum 3.5",
            "latency_seconds_count 3",
        ] {
            assert!(
                text.lines().any(|one| one.trim_end_matches(".0") == line),
                "{line} in {text}"
            );
        }
        let open = exposition(families(), TextFormat::OpenMetrics).expect("a string takes all");
        assert!(open.contains("# UNIT latency_seconds seconds\n"), "{open}");
        assert!(open.ends_with("# EOF\n"), "{open}");
    }

    #[test]
    fn the_format_is_the_one_that_is_accepted() {
        let of = TextFormat::accepted;
        let scrape = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2";
        assert_eq!(of(scrape), TextFormat::OpenMetrics);
        assert_eq!(of("*/*"), TextFormat::Prometheus);
    }
}
