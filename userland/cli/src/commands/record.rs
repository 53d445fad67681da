// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe record`: what a trace would print goes into a capsule.

use crate::args::RecordPlan;
use crate::commands::trace;
use crate::output::summary;
use anyhow::Context;
use libnsprobe::common::abi::Version;
use libnsprobe::{Device, Reader, Session, Sink, TaskDump, TaskOptions};
use nix::sys::utsname::uname;
use nix::time::{clock_gettime, ClockId};
use nix::unistd::{sysconf, SysconfVar};
use nsprobe_capsule::model::RecordingHeader;
use nsprobe_text::{counted, escaped};
use nsprobe_trace::attach::run::{self, Ended, Pace, Run, Sinks, TakenHits};
use nsprobe_trace::attach::target::Target;
use nsprobe_trace::attach::tracer::Tracer;
use nsprobe_trace::recording::capsule::convert;
use nsprobe_trace::recording::destination::Destination;
use nsprobe_trace::recording::recorder::{Done, Recorder};
use nsprobe_trace::recording::{self, task_records};
use nsprobe_trace::summary::Summary;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Records below the watermark are fetched after this time.
const FLUSH: Duration = Duration::from_millis(50);

pub(crate) fn run(plan: &RecordPlan) -> anyhow::Result<ExitCode> {
    let options = &plan.trace.options;
    Destination::check(&plan.record, options)?;
    let (summary, done) = record(plan, |_, _| Ok(None))?;
    let code = summary::tell(&summary, plan.trace.printing.detail)?;
    if let Some(note) = summary.samples_note(options.placeless) {
        options.note(&note);
    }
    Ok(match tell(plan, &summary, &done) {
        true => code,
        false => ExitCode::FAILURE,
    })
}

