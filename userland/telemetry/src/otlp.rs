// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a collector takes as OTLP: metrics (`opentelemetry/proto/metrics/v1/metrics.proto`), and
//! profiles, which `nsprobe_profile` writes.

use crate::{Body, Family, HistogramPoint, Labels, NumberPoint, Points};
use flate2::write::GzEncoder;
use flate2::Compression;
use nsprobe_profile::attributes::{attributes, key_value, resource_attributes};
use nsprobe_profile::{otlp_profiles, Profile};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    metric, number_data_point, AggregationTemporality, Gauge, Histogram, HistogramDataPoint,
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Where a collector takes metrics, below its URL.
pub const METRICS_PATH: &str = "/v1/metrics";
/// Where it takes profiles.
pub const PROFILES_PATH: &str = "/v1development/profiles";

/// When metrics were counted, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Since when.
    pub start_unix_ns: u64,
    /// Until when.
    pub now_unix_ns: u64,
}

/// The body of a request that exports metrics.
pub fn otlp_metrics(families: &[Family], times: Times, host: &str) -> io::Result<Body> {
    body(&request(families, times, host))
}

/// The body of a request that exports a profile: a collector's request has the same fields.
pub fn otlp_profile(profile: &Profile, host: &str) -> io::Result<Body> {
    body(&otlp_profiles(profile, Some(host)))
}

fn body(message: &impl Message) -> io::Result<Body> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&message.encode_to_vec())?;
    Ok(Body {
        bytes: gzip.finish()?,
        query: Vec::new(),
        headers: vec![
            ("Content-Type", "application/x-protobuf"),
            ("Content-Encoding", "gzip"),
        ],
    })
}

/// A resource for each container, and one for the host.
fn request(families: &[Family], times: Times, host: &str) -> ExportMetricsServiceRequest {
    let mut resources: BTreeMap<Labels, Vec<Metric>> = BTreeMap::new();
    for family in families {
        for (resource, data) in data(family, times) {
            resources.entry(resource).or_default().push(Metric {
                name: family.name.clone(),
                description: family.help.clone(),
                // As UCUM has it.
                unit: match family.unit {
                    Some("seconds") => "s",
                    Some("bytes") => "By",
                    _ => "1",
                }
                .to_owned(),
                data: Some(data),
                ..Metric::default()
            });
        }
    }
    let scope = InstrumentationScope {
        name: "nsprobe".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let resources = resources.into_iter().map(|(of, metrics)| ResourceMetrics {
        resource: Some(Resource {
            attributes: resource_attributes(Some(host), &of),
            ..Resource::default()
        }),
        scope_metrics: vec![ScopeMetrics {
            scope: Some(scope.clone()),
            metrics,
            ..ScopeMetrics::default()
        }],
        ..ResourceMetrics::default()
    });
    ExportMetricsServiceRequest {
        resource_metrics: resources.collect(),
    }
}

/// The points of a family, by resource.
fn data(family: &Family, times: Times) -> Vec<(Labels, metric::Data)> {
    let temporality = AggregationTemporality::Cumulative.into();
    match &family.points {
        Points::Counter(points) => by_resource(
            points,
            |point| &point.labels,
            |point, labels| number(point, labels, times),
        )
        .map(|(of, data_points)| {
            let sum = Sum {
                data_points,
                aggregation_temporality: temporality,
                is_monotonic: true,
            };
            (of, metric::Data::Sum(sum))
        })
        .collect(),
        Points::Gauge(points) => by_resource(
            points,
            |point| &point.labels,
            |point, labels| number(point, labels, times),
        )
        .map(|(of, data_points)| (of, metric::Data::Gauge(Gauge { data_points })))
        .collect(),
        Points::Histogram { bounds, points } => by_resource(
            points,
            |point| &point.labels,
            |point, labels| histogram(point, labels, bounds, times),
        )
        .map(|(of, data_points)| {
            let histogram = Histogram {
                data_points,
                aggregation_temporality: temporality,
            };
            (of, metric::Data::Histogram(histogram))
        })
        .collect(),
    }
}

/// Points by the labels of their resources, each made with its other labels.
fn by_resource<P, D>(
    points: &[P],
    labels: impl Fn(&P) -> &Labels,
    make: impl Fn(&P, Labels) -> D,
) -> impl Iterator<Item = (Labels, Vec<D>)> {
    let mut all: BTreeMap<Labels, Vec<D>> = BTreeMap::new();
    for point in points {
        let (of, own) = attributes(labels(point));
        all.entry(of).or_default().push(make(point, own));
    }
    all.into_iter()
}

fn key_values(labels: &Labels) -> Vec<KeyValue> {
    labels
        .iter()
        .map(|(name, value)| key_value(name, value))
        .collect()
}

fn number(point: &NumberPoint, labels: Labels, times: Times) -> NumberDataPoint {
    NumberDataPoint {
        attributes: key_values(&labels),
        start_time_unix_nano: times.start_unix_ns,
        time_unix_nano: times.now_unix_ns,
        value: Some(number_data_point::Value::AsDouble(point.value)),
        ..NumberDataPoint::default()
    }
}

fn histogram(
    point: &HistogramPoint,
    labels: Labels,
    bounds: &[f64],
    times: Times,
) -> HistogramDataPoint {
    HistogramDataPoint {
        attributes: key_values(&labels),
        start_time_unix_nano: times.start_unix_ns,
        time_unix_nano: times.now_unix_ns,
        count: point.count(),
        sum: Some(point.sum),
        bucket_counts: point.counts.clone(),
        explicit_bounds: bounds.to_vec(),
        ..HistogramDataPoint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(&str, &str)]) -> Labels {
        let owned = all
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        owned.collect()
    }

    #[test]
    fn each_container_is_a_resource() {
        let point = |all: &[(&str, &str)], value| NumberPoint {
            labels: labels(all),
            value,
        };
        let family = Family {
            name: "calls".to_owned(),
            help: "Calls".to_owned(),
            unit: None,
            points: Points::Counter(vec![
                point(
                    &[("comm", "a"), ("container", "web"), ("pod", "shop/web-1")],
                    1.0,
                ),
                point(
                    &[("comm", "b"), ("container", "web"), ("pod", "shop/web-1")],
                    2.0,
                ),
                point(&[("comm", "a")], 4.0),
            ]),
        };
        let times = Times {
            start_unix_ns: 5,
            now_unix_ns: 9,
        };
        let request = request(&[family], times, "host");
        let [host, web] = &request.resource_metrics[..] else {
            panic!("{request:?}")
        };
        let names = |of: &ResourceMetrics| -> Vec<String> {
            let resource = of.resource.as_ref().expect("a resource");
            resource
                .attributes
                .iter()
                .map(|one| one.key.clone())
                .collect()
        };
        assert_eq!(names(host), ["service.name", "host.name"]);
        assert_eq!(
            names(web)[2..],
            ["container.name", "k8s.namespace.name", "k8s.pod.name"]
        );
        let metric = &web.scope_metrics[0].metrics[0];
        let Some(metric::Data::Sum(sum)) = &metric.data else {
            panic!("{metric:?}")
        };
        assert!(sum.is_monotonic && sum.data_points.len() == 2);
        assert_eq!(sum.data_points[1].attributes.len(), 1);
    }
}
