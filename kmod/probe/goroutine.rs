// SPDX-License-Identifier: GPL-2.0-only
//! The goroutine that a task runs.

use crate::{
    common::program::Register,
    sys::{uprobe::Regs, user_mem}, //
};

/// A goroutine, where its stack is in use.
pub(crate) struct Goroutine {
    /// The address of its `g`.
    pub(crate) g: u64,
    /// How far the stack pointer is below the top of its stack.
    pub(crate) depth: u64,
    pub(crate) stack: GoStack,
}

/// The stack of a goroutine: the memory from `low` to `high`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GoStack {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Goroutine {
    /// The goroutine whose `g` is in %r14, as in code of Go's `ABIInternal`
    /// (`src/cmd/compile/abi-internal.md`); `None` if the stack that this has is not in use. A `g`
    /// begins with the bounds of its stack (`runtime.g` of `src/runtime/runtime2.go`).
    #[inline(always)]
    pub(crate) fn of(regs: &Regs<'_>) -> Option<Self> {
        let g = regs.get(Register::R14)?;
        let low = user_mem::word(g)?;
        let high = user_mem::word(g.checked_add(8)?)?;
        let depth = high.checked_sub(regs.sp())?;
        (low < regs.sp()).then_some(Goroutine {
            g,
            depth,
            stack: GoStack { low, high },
        })
    }
}

impl GoStack {
    /// Whether any of `length` bytes at an address are in it.
    pub(crate) fn has_any(&self, address: u64, length: usize) -> bool {
        address < self.high && address.saturating_add(length as u64) > self.low
    }
}
