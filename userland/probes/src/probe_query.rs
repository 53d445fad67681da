// SPDX-License-Identifier: MIT OR Apache-2.0
//! A query about a file.

use nsprobe_spec::syntax::{Assignment, Expression, ExpressionKind, Field, ProbePoint, Spec};
use serde::{Deserialize, Serialize};

/// Probes of one spec in one file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbeQuery {
    /// Which places, and what is fetched there.
    pub spec: Spec,
    /// The places, as they were typed.
    pub typed: String,
    /// How errors call the file.
    pub path: String,
    /// Where hits go.
    pub sink: OwnedSink,
    /// Whether calls are timed: probes are hit at returns.
    pub at_return: bool,
    /// Most places that the spec may stand for.
    pub max_probes: usize,
    /// Functions are probed where they were inlined, too.
    pub inlined: bool,
    /// Breakpoints go to the very beginning of functions.
    pub exact: bool,
    /// Breakpoints may go to ten-byte nops, which the kernel turns into calls.
    pub fast_nops: bool,
    /// What is changed at each hit.
    pub changes: Vec<Assignment>,
    /// Returns are seen by return probes of the kernel's, which replace return addresses, and not
    /// at the function's exits.
    pub return_probes: bool,
    /// Places are probed, too, of which it is not known whether an instruction begins there.
    pub force: bool,
}

/// Where hits go, as far as programs know: [`nsprobe_spec::Sink`] of one's own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum OwnedSink {
    /// They are recorded with the spec's fields.
    Record,
    /// They are counted.
    Count,
    /// They go into a table.
    Table {
        /// What a row is found by.
        keys: Vec<Field>,
        /// What is added up.
        value: Option<Expression>,
    },
    /// They begin and end spans, by the spec's fields.
    Spans {
        /// Bytes allocated per sample; zero for all blocks.
        sample: u64,
        /// Functions that have probes of their own.
        probed: Vec<String>,
    },
}

impl OwnedSink {
    pub(crate) fn borrowed(&self) -> nsprobe_spec::Sink<'_> {
        match self {
            OwnedSink::Record => nsprobe_spec::Sink::Record,
            OwnedSink::Count => nsprobe_spec::Sink::Count,
            OwnedSink::Spans { sample, probed } => nsprobe_spec::Sink::Spans {
                sample: *sample,
                probed,
            },
            OwnedSink::Table { keys, value } => nsprobe_spec::Sink::Table {
                keys,
                value: value.as_ref(),
            },
        }
    }
}

impl From<nsprobe_spec::Sink<'_>> for OwnedSink {
    fn from(sink: nsprobe_spec::Sink<'_>) -> OwnedSink {
        match sink {
            nsprobe_spec::Sink::Record => OwnedSink::Record,
            nsprobe_spec::Sink::Count => OwnedSink::Count,
            nsprobe_spec::Sink::Spans { sample, probed } => OwnedSink::Spans {
                sample,
                probed: probed.to_vec(),
            },
            nsprobe_spec::Sink::Table { keys, value } => OwnedSink::Table {
                keys: keys.to_vec(),
                value: value.cloned(),
            },
        }
    }
}

impl ProbeQuery {
    /// Whether the spec, or what hits are counted by, names what only debug information knows: with
    /// arguments and results, their types.
    pub(crate) fn asks_debug_info(&self) -> bool {
        self.names_typed()
            || self.mentions(|kind| {
                matches!(
                    kind,
                    ExpressionKind::Name(_)
                        | ExpressionKind::All { .. }
                        | ExpressionKind::Member { .. }
                )
            })
            || self.inlined
            || matches!(self.spec.place, ProbePoint::Line { .. })
    }

    /// Whether it names arguments by their numbers, or results.
    pub(crate) fn names_typed(&self) -> bool {
        self.mentions(|kind| {
            matches!(
                kind,
                ExpressionKind::Argument(_) | ExpressionKind::Returned(_)
            )
        })
    }

    fn mentions(&self, named: impl Fn(&ExpressionKind) -> bool) -> bool {
        let spec = &self.spec;
        let names = |expression: &Expression| expression.any(&named);
        let in_sink = match &self.sink {
            OwnedSink::Table { keys, value } => {
                keys.iter().any(|key| names(&key.value)) || value.as_ref().is_some_and(names)
            }
            OwnedSink::Record | OwnedSink::Count | OwnedSink::Spans { .. } => false,
        };
        let changed = self.changes.iter().flat_map(Assignment::expressions);
        in_sink
            || changed.into_iter().any(names)
            || spec.fields.iter().any(|field| names(&field.value))
            || spec.condition.as_ref().is_some_and(names)
    }
}
