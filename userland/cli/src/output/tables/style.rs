// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents and layout of a table.

use crate::args::{Aggregate, AggregatePlan};
use libnsprobe::common::program::Context;
use nsprobe_spec::syntax::{ExpressionKind, Field};
use nsprobe_trace::placeless::Placeless;

/// Name of the key that is a container.
pub(crate) const CONTAINER: &str = "container";
const SECOND_NS: u64 = 1_000_000_000;

/// Contents and layout of a table.
pub(crate) struct Style {
    pub(crate) json: bool,
    pub(crate) what: Aggregate,
    /// Unit of the counts, in the singular.
    pub(crate) unit: &'static str,
    /// Values are times.
    pub(crate) timed: bool,
    /// The value that was added up.
    pub(crate) summed: Option<String>,
    /// CPUs are sampled; nanoseconds between two samples of one.
    pub(crate) period_ns: Option<u64>,
    /// The sums are nanoseconds that threads waited.
    pub(crate) are_waits: bool,
    /// Maximum number of rows.
    pub(crate) top: usize,
    /// Keys have the ids of pid namespaces, which stand for containers.
    pub(crate) by_container: bool,
    /// The keys are for a picture, and tables do not have them.
    pub(crate) are_keys_of_picture: bool,
}

impl Style {
    pub(crate) fn of(plan: &AggregatePlan) -> Style {
        Style {
            json: plan.printing.json,
            what: plan.what,
            timed: plan.value.is_none(),
            summed: plan.value.as_ref().map(|value| value.name.clone()),
            top: plan.top,
            by_container: plan.by.iter().any(is_container),
            are_keys_of_picture: plan.are_keys_of_picture,
            ..Style::counting(plan.options.placeless)
        }
    }

    /// Counts of calls, or of samples or waits.
    pub(crate) fn counting(placeless: Option<Placeless>) -> Style {
        Style {
            json: false,
            what: Aggregate::Count,
            unit: match placeless {
                Some(Placeless::Samples { .. }) => "sample",
                Some(Placeless::Waits { .. }) => "wait",
                Some(Placeless::Wakes { .. }) | None => "call",
            },
            timed: false,
            summed: None,
            period_ns: placeless
                .and_then(Placeless::samples_hz)
                .map(|hz| SECOND_NS / u64::from(hz.max(1))),
            are_waits: matches!(placeless, Some(Placeless::Waits { .. })),
            top: usize::MAX,
            by_container: false,
            are_keys_of_picture: false,
        }
    }
}

/// Whether a key is the container, as `--by container` means it.
fn is_container(field: &Field) -> bool {
    field.name == CONTAINER && field.value.kind == ExpressionKind::Context(Context::PidNamespaceId)
}
