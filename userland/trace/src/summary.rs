// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary of a trace: its counters, and whether they add up.

use crate::attach::run::options::Untraced;
use crate::attach::unwind_rows::RowsReport;
use crate::hits::label::{ProbeLabel, ProbeRole};
use crate::names::NamesNote;
use crate::placeless::Placeless;
use libnsprobe::{Counters, HoldReport, ProbeId, Session};
use nix::unistd::{sysconf, SysconfVar};
use nsprobe_capsule::model::TaskTotal;
use nsprobe_symbolize::FileOffset;
use nsprobe_text::counted;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

/// Most probes of which it is looked up on which CPUs they lost hits.
pub const PROBES_BY_CPU_MAX: usize = 256;

/// The end of a trace.
#[derive(Debug)]
pub struct Summary {
    /// Duration.
    pub elapsed: Duration,
    /// Reason for the end.
    pub ended_by: String,
    /// Hits that were printed, or added to rows of what was counted.
    pub printed: u64,
    /// Hits that came out of the rings.
    pub received: u64,
    /// Recorded hits that others have taken the place of, with --flight.
    pub overwritten: u64,
    /// Whose children are not traced, though nothing but being another process keeps them out.
    pub untraced: Option<Untraced>,
    /// Whether stacks were taken.
    pub has_stacks: bool,
    /// Each probe.
    pub probes: Vec<ProbeSummary>,
    /// Counts of tasks' events, by kind.
    pub tasks: BTreeMap<String, TaskTotal>,
    /// Sources of names, a line for each file.
    pub names: Vec<NamesNote>,
    /// Stacks that were finished from copies.
    pub finished: u64,
    /// Stacks that were taken late, as a page was not there.
    pub late: u64,
    /// Report on unwind rows.
    pub rows: Option<RowsReport>,
    /// The programs that waited for their probes, with --follow.
    pub held: Option<HoldReport>,
    /// How the command failed by itself.
    pub failure: Option<String>,
}

/// Calls that are followed to the function's exits, and not seen to end there as themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MissedCalls {
    /// They went by a jump where their return is not seen.
    pub left_by_jump: u64,
    /// They were left in another way (by an exception, `longjmp`, the end of their thread), are
    /// under way, or were evicted as there were too many ([`Counters::evicted`]).
    pub unreturned: u64,
}

impl AddAssign for MissedCalls {
    fn add_assign(&mut self, other: MissedCalls) {
        self.left_by_jump += other.left_by_jump;
        self.unreturned += other.unreturned;
    }
}

/// The end of a probe.
#[derive(Debug)]
pub struct ProbeSummary {
    /// The number of the probe in its session.
    pub id: u32,
    /// The path of its file, as the target sees it.
    pub binary: String,
    /// Its function, or what else was probed.
    pub function: String,
    /// `binary:function`, escaped.
    pub label: String,
    /// Its place in the file.
    pub offset: FileOffset,
    /// Its hits by outcome.
    pub counters: Counters,
    /// Its calls that were not seen to return, though they did.
    pub missed: MissedCalls,
    /// Counters of each CPU that has any, if hits were lost: each has a ring of its own.
    pub cpus: BTreeMap<u16, Counters>,
}

/// The counters of all probes of a trace; those of a function's exits as of one probe.
pub(crate) fn probes(
    session: &Session,
    labels: &[ProbeLabel],
) -> libnsprobe::Result<Vec<ProbeSummary>> {
    let mut probes: Vec<ProbeSummary> = Vec::new();
    let mut last = None;
    let mut with_losses = 0;
    for label in labels {
        let (counters, missed, handed_on) = label.counters(session)?;
        let mut cpus = BTreeMap::new();
        if counters.lost_full > 0 && with_losses < PROBES_BY_CPU_MAX {
            with_losses += 1;
            cpus = by_cpu(session, label.id)?;
        }
        match probes.last_mut().filter(|_| last == Some(label.planned)) {
            Some(probe) => {
                // Its entry comes before its exits, which count the calls that it saw begin.
                let ended = counters
                    .hits
                    .saturating_add(missed.left_by_jump + handed_on);
                let unreturned = probe.missed.unreturned.saturating_sub(ended);
                probe.counters += counters;
                probe.missed += missed;
                probe.missed.unreturned = unreturned;
                probe.add_cpus(cpus);
            }
            None => probes.push(ProbeSummary {
                id: label.id.0,
                binary: label.binary.clone(),
                function: label.function.clone(),
                label: label.label.clone(),
                offset: label.offset,
                counters,
                missed,
                cpus,
            }),
        }
        last = Some(label.planned);
    }
    Ok(probes)
}