/// Records until the end, or until `enough`, which is asked after each step with the bytes of the
/// capsule, says why it ends.
pub(crate) fn record(
    plan: &RecordPlan,
    mut enough: impl FnMut(&Run<'_>, u64) -> anyhow::Result<Option<String>>,
) -> anyhow::Result<(Summary, Done)> {
    let (trace, options) = (&plan.trace, &plan.trace.options);
    let mut tracer = Tracer::new(options)?;
    let wants = trace::wants(trace);
    let planned = tracer.plan(&wants)?;
    let module = Device::open()?.info().release.clone();
    let destination = Destination::open(&plan.record, planned.probes.len())?;
    let mut dump = TaskDump::default();
    let record = |session: &mut Session| {
        dump = task_records::begin(session, plan.record.tasks, options)?;
        Ok(Sinks::All(Sink::Record))
    };
    let mut run = tracer.start(wants, planned, record)?;
    let live = run.live();
    let target = &tracer.target;
    let mut recorder = Recorder::new(destination, live, plan.record.names);
    let known = recording::containers::of_target(target);
    recorder.begin(&header(plan, target, &run, module)?, &known, &dump)?;
    recorder.add(&run.labels)?;
    let ended = run.follow(FLUSH, |run| {
        let pace = step(plan, run, &mut recorder)?;
        Ok(match enough(run, recorder.bytes())? {
            Some(why) => Pace::Enough(why),
            None => pace,
        })
    })?;
    let ended_by = match ended {
        Ended::Because(why) => why,
        // Standard output's reader: the capsule does not go there.
        Ended::ReaderGone => "the reader of the output is gone".to_owned(),
    };
    end(plan, run, recorder, ended_by)
}

/// Takes what is there, and looks at some of it.
fn step(plan: &RecordPlan, run: &mut Run<'_>, recorder: &mut Recorder) -> anyhow::Result<Pace> {
    if let Some(added) = run.take_added() {
        recorder.learn(&added)?;
        recorder.live.names.add(added.files);
        recorder.add(&added.labels)?;
        if added.containers && plan.record.tasks != 0 {
            // Nothing was recorded of their tasks yet.
            recorder.dump(&task_records::dump(&run.session)?)?;
        }
    }
    if plan.trace.setup.overwrite {
        return Ok(match run.session.is_frozen()? {
            true => Pace::Enough(run::TRIGGERED.to_owned()),
            false => Pace::Wait,
        });
    }
    recorder.take(run, Reader::settled())?;
    let more = recorder.look(&run.session)?;
    recorder.live.names.close_idle();
    let taken = recorder.taken();
    Ok(match plan.trace.count.is_some_and(|count| taken >= count) {
        true => Pace::Enough(format!("{} recorded", counted(taken, "call"))),
        false if more => Pace::Again,
        false => Pace::Wait,
    })
}

/// Detaches, writes what is left, and sums up.
fn end(
    plan: &RecordPlan,
    mut run: Run<'_>,
    mut recorder: Recorder,
    mut ended_by: String,
) -> anyhow::Result<(Summary, Done)> {
    if plan.trace.setup.overwrite && run.freeze()? {
        ended_by = run::TRIGGERED.to_owned();
    }
    run.end(&mut recorder.live)?;
    if plan.record.tasks != 0 {
        // Later counts would belong to hits in no ring that is read.
        run.session.set_tasks(&TaskOptions::default())?;
    }
    recorder.take_rest(&mut run)?;
    let received = recorder.taken();
    let taken = TakenHits {
        printed: received,
        received,
        late: recorder.late(),
    };
    let mut summary = run.sum_up(&mut recorder.live, ended_by, taken)?;
    if plan.record.tasks != 0 {
        summary.tasks = task_records::totals(&run.session.task_counters()?);
    }
    let done = recorder.end(&summary)?;
    Ok((summary, done))
}

/// Reports what the capsule has; returns whether that is everything.
fn tell(plan: &RecordPlan, summary: &Summary, done: &Done) -> bool {
    let path = plan.record.output.display();
    let options = &plan.trace.options;
    let written = match summary.probes.is_empty() {
        true => {
            let recorded = summary.task_total().recorded;
            counted(recorded.saturating_sub(done.unwritten_tasks), "task event")
        }
        false => counted(summary.received - done.unwritten, "hit"),
    };
    options.note(&format!(
        "{path}: {written}, {}",
        counted(done.bytes, "byte")
    ));
    let unwritten = [
        (done.unwritten, "hit"),
        (done.unwritten_tasks, "task event"),
    ];
    for (count, what) in unwritten.iter().filter(|(count, _)| *count > 0) {
        let text = format!("{} not written to {path}: no room", counted(*count, what));
        eprintln!("nsprobe: {}", escaped(&text));
    }
    unwritten.iter().all(|(count, _)| *count == 0)
}

/// The header: what is recorded, when and where.
fn header(
    plan: &RecordPlan,
    target: &Target,
    run: &Run<'_>,
    module: String,
) -> anyhow::Result<RecordingHeader> {
    let system = uname().context("uname")?;
    let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
    let real = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = Reader::now().saturating_sub(run.start_ns);
    Ok(RecordingHeader {
        nsprobe: env!("CARGO_PKG_VERSION").to_owned(),
        abi: Version::CURRENT as u32,
        module,
        kernel: text(system.release()),
        machine: text(system.machine()),
        host: convert::text(system.nodename()),
        command: std::env::args_os()
            .map(|word| convert::text(&word))
            .collect(),
        target: target.describe(),
        start_ns: run.start_ns,
        start_real_ns: (real.unwrap_or_default().as_nanos() as u64).saturating_sub(since),
        stack: plan.trace.stack,
        kernel_stack: plan.trace.kernel_stack,
        names: plan.record.names,
        count: plan.trace.count,
        kernel_build: text(system.version()),
        cpus: cpus(),
        boot_id: boot_id(),
        suspended_ns: suspended_ns(),
    })
}

/// Number of CPUs that are online, including those we may not use.
fn cpus() -> u32 {
    let count = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    count.map_or(0, |count| count as u32)
}

/// Id of this boot; empty if the kernel does not report it.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| String::new(), |id| id.trim_end().to_owned())
}

/// Time the machine was suspended since its boot.
fn suspended_ns() -> u64 {
    let now = |clock| clock_gettime(clock).map(Duration::from);
    let clocks = (now(ClockId::CLOCK_BOOTTIME), now(ClockId::CLOCK_MONOTONIC));
    let (Ok(boot), Ok(monotonic)) = clocks else {
        return 0;
    };
    boot.saturating_sub(monotonic).as_nanos() as u64
}
