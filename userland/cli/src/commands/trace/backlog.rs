// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that are out of the rings and not printed yet: printing takes longer than
//! recording, and the rings must not wait for it.
//!
//! They are printed in the order of their times. A record waits until all rings have been read
//! past its time, and for [`HOLD_NS`] more, in which those of before may still come. So records
//! of one thread never change their order, as each is in a ring before the thread's next hit; of
//! different threads one that took longer from its hit to the ring comes late, with its true
//! time.

use crate::output::records::RecordPrinter;
use libnsprobe::common::record::{Frame, Record};
use libnsprobe::{Ordered, Session};
use nsprobe_trace::attach::run::Run;
use nsprobe_trace::hits::live::{secure, Live};
use std::collections::HashSet;

/// How long a record waits for earlier ones that are still being written: other tasks may interrupt
/// a writer.
const HOLD_NS: u64 = 50_000_000;

/// Most bytes of records that wait; beyond, none waits for others any more, and the rings fill
/// up, and count what they lose.
const BYTES_MAX: usize = 64 << 20;

/// Records that are printed before the rings are looked at again.
const RECORDS_AT_ONCE: usize = 250;

/// Hits after one that waits for names whose own are asked for meanwhile.
const HITS_AHEAD: usize = 1000;

/// Records that wait, in order.
#[derive(Default)]
pub(super) struct Backlog {
    records: Ordered,
    /// Up to this time they are printed.
    until_ns: u64,
    /// Whether the following names were requested, while output waits for names.
    has_asked: bool,
}

impl Backlog {
    /// Takes what is in the rings.
    pub(super) fn take(&mut self, run: &mut Run<'_>, live: &mut Live) -> anyhow::Result<()> {
        if self.records.bytes() >= BYTES_MAX {
            self.until_ns = u64::MAX;
            return Ok(());
        }
        self.take_all(run, live)?;
        self.until_ns = run.reader.read_up_to().saturating_sub(HOLD_NS);
        Ok(())
    }

    fn take_all(&mut self, run: &mut Run<'_>, live: &mut Live) -> anyhow::Result<()> {
        let batch = run.reader.collect_rest()?;
        if !batch.is_empty() {
            secure(live, &run.session, &batch);
            self.records.push(batch.copy());
        }
        Ok(())
    }

    /// Prints some of them, up to the first whose names are not there; whether there are more.
    /// Names are waited for so briefly that the rings do not fill up meanwhile.
    pub(super) fn print(
        &mut self,
        run: &Run<'_>,
        live: &mut Live,
        printer: &mut RecordPrinter,
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
            match self.records.next_record(self.until_ns) {
                Some(record) => printer.print(&mut lookup, record)?,
                None => break,
            }
        }
        printer.flush()?;
        Ok(self.records.has(self.until_ns) || !printer.go_on(&mut live.of(&run.session))?)
    }

    /// Asks for the names of what comes next, so that they are looked up together.
    fn ask_ahead(&mut self, live: &mut Live, session: &Session) {
        if std::mem::replace(&mut self.has_asked, true) {
            return;
        }
        let records = self.records.left();
        let mut frames: HashSet<Frame> = HashSet::new();
        for record in records.take(HITS_AHEAD) {
            if let Record::Hit(hit, details) = record {
                live.of(session).add_frames(hit, &details, &mut frames);
            }
        }
        let frames: Vec<Frame> = frames.into_iter().collect();
        live.names.ask_ahead(session, &frames);
    }

    /// Takes and prints everything: no writer is left.
    pub(super) fn empty(
        &mut self,
        run: &mut Run<'_>,
        live: &mut Live,
        printer: &mut RecordPrinter,
    ) -> anyhow::Result<()> {
        self.take_all(run, live)?;
        self.until_ns = u64::MAX;
        while self.print(run, live, printer)? {}
        Ok(())
    }
}
