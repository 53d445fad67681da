// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a trace in sentences.

use crate::args::Detail;
use crate::output::fields::duration;
use libnsprobe::common::abi::{CALLS_MAX, HOLD_OVERDUE_MAX, WAITS_A_SECOND, WAITS_MAX};
use libnsprobe::{Counters, HoldReport};
use nsprobe_capsule::model::TaskTotal;
use nsprobe_text::{counted, escaped};
use nsprobe_trace::attach::run::options::Untraced;
use nsprobe_trace::attach::unwind_rows::RowsReport;
use nsprobe_trace::names::NamesNote;
use nsprobe_trace::placeless::Placeless;
use nsprobe_trace::summary::{MissedCalls, ProbeSummary, Summary, PROBES_BY_CPU_MAX};
use std::collections::BTreeMap;
use std::io::{Result, Write};
use std::process::ExitCode;

/// Most probes that are listed one by one.
const PROBES_SHOWN: usize = 20;

/// Most files that are listed one by one.
const FILES_SHOWN: usize = 20;

/// Most CPUs that are listed one by one.
const CPUS_SHOWN: usize = 8;

/// On which CPUs how many of how many hits were lost, those with the most first; empty
/// when that is not known.
fn losses(summary: &Summary) -> String {
    let mut cpus: BTreeMap<u16, Counters> = BTreeMap::new();
    for (cpu, counters) in summary.probes.iter().flat_map(|probe| &probe.cpus) {
        *cpus.entry(*cpu).or_default() += *counters;
    }
    let mut lost: Vec<(u16, Counters)> = cpus.into_iter().collect();
    lost.retain(|(_, counters)| counters.lost_full > 0);
    lost.sort_by_key(|(_, counters)| std::cmp::Reverse(counters.lost_full));
    let known: u64 = lost.iter().map(|(_, counters)| counters.lost_full).sum();
    let more = lost.len().saturating_sub(CPUS_SHOWN);
    let shown = lost
        .iter()
        .take(CPUS_SHOWN)
        .map(|(cpu, counters)| format!("{} of {} on CPU {cpu}", counters.lost_full, counters.hits));
    let mut shown: Vec<String> = shown.collect();
    if more > 0 {
        shown.push(format!("and on {}", counted(more, "more CPU")));
    }
    if shown.is_empty() {
        return String::new();
    }
    if let Some(unknown @ 1..) = summary.total().lost_full.checked_sub(known) {
        shown.push(format!("{unknown} of probes beyond {PROBES_BY_CPU_MAX}"));
    }
    format!(" ({})", shown.join(", "))
}

/// Prints as much as `detail` requests, and failures in any case; returns the exit code.
pub(crate) fn tell(summary: &Summary, detail: Detail) -> anyhow::Result<ExitCode> {
    // At once, so that the command's output does not come in between.
    let mut text = Vec::new();
    write(summary, &mut text, detail)?;
    std::io::stderr().write_all(&text)?;
    let problem = summary.problem();
    for error in problem.iter().chain(&summary.failure) {
        eprintln!("nsprobe: {}", escaped(error));
    }
    let failed = problem.is_some() || summary.failure.is_some();
    Ok(ExitCode::from(u8::from(failed)))
}

/// Writes the hits of each probe by outcome, those with the most hits first.
fn write_probes(summary: &Summary, out: &mut impl Write) -> Result<()> {
    let hit = summary
        .probes
        .iter()
        .filter(|probe| probe.counters.hits > 0);
    let mut hit: Vec<&ProbeSummary> = hit.collect();
    hit.sort_by_key(|probe| std::cmp::Reverse(probe.counters.hits));
    for probe in hit.iter().take(PROBES_SHOWN) {
        let counters = sentence(&probe.counters, probe.placeless());
        writeln!(out, "nsprobe:   {}: {counters}", probe.label)?;
    }
    match hit.len().checked_sub(PROBES_SHOWN) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(
            out,
            "nsprobe:   and {more} with fewer hits (--json has all)"
        ),
    }
}

/// Writes it for people: one line of what there was, and what of it was lost; with
/// [`Detail::Verbose`] where all of it came from, too.
pub(crate) fn write(summary: &Summary, out: &mut impl Write, detail: Detail) -> Result<()> {
    if detail != Detail::Quiet {
        write_total(summary, out)?;
    }
    write_losses(summary, out)?;
    if detail == Detail::Verbose {
        if summary.probes.len() > 1 {
            write_probes(summary, out)?;
        }
        write_sources(summary, out)?;
    }
    Ok(())
}

