// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe top`: CPU use by container; on a screen, or printed.

mod draw;
mod interval;
mod print;
mod rows;
#[cfg(test)]
mod sample;
mod screen;
mod terminal;

use crate::args::TopPlan;
use crate::output::columns;
use anyhow::Context;
use interval::{Interval, Meter, Wanted};
use libnsprobe::Reader;
use nix::sys::signal::Signal;
use nix::unistd::{sysconf, SysconfVar};
use nsprobe_tasks::{HistoryLimits, Tasks};
use nsprobe_text::escaped;
use nsprobe_trace::signals::Signals;
use nsprobe_trace::tasks::{Clocks, Dump, LivePlaces, SelectedTasks, TaskSource};
use rows::Choice;
use screen::{KeyOutcome, Screen};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use terminal::{Input, Terminal};

/// Records are taken out of the rings at least so often.
const DRAIN: Duration = Duration::from_millis(100);
/// Most threads that have ended and are remembered for an interval.
const ENDED_MAX: usize = 1 << 17;

pub(crate) fn run(plan: &TopPlan) -> anyhow::Result<ExitCode> {
    let is_screen = !plan.batch && !plan.json;
    if is_screen && !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        anyhow::bail!(
            "top needs a terminal for its keys and its screen: for pipes use --batch or --json"
        );
    }
    let scope = SelectedTasks::find(&plan.who)?;
    let mut view = Readings::open(scope)?;
    let choice = Choice {
        sort: plan.sort,
        filter: plan.filter.clone(),
        all: plan.processes,
        ..Choice::default()
    };
    let signals = Signals::new(&[Signal::SIGQUIT], 1)?;
    match is_screen {
        true => interactive(plan, &mut view, &signals, choice)?,
        false => printed(plan, &mut view, &signals, &choice)?,
    }
    if let Some(name) = view.scope.ended() {
        eprintln!("nsprobe: container {} has ended", escaped(name));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints intervals until it is enough.
fn printed(
    plan: &TopPlan,
    view: &mut Readings,
    signals: &Signals,
    choice: &Choice,
) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    view.read()?;
    let mut count = 0;
    while plan.count.is_none_or(|most| count < most) {
        let until = Instant::now() + plan.delay;
        while let Some(left) = left(until) {
            if signals.wait(left.min(DRAIN))? {
                return Ok(());
            }
            view.drain()?;
        }
        let Some(interval) = view.read()? else {
            continue;
        };
        match plan.json {
            true => print::line(&mut out, &interval, choice, Reader::now())?,
            false => print::table(&mut out, &interval, choice, columns::output_width())?,
        }
        out.flush()?;
        count += 1;
        if view.scope.ended().is_some() {
            return Ok(());
        }
    }
    Ok(())
}

/// Runs the screen until the user quits.
fn interactive(
    plan: &TopPlan,
    view: &mut Readings,
    signals: &Signals,
    choice: Choice,
) -> anyhow::Result<()> {
    view.read()?;
    let mut screen = Screen::new(choice);
    let mut terminal = Terminal::new()?;
    let mut until = Instant::now() + plan.delay;
    let mut count = 0;
    terminal.draw(&mut screen)?;
    loop {
        let pause = left(until).unwrap_or(Duration::ZERO).min(DRAIN);
        match terminal.input(signals, pause)? {
            Input::Key(key) => {
                if screen.key(key) == KeyOutcome::Quit {
                    return Ok(());
                }
                terminal.draw(&mut screen)?;
            }
            Input::Resize => terminal.draw(&mut screen)?,
            Input::End => return Ok(()),
            Input::None => {}
        }
        view.drain()?;
        if left(until).is_none() {
            until = Instant::now() + plan.delay;
            if let Some(interval) = view.read()? {
                screen.update(interval);
                terminal.draw(&mut screen)?;
                count += 1;
            }
            let is_enough = plan.count.is_some_and(|most| count >= most);
            if is_enough || view.scope.ended().is_some() {
                return Ok(());
            }
        }
    }
}

/// The time that is left; none when it is over.
fn left(until: Instant) -> Option<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

/// The kernel's answers, one reading after the other.
struct Readings {
    source: TaskSource,
    tasks: Tasks,
    places: LivePlaces,
    scope: SelectedTasks,
    meter: Meter,
    lost: u64,
}

impl Readings {
    fn open(scope: SelectedTasks) -> anyhow::Result<Readings> {
        let cpus = sysconf(SysconfVar::_NPROCESSORS_ONLN)?;
        let cpus = cpus.context("how many CPUs there are is not known")?;
        Ok(Readings {
            source: TaskSource::open(true)?,
            tasks: Tasks::new(HistoryLimits {
                ended: ENDED_MAX,
                changes: 8,
            }),
            places: LivePlaces::default(),
            scope,
            meter: Meter::new(cpus as u32),
            lost: 0,
        })
    }

    /// Takes what has come meanwhile.
    fn drain(&mut self) -> anyhow::Result<()> {
        self.lost = self.source.drain(&mut self.tasks)?;
        Ok(())
    }

    /// CPU time used since the last reading.
    fn read(&mut self) -> anyhow::Result<Option<Interval>> {
        let lost = self.lost;
        let cpu = self.source.cpu()?;
        let clocks = Clocks::now()?;
        self.drain()?;
        self.source.dump(&mut self.tasks, Dump::default())?;
        self.places.refresh()?;
        let wanted = Wanted {
            places: &self.places,
            scope: &self.scope,
        };
        let interval = self.meter.read(cpu, &self.tasks, clocks.boot_ns, &wanted);
        Ok(interval.map(|interval| Interval {
            lost: self.lost - lost,
            ..interval
        }))
    }
}
