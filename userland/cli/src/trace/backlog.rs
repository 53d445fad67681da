// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that are out of the rings and not printed yet: printing takes longer than
//! recording, and the rings must not wait for it.

use super::printer::Printer;
use crate::lookup::Live;
use crate::run::Run;
use libnsprobe::common::record::Record;
use libnsprobe::{Batch, Copied, Session};
use std::collections::VecDeque;

/// Most bytes of records that wait; beyond, the rings fill up, and count what they lose.
const BYTES_MAX: usize = 64 << 20;

/// Records that are printed before the rings are looked at again.
const RECORDS_AT_ONCE: usize = 250;

/// Records that wait, in order.
#[derive(Default)]
pub(super) struct Backlog {
    batches: VecDeque<Copied>,
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

    /// Prints some of them; whether there are more.
    pub(super) fn print(
        &mut self,
        run: &Run<'_>,
        live: &mut Live,
        printer: &mut Printer,
    ) -> anyhow::Result<bool> {
        let mut lookup = live.of(&run.session);
        for _ in 0..RECORDS_AT_ONCE {
            let Some(batch) = self.batches.front_mut() else {
                break;
            };
            match batch.next_record() {
                Some(record) => printer.print(&mut lookup, record)?,
                None => drop(self.batches.pop_front()),
            }
        }
        printer.flush()?;
        Ok(!self.batches.is_empty())
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
