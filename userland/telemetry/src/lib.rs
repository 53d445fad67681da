// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics for the engines that people run: their model, the text that Prometheus scrapes, and the
//! server that it asks for it. Knows nothing of probes.
#![forbid(unsafe_code)]

mod exposition;
mod metrics;
mod server;

pub use exposition::{exposition, TextFormat};
pub use metrics::{Family, HistogramPoint, Labels, NumberPoint, Points};
pub use server::MetricsServer;
