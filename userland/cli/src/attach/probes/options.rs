// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options for finding and compiling places.

use crate::args::spec::{CountedTexts, ProbeSpec};
use crate::args::Returns;
use crate::names::search::Search;
use nsprobe_probes::ProbeQuery;
use nsprobe_spec::syntax::Assignment;
use nsprobe_spec::Sink;
use nsprobe_worker::{Limits, Worker};
use std::sync::Arc;

/// Options for probing places.
#[derive(Clone, Copy)]
pub(crate) struct CompileOptions<'a> {
    /// Looks for debug information.
    pub(crate) search: &'a Arc<Search>,
    /// Template of the parsers: each file has a parser of its own.
    pub(crate) parser: &'a Worker,
    /// Time limits of the parsers.
    pub(crate) limits: Limits,
    /// Where hits go.
    pub(crate) sink: Sink<'a>,
    /// What hits are counted by, as it was typed.
    pub(crate) counted: CountedTexts<'a>,
    /// Whether calls are timed: probes are hit at returns.
    pub(crate) at_return: bool,
    /// Most places that one spec may stand for.
    pub(crate) max_probes: usize,
    /// Functions are probed where they were inlined, too.
    pub(crate) inlined: bool,
    /// Breakpoints go to the very beginning of functions.
    pub(crate) exact: bool,
    /// Breakpoints may go to ten-byte nops, which the kernel turns into calls.
    pub(crate) fast_nops: bool,
    /// Assignments made at each hit.
    pub(crate) changes: &'a [Assignment],
    /// How the kernel reports returns.
    pub(crate) returns: Returns,
    /// Whether to probe places that may be in the middle of an instruction.
    pub(crate) force: bool,
    /// Whether names of probes include their conditions, which distinguish the probes of one place.
    pub(crate) names_conditions: bool,
}

impl CompileOptions<'_> {
    /// The query for a file that errors call `path`.
    pub(super) fn probe_query(&self, spec: &ProbeSpec, path: String) -> ProbeQuery {
        ProbeQuery {
            spec: spec.spec.clone(),
            typed: spec.place().to_owned(),
            path,
            sink: self.sink.into(),
            at_return: self.at_return,
            max_probes: self.max_probes,
            inlined: self.inlined,
            exact: self.exact,
            fast_nops: self.fast_nops,
            changes: self.changes.to_vec(),
            return_probes: self.returns == Returns::Uretprobe,
            force: self.force,
        }
    }
}
