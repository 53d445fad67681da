// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe count`, `hist`, `stacks`, `profile` and `lock`: hits are counted in the kernel; what is
//! printed are its tables, with the hits that it leaves to us (`finished.rs`).

mod addresses;
mod exits;
mod finished;
mod joined;
mod locks;
mod standing;

use crate::args::{Aggregate, AggregatePlan, Join, StackOutput};
use crate::output::fields::duration;
use crate::output::lines::Output;
use crate::output::pictures::{outputs, About, PictureFile};
use crate::output::summary;
use crate::output::tables::{Style, TablePrinter, CONTAINER, HOLDER, KIND, LOCK, WAKER};
use addresses::Addresses;
use exits::ExitRows;
use finished::Finished;
use joined::Joined;
use libnsprobe::common::record::{Record, StackEnd};
use libnsprobe::{
    Reader, Rows, Session, SetupOptions, Sink, Table, TableKind, TableRow, TableSpec,
};
use nsprobe_profile::Profile;
use nsprobe_spec::decode::{FieldFormat, FieldValue, WordShape};
use nsprobe_spec::syntax::{Expression, ExpressionKind, Field};
use nsprobe_telemetry::Labels;
use nsprobe_text::counted;
use nsprobe_trace::attach::run::{Pace, Run, Sinks, TakenHits};
use nsprobe_trace::attach::tracer::{Tracer, Wants};
use nsprobe_trace::hits::label::ProbeLabel;
use nsprobe_trace::hits::live::Live;
use nsprobe_trace::placeless::Placeless;
use nsprobe_trace::spec::CountedTexts;
use nsprobe_trace::tasks::{full_notes, HitNames, RowContainer};
use nsprobe_worker::{Options, Worker};
use standing::{Standing, StandingThread};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Interval between checks for the end of the run.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval between container look-ups for keys, so that short-lived containers get a name.
const NAMES_PAUSE: Duration = Duration::from_secs(1);
/// Most probes that get a table of their own.
const OWN_TABLES_MAX: usize = 32;
/// Bytes of a ring where no stacks are taken.
const RING_BYTES: u64 = 64 << 10;

pub(crate) fn run(plan: &AggregatePlan) -> anyhow::Result<ExitCode> {
    let output = plan.output.as_deref();
    let (out, picture) = match plan.what {
        Aggregate::Stacks { .. } => outputs(output)?,
        _ => (Output::to_file(output)?, None),
    };
    let mut tracer = Tracer::new(&plan.options)?;
    let (mut counting, run) = Counting::begin(plan, &mut tracer)?;
    counting.printer.redirect(out);
    counting.picture = picture;
    counting.follow(plan, run)
}

/// Parses files of containers.
fn parser(plan: &AggregatePlan) -> Worker {
    Worker::new(Options {
        sandbox: plan.options.sandbox,
        ..Options::default()
    })
}

/// The key of a table that distinguishes functions.
static BY_FUNCTION: LazyLock<[Field; 1]> = LazyLock::new(|| {
    [Field {
        name: "func".to_owned(),
        value: Expression {
            kind: ExpressionKind::Context(nsprobe_spec::PROBE),
            span: 0..0,
        },
        format: None,
        span: 0..0,
    }]
});

/// Tables that are read again and again.
pub(super) struct Counting {
    tables: Vec<Table>,
    /// Each probe has its own.
    one_each: bool,
    exits: ExitRows,
    /// The rows as they were printed last.
    before: HashMap<(Vec<u64>, Vec<u64>), TableRow>,
    live: Live,
    finished: Finished,
    /// With `--by container`.
    containers: Option<HitNames>,
    /// When those were looked for last.
    named: Instant,
    /// Rows have stacks.
    has_stacks: bool,
    printer: TablePrinter,
    picture: Option<PictureFile>,
    /// Of waits, where the target's processes are known.
    standing: Option<Standing>,
}

