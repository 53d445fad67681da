// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that are out of the rings and not printed yet: printing takes longer than
//! recording, and the rings must not wait for it.

use super::printer::Printer;
use crate::lookup::Live;
use crate::run::Run;
use libnsprobe::common::record::{Frame, Record};
use libnsprobe::{Batch, Copied, Session};
use std::collections::{HashSet, VecDeque};

/// Most bytes of records that wait; beyond, the rings fill up, and count what they lose.
const BYTES_MAX: usize = 64 << 20;

/// Records that are printed before the rings are looked at again.
const RECORDS_AT_ONCE: usize = 250;

/// Hits behind one that waits for names whose own are asked for meanwhile.
const HITS_AHEAD: usize = 1000;

/// Records that wait, in order.
#[derive(Default)]
pub(super) struct Backlog {
    batches: VecDeque<Copied>,
    /// Whether what comes next was asked for, while names are waited for.
    has_asked: bool,
}

impl Backlog {
    /// Takes what is in the rings up to this time.
    pub(super) fn take(
        &mut self,
        run: &mut Run<'_>,
        live: &mut Live,
        until_ns: u64,
    ) -> anyhow::Result<()> {
        let waiting: usize = self.batches.iter().map(Copied::bytes).sum();
        if waiting < BYTES_MAX {
            let batch = run.reader.collect(until_ns)?;
            if !batch.is_empty() {
                secure(live, &run.session, &batch);
                self.batches.push_back(batch.copy());
            }
        }
        Ok(())
    }

    /// Prints some of them, up to the first whose names are not there; whether there are more.
    /// Names are waited for so briefly that the rings do not fill up meanwhile.
    pub(super) fn print(
        &mut self,
        run: &Run<'_>,
        live: &mut Live,
        printer: &mut Printer,
    ) -> anyhow::Result<bool> {
        let mut lookup = live.of(&run.session);
        for _ in 0..RECORDS_AT_ONCE {
            if !printer.go_on(&mut lookup)? {
                printer.flush()?;
                self.ask_ahead(live, &run.session);
                live.names.wait();
                return Ok(true);
            }
            self.has_asked = false;
            let Some(batch) = self.batches.front_mut() else {
                break;
            };
            match batch.next_record() {
                Some(record) => printer.print(&mut lookup, record)?,
                None => drop(self.batches.pop_front()),
            }
        }
        printer.flush()?;
        Ok(!self.batches.is_empty() || !printer.go_on(&mut live.of(&run.session))?)
    }

    /// Asks for the names of what comes next, so that they are looked up together.
    fn ask_ahead(&mut self, live: &mut Live, session: &Session) {
        if std::mem::replace(&mut self.has_asked, true) {
            return;
        }
        let records = self.batches.iter().flat_map(Copied::left);
        let mut frames: HashSet<Frame> = HashSet::new();
        for record in records.take(HITS_AHEAD) {
            if let Record::Hit(hit, details) = record {
                live.of(session).add_frames(hit, &details, &mut frames);
            }
        }
        let frames: Vec<Frame> = frames.into_iter().collect();
        live.names.ask_ahead(session, &frames);
    }

    /// Takes and prints everything.
    pub(super) fn empty(
        &mut self,
        run: &mut Run<'_>,
        live: &mut Live,
        printer: &mut Printer,
    ) -> anyhow::Result<()> {
        while self.print(run, live, printer)? {}
        self.take(run, live, u64::MAX)?;
        while self.print(run, live, printer)? {}
        Ok(())
    }
}

/// Secures the files that the stacks of a batch name, before they are gone.
pub(crate) fn secure(live: &mut Live, session: &Session, batch: &Batch<'_>) {
    for record in batch.records() {
        match record {
            Record::Object(object) => live.names.announce(session, object),
            // They come first.
            _ => break,
        }
    }
}
