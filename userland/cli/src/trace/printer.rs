// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the records of a trace, as text or as JSON, up to the wanted count.

use crate::fields;
use crate::jit::Moment;
use crate::json;
use crate::lookup::{whole_stack, Lookup};
use crate::render::{self, FrameView, HitView, KernelFrame};
use crate::run::Role;
use crate::summary::{ProbeLabel, Summary};
use crate::waiting::{Ready, WaitingHits};
use libnsprobe::common::record::{OffRecord, Record, WriteRecord};
use nsprobe_plan::decode;
use std::collections::HashMap;
use std::io::{self, BufWriter, Stdout, Write};

/// The output of a trace.
pub(crate) struct Printer {
    out: BufWriter<Stdout>,
    json: bool,
    count: Option<u64>,
    labels: HashMap<u32, ProbeLabel>,
    waiting: WaitingHits,
    start_ns: u64,
    printed: u64,
    frames: Vec<FrameView>,
}

impl Printer {
    /// The output of a trace that begins at `start_ns`, of at most `count` hits.
    pub(crate) fn new(
        json: bool,
        count: Option<u64>,
        labels: Vec<ProbeLabel>,
        start_ns: u64,
    ) -> Printer {
        let mut printer = Printer {
            out: BufWriter::with_capacity(1 << 16, io::stdout()),
            json,
            count,
            labels: HashMap::new(),
            waiting: WaitingHits::default(),
            start_ns,
            printed: 0,
            frames: Vec::new(),
        };
        printer.add(labels);
        printer
    }

    /// There are more probes.
    pub(crate) fn add(&mut self, labels: Vec<ProbeLabel>) {
        let labels = labels.into_iter();
        self.labels.extend(labels.map(|label| (label.id.0, label)));
    }

    /// Hits that were printed.
    pub(crate) fn printed(&self) -> u64 {
        self.printed
    }

    /// Hits that came, printed or not.
    pub(crate) fn received(&self) -> u64 {
        self.waiting.received()
    }

    /// Whether as many hits were printed as were asked for.
    pub(crate) fn is_full(&self) -> bool {
        self.count.is_some_and(|count| self.printed >= count)
    }

    /// Stacks that came late.
    pub(crate) fn late(&self) -> u64 {
        self.waiting.late()
    }

    /// Prints a record.
    pub(crate) fn print(&mut self, lookup: &mut impl Lookup, record: Record<'_>) -> io::Result<()> {
        match record {
            Record::Hit(..) | Record::LateStack(..) => match self.waiting.receive(record) {
                Some(ready) => self.hit(lookup, &ready),
                None => Ok(()),
            },
            Record::Lost(lost) if self.json => json::lost(&mut self.out, lost, self.start_ns),
            Record::Lost(lost) => render::lost(&mut self.out, lost, self.start_ns),
            Record::Write(write) => self.write(write),
            Record::Off(off) => self.off(off),
            Record::StackCopy(head, mappings, words) => {
                lookup.note_copy(head, mappings, words);
                Ok(())
            }
            Record::Task(..)
            | Record::Switch(_)
            | Record::Wake(_)
            | Record::Mappings(..)
            | Record::Object(_)
            | Record::Unknown(..) => Ok(()),
        }
    }

    /// Hands what is printed to whoever reads us.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
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

    /// Prints the hits whose stacks did not come, at the end.
    pub(crate) fn print_waiting(&mut self, lookup: &mut impl Lookup) -> io::Result<()> {
        while let Some(waiting) = self.waiting.pop() {
            self.hit(lookup, &Ready::Waited(waiting))?;
        }
        Ok(())
    }

    fn hit(&mut self, lookup: &mut impl Lookup, ready: &Ready<'_>) -> io::Result<()> {
        if self.is_full() {
            return Ok(());
        }
        let details = &ready.details();
        let (hit, frames) = whole_stack(lookup, ready.hit(), details);
        let hit = &hit;
        self.frames.clear();
        let moment = Moment {
            pid: hit.pid,
            time_ns: hit.time_ns,
        };
        lookup.prepare(&frames);
        self.frames
            .extend(frames.into_iter().map(|frame| FrameView {
                frame,
                named: lookup.name_at(frame, moment),
            }));
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
        let kernel = kernel_frames(lookup, details.kernel);
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
    pub(crate) fn summary(&mut self, summary: &Summary) -> io::Result<()> {
        if self.json {
            json::summary(&mut self.out, summary)?;
        }
        self.out.flush()
    }
}

/// The kernel's frames with their names, but for the module's own in front.
fn kernel_frames<'a>(lookup: &'a impl Lookup, addresses: &[u64]) -> Vec<KernelFrame<'a>> {
    let frame = |&address: &u64| KernelFrame {
        address,
        symbol: lookup.kernel(address),
    };
    let is_own = |frame: &KernelFrame<'_>| {
        let module = frame.symbol.and_then(|symbol| symbol.module.as_deref());
        module == Some("nsprobe")
    };
    addresses.iter().map(frame).skip_while(is_own).collect()
}
