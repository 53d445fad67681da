// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts the calls of a function for a second: `calls libc.so.6:malloc 1234`, or without a process
//! in all processes.

use libnsprobe::Sink;
use nsprobe_trace::{Ended, Pace, Sinks, TakenHits, TargetSpec, TraceOptions, Tracer, Wants};
use std::env::args;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> anyhow::Result<ExitCode> {
    // The engine executes this program again as a parser.
    if let Some(ended) = nsprobe_trace::run_as_helper() {
        return ended;
    }
    let mut words = args().skip(1);
    let probe = words
        .next()
        .unwrap_or_else(|| "libc.so.6:malloc".to_owned());
    let options = TraceOptions {
        who: match words.next() {
            Some(pid) => TargetSpec::Processes(vec![pid.parse()?]),
            None => TargetSpec::Host,
        },
        probes: vec![probe.parse()?],
        timeout: Some(Duration::from_secs(1)),
        ..TraceOptions::default()
    };
    let mut tracer = Tracer::new(&options)?;
    let wants = Wants::default();
    let planned = tracer.plan(&wants)?;
    let mut run = tracer.start(wants, planned, |_| Ok(Sinks::All(Sink::Count)))?;
    let mut live = run.live();
    let Ended::Because(why) = run.follow(Duration::from_millis(100), |_| Ok(Pace::Wait))? else {
        return Ok(ExitCode::SUCCESS);
    };
    run.end(&mut live)?;
    let summary = run.sum_up(&mut live, why, TakenHits::default())?;
    for probe in &summary.probes {
        println!("{}: {} calls", probe.label, probe.counters.aggregated);
    }
    Ok(ExitCode::SUCCESS)
}
