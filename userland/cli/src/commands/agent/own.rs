// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the agent says of itself: what its jobs have lost, and what it takes of the machine.

use super::readings::Reading;
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::TimeValLike;
use nix::unistd::{sysconf, SysconfVar};
use nsprobe_telemetry::{Family, Labels, NumberPoint, Points};
use std::fs;

/// The metrics of the jobs, by their names, after those of the agent.
pub(super) fn families(readings: Vec<(&str, Reading)>) -> Vec<Family> {
    let of_job = |name: &str| vec![("job".to_owned(), name.to_owned())];
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

/// CPU time and memory of this process and its parsers.
fn usage() -> Vec<Family> {
    let point = |value| {
        vec![NumberPoint {
            labels: Labels::new(),
            value,
        }]
    };
    vec![
        family(
            "nsprobe_agent_cpu",
            "CPU time of the agent and its parsers",
            Some("seconds"),
            Points::Counter(point(cpu_seconds())),
        ),
        family(
            "nsprobe_agent_memory",
            "Memory of the agent and its parsers",
            Some("bytes"),
            Points::Gauge(point(memory_bytes() as f64)),
        ),
    ]
}

fn cpu_seconds() -> f64 {
    let of = |who| {
        let usage = getrusage(who).ok();
        let times = usage.map(|usage| usage.user_time() + usage.system_time());
        times.map_or(0, |time| time.num_microseconds()) as f64 / 1e6
    };
    // Parsers that live count when they have ended.
    of(UsageWho::RUSAGE_SELF) + of(UsageWho::RUSAGE_CHILDREN)
}

/// Pages of this process and of its children that are in memory, in bytes.
fn memory_bytes() -> u64 {
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    let page = page
        .and_then(|page| u64::try_from(page).ok())
        .unwrap_or(4096);
    let resident = |pid: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split(' ').nth(1)?.parse::<u64>().ok()
    };
    let own = resident("self").unwrap_or(0);
    let children = children()
        .iter()
        .filter_map(|pid| resident(pid))
        .sum::<u64>();
    (own + children) * page
}

/// The children of all threads of this process.
fn children() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists = tasks.flatten().filter_map(|task| {
        let list = fs::read_to_string(task.path().join("children")).ok()?;
        Some(
            list.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    });
    lists.flatten().collect()
}
