// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the records of a trace, as text or as JSON, up to the wanted count.

use super::waiting::{Waiting, WaitingHits};
use crate::args::TracePlan;
use crate::fields;
use crate::json;
use crate::names::Names;
use crate::render::{self, FrameView, HitView, KernelFrame};
use crate::rest::Rests;
use crate::run::{Added, Role};
use crate::summary::{ProbeLabel, Summary};
use libnsprobe::common::record::{
    Details, Frame, Frames, Hit, OffRecord, Record, StackEnd, WriteRecord,
};
use libnsprobe::{Batch, Session, Stacks};
use nsprobe_plan::decode;
use nsprobe_symbolize::KernelSymbols;
use std::collections::HashMap;
use std::io::{self, BufWriter, Stdout, Write};

/// The output of a trace.
pub(super) struct Printer {
    out: BufWriter<Stdout>,
    json: bool,
    count: Option<u64>,
    labels: HashMap<u32, ProbeLabel>,
    names: Names,
    rests: Rests,
    stacks: Stacks,
    waiting: WaitingHits,
    /// Stacks that came late.
    late: u64,
    kernel: KernelSymbols,
    start_ns: u64,
    printed: u64,
    received: u64,
    frames: Vec<FrameView>,
}

impl Printer {
    /// The output of a trace that begins at `start_ns`.
    pub(super) fn new(
        plan: &TracePlan,
        labels: Vec<ProbeLabel>,
        names: Names,
        start_ns: u64,
    ) -> Printer {
        Printer {
            out: BufWriter::with_capacity(1 << 16, io::stdout()),
            json: plan.options.json,
            count: plan.count,
            labels: labels
                .into_iter()
                .map(|label| (label.id.0, label))
                .collect(),
            names,
            rests: Rests::default(),
            stacks: Stacks::default(),
            waiting: WaitingHits::default(),
            late: 0,
            kernel: match plan.kernel_stack {
                // Without them, addresses are printed.
                true => KernelSymbols::read().unwrap_or_default(),
                false => KernelSymbols::default(),
            },
            start_ns,
            printed: 0,
            received: 0,
            frames: Vec::new(),
        }
    }

    /// There are more probes.
    pub(super) fn add(&mut self, added: Added) {
        let labels = added.labels.into_iter();
        self.labels.extend(labels.map(|label| (label.id.0, label)));
        self.names.add(added.files);
    }

    /// Hits that were printed.
    pub(super) fn printed(&self) -> u64 {
        self.printed
    }

    /// Hits that came, printed or not.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Whether as many hits were printed as were asked for.
    pub(super) fn is_full(&self) -> bool {
        self.count.is_some_and(|count| self.printed >= count)
    }

    /// Stacks that were finished from copies.
    pub(super) fn finished(&self) -> u64 {
        self.rests.finished()
    }

    /// Stacks that came late.
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    /// Where names came from, a line for each file.
    pub(super) fn sources(&self) -> Vec<String> {
        self.names.sources()
    }

    /// Secures the files that the stacks of a batch name, before they are gone.
    pub(super) fn secure(&mut self, session: &Session, batch: &Batch<'_>) {
        for record in batch.records() {
            match record {
                Record::Object(object) => self.names.announce(session, object),
                // They come first.
                _ => break,
            }
        }
    }

    /// Prints a record.
    pub(super) fn print(&mut self, session: &Session, record: Record<'_>) -> io::Result<()> {
        match record {
            Record::Hit(hit, details) => self.receive(session, hit, &details),
            Record::LateStack(late, frames) => match self.waiting.take(late) {
                Some(mut waiting) => {
                    waiting.take_stack(late, frames);
                    self.late += 1;
                    self.hit(session, &waiting.hit, &waiting.details())
                }
                None => Ok(()),
            },
            Record::Lost(lost) if self.json => json::lost(&mut self.out, lost, self.start_ns),
            Record::Lost(lost) => render::lost(&mut self.out, lost, self.start_ns),
            Record::Write(write) => self.write(write),
            Record::Off(off) => self.off(off),
            Record::StackCopy(head, mappings, words) => {
                self.rests.note(head, mappings, words);
                Ok(())
            }
            Record::Object(_) | Record::Unknown(..) => Ok(()),
        }
    }