/// The counters of a probe on the CPUs that have any.
fn by_cpu(session: &Session, id: ProbeId) -> libnsprobe::Result<BTreeMap<u16, Counters>> {
    let mut cpus = BTreeMap::new();
    for cpu in 0..=u16::MAX {
        match session.counters_on(id, cpu) {
            Ok(counters) if counters.hits == 0 => {}
            Ok(counters) => drop(cpus.insert(cpu, counters)),
            // The probe is there: what is not is the CPU.
            Err(libnsprobe::Error::NoProbe(_)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(cpus)
}

impl ProbeSummary {
    /// What its hits are, if they have no place in a file.
    pub fn placeless(&self) -> Option<Placeless> {
        Placeless::of(&self.binary, &self.function, self.offset.0)
    }

    /// Adds the counters of CPUs.
    pub fn add_cpus(&mut self, cpus: BTreeMap<u16, Counters>) {
        for (cpu, counters) in cpus {
            *self.cpus.entry(cpu).or_default() += counters;
        }
    }
}

impl ProbeLabel {
    /// Its hits by outcome, and the calls that were missed or went on in a function with a probe of
    /// its own: those are no hits.
    fn counters(&self, session: &Session) -> libnsprobe::Result<(Counters, MissedCalls, u64)> {
        let mut counters = session.counters(self.id)?;
        let mut handed_on = 0;
        let mut missed = MissedCalls::default();
        match self.role {
            ProbeRole::Whole | ProbeRole::Exit => {}
            ProbeRole::Begin => {
                let begun = std::mem::take(&mut counters.aggregated);
                let others = std::mem::take(&mut counters.turned_away);
                counters.evicted = counters.evicted.saturating_add(others);
                missed.unreturned = begun.saturating_add(others);
                counters.hits = counters.hits.saturating_sub(missed.unreturned);
            }
            ProbeRole::HandOn => {
                handed_on = counters.aggregated;
                counters = Counters::default();
            }
            ProbeRole::Leave => {
                missed.left_by_jump = counters.aggregated;
                counters = Counters::default();
            }
        }
        Ok((counters, missed, handed_on))
    }
}

impl Summary {
    /// What its hits are, if all are of one such source.
    pub fn placeless(&self) -> Option<Placeless> {
        Placeless::of_all(self.probes.iter().map(ProbeSummary::placeless))
    }

    /// A note on samples that were not taken, if there are many, of each CPU that is online.
    pub fn samples_note(&self, placeless: Option<Placeless>) -> Option<String> {
        let hz = placeless?.samples_hz();
        let cpus = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok()??;
        self.note_on_samples(f64::from(hz?) * cpus as f64)
    }

    /// The same for `rate` samples a second in all.
    pub fn note_on_samples(&self, rate: f64) -> Option<String> {
        let expected = (rate * self.elapsed.as_secs_f64()) as u64;
        let total = self.total();
        let seen = total.hits + total.idle + total.kernel_threads;
        // The first and last ones of each CPU, and what a rate that the kernel adapts needs.
        (seen < expected - expected / 8).then(|| {
            format!(
                "{seen} of about {expected} samples were taken: the others were of CPUs that halted \
                 (their cycles stop), or the kernel throttled sampling"
            )
        })
    }

    /// The calls that all probes together have missed.
    pub fn missed(&self) -> MissedCalls {
        let mut missed = MissedCalls::default();
        for probe in &self.probes {
            missed += probe.missed;
        }
        missed
    }

    /// The counters of all probes together, but for hits that are parts of others'.
    pub fn total(&self) -> Counters {
        self.total_of(false)
    }

    /// The counters of the probes whose hits are parts of others'.
    pub fn parts(&self) -> Counters {
        self.total_of(true)
    }

    fn total_of(&self, are_parts: bool) -> Counters {
        let mut total = Counters::default();
        for probe in &self.probes {
            if probe.placeless().is_some_and(Placeless::is_part) == are_parts {
                total += probe.counters;
            }
        }
        total
    }

    /// Events of tasks of all kinds together.
    pub fn task_total(&self) -> TaskTotal {
        let mut total = TaskTotal::default();
        for kind in self.tasks.values() {
            total.seen = total.seen.saturating_add(kind.seen);
            total.recorded = total.recorded.saturating_add(kind.recorded);
            total.filtered = total.filtered.saturating_add(kind.filtered);
            total.lost = total.lost.saturating_add(kind.lost);
        }
        total
    }

    /// Returns what does not add up, if anything: every hit must be accounted for, and every
    /// recorded one must have come out of a ring.
    pub fn problem(&self) -> Option<String> {
        if let Some(probe) = self.probes.iter().find(|probe| !probe.counters.balance()) {
            return Some(format!(
                "the counters of {} do not add up: {:?}",
                probe.label, probe.counters
            ));
        }
        let recorded = self.total().recorded + self.parts().recorded;
        let there = recorded.saturating_sub(self.overwritten);
        (self.received != there).then(|| {
            format!(
                "{} recorded, but {} came out of the rings",
                counted(recorded, "hit"),
                self.received
            )
        })
    }
}
