// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hits whose stacks the module could not take whole at once: it records them instead of
//! counting them, and they are added to the rows here.

use super::joined::Joined;
use libnsprobe::common::record::{Details, Frame, Hit, Record, StackEnd};
use libnsprobe::{Rows, TableRow};
use nsprobe_trace::hits::assembler::{HitAssembler, Ready, Waiting};
use nsprobe_trace::hits::lookup::{whole_stack, words_of, Lookup};
use nsprobe_trace::hits::offline_unwind::COPIES_ENOUGH;

/// Rows of such hits.
#[derive(Default)]
pub(super) struct Finished {
    waiting: HitAssembler,
    /// Those whose stacks are followed when what files say of them is there.
    copied: Vec<Waiting>,
    rows: Rows,
    /// Set if all hits are recorded, and joined.
    joined: Option<Joined>,
}

impl Finished {
    /// All hits are waits and what ends them.
    pub(super) fn of_waits(joined: Joined) -> Finished {
        Finished {
            joined: Some(joined),
            ..Finished::default()
        }
    }

    /// Takes a record; most are no such hits.
    pub(super) fn take(&mut self, lookup: &mut impl Lookup, record: Record<'_>) {
        if let Record::StackCopy(head, mappings, words) = record {
            lookup.note_copy(head, mappings, words);
        }
        if let Some(ready) = self.waiting.receive(record) {
            self.add(lookup, ready);
        }
        while self.copied.len() >= COPIES_ENOUGH {
            lookup.wait();
            self.go_on(lookup);
        }
    }

    /// Takes the hits whose stacks can be followed now.
    pub(super) fn go_on(&mut self, lookup: &mut impl Lookup) {
        for waiting in std::mem::take(&mut self.copied) {
            self.add(lookup, Ready::Waited(waiting));
        }
    }

    /// Those that still wait are as whole as they will be.
    pub(super) fn end(&mut self, lookup: &mut impl Lookup) {
        while let Some(waiting) = self.waiting.pop() {
            self.add(lookup, Ready::Waited(waiting));
        }
        self.go_on(lookup);
        while !self.copied.is_empty() {
            lookup.wait();
            self.go_on(lookup);
        }
        if let Some(joined) = &mut self.joined {
            joined.end();
        }
    }

    /// Waits with their other side, if those are recorded.
    pub(super) fn joined(&mut self) -> Option<&mut Joined> {
        self.joined.as_mut()
    }

    fn add(&mut self, lookup: &mut impl Lookup, ready: Ready<'_>) {
        let details = ready.details();
        let Some((hit, frames)) = whole_stack(lookup, ready.hit(), &details) else {
            return self.copied.push(ready.keep());
        };
        let end = StackEnd::from_u8(hit.stack_end).map(StackEnd::if_left);
        let hit = Hit {
            stack_end: end.map_or(hit.stack_end, |end| end as u8),
            ..hit
        };
        match &mut self.joined {
            Some(joined) => joined.take(lookup, &hit, &frames, &details),
            None => self.rows.rows.extend(row_of(&hit, &frames, &details)),
        }
    }

    /// These rows, and those of the hits that were taken.
    pub(super) fn join(&mut self, mut rows: Rows) -> Rows {
        if self.rows.rows.is_empty() {
            return rows;
        }
        self.rows = std::mem::take(&mut self.rows).added_up();
        rows.rows.extend_from_slice(&self.rows.rows);
        rows.added_up()
    }

    /// The rows of the hits that were taken since the last call.
    pub(super) fn take_rows(&mut self) -> Vec<TableRow> {
        std::mem::take(&mut self.rows).rows
    }

    pub(super) fn received(&self) -> u64 {
        self.waiting.received()
    }

    /// Stacks that came late.
    pub(super) fn late(&self) -> u64 {
        self.waiting.late()
    }
}

