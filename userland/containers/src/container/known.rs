// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the runtimes' state files say, before anything of it is believed.

use super::cgroup_path::{is_hex, ID_LENGTH_MIN};
use super::host::Host;
use super::{containerd, crio, docker, kubernetes, lxc, machined, oci, podman, Pod, Runtime};
use crate::{Result, TargetError};
use std::collections::HashMap;

/// A container that a runtime knows, running or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownContainer {
    pub(super) runtime: Runtime,
    /// The runtime's id for it; for some runtimes it is the name.
    pub(super) id: String,
    /// Its name, and others that it goes by; may be empty.
    pub(super) names: Vec<String>,
    /// The user that runs it, unless root.
    pub(super) user: Option<u32>,
    pub(super) image: Option<String>,
    pub(super) pod: Option<Pod>,
    /// When it was made, in seconds since 1970.
    pub(super) created: Option<i64>,
    pub(super) claim: Claim,
}

/// What is said of its first process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) pid: Option<u32>,
    /// When that started, in clock ticks since boot.
    pub(super) start_time: Option<u64>,
    /// Its control group, from the root of cgroup v2 on.
    pub(super) cgroup: Option<String>,
    /// Why it is not known.
    pub(super) problem: Option<String>,
}

impl KnownContainer {
    pub(super) fn new(runtime: Runtime, id: String, user: Option<u32>) -> KnownContainer {
        KnownContainer {
            runtime,
            id,
            names: Vec::new(),
            user,
            image: None,
            pod: None,
            created: None,
            claim: Claim::default(),
        }
    }

    /// Whether two runtimes mean the same by an id: nobody chooses those of engines, and of
    /// others the process tells.
    fn is_same(&self, other: &KnownContainer) -> bool {
        let is_engines = is_hex(&self.id) && self.id.len() >= ID_LENGTH_MIN;
        is_engines || (self.claim.pid.is_some() && self.claim.pid == other.claim.pid)
    }

    /// Takes what another runtime knows of the same container, which it runs for this one.
    fn absorb(&mut self, other: KnownContainer) {
        let (mine, its) = (&mut self.claim, other.claim);
        // A start time goes with its pid.
        if mine.pid.is_none() || mine.pid == its.pid {
            mine.start_time = mine.start_time.or(its.start_time);
            mine.cgroup = mine.cgroup.take().or(its.cgroup);
            mine.pid = mine.pid.or(its.pid);
        }
        for name in other.names {
            if !self.names.contains(&name) {
                self.names.push(name);
            }
        }
        self.image = self.image.take().or(other.image);
        self.pod = self.pod.take().or(other.pod);
        self.created = self.created.or(other.created);
    }
}

/// All that was found, and what could not be read.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Pods of Kubernetes by their uids.
    pub(super) pods: HashMap<String, Pod>,
    pub(super) known: Vec<KnownContainer>,
    pub(super) problems: Vec<TargetError>,
}

impl Findings {
    /// The findings of all runtimes of a machine. Runtimes that run containers for others come
    /// last.
    pub(super) fn and_all_of(mut self, host: &Host) -> Findings {
        crio::find(host, &mut self);
        podman::find(host, &mut self);
        docker::find(host, &mut self);
        containerd::find(host, &mut self);
        machined::find(host, &mut self);
        lxc::find(host, &mut self);
        oci::find(host, &mut self);
        kubernetes::complete(host, &mut self);
        self.merge();
        self
    }

    /// The value, if there is one; an error is kept as a problem.
    pub(super) fn note<T>(&mut self, result: Result<Option<T>>) -> Option<T> {
        result.unwrap_or_else(|error| {
            self.problems.push(error);
            None
        })
    }

    /// Makes one of what several say of the same container of the same user.
    fn merge(&mut self) {
        let mut places: HashMap<(String, Option<u32>), usize> = HashMap::new();
        let mut merged: Vec<KnownContainer> = Vec::new();
        for known in self.known.drain(..) {
            let key = (known.id.clone(), known.user);
            let first = places.get(&key).and_then(|place| merged.get_mut(*place));
            match first {
                Some(first) if first.is_same(&known) => first.absorb(known),
                _ => {
                    places.insert(key, merged.len());
                    merged.push(known);
                }
            }
        }
        self.known = merged;
    }
}

/// Seconds since 1970 of a time as RFC 3339 writes it (`2026-11-21T17:08:10.74+01:00`).
pub(super) fn seconds_of(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let is_sound = text.is_ascii() && text.get(10..11) == Some("T");
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let zone = text
        .get(19..)?
        .trim_start_matches(['.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    let ahead = match zone.get(..1)? {
        "Z" => 0,
        sign @ ("+" | "-") => {
            let hours: i64 = zone.get(1..3)?.parse().ok()?;
            let minutes: i64 = zone.get(4..6)?.parse().ok()?;
            (hours * 60 + minutes) * 60 * if sign == "-" { -1 } else { 1 }
        }
        _ => return None,
    };
    let is_date =
        (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_sound || !is_date {
        return None;
    }
    let days = days_of(year, month, day);
    Some(((days * 24 + hour) * 60 + minute) * 60 + second - ahead)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March here, so
/// that the leap day is the last.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let in_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + in_year - 719_468
}

#[cfg(test)]
mod layouts;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59.5Z", 951_868_799),
            ("2026-11-21T17:08:10.744130505Z", 1_795_280_890),
            ("2026-11-21T18:08:10+01:00", 1_795_280_890),
            ("2026-11-21T11:38:10.1-05:30", 1_795_280_890),
        ] {
            assert_eq!(seconds_of(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "now",
            "2026-11-21",
            "2026-11-21T17:08:10",
            "2026-13-21T17:08:10Z",
        ] {
            assert_eq!(seconds_of(text), None, "{text}");
        }
    }

    #[test]
    fn what_two_runtimes_say_of_one_container_is_one() {
        let id = "deadbeef0001";
        let mut web = KnownContainer::new(Runtime::Podman, id.to_owned(), None);
        web.names.push("web".to_owned());
        web.claim.pid = Some(7);
        let mut low = KnownContainer::new(Runtime::Crun, id.to_owned(), None);
        low.claim.pid = Some(7);
        low.claim.start_time = Some(9);
        low.claim.cgroup = Some("/x".to_owned());
        let other = KnownContainer::new(Runtime::Crun, id.to_owned(), Some(1000));
        let named =
            [Runtime::Lxc, Runtime::Crun].map(|r| KnownContainer::new(r, "web".to_owned(), None));
        let mut all = vec![web, low, other];
        all.extend(named);
        let mut findings = Findings {
            known: all,
            ..Findings::default()
        };
        findings.merge();
        assert_eq!(findings.known.len(), 4);
        let web = &findings.known[0];
        assert_eq!(
            (web.names.as_slice(), web.runtime),
            (&["web".to_owned()][..], Runtime::Podman)
        );
        assert_eq!(web.claim.start_time, Some(9));
        assert_eq!(web.claim.cgroup.as_deref(), Some("/x"));
    }
}
