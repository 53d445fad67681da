// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics as OTLP has them (`opentelemetry/proto/metrics/v1/metrics.proto`): for a collector.

use crate::{Body, Family, HistogramPoint, Labels, NumberPoint, Points};
use flate2::write::GzEncoder;
use flate2::Compression;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{any_value, AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    metric, number_data_point, AggregationTemporality, Gauge, Histogram, HistogramDataPoint,
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Below the endpoint's URL.
pub const METRICS_PATH: &str = "/v1/metrics";

/// The labels that say whose a point is, and what semantic conventions call them.
const OF_RESOURCES: [(&str, &str); 2] = [
    ("container", "container.name"),
    ("container_id", "container.id"),
];
/// A pod, after its namespace and a slash.
const POD: &str = "pod";

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
    let request = request(families, times, host);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&request.encode_to_vec())?;
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
            attributes: host_name(host).chain(of.iter().map(attribute)).collect(),
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

fn host_name(host: &str) -> impl Iterator<Item = KeyValue> {
    let of = |name: &str, value: &str| attribute(&(name.to_owned(), value.to_owned()));
    [of("service.name", "nsprobe"), of("host.name", host)].into_iter()
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
        let (of, own) = split(labels(point));
        all.entry(of).or_default().push(make(point, own));
    }
    all.into_iter()
}

/// Labels of the resource, as semantic conventions call them, and the others.
pub fn split(labels: &Labels) -> (Labels, Labels) {
    let (mut of, mut own) = (Labels::new(), Labels::new());
    for (name, value) in labels {
        let known = OF_RESOURCES.iter().find(|(label, _)| label == name);
        match known {
            Some((_, attribute)) => of.push(((*attribute).to_owned(), value.clone())),
            None if name == POD => {
                let (namespace, pod) = match value.split_once('/') {
                    Some((namespace, pod)) => (Some(namespace), pod),
                    None => (None, value.as_str()),
                };
                let namespace = namespace.map(|one| ("k8s.namespace.name", one));
                let parts = namespace.into_iter().chain([("k8s.pod.name", pod)]);
                of.extend(parts.map(|(name, value)| (name.to_owned(), value.to_owned())));
            }
            None => own.push((name.clone(), value.clone())),
        }
    }
    (of, own)
}

fn attribute((name, value): &(String, String)) -> KeyValue {
    KeyValue {
        key: name.clone(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value.clone())),
        }),
        ..KeyValue::default()
    }
}

fn number(point: &NumberPoint, labels: Labels, times: Times) -> NumberDataPoint {
    NumberDataPoint {
        attributes: labels.iter().map(attribute).collect(),
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
        attributes: labels.iter().map(attribute).collect(),
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
