// SPDX-License-Identifier: MIT OR Apache-2.0
//! What engines that people run take: the model of metrics, the text that Prometheus scrapes and the
//! server that it asks for it, OTLP, and pushes to servers. Knows nothing of probes.
#![forbid(unsafe_code)]

mod exposition;
mod metrics;
mod otlp;
mod push;
mod server;

pub use exposition::{exposition, TextFormat};
pub use metrics::{Family, HistogramPoint, Labels, NumberPoint, Points};
pub use otlp::{otlp_metrics, otlp_profile, Times, METRICS_PATH, PROFILES_PATH};
pub use push::{Body, Endpoint, Pusher};
pub use server::MetricsServer;