/// The row of a hit, whose fields are its value and its key, if it has any.
fn row_of(hit: &Hit, frames: &[Frame], details: &Details<'_>) -> Option<TableRow> {
    let (value, key) = details.fields.split_first()?;
    let value = *value as i64;
    Some(TableRow {
        key: key.to_vec(),
        stack: words_of(frames),
        stack_end: hit.stack_end,
        count: 1,
        sum: value,
        least: value,
        greatest: value,
        ..TableRow::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use libnsprobe::common::record::{
        CodeMapping, Details, Frame, Frames, Hit, LateStack, StackCopy,
    };
    use nsprobe_symbolize::KernelSymbol;
    use nsprobe_trace::hits::lookup::{NameFrames, Rest};
    use nsprobe_trace::names::named::NamedFrame;
    use std::rc::Rc;

    /// Knows of each copied stack that it has one more frame.
    struct OneMore;

    fn frame(offset: u64) -> Frame {
        Frame::Object {
            id: 1,
            offset,
            method: 3,
        }
    }

    impl NameFrames for OneMore {
        fn name(&mut self, _: Frame) -> Rc<NamedFrame> {
            Rc::default()
        }
    }

    impl Lookup for OneMore {
        fn stack(&mut self, _: u32) -> Option<Rc<[u64]>> {
            None
        }

        fn rest(&mut self, hit: &Hit, _: usize) -> Rest {
            match hit.tid {
                7 => Rest::Known(vec![frame(20)], StackEnd::Outermost),
                _ => Rest::Unknown,
            }
        }

        fn note_copy(&mut self, _: &StackCopy, _: &[CodeMapping], _: &[u64]) {}

        fn kernel(&self, _: u64, _: bool) -> Option<&KernelSymbol> {
            None
        }

        fn finished(&self) -> u64 {
            0
        }
    }

    fn take(finished: &mut Finished, tid: u32, end: StackEnd, value: u64) {
        let hit = Hit {
            tid,
            stack_end: end as u8,
            ..Hit::default()
        };
        let details = Details {
            elapsed_ns: None,
            frames: Frames(&words_of(&[frame(10)])),
            kernel: &[],
            fields: &[value, 99],
        };
        finished.take(&mut OneMore, Record::Hit(&hit, details));
    }

    #[test]
    fn hits_are_added_to_the_rows_of_their_whole_stacks() {
        let mut finished = Finished::default();
        let whole = TableRow {
            key: vec![99],
            stack: words_of(&[frame(10), frame(20)]),
            stack_end: StackEnd::Outermost as u8,
            count: 5,
            sum: 50,
            least: 1,
            greatest: 30,
            ..TableRow::default()
        };
        for value in [40, (-2i64) as u64] {
            take(&mut finished, 7, StackEnd::Copied, value);
        }
        // This stack cannot be continued: it is truncated.
        take(&mut finished, 8, StackEnd::Copied, 3);
        let rows = Rows {
            rows: vec![whole.clone()],
            turned_away: 4,
            ..Rows::default()
        };
        let joined = finished.join(rows);
        assert_eq!(joined.turned_away, 4);
        let [first, cut] = joined.rows.as_slice() else {
            panic!("{joined:?}");
        };
        let sums = (first.count, first.sum, first.least, first.greatest);
        assert_eq!((&first.stack, sums), (&whole.stack, (7, 88, -2, 40)));
        assert_eq!(
            (cut.stack_end, cut.count),
            (StackEnd::RowsNotReady as u8, 1)
        );
        // A second time they are not added twice.
        assert_eq!(finished.join(Rows::default()).rows.len(), 2);
    }

    #[test]
    fn a_stack_that_does_not_come_is_cut() {
        let mut finished = Finished::default();
        take(&mut finished, 9, StackEnd::Late, 1);
        assert!(finished.join(Rows::default()).rows.is_empty());
        let words = words_of(&[frame(10), frame(11)]);
        let late = LateStack {
            tid: 9,
            stack_end: StackEnd::Outermost as u8,
            ..LateStack::default()
        };
        finished.take(&mut OneMore, Record::LateStack(&late, Frames(&words)));
        take(&mut finished, 9, StackEnd::Late, 1);
        finished.end(&mut OneMore);
        let ends = finished.join(Rows::default()).rows;
        let ends: Vec<(usize, u8)> = ends
            .iter()
            .map(|row| (row.stack.len(), row.stack_end))
            .collect();
        let wanted = [(2, StackEnd::Outermost as u8), (1, StackEnd::Fault as u8)];
        assert_eq!(ends, wanted);
        assert_eq!(finished.late(), 1);
    }
}