    /// Hands what is printed to whoever reads us.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn write(&mut self, write: &WriteRecord) -> io::Result<()> {
        let label = self.labels.get(&write.probe);
        let label = label.map_or("?", |label| &label.label);
        match self.json {
            true => json::write(&mut self.out, write, self.start_ns),
            false => render::write(&mut self.out, write, label, self.start_ns),
        }
    }

    fn off(&mut self, off: &OffRecord) -> io::Result<()> {
        let label = self.labels.get(&off.probe);
        let label = label.map_or("?", |label| &label.label);
        match self.json {
            true => json::off(&mut self.out, off, self.start_ns),
            false => render::off(&mut self.out, off, label, self.start_ns),
        }
    }

    /// What is to be done now and then.
    pub(super) fn rest(&mut self) -> io::Result<()> {
        self.names.close_idle();
        Ok(())
    }

    /// Prints the hits whose stacks did not come, at the end.
    pub(super) fn print_waiting(&mut self, session: &Session) -> io::Result<()> {
        while let Some(waiting) = self.waiting.pop() {
            self.hit(session, &waiting.hit, &waiting.details())?;
        }
        Ok(())
    }

    /// Prints a hit, or keeps it until its stack comes.
    fn receive(&mut self, session: &Session, hit: &Hit, details: &Details<'_>) -> io::Result<()> {
        self.received += 1;
        if hit.stack_end != StackEnd::Late as u8 {
            return self.hit(session, hit, details);
        }
        match self.waiting.push(Waiting::new(hit, details)) {
            Some(waiting) => self.hit(session, &waiting.hit, &waiting.details()),
            None => Ok(()),
        }
    }

    /// The frames of a hit, out of its record or by their stack's id.
    fn frames(&mut self, session: &Session, hit: &Hit, details: &Details<'_>) -> Vec<Frame> {
        match hit.stack {
            0 => details.frames.collect(),
            // A session that is asked for its own stacks has them.
            id => match self.stacks.frames(session, id) {
                Ok(Some(words)) => Frames(&words).collect(),
                Ok(None) | Err(_) => Vec::new(),
            },
        }
    }

    fn hit(&mut self, session: &Session, hit: &Hit, details: &Details<'_>) -> io::Result<()> {
        if self.is_full() {
            return Ok(());
        }
        let mut frames = self.frames(session, hit, details);
        let mut hit = *hit;
        if hit.stack_end == StackEnd::Copied as u8 {
            let count = frames.len();
            if let Some((rest, end)) = self.rests.finish(session, &mut self.names, &hit, count) {
                frames.extend(rest);
                hit.stack_end = end as u8;
            }
        }
        let hit = &hit;
        self.frames.clear();
        for frame in frames {
            let named = self.names.name(session, frame);
            self.frames.push(FrameView { frame, named });
        }
        let label = self.labels.get(&hit.probe);
        let text = |part: fn(&ProbeLabel) -> &str| label.map_or("?", part);
        let formats = label.map_or(&[][..], |label| &label.fields);
        let is_exit = label.is_some_and(|label| label.role == Role::Exit);
        let at_exit = match is_exit {
            true => nsprobe_plan::time_field(details.fields, formats.len()),
            false => None,
        };
        let mut values = match formats {
            [] => Vec::new(),
            formats => decode::fields(formats, details.fields),
        };
        if let Some(binary) = label.and_then(|label| label.symbols.as_deref()) {
            fields::name_symbols(&mut values, binary);
        }
        let kernel = kernel_frames(&self.kernel, details.kernel);
        let view = HitView {
            hit,
            start_ns: self.start_ns,
            label: text(|label| &label.label),
            binary: text(|label| &label.binary),
            function: text(|label| &label.function),
            elapsed_ns: details.elapsed_ns.or(at_exit),
            at_exit: is_exit,
            formats,
            values: &values,
            frames: &self.frames,
            kernel: &kernel,
        };
        self.printed += 1;
        if self.json {
            json::hit(&mut self.out, &view)
        } else {
            render::hit(&mut self.out, &view)
        }
    }

    /// The last line, for machines.
    pub(super) fn summary(&mut self, summary: &Summary) -> io::Result<()> {
        if self.json {
            json::summary(&mut self.out, summary)?;
        }
        self.out.flush()
    }
}

/// The kernel's frames with their names, but for the module's own in front.
fn kernel_frames<'a>(symbols: &'a KernelSymbols, addresses: &[u64]) -> Vec<KernelFrame<'a>> {
    let frame = |&address: &u64| KernelFrame {
        address,
        symbol: symbols.find(address),
    };
    let is_own = |frame: &KernelFrame<'_>| {
        let module = frame.symbol.and_then(|symbol| symbol.module.as_deref());
        module == Some("nsprobe")
    };
    addresses.iter().map(frame).skip_while(is_own).collect()
}
