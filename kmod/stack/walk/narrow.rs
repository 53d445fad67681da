// SPDX-License-Identifier: GPL-2.0-only
//! The walk of a 32-bit task: by frame pointers, of four bytes.

use crate::stack::walk::Walk;
use crate::{
    common::{
        record::{Method, StackEnd},
        unwind::Registers, //
    },
    sys::{
        returns::{may_be_trampoline, real_address},
        user_mem::{self, Fault}, //
    },
};

impl<A: FnMut(u32), P: Fn() -> u32> Walk<'_, A, P> {
    /// Follows the frame pointers of a 32-bit task.
    #[cold]
    #[inline(never)]
    pub(super) fn narrow(&mut self, at: &Registers) -> Result<StackEnd, StackEnd> {
        let mut floor = at.rsp;
        if self.request.at_entry {
            let caller = user_mem::read_value::<u32>(floor).map_err(|Fault| StackEnd::Fault)?;
            self.narrow_caller(caller.into(), floor, Method::StackTop)?;
            floor = floor.saturating_add(4);
        }
        let mut fp = at.rbp;
        loop {
            if fp == 0 {
                return Ok(StackEnd::Outermost);
            }
            if fp & 3 != 0 || fp < floor {
                return Err(StackEnd::BadFramePointer);
            }
            let pair = user_mem::read_value::<[u32; 2]>(fp).map_err(|Fault| StackEnd::Fault)?;
            let [next, caller] = pair.map(u64::from);
            if caller == 0 {
                return Ok(StackEnd::Outermost);
            }
            self.narrow_caller(caller, fp.wrapping_add(4), Method::FramePointer)?;
            floor = fp.saturating_add(8);
            fp = next;
        }
    }

    fn narrow_caller(&mut self, rip: u64, slot: u64, method: Method) -> Result<(), StackEnd> {
        let rip = match may_be_trampoline(rip) {
            true => real_address(slot).unwrap_or(rip),
            false => rip,
        };
        let inside = rip.checked_sub(1).ok_or(StackEnd::NotCode)?;
        let frame = self.resolver.resolve(inside, rip, method);
        self.push(frame.ok_or(StackEnd::NotCode)?)
    }
}
