// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a table shows, and how.

use crate::args::{Aggregate, AggregatePlan};
use libnsprobe::common::program::Context;
use nsprobe_spec::syntax::{Field, Kind};

/// What the key is called that is a container.
pub(super) const CONTAINER: &str = "container";
const SECOND_NS: u64 = 1_000_000_000;

/// What a table shows, and how.
pub(crate) struct Style {
    pub(crate) json: bool,
    pub(crate) what: Aggregate,
    /// What is counted, in the singular.
    pub(crate) unit: &'static str,
    /// Values are times.
    pub(crate) timed: bool,
    /// What was added up.
    pub(crate) summed: Option<String>,
    /// CPUs are sampled; nanoseconds between two samples of one.
    pub(crate) period_ns: Option<u64>,
    /// Most rows.
    pub(crate) top: usize,
    /// Keys have the ids of pid namespaces, which stand for containers.
    pub(crate) by_container: bool,
}

impl Style {
    pub(crate) fn of(plan: &AggregatePlan) -> Style {
        Style {
            json: plan.options.json,
            what: plan.what,
            timed: plan.value.is_none(),
            summed: plan.value.as_ref().map(|value| value.name.clone()),
            top: plan.top,
            by_container: plan.by.iter().any(is_container),
            ..Style::counting(plan.options.samples_hz)
        }
    }

    /// Of calls, or of samples, this number a second.
    pub(crate) fn counting(samples_hz: Option<u32>) -> Style {
        Style {
            json: false,
            what: Aggregate::Count,
            unit: match samples_hz {
                Some(_) => "sample",
                None => "call",
            },
            timed: false,
            summed: None,
            period_ns: samples_hz.map(|hz| SECOND_NS / u64::from(hz.max(1))),
            top: usize::MAX,
            by_container: false,
        }
    }
}

/// Whether a key is the container, as `--by container` means it.
fn is_container(field: &Field) -> bool {
    field.name == CONTAINER && field.value.kind == Kind::Context(Context::PidNamespaceId)
}
