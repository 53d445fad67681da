// SPDX-License-Identifier: GPL-2.0-only
//! Writes of programs to the traced task: counted against the probe's limit, and recorded with the
//! previous value. A write whose record has no room is withheld.

use crate::{
    common::{
        program::Register,
        record::{WriteRecord, WRITE_MEMORY, WRITE_REGISTER, WRITE_RETURN}, //
    },
    context::Context,
    sys::{
        task::Current,
        uprobe::Regs,
        user_mem, //
    }, //
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kernel::page::PAGE_SIZE;
use zerocopy::IntoBytes;

/// The `ret` instruction.
const RET: u8 = 0xc3;

/// Writes of one hit.
pub(crate) struct TargetWriter<'a> {
    pub(crate) context: &'a Context,
    pub(crate) regs: &'a Regs<'a>,
    pub(crate) current: &'a Current,
    /// Writes that the probe may still make; `None` for a probe that makes none.
    pub(crate) left: Option<&'a AtomicU32>,
    pub(crate) probe: u32,
    pub(crate) sequence: u32,
    pub(crate) cpu: u32,
    pub(crate) now_ns: u64,
    /// The `ret` instruction that ends the function.
    pub(crate) leaves_by: Option<u64>,
    /// Writes made so far.
    pub(crate) made: u32,
    /// Writes withheld so far, by the limit or for want of room.
    pub(crate) withheld: u32,
}

/// A register or memory to write.
struct Change {
    what: u8,
    bytes: u8,
    place: u64,
    before: Option<u64>,
    after: u64,
}

impl TargetWriter<'_> {
    /// Sets a register.
    pub(crate) fn register(&mut self, register: Register, value: u64) -> bool {
        let change = Change {
            what: WRITE_REGISTER,
            bytes: 8,
            place: register as u64,
            before: self.regs.get(register),
            after: value,
        };
        self.make(&change, |regs| regs.set(register, value))
    }

    /// Writes up to eight bytes of memory.
    pub(crate) fn memory(&mut self, address: u64, bytes: &[u8]) -> bool {
        let mut before = 0u64;
        let mut after = 0u64;
        let (Some(old), Some(new)) = (
            before.as_mut_bytes().get_mut(..bytes.len()),
            after.as_mut_bytes().get_mut(..bytes.len()),
        ) else {
            return false;
        };
        for (to, from) in new.iter_mut().zip(bytes) {
            *to = *from;
        }
        let is_there = user_mem::read(address, old).is_ok();
        let change = Change {
            what: WRITE_MEMORY,
            bytes: bytes.len() as u8,
            place: address,
            before: is_there.then_some(before),
            after,
        };
        // A write across two pages might change only one of them.
        let in_page = (address as usize) & PAGE_SIZE.wrapping_sub(1);
        let is_whole = in_page.saturating_add(bytes.len()) <= PAGE_SIZE;
        self.make(&change, |_| {
            is_there && is_whole && user_mem::write(address, bytes).is_ok()
        })
    }

    /// Ends the function at the `ret` instruction at `ret`. The stack stays as it is: a shadow
    /// stack, and other tracers that wait for the return, see an ordinary return.
    pub(crate) fn return_by(&mut self, ret: u64, value: u64) -> bool {
        let mut instruction = [0u8];
        let is_ret = user_mem::read(ret, &mut instruction).is_ok() && instruction == [RET];
        let change = Change {
            what: WRITE_RETURN,
            bytes: 8,
            place: ret,
            before: self.regs.get(Register::Rax),
            after: value,
        };
        let done = self.make(&change, |regs| is_ret && regs.set(Register::Rax, value));
        if done {
            self.leaves_by = Some(ret);
        }
        done
    }

    /// Makes a change while its record has its room: no change goes unrecorded.
    fn make(&mut self, change: &Change, act: impl FnOnce(&Regs<'_>) -> bool) -> bool {
        let claim = |left: u32| left.checked_sub(1);
        let left = self.left;
        let claimed = left.filter(|left| left.fetch_update(Relaxed, Relaxed, claim).is_ok());
        let Some(left) = claimed else {
            self.withheld = self.withheld.wrapping_add(1);
            return false;
        };
        let mut record = self.record(change);
        let mut done = false;
        let regs = self.regs;
        let is_recorded = self.context.append_change(self.cpu, self.now_ns, || {
            done = act(regs);
            record.done = done.into();
            record
        });
        if done {
            self.made = self.made.wrapping_add(1);
            return true;
        }
        // The probe gets back a write that it has not made.
        left.fetch_add(1, Relaxed);
        if !is_recorded {
            self.withheld = self.withheld.wrapping_add(1);
        }
        false
    }

    fn record(&self, change: &Change) -> WriteRecord {
        let ids = self.context.session_owner.ids(self.current);
        WriteRecord {
            time_ns: self.now_ns,
            probe: self.probe,
            sequence: self.sequence,
            pid: ids.pid,
            tid: ids.tid,
            what: change.what,
            done: 0,
            bytes: change.bytes,
            cpu: self.cpu,
            place: change.place,
            before: change.before.unwrap_or(0),
            after: change.after,
            ..WriteRecord::default()
        }
    }
}
