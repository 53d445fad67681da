// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work that goes on until it is stopped, in a thread of its own.

use super::readings::Readings;
use super::say;
use anyhow::Context;
use nsprobe_trace::signals::Stop;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The pause after work has failed or ended, which doubles up to the other one.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long work lasts that has not failed at once.
const LASTING: Duration = Duration::from_secs(60);

/// What a job does again and again.
pub(super) trait Work {
    /// Works until it is stopped, or for as long as there is something to do.
    fn work(&mut self, readings: &Readings) -> anyhow::Result<()>;
}

/// Work that goes on.
pub(super) struct Job {
    name: String,
    identity: String,
    stop: Stop,
    readings: Arc<Readings>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Job {
    /// Starts it. `work` is made in its thread; `identity` is that of what it is configured by.
    pub(super) fn start<W: Work>(
        name: String,
        identity: String,
        work: impl FnOnce(Stop) -> W + Send + 'static,
    ) -> anyhow::Result<Job> {
        let stop = Stop::new()?;
        let readings = Arc::new(Readings::new(stop.clone()));
        let thread = Builder::new().name("job".to_owned());
        let (of_thread, own, called) = (stop.clone(), Arc::clone(&readings), name.clone());
        let thread = thread.spawn(move || {
            let mut work = work(of_thread.clone());
            go_on(&called, &of_thread, &own, &mut work);
        });
        Ok(Job {
            name,
            identity,
            stop,
            readings,
            thread: Mutex::new(Some(thread.context("cannot start a thread")?)),
        })
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What it has measured.
    pub(super) fn readings(&self) -> &Readings {
        &self.readings
    }

    /// Asks it to end; does not wait.
    pub(super) fn stop(&self) {
        self.stop.stop();
    }

    /// Waits until it has ended.
    pub(super) fn wait(&self) {
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // A panic in it was reported.
        let _ = thread.map(JoinHandle::join);
    }
}

/// Works, and tries again should that fail.
fn go_on(name: &str, stop: &Stop, readings: &Readings, work: &mut impl Work) {
    /// Whatever ends the work.
    struct Down<'a>(&'a Readings);
    impl Drop for Down<'_> {
        fn drop(&mut self) {
            self.0.set_up(false);
        }
    }
    let (mut pause, mut said) = (PAUSE, String::new());
    while !stop.is_set() {
        let begun = Instant::now();
        let down = Down(readings);
        let done = work.work(readings);
        drop(down);
        if stop.is_set() {
            return;
        }
        if begun.elapsed() >= LASTING {
            pause = PAUSE;
        }
        let why = match done {
            Ok(()) => "begins anew".to_owned(),
            Err(error) => format!("{error:#}; it is tried again"),
        };
        if why != said {
            say(&format!("{name}: {why}"));
            said = why;
        }
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if stop.wait(until.saturating_duration_since(Instant::now())) {
                return;
            }
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
