// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the agent says of itself: what its jobs have lost, and what it takes of the machine.

use super::readings::Reading;
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::TimeValLike;
use nix::unistd::{sysconf, SysconfVar};
use nsprobe_containers::own_children;
use nsprobe_telemetry::{Family, Labels, NumberPoint, Points};
use std::fs;

/// The metrics of the jobs, by their names, after those of the agent.
pub(super) fn families(readings: Vec<(&str, Reading)>) -> Vec<Family> {
    let up = readings.iter().map(|(name, reading)| NumberPoint {
        labels: of_job(name),
        value: f64::from(u8::from(reading.is_up)),
    });
    let mut families = vec![
        family(
            "nsprobe_job_up",
            "Whether the probes of a job are attached",
            None,
            Points::Gauge(up.collect()),
        ),
        outcomes(&readings),
    ];
    families.extend(usage());
    families.extend(
        readings
            .into_iter()
            .flat_map(|(_, reading)| reading.families),
    );
    families
}

/// The labels of what is a job's.
pub(super) fn of_job(name: &str) -> Labels {
    vec![("job".to_owned(), name.to_owned())]
}

fn family(name: &str, help: &str, unit: Option<&'static str>, points: Points) -> Family {
    Family {
        name: name.to_owned(),
        help: help.to_owned(),
        unit,
        points,
    }
}

/// Hits by outcome: each counts under one.
fn outcomes(readings: &[(&str, Reading)]) -> Family {
    let mut points = Vec::new();
    for (name, reading) in readings {
        for (outcome, count) in reading.counters.outcomes() {
            points.push(NumberPoint {
                labels: vec![
                    ("job".to_owned(), (*name).to_owned()),
                    ("outcome".to_owned(), outcome.to_owned()),
                ],
                value: count as f64,
            });
        }
    }
    family(
        "nsprobe_hits",
        "Hits of a job's probes, each under one outcome",
        None,
        Points::Counter(points),
    )
}

/// What this process and its parsers take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// CPU time; also of parsers that have ended.
    pub(super) cpu_seconds: f64,
    /// Memory that is there, in bytes.
    pub(super) memory_bytes: u64,
}

impl Usage {
    pub(super) fn now() -> Usage {
        let of = |who| {
            let usage = getrusage(who).ok();
            let times = usage.map(|usage| usage.user_time() + usage.system_time());
            times.map_or(0.0, |time| time.num_microseconds() as f64 / 1e6)
        };
        let mut usage = Usage {
            cpu_seconds: of(UsageWho::RUSAGE_SELF) + of(UsageWho::RUSAGE_CHILDREN),
            memory_bytes: resident_bytes("self"),
        };
        for pid in own_children().iter().map(u32::to_string) {
            usage.cpu_seconds += cpu_seconds(&pid).unwrap_or(0.0);
            usage.memory_bytes += resident_bytes(&pid);
        }
        usage
    }
}

fn usage() -> Vec<Family> {
    let point = |value| {
        vec![NumberPoint {
            labels: Labels::new(),
            value,
        }]
    };
    let now = Usage::now();
    vec![
        family(
            "nsprobe_agent_cpu",
            "CPU time of the agent and its parsers",
            Some("seconds"),
            Points::Counter(point(now.cpu_seconds)),
        ),
        family(
            "nsprobe_agent_memory",
            "Memory of the agent and its parsers",
            Some("bytes"),
            Points::Gauge(point(now.memory_bytes as f64)),
        ),
    ]
}

/// CPU time of a process that lives (`proc_pid_stat(5)`).
fn cpu_seconds(pid: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind its name, which may have spaces.
    let mut words = text.rsplit(')').next()?.split_whitespace().skip(11);
    let ticks: u64 = words.next()?.parse::<u64>().ok()? + words.next()?.parse::<u64>().ok()?;
    let hz = sysconf(SysconfVar::CLK_TCK).ok().flatten()?;
    Some(ticks as f64 / hz as f64)
}

fn resident_bytes(pid: &str) -> u64 {
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    let page = page.and_then(|page| u64::try_from(page).ok());
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * page.unwrap_or(4096)
}
