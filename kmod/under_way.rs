// SPDX-License-Identifier: GPL-2.0-only
//! Calls between their function's entry and its exits, where the return address is left alone.
//!
//! A call is known by its address space, the slot that holds its return address, and the
//! function: not by its thread, as a fibre may go on in another one. A call may be abandoned
//! (by an exception, `longjmp`, a thread's end) and leave its row behind. The next entry at the
//! slot takes that over; what else comes to an exit with the slot is told from the call by
//! what a function gives back as it was: its return address, and the registers that are its
//! caller's. Rows go with their address space.

use crate::{
    call::{Call, Values},
    common::{
        abi::{self, CALLS_MAX, TABLE_SPANS},
        program::KEPT_MAX,
        table::Shape, //
    },
    shared::Shared,
    sys::{
        memory,
        returns,
        task::{Current, Mm},
        tracepoint::{Listener, SpaceHook},
        uprobe::Regs,
        user_mem::NoFaults, //
    },
    table::{Key, Table},
};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst}, //
};
use kernel::{prelude::*, sync::Arc};

/// Words by which a call is known: its space, its slot and its function.
const KEY_WORDS: usize = 3;

/// Marks of spaces: whether a space of this number may have calls here.
const MARKS: usize = 1 << 10;

/// The calls that are under way.
pub(crate) struct UnderWay {
    table: Table,
    marks: KVVec<AtomicU64>,
}

/// A call, by the registers of its entry or of its exit.
pub(crate) struct Frame {
    key: [u64; KEY_WORDS],
    /// What the function gives back as it was.
    kept: u64,
}

impl Frame {
    /// The call of `function` whose return address is on top of the stack.
    #[inline(always)]
    pub(crate) fn of(regs: &Regs<'_>, current: &Current, function: u32) -> Self {
        let slot = regs.sp();
        let mut address = NoFaults::new().word(slot).unwrap_or(0);
        if returns::may_be_trampoline(address) {
            address = returns::real_address(slot).unwrap_or(address);
        }
        Frame {
            key: [
                current.mm().map_or(0, |mm| mm.number()),
                slot,
                function.into(),
            ],
            kept: regs.preserved(address),
        }
    }
}

impl UnderWay {
    /// None.
    pub(crate) fn new() -> Result<Self> {
        let request = abi::Table {
            kind: TABLE_SPANS,
            key_words: KEY_WORDS as u32,
            rows: CALLS_MAX,
            ..abi::Table::default()
        };
        let shape = Shape {
            // What a call carries: the values that its entry kept.
            stack_words: KEPT_MAX,
            ..Table::shape_of(&request).ok_or(EINVAL)?
        };
        Ok(UnderWay {
            table: Table::new(shape)?,
            marks: memory::zeroed(MARKS)?,
        })
    }

    /// A call begins, in place of one that was abandoned; false when there is no room for it.
    pub(crate) fn begin(&self, frame: &Frame, tid: u32, call: &Call) -> bool {
        let (values, present) = call.values.parts();
        let key = Key {
            words: &frame.key,
            stack: match present {
                0 => &[],
                _ => values,
            },
            stack_end: present,
        };
        if !self.table.begin(&key, call.time_ns, tid, frame.kept) {
            return false;
        }
        let [space, ..] = frame.key;
        if let Some(mark) = self.mark(space) {
            // Behind the row: see `space_ended`.
            if mark.load(SeqCst) == 0 {
                mark.store(1, SeqCst);
            }
        }
        true
    }

    /// The call that ends; none when it was not seen to begin. An abandoned one whose place
    /// on the stack is another call's now is dropped.
    pub(crate) fn end(&self, frame: &Frame) -> Option<Call> {
        let mut values = [0; KEPT_MAX];
        let (span, present) = self.table.end_carrying(&frame.key, &mut values)?;
        (span.value == frame.kept).then_some(Call {
            time_ns: span.began_ns,
            values: Values::of_parts(values, present),
        })
    }

    fn mark(&self, space: u64) -> Option<&AtomicU64> {
        self.marks.get((space % MARKS as u64) as usize)
    }

    /// Gives back the rows of a space that has ended. Any context.
    ///
    /// A mark that is cleared here is set again for calls of another space of the same mark:
    /// by this when it sees their rows, else by who begins them, as it sees no mark.
    fn space_ended(&self, space: u64) {
        let Some(mark) = self.mark(space) else {
            return;
        };
        if mark.load(Relaxed) == 0 {
            return;
        }
        mark.store(0, SeqCst);
        let is_marked = |other: u64| other % MARKS as u64 == space % MARKS as u64;
        let mut others = false;
        self.table.free_where(|first| {
            others |= first != space && is_marked(first);
            first == space
        });
        if others {
            mark.store(1, SeqCst);
        }
    }
}

/// What a session hears of spaces that end.
pub(crate) struct Ending(pub(crate) Arc<Shared>);

impl SpaceHook for Ending {
    fn ended(&self, space: &Mm) {
        if let Some(calls) = self.0.under_way.as_ref() {
            calls.space_ended(space.number());
        }
    }
}

/// Listens to the ends of spaces.
pub(crate) type Endings = Listener<Ending>;