/// Writes all hits by outcome, and what the user asked for beside them.
fn write_total(summary: &Summary, out: &mut impl Write) -> Result<()> {
    let total = summary.total();
    let is_of_tasks = summary.probes.is_empty();
    writeln!(
        out,
        "nsprobe: {}; {:.3} s: {}",
        escaped(&summary.ended_by),
        summary.elapsed.as_secs_f64(),
        match is_of_tasks {
            true => task_sentence(&summary.task_total()),
            false => sentence(&total, summary.placeless()),
        }
    )?;
    if let Some(held) = summary.held.filter(|held| held.held > 0) {
        writeln!(
            out,
            "nsprobe: held {} of new containers until they were probed, each for at most {}",
            counted(held.held, "program"),
            duration(held.longest.as_nanos() as u64)
        )?;
    }
    if is_of_tasks {
        return Ok(());
    }
    if let Some(Placeless::Samples { .. }) = summary.placeless() {
        write_samples(out, &total)?;
    }
    if total.below > 0 {
        let time = duration(total.below_ns);
        let waits = counted(total.below, "wait");
        writeln!(out, "nsprobe: {waits} shorter than --min, {time} in all")?;
    }
    match (summary.untraced, total.filtered) {
        (Some(whose), 1..) if summary.placeless().is_none() => writeln!(
            out,
            "nsprobe: {} of other processes filtered, each of which may call more often: {}",
            counted(total.filtered, "hit"),
            whose.advice()
        )?,
        (Some(Untraced::ChildrenOfCommand), 0)
            if total.hits == 0 && summary.missed() == MissedCalls::default() =>
        {
            writeln!(
                out,
                "nsprobe: no hits in the command's first process: {}",
                Untraced::ChildrenOfCommand.advice()
            )?
        }
        _ => {}
    }
    if summary.overwritten > 0 {
        writeln!(
            out,
            "nsprobe: {} overwritten: the rings keep the newest (--ring-size)",
            counted(summary.overwritten, "older hit")
        )?;
    }
    if total.written > 0 || total.write_failed > 0 || total.write_withheld > 0 {
        writeln!(
            out,
            "nsprobe: {} made, {} failed, {} withheld (--max-writes, or no room for a record)",
            counted(total.written, "change"),
            total.write_failed,
            total.write_withheld
        )?;
    }
    Ok(())
}

/// Writes what is missing in the output; this is always shown.
fn write_losses(summary: &Summary, out: &mut impl Write) -> Result<()> {
    let total = summary.total();
    let mend = match summary.placeless() {
        Some(Placeless::Waits { .. }) => "try a longer --min, or fewer processes",
        _ => "try a larger --ring-size",
    };
    for (lost, what, on) in [
        (total.lost_full, "hit", losses(summary)),
        (summary.parts().lost_full, "wake-up", String::new()),
        (summary.task_total().lost, "task event", String::new()),
    ] {
        if lost > 0 {
            writeln!(
                out,
                "nsprobe: {} lost, as the rings were full{on}: {mend}",
                counted(lost, what)
            )?;
        }
    }
    if total.turned_away > 0 {
        writeln!(
            out,
            "nsprobe: {} without a row, as the table was full: try more --rows",
            counted(total.turned_away, "hit")
        )?;
    }
    if let (Some(Placeless::Waits { .. }), 1..) = (summary.placeless(), total.limited) {
        writeln!(
            out,
            "nsprobe: {} not taken, as there were more than {WAITS_A_SECOND} a second on a CPU: try \
             a longer --min",
            counted(total.limited, "wait")
        )?;
    }
    let wakes = summary.parts();
    if wakes.limited + wakes.missed > 0 {
        writeln!(
            out,
            "nsprobe: {} without a stack of what ended them, as there were more than {WAITS_A_SECOND} \
             a second on a CPU, or it was a task that ends",
            counted(wakes.limited + wakes.missed, "wait")
        )?;
    }
    if total.no_row > 0 {
        writeln!(
            out,
            "nsprobe: {} not followed, as there were too many at a time ({WAITS_MAX} on the machine)",
            counted(total.no_row, "wait")
        )?;
    }
    if total.too_deep > 0 {
        writeln!(
            out,
            "nsprobe: {} not seen: the kernel follows 64 nested calls; without --return \
             uretprobe all are seen",
            counted(total.too_deep, "return")
        )?;
    }
    if total.processes_failed > 0 {
        writeln!(
            out,
            "nsprobe: {} not traced: the kernel could not set breakpoints there (`dmesg` may \
             say why; memory, or a static probe's semaphore)",
            counted(total.processes_failed, "process")
        )?;
    }
    if let Some(held) = &summary.held {
        write_not_held(held, out)?;
    }
    let missed = summary.missed();
    let unreturned = missed.unreturned.saturating_sub(total.evicted);
    if unreturned > 0 {
        writeln!(
            out,
            "nsprobe: {} without a return: left in another way (by an exception, longjmp, the \
             end of the thread), or under way still",
            counted(unreturned, "call")
        )?;
    }
    if total.evicted > 0 {
        writeln!(
            out,
            "nsprobe: {} evicted from the full table of calls under way, and their returns not \
             seen: of more than {} the container with most loses its oldest",
            counted(total.evicted, "call"),
            counted(CALLS_MAX, "call")
        )?;
    }
    if missed.left_by_jump > 0 {
        writeln!(
            out,
            "nsprobe: {} left by a jump to where returns are not seen, and without a value",
            counted(missed.left_by_jump, "call")
        )?;
    }
    if summary.has_stacks && total.stacks_cut > 0 {
        writeln!(out, "nsprobe: {} cut", counted(total.stacks_cut, "stack"))?;
    }
    let failed = summary.names.iter().filter(|line| line.is_failure);
    for line in failed.take(FILES_SHOWN) {
        writeln!(out, "nsprobe: names: {}", escaped(&line.short))?;
    }
    Ok(())
}

