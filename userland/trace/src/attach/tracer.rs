// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recipe of all verbs that probe: find the target, plan the probes, attach them.

use crate::attach::held_starts::HeldStarts;
use crate::attach::probes::Planned;
use crate::attach::run::{Run, Sinks};
use crate::attach::target::Target;
use crate::names::search::DebugSearch;
use crate::options::{Returns, TargetSpec, TraceOptions};
use crate::signals::WaitLimit;
use crate::spec::{CountedTexts, ProbeSpec};
use anyhow::bail;
use libnsprobe::common::program::Context;
use libnsprobe::{Device, Error, Session, SetupOptions};
use nsprobe_containers::TargetError;
use nsprobe_probes::ProbeQuery;
use nsprobe_spec::syntax::Assignment;
use nsprobe_spec::Sink;
use nsprobe_worker::{ChildLimits, Worker};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// What a caller needs from its probes, in addition to the user's options.
#[derive(Clone, Copy)]
pub struct Wants<'a> {
    /// The sink that probe programs are compiled for.
    pub sink: Sink<'a>,
    /// What hits are counted by, as it was typed.
    pub counted: CountedTexts<'a>,
    /// Whether calls are timed: probes are hit at returns.
    pub at_return: bool,
    /// Assignments made at each hit.
    pub changes: &'a [Assignment],
    /// Most changes that each probe makes.
    pub max_writes: u32,
    /// The session's rings, and whether it may change programs.
    pub setup: SetupOptions,
    /// Whether hits are recorded one by one.
    pub records: bool,
    /// Waits are recorded, with what ends them, and have these facts in front of their keys; when it
    /// is empty, they are not.
    pub facts_of_waits: &'a [Context],
    /// Whether the user stack is taken.
    pub stack: bool,
    /// Whether the kernel's stack is taken.
    pub kernel_stack: bool,
    /// Most frames of a stack; zero for the most that there can be.
    pub max_frames: u32,
}

impl Wants<'_> {
    /// Whether only waits for locks count, with who holds them.
    pub(super) fn asks_holders(&self) -> bool {
        self.facts_of_waits.contains(&Context::LockHolder)
    }
}

impl Default for Wants<'_> {
    /// Counted hits.
    fn default() -> Self {
        Wants {
            sink: Sink::Count,
            counted: CountedTexts::default(),
            at_return: false,
            changes: &[],
            max_writes: 0,
            setup: SetupOptions::default(),
            records: false,
            facts_of_waits: &[],
            stack: false,
            kernel_stack: false,
            max_frames: 0,
        }
    }
}

/// A target, with the search for its debug files and the parser of its files.
pub struct Tracer<'a> {
    options: &'a TraceOptions,
    /// The processes that are traced.
    pub target: Target,
    search: Arc<DebugSearch>,
    parser: Worker,
    /// With the first container's program, when it was waited for.
    held: Cell<Option<HeldStarts>>,
    /// Until when a container is waited for.
    limit: WaitLimit,
}

