// SPDX-License-Identifier: MIT OR Apache-2.0
//! The servers that the agent sends what it has to.

use super::job::Work;
use super::readings::Readings;
use super::say;
use crate::args::OutputsPlan;
use nix::sys::utsname::uname;
use nsprobe_profile::{Format, Profile, ProfileError};
use nsprobe_telemetry::{otlp_metrics, otlp_profile, Body, Endpoint, Family, Pusher, Times};
use nsprobe_trace::signals::Stop;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the end waits for servers.
const END: Duration = Duration::from_secs(5);

/// Servers, as a configuration has them.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) plan: OutputsPlan,
    pprof: Option<Pusher>,
    otlp_metrics: Option<Pusher>,
    otlp_profiles: Option<Pusher>,
}

impl Outputs {
    pub(super) fn start(plan: OutputsPlan) -> anyhow::Result<Outputs> {
        let start = |name: &str, endpoint: Option<&Endpoint>| {
            let pusher = endpoint.map(|one| Pusher::start(name, one.clone(), say));
            pusher.transpose()
        };
        let metrics = plan.otlp_metrics.as_ref();
        Ok(Outputs {
            pprof: start("pprof", plan.pprof.as_ref().map(|(endpoint, _)| endpoint))?,
            otlp_metrics: start("otlp_metrics", metrics.map(|(endpoint, _)| endpoint))?,
            otlp_profiles: start("otlp_profiles", plan.otlp_profiles.as_ref())?,
            plan,
        })
    }

    fn pushers(&self) -> impl Iterator<Item = &Pusher> {
        let all = [&self.pprof, &self.otlp_metrics, &self.otlp_profiles];
        all.into_iter().flatten()
    }

    /// Sends a profile, whose job has this name.
    pub(super) fn profile(&self, job: &str, profile: &Profile) -> anyhow::Result<()> {
        if profile.samples.is_empty() {
            return Ok(());
        }
        if let Some(pusher) = &self.otlp_profiles {
            pusher.push(otlp_profile(profile, &host())?);
        }
        if let (Some(pusher), Some((_, application))) = (&self.pprof, &self.plan.pprof) {
            match pprof(
                &format!("{application}{{host={},job={job}}}", host()),
                profile,
            ) {
                // Of waits that took no time, say.
                Err(ProfileError::Empty) => {}
                body => pusher.push(body?),
            }
        }
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
        Pusher::families(&self.pushers().collect::<Vec<_>>())
    }

    /// Sends the rest, for some seconds.
    pub(super) fn end(self) {
        let all = [self.pprof, self.otlp_metrics, self.otlp_profiles];
        all.into_iter().flatten().for_each(|pusher| pusher.end(END));
    }
}

/// A profile as `/ingest` of Grafana Pyroscope takes it.
fn pprof(name: &str, profile: &Profile) -> Result<Body, ProfileError> {
    let mut bytes = Vec::new();
    nsprobe_profile::write(Format::Pprof, profile, &mut bytes)?;
    let start = Duration::from_nanos(profile.start_unix_ns);
    let end = start + Duration::from_nanos(profile.duration_ns);
    let mut query = vec![
        ("name", name.to_owned()),
        ("from", start.as_secs().to_string()),
        ("until", end.as_secs().to_string()),
        ("format", "pprof".to_owned()),
        ("spyName", "nsprobe".to_owned()),
    ];
    let period = profile.period_ns.filter(|period| *period > 0);
    query.extend(period.map(|period| ("sampleRate", (1_000_000_000 / period).to_string())));
    let query = query.into_iter();
    Ok(Body {
        bytes,
        query: query
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        headers: vec![("Content-Type", "application/octet-stream")],
    })
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
        while !self
            .stop
            .wait(next.saturating_duration_since(Instant::now()))
        {
            if Instant::now() >= next {
                next += self.interval;
                self.outputs.metrics(&(self.gather)(), self.start_unix_ns)?;
            }
        }
        // What came since the last time; jobs have ended by then.
        self.outputs.metrics(&(self.gather)(), self.start_unix_ns)
    }
}
