// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe agent`: what its configuration asks for is measured until it ends, and handed to those
//! that ask for it.
//!
//! Each metric is a job: a thread with a run of its own, which is tried again when it fails. The
//! main thread takes signals.

mod buckets;
mod job;
mod metric;
mod own;
mod readings;
mod series;
mod unnamed;

use crate::args::{AgentConfig, AgentPlan, MetricPlan};
use job::Job;
use nix::sys::signal::{SigSet, Signal};
use nsprobe_telemetry::{Family, MetricsServer};
use nsprobe_text::{counted, escaped};
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
    let jobs = Arc::new(Mutex::new(Vec::new()));
    let server = config.listen.map(|address| {
        let jobs = Arc::clone(&jobs);
        MetricsServer::start(address, move || families(&jobs))
    });
    let server = server.transpose()?;
    say(&about(plan, &config));
    if let Some(server) = server {
        say(&format!("metrics at http://{}/metrics", server.address()));
    }
    let listen = config.listen;
    set(&jobs, config.metrics)?;
    loop {
        match signals.wait()? {
            Signal::SIGHUP => match AgentConfig::read(&plan.config) {
                Ok(new) => {
                    say(&format!("read anew: {}", about(plan, &new)));
                    if new.listen != listen {
                        say("a new `listen` takes a restart");
                    }
                    set(&jobs, new.metrics)?;
                }
                Err(error) => say(&format!("the old configuration stays: {error:#}")),
            },
            signal => {
                say(&format!("ended by {signal}"));
                set(&jobs, Vec::new())?;
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

type Jobs = Mutex<Vec<Job>>;

fn lock(jobs: &Jobs) -> MutexGuard<'_, Vec<Job>> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a configuration asks for, for people.
fn about(plan: &AgentPlan, config: &AgentConfig) -> String {
    let path = plan.config.display();
    format!("{path}: {}", counted(config.metrics.len() as u64, "metric"))
}

/// Says something, in as many lines as it has.
fn say(text: &str) {
    let lines: Vec<String> = text.lines().map(|line| escaped(line).to_string()).collect();
    eprintln!("nsprobe: {}", lines.join("\n"));
}

/// Has these metrics measured and no others; those that are as they were go on.
fn set(jobs: &Jobs, metrics: Vec<MetricPlan>) -> anyhow::Result<()> {
    let all: Vec<Job> = lock(jobs).drain(..).collect();
    let is_kept = |job: &Job| {
        metrics
            .iter()
            .any(|metric| metric.identity() == job.identity())
    };
    let (mut kept, gone): (Vec<Job>, Vec<Job>) = all.into_iter().partition(is_kept);
    gone.iter().for_each(Job::stop);
    for metric in metrics {
        let identity = metric.identity();
        if kept.iter().all(|job| job.identity() != identity) {
            kept.push(Job::start(metric.name.clone(), identity, |stop| {
                metric::Measuring::new(metric, stop)
            })?);
        }
    }
    *lock(jobs) = kept;
    gone.into_iter().for_each(Job::wait);
    Ok(())
}

/// All metrics of the moment.
fn families(jobs: &Jobs) -> Vec<Family> {
    let readings: Vec<_> = lock(jobs).iter().map(Job::readings).collect();
    let asked: Vec<_> = readings.iter().map(|(_, one)| one.ask()).collect();
    let answers = readings.iter().zip(asked);
    let answers = answers.map(|((name, one), asked)| (name.as_str(), one.answer(asked)));
    own::families(answers.collect())
}
