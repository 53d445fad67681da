// SPDX-License-Identifier: GPL-2.0-only
//! Who holds the lock that a task begins to wait for.

use crate::{
    common::{
        program::Register,
        wait::{pair, LockWords, Proof}, //
    },
    sys::{
        by_interrupt::with_user_regs,
        system_call,
        user_mem, //
    }, //
};

/// `futex(2)`. `futex_wait(2)` has other arguments, and no C library locks by it.
const FUTEX: u32 = 202;

/// Who holds the lock that the current task begins to wait for, as `Context::LockHolder`.
#[inline(never)]
pub(super) fn of_current() -> u64 {
    let mut words = LockWords::default();
    with_user_regs(|regs| {
        let call = system_call::of_current(regs);
        let arguments = [Register::Rdi, Register::Rsi, Register::Rdx];
        let [Some(address), Some(operation), Some(expected)] = arguments.map(|of| regs.get(of))
        else {
            return;
        };
        let mut bytes = [0; 12];
        if call.number() != Some(FUTEX) || user_mem::read(address, &mut bytes).is_err() {
            return;
        }
        let word = |bytes: Option<&[u8; 4]>| bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        words = LockWords {
            operation: operation as u32,
            expected: expected as u32,
            word: word(bytes.first_chunk()),
            owner: word(bytes.last_chunk()),
        };
    });
    match words.holder() {
        (Proof::None, _) => 0,
        (proof, tid) => pair(proof as u32, tid),
    }
}
