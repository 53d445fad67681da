// SPDX-License-Identifier: MIT OR Apache-2.0
//! The servers that the agent sends what it has to.

use super::job::Work;
use super::readings::Readings;
use super::say;
use crate::args::OutputsPlan;
use nix::sys::utsname::uname;
use nsprobe_profile::{Format, Profile, ProfileError};
use nsprobe_telemetry::{otlp_metrics, Body, Family, Pusher, Times};
use nsprobe_trace::signals::Stop;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the end waits for servers.
const END: Duration = Duration::from_secs(5);
/// Interval between looks whether it is time to send.
const LOOK: Duration = Duration::from_millis(100);

/// Servers, as a configuration has them.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) plan: OutputsPlan,
    pprof: Option<Pusher>,
    otlp_metrics: Option<Pusher>,
}

impl Outputs {
    pub(super) fn start(plan: OutputsPlan) -> anyhow::Result<Outputs> {
        let pprof = plan.pprof.as_ref();
        let pprof = pprof.map(|(endpoint, _)| Pusher::start("pprof", endpoint.clone(), say));
        let otlp = plan.otlp_metrics.as_ref();
        let otlp = otlp.map(|(endpoint, _)| Pusher::start("otlp_metrics", endpoint.clone(), say));
        Ok(Outputs {
            pprof: pprof.transpose()?,
            otlp_metrics: otlp.transpose()?,
            plan,
        })
    }

    /// Sends a profile, whose job has this name.
    pub(super) fn profile(&self, job: &str, profile: &Profile) -> anyhow::Result<()> {
        let (Some(pusher), Some((_, application))) = (&self.pprof, &self.plan.pprof) else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        match nsprobe_profile::write(Format::Pprof, profile, &mut bytes) {
            Err(ProfileError::Empty) => return Ok(()),
            written => written?,
        }
        let start = Duration::from_nanos(profile.start_unix_ns);
        let end = start + Duration::from_nanos(profile.duration_ns);
        let mut query = vec![
            (
                "name",
                format!("{application}{{host={},job={job}}}", host()),
            ),
            ("from", start.as_secs().to_string()),
            ("until", end.as_secs().to_string()),
            ("format", "pprof".to_owned()),
            ("spyName", "nsprobe".to_owned()),
        ];
        let period = profile.period_ns.filter(|period| *period > 0);
        query.extend(period.map(|period| ("sampleRate", (1_000_000_000 / period).to_string())));
        let query = query.into_iter();
        pusher.push(Body {
            bytes,
            query: query
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            headers: vec![("Content-Type", "application/octet-stream")],
        });
        Ok(())
    }

    fn metrics(&self, families: &[Family], start_unix_ns: u64) -> anyhow::Result<()> {
        let times = Times {
            start_unix_ns,
            now_unix_ns: now_unix_ns(),
        };
        if let Some(pusher) = &self.otlp_metrics {
            pusher.push(otlp_metrics(families, times, &host())?);
        }
        Ok(())
    }

    /// What was sent, and what was not.
    pub(super) fn families(&self) -> Vec<Family> {
        let pushers = self.pprof.iter().chain(&self.otlp_metrics);
        Pusher::families(&pushers.collect::<Vec<_>>())
    }

    /// Sends the rest, for some seconds.
    pub(super) fn end(self) {
        for pusher in self.pprof.into_iter().chain(self.otlp_metrics) {
            pusher.end(END);
        }
    }
}

/// The name of this machine.
fn host() -> String {
    let name = uname().ok();
    name.map_or_else(String::new, |name| {
        name.nodename().to_string_lossy().into_owned()
    })
}

pub(super) fn now_unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64
}

/// Sends metrics again and again.
pub(super) struct MetricsExport<G> {
    pub(super) outputs: Arc<Outputs>,
    pub(super) gather: G,
    pub(super) interval: Duration,
    pub(super) start_unix_ns: u64,
    pub(super) stop: Stop,
}

impl<G: Fn() -> Vec<Family>> Work for MetricsExport<G> {
    fn work(&mut self, _: &Readings) -> anyhow::Result<()> {
        let mut next = Instant::now() + self.interval;
        while !self.stop.is_set() {
            if Instant::now() < next {
                sleep(LOOK);
                continue;
            }
            next += self.interval;
            self.outputs.metrics(&(self.gather)(), self.start_unix_ns)?;
        }
        // What came since the last time; jobs have ended by then.
        self.outputs.metrics(&(self.gather)(), self.start_unix_ns)
    }
}