/// Writes which programs of new containers began before they were probed.
fn write_not_held(held: &HoldReport, out: &mut impl Write) -> Result<()> {
    for (programs, why) in [
        (held.overdue, "--hold was over"),
        (
            held.interrupted,
            "a signal, a debugger or a freezer came first",
        ),
        (held.not_held, "too many others waited"),
    ] {
        if programs > 0 {
            let programs = counted(programs, "program");
            writeln!(
                out,
                "nsprobe: {programs} may have made calls before there was a probe: {why}"
            )?;
        }
    }
    if held.is_over {
        writeln!(
            out,
            "nsprobe: no more programs were held after {HOLD_OVERDUE_MAX} in a row that waited as \
             long as --hold says"
        )?;
    }
    Ok(())
}

/// Writes how stacks and names were had.
fn write_sources(summary: &Summary, out: &mut impl Write) -> Result<()> {
    let there = summary.total().recorded.saturating_sub(summary.overwritten);
    if let Some(more @ 1..) = there.checked_sub(summary.printed) {
        let more = counted(more, "more recorded hit");
        writeln!(out, "nsprobe: {more} not printed")?;
    }
    if summary.finished > 0 {
        writeln!(
            out,
            "nsprobe: {} finished from copies, as files had no unwind rows yet",
            counted(summary.finished, "stack")
        )?;
    }
    if summary.late > 0 {
        writeln!(
            out,
            "nsprobe: {} taken once the pages were there again",
            counted(summary.late, "stack")
        )?;
    }
    if let Some(line) = summary.rows.as_ref().and_then(RowsReport::describe) {
        writeln!(out, "nsprobe: {}", escaped(&line))?;
    }
    let named: Vec<&NamesNote> = summary
        .names
        .iter()
        .filter(|line| !line.is_failure)
        .collect();
    for line in named.iter().take(FILES_SHOWN) {
        writeln!(out, "nsprobe: names: {}", escaped(&line.short))?;
    }
    if let Some(more @ 1..) = named.len().checked_sub(FILES_SHOWN) {
        writeln!(out, "nsprobe: names: and {}", counted(more, "more file"))?;
    }
    Ok(())
}

/// The balance of task events.
fn task_sentence(total: &TaskTotal) -> String {
    format!(
        "{} = {} recorded + {} filtered + {} lost (ring full)",
        counted(total.seen, "task event"),
        total.recorded,
        total.filtered,
        total.lost
    )
}

/// Writes the samples of idle CPUs and kernel threads.
fn write_samples(out: &mut impl Write, total: &Counters) -> Result<()> {
    writeln!(
        out,
        "nsprobe: {} in the kernel; besides, {} of idle CPUs and {} of kernel threads{}",
        total.in_kernel,
        counted(total.idle, "sample"),
        total.kernel_threads,
        match total.by_clock {
            0 => "",
            _ => "; by the CPU clock, as this machine counts no cycles",
        }
    )
}

/// Hits by outcome; parts that are nothing are said only of plain records.
pub(crate) fn sentence(counters: &Counters, placeless: Option<Placeless>) -> String {
    let aggregates = counters.aggregated > 0 || counters.turned_away > 0;
    let (what, over_the_limit) = match placeless {
        Some(Placeless::Waits { .. }) => ("wait", "not taken (too many a second)"),
        Some(Placeless::Samples { .. }) => ("sample", "over the limit"),
        Some(Placeless::Wakes { .. }) => ("wake-up", "not taken (too many a second)"),
        None => ("hit", "over the limit (--rate)"),
    };
    let without_a_task = match placeless {
        Some(_) => "of tasks that end or start a program",
        None => "without a known goroutine",
    };
    let parts = [
        (counters.recorded, "recorded", !aggregates),
        (counters.aggregated, "counted", false),
        (counters.filtered, "filtered", true),
        (counters.rejected, "not matching", false),
        (counters.skipped, "skipped (--every)", false),
        (counters.limited, over_the_limit, false),
        (counters.off, "after it was turned off (--runaway)", false),
        (counters.frozen, "after the record was frozen", false),
        (counters.turned_away, "without a row (table full)", false),
        (counters.lost_full, "lost (ring full)", !aggregates),
        (counters.missed, without_a_task, false),
        (counters.below, "shorter (--min)", false),
        (counters.unfinished, "going on", false),
        (counters.no_row, "not followed (too many at a time)", false),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _, always)| *count > 0 || *always)
        .map(|(count, name, _)| format!("{count} {name}"))
        .collect();
    let mut text = format!("{} = {}", counted(counters.hits, what), parts.join(" + "));
    if counters.undecided > 0 {
        text.push_str(&format!(
            " ({} of those not matching, since a value could not be read)",
            counters.undecided
        ));
    }
    text
}

#[cfg(test)]
mod tests;
