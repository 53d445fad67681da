// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe agent`: what its configuration asks for is measured until it ends, and handed to those
//! that ask for it, or sent.
//!
//! Each metric, profile and recording is a job: a thread with a run of its own, which is tried again
//! when it fails. The main thread takes signals.

mod belts;
mod buckets;
mod job;
mod metric;
mod outputs;
mod own;
mod profile;
mod readings;
mod recording;
mod series;
mod unnamed;

use crate::args::{AgentConfig, AgentPlan, BeltsPlan, OutputsPlan};
use belts::Belts;
use job::Job;
use metric::Measuring;
use nix::sys::signal::{SigSet, Signal};
use nsprobe_telemetry::{Family, MetricsServer};
use nsprobe_text::{counted, escaped};
use outputs::{now_unix_ns, MetricsExport, Outputs};
use profile::Profiling;
use recording::Recording;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) fn run(plan: &AgentPlan) -> anyhow::Result<ExitCode> {
    let config = match AgentConfig::read(&plan.config) {
        Ok(config) => config,
        Err(error) => {
            say(&format!("{error:#}"));
            return Ok(ExitCode::from(2));
        }
    };
    if plan.check {
        println!("{}", escaped(&about(plan, &config)));
        return Ok(ExitCode::SUCCESS);
    }
    // Before there are threads, which then have them blocked as well.
    let mut signals = SigSet::empty();
    let all = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    all.into_iter().for_each(|signal| signals.add(signal));
    signals.thread_block()?;
    let agent = Arc::new(Agent::new());
    let listen = config.listen;
    let server = listen.map(|address| {
        let agent = Arc::clone(&agent);
        MetricsServer::start(address, move || agent.families())
    });
    let server = server.transpose()?;
    say(&about(plan, &config));
    if let Some(server) = server {
        say(&format!("metrics at http://{}/metrics", server.address()));
    }
    agent.set(config)?;
    loop {
        match signals.wait()? {
            Signal::SIGHUP => match AgentConfig::read(&plan.config) {
                Ok(new) => {
                    say(&format!("read anew: {}", about(plan, &new)));
                    if new.listen != listen {
                        say("a new `listen` takes a restart");
                    }
                    agent.set(new)?;
                }
                Err(error) => say(&format!("the old configuration stays: {error:#}")),
            },
            signal => {
                say(&format!("ended by {signal}"));
                // A second one ends the process at once.
                signals.thread_unblock()?;
                agent.set(AgentConfig::default())?;
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

/// What a configuration asks for, for people.
fn about(plan: &AgentPlan, config: &AgentConfig) -> String {
    let path = plan.config.display();
    let metrics = counted(config.metrics.len() as u64, "metric");
    let profiles = counted(config.profiles.len() as u64, "profile");
    let recordings = counted(config.recordings.len() as u64, "recording");
    format!("{path}: {metrics}, {profiles}, {recordings}")
}

/// Says something, in as many lines as it has.
fn say(text: &str) {
    let lines: Vec<String> = text.lines().map(|line| escaped(line).to_string()).collect();
    eprintln!("nsprobe: {}", lines.join("\n"));
}

/// What is measured, and where it goes.
struct Agent {
    state: Mutex<State>,
    belts: Arc<Belts>,
    start_unix_ns: u64,
}

#[derive(Default)]
struct State {
    jobs: Vec<Arc<Job>>,
    outputs: Option<Arc<Outputs>>,
    /// Sends metrics.
    export: Option<Job>,
}

impl Agent {
    fn new() -> Agent {
        Agent {
            state: Mutex::default(),
            belts: Arc::new(Belts::new(BeltsPlan::default())),
            start_unix_ns: now_unix_ns(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what a configuration says and nothing else; jobs that are as they were go on.
    fn set(self: &Arc<Self>, config: AgentConfig) -> anyhow::Result<()> {
        self.belts.set(config.belts);
        let of_metrics = config.metrics.iter().map(|metric| format!("{metric:?}"));
        let of_profiles = config.profiles.iter();
        let of_profiles = of_profiles.map(|profile| format!("{profile:?} {:?}", config.outputs));
        let recordings = config.recordings.iter();
        let of_recordings = recordings.map(|recording| format!("{recording:?}"));
        let wanted: Vec<String> = of_metrics.chain(of_profiles).chain(of_recordings).collect();
        let is_wanted = |job: &Arc<Job>| wanted.iter().any(|one| one == job.identity());
        let (mut jobs, gone): (Vec<_>, Vec<_>) =
            self.lock().jobs.iter().cloned().partition(is_wanted);
        // All at a time. Until they are away, they still have what they measured last.
        gone.iter().for_each(|job| job.stop());
        gone.iter().for_each(|job| job.wait());
        let outputs = self.set_outputs(&config.outputs)?;
        let is_there =
            |jobs: &[Arc<Job>], identity: &str| jobs.iter().any(|job| job.identity() == identity);
        let mut identities = wanted.into_iter();
        for (metric, identity) in config.metrics.into_iter().zip(&mut identities) {
            if !is_there(&jobs, &identity) {
                let name = metric.name.clone();
                let make = |stop| Measuring::new(metric, stop);
                jobs.push(Arc::new(Job::start(name, identity, make)?));
            }
        }
        for (profile, identity) in config.profiles.into_iter().zip(&mut identities) {
            if !is_there(&jobs, &identity) {
                let (outputs, belts) = (Arc::clone(&outputs), Arc::clone(&self.belts));
                let name = profile.name.clone();
                let make = |stop| Profiling::new(profile, outputs, belts, stop);
                jobs.push(Arc::new(Job::start(name, identity, make)?));
            }
        }
        for (recording, identity) in config.recordings.into_iter().zip(identities) {
            if !is_there(&jobs, &identity) {
                let name = recording.name.clone();
                let make = |stop| Recording::new(recording, stop);
                jobs.push(Arc::new(Job::start(name, identity, make)?));
            }
        }
        self.lock().jobs = jobs;
        Ok(())
    }

    /// Sends to these servers and no others, if they have changed.
    fn set_outputs(self: &Arc<Self>, plan: &OutputsPlan) -> anyhow::Result<Arc<Outputs>> {
        let old = self.lock().outputs.clone();
        if let Some(outputs) = old.filter(|outputs| outputs.plan == *plan) {
            return Ok(outputs);
        }
        let export = self.lock().export.take();
        if let Some(export) = export {
            export.stop();
            export.wait();
        }
        let old = self.lock().outputs.take();
        // Jobs that had it have ended.
        if let Some(outputs) = old.and_then(Arc::into_inner) {
            outputs.end();
        }
        let outputs = Arc::new(Outputs::start(plan.clone())?);
        let export = plan.otlp_metrics.as_ref().map(|(_, interval)| {
            let (agent, outputs, interval) = (Arc::clone(self), Arc::clone(&outputs), *interval);
            Job::start("otlp_metrics".to_owned(), String::new(), move |stop| {
                MetricsExport {
                    outputs,
                    interval,
                    start_unix_ns: agent.start_unix_ns,
                    gather: move || agent.families(),
                    stop,
                }
            })
        });
        let mut state = self.lock();
        state.export = export.transpose()?;
        state.outputs = Some(Arc::clone(&outputs));
        Ok(outputs)
    }

    /// All metrics of the moment.
    fn families(&self) -> Vec<Family> {
        let (jobs, outputs) = {
            let state = self.lock();
            (state.jobs.clone(), state.outputs.clone())
        };
        let asked: Vec<u64> = jobs.iter().map(|job| job.readings().ask()).collect();
        let answers = jobs.iter().zip(asked);
        let answers = answers.map(|(job, asked)| (job.name(), job.readings().answer(asked)));
        let mut families = own::families(answers.collect());
        families.push(self.belts.family());
        families.extend(outputs.iter().flat_map(|outputs| outputs.families()));
        families
    }
}
