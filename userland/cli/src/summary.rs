// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a trace comes to: its counters, and whether they add up.

use crate::probes::Planned;
use libnsprobe::{Counters, ProbeId, Session};
use nsprobe_symbolize::{escaped, FileOffset};
use std::io::{Result, Write};
use std::time::Duration;

/// The end of a trace.
#[derive(Debug)]
pub(crate) struct Summary {
    /// How long it was.
    pub(crate) elapsed: Duration,
    /// Why it ended.
    pub(crate) ended_by: String,
    /// Hits that were printed.
    pub(crate) printed: u64,
    /// Hits that came out of the rings.
    pub(crate) received: u64,
    /// Whether stacks were taken.
    pub(crate) has_stacks: bool,
    /// Each probe.
    pub(crate) probes: Vec<ProbeSummary>,
    /// Where names came from, a line for each file.
    pub(crate) names: Vec<String>,
}

/// The end of a probe.
#[derive(Debug)]
pub(crate) struct ProbeSummary {
    /// Its id.
    pub(crate) id: u32,
    /// The probed file.
    pub(crate) binary: String,
    /// The probed function.
    pub(crate) function: String,
    /// `binary:function`, escaped.
    pub(crate) label: String,
    /// Where it was.
    pub(crate) offset: FileOffset,
    /// What became of its hits.
    pub(crate) counters: Counters,
}

/// The counters of all probes of a trace.
pub(crate) fn probes(
    session: &Session,
    labels: &[ProbeLabel],
    ids: &[ProbeId],
) -> libnsprobe::Result<Vec<ProbeSummary>> {
    labels
        .iter()
        .zip(ids)
        .map(|(label, &id)| {
            Ok(ProbeSummary {
                id: id.0,
                binary: label.binary.clone(),
                function: label.function.clone(),
                label: label.label.clone(),
                offset: label.offset,
                counters: session.counters(id)?,
            })
        })
        .collect()
}

/// What output calls a probe.
#[derive(Clone, Debug)]
pub(crate) struct ProbeLabel {
    /// `binary:function`, escaped.
    pub(crate) label: String,
    /// The probed file.
    pub(crate) binary: String,
    /// The probed function.
    pub(crate) function: String,
    /// Where it is.
    pub(crate) offset: FileOffset,
}

impl ProbeLabel {
    /// The labels of all planned probes, in their order.
    pub(crate) fn all(planned: &Planned) -> Vec<ProbeLabel> {
        let label = |probe: &crate::probes::PlannedProbe| {
            let file = planned.files.get(probe.file);
            ProbeLabel {
                label: escaped(&probe.label).to_string(),
                binary: file.map_or_else(String::new, |file| file.path.display().to_string()),
                function: probe.function.clone(),
                offset: probe.offset,
            }
        };
        planned.probes.iter().map(label).collect()
    }
}

impl Summary {
    /// The counters of all probes together.
    pub(crate) fn total(&self) -> Counters {
        let mut total = Counters::default();
        for probe in &self.probes {
            total += probe.counters;
        }
        total
    }

    /// What does not add up, if anything: every hit must be accounted for, and
    /// every recorded one must have come out of a ring.
    pub(crate) fn problem(&self) -> Option<String> {
        if let Some(probe) = self.probes.iter().find(|probe| !probe.counters.balance()) {
            return Some(format!(
                "the counters of {} do not add up: {:?}",
                probe.label, probe.counters
            ));
        }
        let recorded = self.total().recorded;
        (self.received != recorded).then(|| {
            format!(
                "{recorded} hits were recorded, but {} came out of the rings",
                self.received
            )
        })
    }

    /// Writes it for people.
    pub(crate) fn write(&self, out: &mut impl Write) -> Result<()> {
        let total = self.total();
        writeln!(
            out,
            "nsprobe: {}; {:.3} s: {}",
            escaped(&self.ended_by),
            self.elapsed.as_secs_f64(),
            sentence(&total)
        )?;
        if self.probes.len() > 1 {
            for probe in self.probes.iter().filter(|probe| probe.counters.hits > 0) {
                let counters = sentence(&probe.counters);
                writeln!(out, "nsprobe:   {}: {counters}", probe.label)?;
            }
        }
        if self.printed < total.recorded {
            let more = total.recorded - self.printed;
            writeln!(out, "nsprobe: {more} more recorded hits were not printed")?;
        }
        if total.lost_full > 0 {
            writeln!(
                out,
                "nsprobe: hits were lost because the rings were full: try a larger --ring-size"
            )?;
        }
        if self.has_stacks && total.stacks_cut > 0 {
            writeln!(out, "nsprobe: {} stacks are cut", total.stacks_cut)?;
        }
        for line in &self.names {
            writeln!(out, "nsprobe: names: {}", escaped(line))?;
        }
        Ok(())
    }
}

fn sentence(counters: &Counters) -> String {
    format!(
        "{} hits = {} recorded + {} filtered + {} lost (ring full)",
        counters.hits, counters.recorded, counters.filtered, counters.lost_full
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(recorded: u64, received: u64) -> Summary {
        Summary {
            elapsed: Duration::from_millis(1500),
            ended_by: "interrupted".into(),
            printed: received,
            received,
            has_stacks: false,
            probes: vec![ProbeSummary {
                id: 1,
                binary: "/bin/x".into(),
                function: "f".into(),
                label: "x:f".into(),
                offset: FileOffset(16),
                counters: Counters {
                    hits: 10,
                    recorded,
                    filtered: 3,
                    lost_full: 2,
                    ..Counters::default()
                },
            }],
            names: Vec::new(),
        }
    }

    #[test]
    fn what_does_not_add_up_is_said() {
        assert_eq!(summary(5, 5).problem(), None);
        assert!(summary(6, 6)
            .problem()
            .unwrap()
            .contains("x:f do not add up"));
        assert!(summary(5, 4).problem().unwrap().contains("4 came out"));
    }

    #[test]
    fn people_get_a_sentence() {
        let mut out = Vec::new();
        summary(5, 5).write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "nsprobe: interrupted; 1.500 s: 10 hits = 5 recorded + 3 filtered + 2 lost (ring \
             full)\nnsprobe: hits were lost because the rings were full: try a larger --ring-size\n"
        );
    }
}
