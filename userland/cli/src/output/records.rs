// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the records of a trace, as text or as JSON, up to the requested count.

use crate::output::lines::Output;
use crate::output::{json, text};
use libnsprobe::common::record::{OffRecord, Record, WriteRecord};
use nsprobe_trace::hits::assembler::{HitAssembler, Ready, Waiting};
use nsprobe_trace::hits::label::ProbeLabel;
use nsprobe_trace::hits::lookup::Lookup;
use nsprobe_trace::hits::views::Views;
use nsprobe_trace::summary::Summary;
use std::io::{self, Write};

/// The output of a trace.
pub(crate) struct RecordPrinter {
    out: Output,
    json: bool,
    count: Option<u64>,
    views: Views,
    waiting: HitAssembler,
    printed: u64,
    /// The hit to print next, when its names are there.
    held: Option<Waiting>,
}

impl RecordPrinter {
    /// The output of a trace that begins at `start_ns`, of at most `count` hits.
    pub(crate) fn new(
        json: bool,
        count: Option<u64>,
        labels: Vec<ProbeLabel>,
        start_ns: u64,
    ) -> RecordPrinter {
        RecordPrinter {
            out: Output::to_stdout(),
            json,
            count,
            views: Views::new(labels, start_ns),
            waiting: HitAssembler::default(),
            printed: 0,
            held: None,
        }
    }

    /// Sends the output elsewhere.
    pub(crate) fn to(self, out: Output) -> RecordPrinter {
        RecordPrinter { out, ..self }
    }

    /// There are more probes.
    pub(crate) fn add(&mut self, labels: Vec<ProbeLabel>) {
        self.views.add(labels);
    }

    /// Hits that were printed.
    pub(crate) fn printed(&self) -> u64 {
        self.printed
    }

    /// Hits that came, printed or not.
    pub(crate) fn received(&self) -> u64 {
        self.waiting.received()
    }

    /// Whether the requested number of hits was printed.
    pub(crate) fn is_full(&self) -> bool {
        self.count.is_some_and(|count| self.printed >= count)
    }

    /// Stacks that came late.
    pub(crate) fn late(&self) -> u64 {
        self.waiting.late()
    }

    /// Prints a record, unless it has to wait for names: then no other one may come before
    /// [`go_on`](Self::go_on) has said that it is printed.
    pub(crate) fn print(&mut self, lookup: &mut impl Lookup, record: Record<'_>) -> io::Result<()> {
        match record {
            Record::Hit(..) | Record::LateStack(..) => match self.waiting.receive(record) {
                Some(ready) => self.hit_or_hold(lookup, ready),
                None => Ok(()),
            },
            Record::Lost(lost) if self.json => {
                json::lost(&mut self.out, lost, self.views.start_ns())
            }
            Record::Lost(lost) => text::lost(&mut self.out, lost, self.views.start_ns()),
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

    /// Prints the hit that waits for names, if they are there; whether none waits any more.
    pub(crate) fn go_on(&mut self, lookup: &mut impl Lookup) -> io::Result<bool> {
        if let Some(held) = self.held.take() {
            self.hit_or_hold(lookup, Ready::Waited(held))?;
        }
        Ok(self.held.is_none())
    }

    fn hit_or_hold(&mut self, lookup: &mut impl Lookup, ready: Ready<'_>) -> io::Result<()> {
        if !self.hit(lookup, &ready)? {
            self.held = Some(ready.keep());
        }
        Ok(())
    }

    /// Hands what is printed to the reader.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn write(&mut self, write: &WriteRecord) -> io::Result<()> {
        let (label, start_ns) = (self.views.label(write.probe), self.views.start_ns());
        match self.json {
            true => json::write(&mut self.out, write, start_ns),
            false => text::write(&mut self.out, write, label, start_ns),
        }
    }

    fn off(&mut self, off: &OffRecord) -> io::Result<()> {
        let (label, start_ns) = (self.views.label(off.probe), self.views.start_ns());
        match self.json {
            true => json::off(&mut self.out, off, start_ns),
            false => text::off(&mut self.out, off, label, start_ns),
        }
    }

    /// Prints the hits whose stacks did not come, at the end.
    pub(crate) fn print_waiting(&mut self, lookup: &mut impl Lookup) -> io::Result<()> {
        while !self.go_on(lookup)? {
            lookup.wait();
        }
        while let Some(waiting) = self.waiting.pop() {
            let ready = Ready::Waited(waiting);
            while !self.hit(lookup, &ready)? {
                lookup.wait();
            }
        }
        Ok(())
    }

    /// Prints a hit, if its names are there; whether it did.
    fn hit(&mut self, lookup: &mut impl Lookup, ready: &Ready<'_>) -> io::Result<bool> {
        if self.is_full() {
            return Ok(true);
        }
        let RecordPrinter {
            out, json, views, ..
        } = self;
        let shown = views.of(lookup, ready, |view| match json {
            true => json::hit(out, view),
            false => text::hit(out, view),
        });
        match shown {
            Some(printed) => printed?,
            None => return Ok(false),
        }
        self.printed += 1;
        Ok(true)
    }

    /// The last line, for machines.
    pub(crate) fn summary(&mut self, summary: &Summary) -> io::Result<()> {
        if self.json {
            json::summary(&mut self.out, summary)?;
        }
        self.out.flush()
    }
}