impl<'a> Tracer<'a> {
    /// Finds the target that the options mean.
    pub fn new(options: &'a TraceOptions) -> anyhow::Result<Tracer<'a>> {
        let parser = options.parser();
        let mut held = match &options.who {
            TargetSpec::Group(_) => HeldStarts::new(options)?,
            _ => None,
        };
        if held.is_some() {
            parser.start_ahead();
        }
        let limit = WaitLimit {
            deadline: options.timeout.map(|limit| Instant::now() + limit),
            stop: options.stop.clone(),
        };
        let target = Target::wait_for(&options.who, &limit, &mut held)?;
        let search = DebugSearch::of(target.viewers(), options)?;
        Ok(Tracer {
            options,
            target,
            search,
            parser,
            held: Cell::new(held),
            limit,
        })
    }

    /// Resolves the probes of the options to places in files; adds what has no place. With
    /// `follow`, of the next container should those that were found have ended.
    pub fn plan(&mut self, wants: &Wants<'_>) -> anyhow::Result<Planned> {
        loop {
            match self.plan_for_target(wants) {
                Err(error) if self.target.awaits_others() => {
                    self.options.note(&format!("{error:#}"));
                    self.wait_for_others()?;
                }
                Err(error) if self.follows_all() && is_missing(&error) => {
                    bail!("{error:#}; with -c NAME nsprobe waits for a container that has it")
                }
                planned => return planned,
            }
        }
    }

    /// Whether all that comes is traced.
    fn follows_all(&self) -> bool {
        self.options.follow && matches!(self.target, Target::Host)
    }

    /// Waits for containers, as those that were found have ended.
    fn wait_for_others(&mut self) -> anyhow::Result<()> {
        let held = self.held.get_mut();
        if held.is_none() {
            *held = HeldStarts::new(self.options)?;
        }
        self.target = Target::wait_for(&self.options.who, &self.limit, held)?;
        self.search = DebugSearch::of(self.target.viewers(), self.options)?;
        Ok(())
    }

    fn plan_for_target(&self, wants: &Wants<'_>) -> anyhow::Result<Planned> {
        let inputs = self.inputs(*wants);
        let device = device()?;
        let planned = Planned::new(&self.target, device.as_ref(), &inputs);
        let mut planned = self.target.within(planned)?;
        if let Some(placeless) = self.options.placeless {
            if let Some(hz) = placeless.samples_hz() {
                check_sample_rate(hz)?;
            }
            self.target.check_code()?;
            planned.add_placeless(placeless, wants)?;
        }
        Ok(planned)
    }

    /// Resolves the allocation functions of the target instead.
    pub fn plan_allocators(&self, wants: &Wants<'_>) -> anyhow::Result<Planned> {
        let device = device()?;
        let planned = Planned::allocators(&self.target, device.as_ref(), &self.inputs(*wants));
        self.target.within(planned)
    }

    /// Attaches the probes, then lets the command run. `sinks` creates the sinks of the hits.
    pub fn start<'r>(
        &'r self,
        wants: Wants<'r>,
        planned: Planned,
        sinks: impl FnOnce(&mut Session) -> anyhow::Result<Sinks>,
    ) -> anyhow::Result<Run<'r>> {
        let held = self.held.take();
        Run::begin(self.inputs(wants), &self.target, held, planned, sinks)
    }

    fn inputs<'r>(&'r self, wants: Wants<'r>) -> ProbeInputs<'r> {
        ProbeInputs {
            options: self.options,
            wants,
            search: &self.search,
            parser: &self.parser,
            limits: ChildLimits::default(),
        }
    }
}

/// Inputs of resolving and attaching the probes of a run.
#[derive(Clone, Copy)]
pub(super) struct ProbeInputs<'a> {
    pub(super) options: &'a TraceOptions,
    pub(super) wants: Wants<'a>,
    /// Looks for debug information.
    pub(super) search: &'a Arc<DebugSearch>,
    /// Template of the parsers: each file has a parser of its own.
    pub(super) parser: &'a Worker,
    /// Time limits of the parsers.
    pub(super) limits: ChildLimits,
}

impl ProbeInputs<'_> {
    /// The query for a file that errors call `path`.
    pub(super) fn probe_query(&self, spec: &ProbeSpec, path: String) -> ProbeQuery {
        let (options, wants) = (self.options, &self.wants);
        ProbeQuery {
            spec: spec.spec.clone(),
            typed: spec.place().to_owned(),
            path,
            sink: wants.sink.into(),
            at_return: wants.at_return,
            max_probes: options.max_probes,
            inlined: options.inlined,
            exact: options.exact,
            fast_nops: options.fast_nops,
            changes: wants.changes.to_vec(),
            return_probes: options.returns == Returns::Uretprobe,
            force: options.force,
        }
    }
}

/// The module's device; `None` without the module, when an error in a spec is reported first.
fn device() -> Result<Option<Device>, Error> {
    match Device::open() {
        Err(error @ (Error::Denied(_) | Error::Version { .. })) => Err(error),
        device => Ok(device.ok()),
    }
}

/// Whether a file is not there.
fn is_missing(error: &anyhow::Error) -> bool {
    let why = error.downcast_ref::<TargetError>();
    why.is_some_and(|why| matches!(why, TargetError::NotFound { .. }))
}

/// Fails for more samples a second than the machine allows perf.
fn check_sample_rate(hz: u32) -> anyhow::Result<()> {
    const MOST: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
    let most = std::fs::read_to_string(MOST).unwrap_or_default();
    if most.trim().parse().is_ok_and(|most: u32| hz > most) {
        let most = most.trim();
        bail!(
            "this machine allows {most} samples a second at most: try -F {most}, or raise {MOST}"
        );
    }
    Ok(())
}
