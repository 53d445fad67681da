// SPDX-License-Identifier: GPL-2.0-only
//! Who holds the lock that a task begins to wait for.

use crate::{
    common::{
        program::Register,
        wait::{LockWords, Proof}, //
    },
    sys::{
        any_task::AnyTask,
        by_interrupt::with_user_regs,
        rcu_slot::Reading,
        system_call,
        user_mem, //
    }, //
};

/// `futex(2)`. `futex_wait(2)` has other arguments, and no C library locks by it.
const FUTEX: u32 = 202;

/// The other thread of the current task's process that holds the lock, and what proves that; none
/// inside if that is unknown, none at all if the task is not in `futex(2)`. Any context but NMI.
#[inline(never)]
pub(super) fn of_current(reading: Reading<'_>) -> Option<Option<(Proof, AnyTask<'_>)>> {
    let mut words = None;
    with_user_regs(|regs| {
        if system_call::of_current(regs).number() == Some(FUTEX) {
            let of = |register| regs.get(register).unwrap_or(0);
            words = Some(read(
                of(Register::Rdi),
                of(Register::Rsi) as u32,
                of(Register::Rdx) as u32,
            ));
        }
    });
    Some(match words?.holder() {
        (Proof::None, _) => None,
        (proof, number) => AnyTask::other_thread(number, reading).map(|thread| (proof, thread)),
    })
}

/// What a wait at this address looks at; zeros if it cannot be read.
fn read(address: u64, operation: u32, expected: u32) -> LockWords {
    let mut bytes = [0; 12];
    if user_mem::read(address, &mut bytes).is_err() {
        return LockWords::default();
    }
    let word = |bytes: Option<&[u8; 4]>| bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes));
    LockWords {
        operation,
        expected,
        word: word(bytes.first_chunk()),
        owner: word(bytes.last_chunk()),
    }
}