impl Counting {
    /// Attaches the probes of a plan, and makes the tables that their hits go into.
    pub(super) fn begin<'r>(
        plan: &'r AggregatePlan,
        tracer: &'r mut Tracer<'r>,
    ) -> anyhow::Result<(Counting, Run<'r>)> {
        let options = &plan.options;
        let value: Option<&Expression> = plan.value.as_ref().map(|value| &value.value);
        let counts_only = plan.what == Aggregate::Count && plan.by.is_empty() && value.is_none();
        let max_frames = match plan.what {
            Aggregate::Stacks { max_frames, .. } => max_frames,
            _ => 0,
        };
        let by = |keys| Wants {
            sink: match counts_only {
                true => nsprobe_spec::Sink::Count,
                false => nsprobe_spec::Sink::Table { keys, value },
            },
            counted: CountedTexts {
                keys: &plan.by_text,
                value: &plan.value_text,
            },
            // Without a value it is the time of the call.
            at_return: matches!(plan.what, Aggregate::Histogram(_)) && value.is_none(),
            facts_of_waits: match plan.join {
                Some(Join::Holder { .. }) => &joined::OF_HOLDERS,
                Some(Join::Waker) => &joined::OF_WAKERS,
                None => &[],
            },
            records: plan.join.is_some(),
            setup: match max_frames {
                0 => SetupOptions::with_ring_bytes(RING_BYTES),
                // The stacks that the module leaves to us, which are many where rows are missing.
                _ => SetupOptions::usual(),
            },
            stack: max_frames != 0,
            kernel_stack: plan.kernel_stack,
            max_frames,
            ..Wants::default()
        };
        let mut wants = by(&plan.by);
        let mut planned = tracer.plan(&wants)?;
        let tells_functions =
            plan.by.is_empty() && !counts_only && !matches!(plan.what, Aggregate::Stacks { .. });
        // A table of its own for each probe needs no key, but more memory on many CPUs.
        let is_small = planned.probes.len() <= OWN_TABLES_MAX;
        // Probes that come later belong to functions that are counted already.
        let one_each = tells_functions && is_small && !options.follow;
        if tells_functions && !one_each {
            wants = by(&*BY_FUNCTION);
            planned = tracer.plan(&wants)?;
        }
        let key_words: usize = planned.keys.iter().map(|key| key.shape.key_words()).sum();
        let spec = TableSpec {
            kind: match plan.what {
                Aggregate::Histogram(scale) => TableKind::Histogram(scale),
                _ => TableKind::Sums,
            },
            key_words: key_words as u32,
            max_frames,
            rows: plan.rows,
        };
        let mut tables = Vec::new();
        let count = match (counts_only || plan.join.is_some(), one_each) {
            (true, _) => 0,
            (false, true) => planned.probes.len(),
            (false, false) => 1,
        };
        let mut run = tracer.start(wants, planned, |session| {
            for _ in 0..count {
                tables.push(session.table(&spec)?);
            }
            let sinks: Vec<Sink> = tables.iter().map(|made| Sink::Table(made.id())).collect();
            Ok(match (sinks.as_slice(), one_each) {
                ([], _) if plan.join.is_some() => Sinks::All(Sink::Record),
                ([], _) => Sinks::All(Sink::Count),
                ([sink, ..], false) => Sinks::All(*sink),
                (_, true) => Sinks::Each(sinks),
            })
        })?;
        let only_process = run.only_process().filter(|_| wants.stack);
        let style = Style::of(plan);
        let containers = match style.by_container {
            true => Some(HitNames::start()?.within(&tracer.target)?),
            false => None,
        };
        let mut keys = run.planned.keys.clone();
        let mut live = run.live().with_only_process(only_process);
        let mut finished = Finished::default();
        let addresses = || Addresses::new(parser(plan));
        let is_wake =
            |label: &&ProbeLabel| matches!(label.placeless(), Some(Placeless::Wakes { .. }));
        if let (Some(label), Some(join)) = (run.labels.iter().find(is_wake), plan.join) {
            let of_it: &[&str] = match join {
                Join::Waker => &[WAKER],
                Join::Holder { .. } => &[KIND, LOCK, HOLDER],
            };
            let formats = of_it
                .iter()
                .map(|name| FieldFormat::new(name, WordShape::Word));
            keys.extend(formats);
            // Generated code may be that of a process that has woken another.
            live = live.with_only_process(None);
            live = live.with_containers(HitNames::start()?);
            finished =
                Finished::of_waits(Joined::new(label.id.0, join, plan.printing.json, addresses));
        }
        let are_waits = matches!(options.placeless, Some(Placeless::Waits { .. }));
        let pids = run.pids().filter(|_| are_waits);
        let counting = Counting {
            standing: pids.map(|pids| Standing::begin(&pids)),
            tables,
            one_each,
            exits: ExitRows::new(&run.planned.keys, counts_only || one_each, &run.labels),
            before: HashMap::new(),
            live,
            finished,
            containers,
            named: Instant::now(),
            has_stacks: max_frames != 0,
            printer: TablePrinter::new(style, &keys, one_each, run.labels.clone()),
            picture: None,
        };
        Ok((counting, run))
    }

    fn follow(&mut self, plan: &AggregatePlan, mut run: Run<'_>) -> anyhow::Result<ExitCode> {
        let mut next = plan.interval.map(|interval| run.begun + interval);
        let ended = run.follow(PAUSE, |run| {
            self.step(run)?;
            self.look_for_names(run)?;
            if let (Some(at), Some(interval)) = (next, plan.interval) {
                if Instant::now() >= at {
                    next = Some(at + interval);
                    let rows = self.rows(&run.session, &run.labels)?;
                    self.name_containers(&rows, false);
                    let rows = self.since(&rows);
                    let since = self.of_containers(Rows {
                        rows,
                        ..Rows::default()
                    });
                    let since = since.rows;
                    let mut names = self.live.of(&run.session);
                    self.printer
                        .interval(&mut names, &since, run.begun.elapsed())?;
                }
            }
            Ok(Pace::Wait)
        })?;
        match ended.reason(self.picture.is_some()) {
            Some(why) => self.end(plan, run, why),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    /// Takes what came since the last step: probes, files and hits that are ours to count.
    pub(super) fn step(&mut self, run: &mut Run<'_>) -> anyhow::Result<()> {
        if let Some(added) = run.take_added() {
            self.live.learn(&added);
            if let Some(containers) = &mut self.containers {
                containers.learn(&added);
            }
            self.exits.add(&added.labels);
            self.printer.add(&added.labels);
            if self.has_stacks {
                self.live.names.add(added.files);
            }
        }
        self.records(run, Reader::settled())?;
        self.live.look_at_code();
        self.finished.go_on(&mut self.live.of(&run.session));
        Ok(())
    }

    /// Has the names of containers looked for, of which there are rows.
    fn look_for_names(&mut self, run: &Run<'_>) -> anyhow::Result<()> {
        if self.containers.is_some() && self.named.elapsed() >= NAMES_PAUSE {
            self.named = Instant::now();
            let rows = self.rows(&run.session, &run.labels)?;
            self.name_containers(&rows, false);
        }
        Ok(())
    }

    /// Pins the files that stacks name, and takes the hits that the module leaves to us.
    fn records(&mut self, run: &mut Run<'_>, until_ns: u64) -> anyhow::Result<()> {
        let batch = run.reader.collect(until_ns)?;
        for record in batch.records() {
            match record {
                Record::Object(object) => self.live.names.announce(&run.session, object),
                Record::Off(off) => self.printer.off(off, run.start_ns)?,
                record => self.finished.take(&mut self.live.of(&run.session), record),
            }
        }
        Ok(())
    }

    /// The current rows: those of the table, or one for each probe.
    fn rows(&mut self, session: &Session, labels: &[ProbeLabel]) -> anyhow::Result<Rows> {
        if let Some(joined) = self.finished.joined() {
            let rows = joined.rows(&mut self.live.of(session));
            self.printer.name_counterparts(joined.counterparts());
            if let Some(locks) = joined.locks() {
                locks.name_locks(session);
                self.printer.name_numbered(KIND, locks.kinds());
                self.printer.name_numbered(LOCK, locks.names());
            }
            return Ok(rows);
        }
        match self.tables.as_slice() {
            [] => {
                let rows = counting(labels).map(|label| count_of(session, label));
                let rows: Vec<TableRow> = rows.collect::<anyhow::Result<_>>()?;
                Ok(self.exits.join(Rows {
                    rows,
                    ..Rows::default()
                }))
            }
            tables if self.one_each => {
                let mut all = Rows::default();
                let mut firsts: Vec<&ProbeLabel> = counting(labels).collect();
                firsts.dedup_by_key(|label| label.planned);
                for (table, label) in tables.iter().zip(firsts) {
                    let mut of_probe = session.rows(table)?;
                    for row in &mut of_probe.rows {
                        row.key = vec![label.id.0.into()];
                    }
                    all.rows.append(&mut of_probe.rows);
                }
                Ok(self.exits.join(all))
            }
            [table, ..] => {
                let rows = self.finished.join(session.rows(table)?);
                Ok(self.exits.join(rows))
            }
        }
    }

    /// Names the containers in keys, or has their names looked for.
    fn name_containers(&mut self, rows: &Rows, is_end: bool) {
        let Some(containers) = &mut self.containers else {
            return;
        };
        let ids = self.printer.containers_in(&rows.rows);
        let names = match is_end {
            true => containers.all_names(&ids),
            false => containers.names(&ids),
        };
        let value = |(id, name)| (id, FieldValue::Named(name, 0));
        self.printer
            .name_containers(names.into_iter().map(value).collect());
    }

    /// These rows with those of a container's pid namespaces added up.
    fn of_containers(&mut self, mut rows: Rows) -> Rows {
        let Some((containers, word)) = self.containers.as_ref().zip(self.printer.container_word())
        else {
            return rows;
        };
        for row in &mut rows.rows {
            if let Some(id) = row.key.get_mut(word) {
                *id = containers.whole(*id);
            }
        }
        let rows = rows.added_up();
        self.name_containers(&rows, false);
        rows
    }

    /// The rows of what came since the last call, for a caller that adds them up: the kernel's table
    /// has their room back.
    pub(super) fn new_rows(&mut self, run: &Run<'_>) -> anyhow::Result<Vec<TableRow>> {
        match self.tables.as_slice() {
            [table] if self.is_keyed() => {
                let mut rows = run.session.take_rows(table)?;
                rows.rows.append(&mut self.finished.take_rows());
                Ok(self.exits.join(rows.added_up()).rows)
            }
            _ => {
                let rows = self.rows(&run.session, &run.labels)?;
                Ok(self.since(&rows))
            }
        }
    }

    /// The container that is part of a row's key, as far as it is known; else it is looked for.
    pub(super) fn container_of(&mut self, row: &TableRow) -> RowContainer {
        let word = self.printer.container_word();
        let id = word.and_then(|word| row.key.get(word));
        match (id, &mut self.containers) {
            (Some(id), Some(containers)) => containers.container(*id),
            _ => RowContainer::Own,
        }
    }

    /// The parts of a row's key; a container is known by its name and id, and by its pod, where it
    /// has one.
    pub(super) fn labels(&self, row: &TableRow, container: RowContainer) -> Labels {
        let mut labels = self.printer.labels_of(row);
        let Some(word) = self.printer.container_word() else {
            return labels;
        };
        labels.retain(|(name, _)| name != CONTAINER);
        let known = match container {
            RowContainer::Own => None,
            RowContainer::Known(known) => Some(known),
            RowContainer::Unknown => {
                let id = row.key.get(word).copied().unwrap_or(0);
                labels.push((CONTAINER.to_owned(), format!("(pid namespace {id})")));
                None
            }
        };
        let parts = known.into_iter().flat_map(|known| {
            [
                (CONTAINER, Some(known.name)),
                ("container_id", known.id),
                ("pod", known.pod),
            ]
        });
        let parts = parts.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        labels.extend(parts);
        labels
    }

    /// The stacks of rows as a profile.
    pub(super) fn profile(&mut self, run: &Run<'_>, rows: &[TableRow], about: &About) -> Profile {
        let labelled = rows.iter().map(|row| {
            let container = self.container_of(row);
            (self.labels(row, container), row)
        });
        let labelled: Vec<_> = labelled.collect();
        let mut names = self.live.of(&run.session);
        let rows = labelled.into_iter();
        self.printer.labelled_profile(&mut names, rows, about)
    }

    /// Whether rows are found by keys, which may fill the kernel's table.
    pub(super) fn is_keyed(&self) -> bool {
        matches!(self.tables.as_slice(), [table] if table.is_keyed())
    }

    /// Detaches, and takes what is left.
    pub(super) fn end_run(&mut self, run: &mut Run<'_>) -> anyhow::Result<()> {
        run.end(&mut self.live)?;
        self.records(run, u64::MAX)?;
        self.finished.end(&mut self.live.of(&run.session));
        Ok(())
    }

    /// Rows added since the last call.
    fn since(&mut self, rows: &Rows) -> Vec<TableRow> {
        let mut since = Vec::new();
        for row in &rows.rows {
            let key = (row.key.clone(), row.stack.clone());
            let mut new = row.clone();
            if let Some(before) = self.before.insert(key, row.clone()) {
                new.count = new.count.saturating_sub(before.count);
                new.sum = new.sum.wrapping_sub(before.sum);
                for (now, then) in new.buckets.iter_mut().zip(&before.buckets) {
                    *now = now.saturating_sub(*then);
                }
            }
            if new.count > 0 {
                since.push(new);
            }
        }
        since
    }

    /// Detaches, prints everything, and sums up.
    fn end(
        &mut self,
        plan: &AggregatePlan,
        mut run: Run<'_>,
        ended_by: String,
    ) -> anyhow::Result<ExitCode> {
        self.live.look_at_code();
        let thread_time = run.thread_time();
        let standing = self.standing(plan, &run.session);
        self.end_run(&mut run)?;
        let rows = self.rows(&run.session, &run.labels)?;
        self.name_containers(&rows, true);
        let rows = self.of_containers(rows);
        let elapsed = run.elapsed;
        let drawn = self.draw(plan, &run.session, &rows, elapsed);
        let printed = self.print_total(&run.session, &rows, elapsed);
        let is_folded = matches!(
            plan.what,
            Aggregate::Stacks {
                shown: StackOutput::Folded,
                ..
            }
        );
        let listed = match plan.printing.json {
            true => standing::write_json(self.printer.out(), &standing),
            false if is_folded => Ok(()),
            false => standing::write(self.printer.out(), &standing, elapsed, plan.top),
        };
        let taken = TakenHits {
            printed: self.finished.received(),
            received: self.finished.received(),
            late: self.finished.late(),
        };
        let summary = run.sum_up(&mut self.live, ended_by, taken)?;
        self.printer.summary(&summary)?;
        let code = summary::tell(&summary, plan.printing.detail)?;
        if let Some(note) = summary.samples_note(plan.options.placeless) {
            plan.options.note(&note);
        }
        if let Some(note) = waiting_note(plan.options.placeless, &rows, thread_time) {
            plan.options.note(&note);
        }
        let locks = self.finished.joined().and_then(|joined| joined.locks());
        if let Some(note) = locks.and_then(|locks| locks.note(duration)) {
            plan.options.note(&note);
        }
        if let (Some(Join::Holder { .. }), []) = (plan.join, rows.rows.as_slice()) {
            plan.options
                .note("no thread got a lock that it had waited for as long as --min");
        }
        if let Some(note) = deep_note(plan.what, &rows) {
            plan.options.note(&note);
        }
        for note in full_notes(&run.session, rows.turned_away_of)? {
            plan.options.note(&note);
        }
        printed?;
        listed?;
        drawn.map(|()| code)
    }

    /// The threads of the target that did not run.
    fn standing(&self, plan: &AggregatePlan, session: &Session) -> Vec<StandingThread> {
        let Some(standing) = &self.standing else {
            return Vec::new();
        };
        let mut addresses = Addresses::new(parser(plan));
        let mut all = standing.threads(|pid, address| {
            let place = addresses.find(pid, address);
            addresses.name(session, &place)
        });
        if let Some(Join::Holder { .. }) = plan.join {
            all.retain(StandingThread::is_at_lock);
        }
        all
    }

    /// Prints the totals; on standard error where the output does not take them.
    fn print_total(
        &mut self,
        session: &Session,
        rows: &Rows,
        elapsed: Duration,
    ) -> anyhow::Result<()> {
        let mut names = self.live.of(session);
        let Err(error) = self.printer.total(&mut names, rows, elapsed) else {
            return Ok(());
        };
        if error.kind() != ErrorKind::BrokenPipe {
            self.printer.redirect(Output::to_stderr());
            self.printer.total(&mut names, rows, elapsed)?;
        }
        Err(error.into())
    }

    /// Writes all stacks as a profile, where that was asked for.
    fn draw(
        &mut self,
        plan: &AggregatePlan,
        session: &Session,
        rows: &Rows,
        elapsed: Duration,
    ) -> anyhow::Result<()> {
        let Some(picture) = self.picture.take() else {
            return Ok(());
        };
        let about = About::this_command(elapsed);
        let mut names = self.live.of(session);
        let profile = self.printer.profile(&mut names, &rows.rows, &about);
        picture.write(&profile, plan.options.quiet)
    }
}

/// What is said of threads that a profile of the CPU shows nothing of, most of the time.
fn waiting_note(
    placeless: Option<Placeless>,
    rows: &Rows,
    thread_time: Option<Duration>,
) -> Option<String> {
    let hz = placeless?.samples_hz()?;
    let samples: u64 = rows.rows.iter().map(|row| row.count).sum();
    let ran = samples as f64 / f64::from(hz);
    let waited = 100.0 * (1.0 - ran / thread_time?.as_secs_f64());
    (waited >= 1.0).then(|| {
        format!("{waited:.0} % of these threads' time was waiting: --off-cpu shows what for")
    })
}

/// What is said of stacks that have more frames than any stack can.
fn deep_note(what: Aggregate, rows: &Rows) -> Option<String> {
    let Aggregate::Stacks { max_frames, .. } = what else {
        return None;
    };
    let is_deep = |row: &&TableRow| row.stack_end == StackEnd::Limit as u8;
    let deep: u64 = rows.rows.iter().filter(is_deep).map(|row| row.count).sum();
    (deep > 0).then(|| {
        format!(
            "{} had more than {max_frames} frames: the outer ones are missing ([truncated])",
            counted(deep, "stack")
        )
    })
}

/// The probes whose hits are counted: not those that only begin calls.
fn counting(labels: &[ProbeLabel]) -> impl Iterator<Item = &ProbeLabel> {
    labels.iter().filter(|label| label.role.counts())
}

/// A row with what a probe has counted.
fn count_of(session: &Session, label: &ProbeLabel) -> anyhow::Result<TableRow> {
    Ok(TableRow {
        key: vec![label.id.0.into()],
        count: session.counters(label.id)?.aggregated,
        ..TableRow::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_says_how_much_of_the_time_was_waiting() {
        let rows = Rows {
            rows: vec![TableRow {
                count: 50,
                ..TableRow::default()
            }],
            ..Rows::default()
        };
        let samples = Some(Placeless::Samples { hz: 100 });
        let note = |placeless, seconds| {
            waiting_note(placeless, &rows, Some(Duration::from_secs_f64(seconds)))
        };
        assert!(note(samples, 2.0).unwrap().starts_with("75 % of"));
        // A thread that never waited.
        assert_eq!(note(samples, 0.5), None);
        assert_eq!(note(Some(Placeless::Waits { min_ns: 0 }), 2.0), None);
        assert_eq!(waiting_note(samples, &rows, None), None);
    }
}
