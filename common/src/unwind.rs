// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Steps from a frame to its caller without frame pointers.
//!
//! A compiler describes in `.eh_frame` (DWARF 5, section 6.4; System V psABI for x86-64, section
//! 3.7) how to find the caller from each instruction. User space turns that into rows, once for
//! each file: each gives the rule from a file offset on. A rule is data of a few bytes;
//! [`Rule::step`] carries it out. Nothing here allocates, and data from a hostile file gives wrong
//! addresses at worst.
//!
//! The rows of a block of 64 KiB lie side by side, each in one word, sorted by their offset in the
//! block; the first is that of the block's begin. So a lookup is one index and a binary search of
//! one block.

mod check;
mod simple;
mod step;

#[cfg(test)]
mod tests;

pub use check::Defect;
pub use simple::SimpleRule;
pub use step::{At, Memory, Registers, Stop};

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bits of a file offset that give the place in its block.
pub const BLOCK_BITS: u32 = 16;
/// Most rules of one table: a row names one by 16 bits.
pub const RULES_MAX: usize = 1 << 16;

/// A row: the offset in the block in the upper 16 bits, the rule's number in the lower.
pub type Row = u32;

/// The row of an offset in its block and a rule.
pub const fn row(offset: u16, rule: u16) -> Row {
    (offset as u32) << 16 | rule as u32
}

const fn offset_of(row: Row) -> u16 {
    (row >> 16) as u16
}

const fn rule_of(row: Row) -> u16 {
    row as u16
}

numbered! {
    /// Where the canonical frame address (the stack pointer before the call that made
    /// the frame) is.
    pub enum Base {
        /// Unknown: the code is in no function, or in one without unwind data. If `more` is one,
        /// most of the file has no unwind data, and frame pointers may be followed.
        Unknown = 0,
        /// There is no caller: the outermost frame.
        Outermost = 1,
        /// It is known, but needs a rule that does not exist here.
        Unsupported = 2,
        /// `rsp + offset`.
        Rsp = 3,
        /// `rbp + offset`.
        Rbp = 4,
        /// `*(rsp + offset) + more`.
        AtRsp = 5,
        /// `*(rbp + offset) + more`.
        AtRbp = 6,
        /// `register + offset`, where `more` is the register's DWARF number: known in the
        /// innermost frame only.
        Register = 7,
        /// `rsp + offset + 8`, and 8 less where the low four bits of the address are less
        /// than `more`: the entries of a procedure linkage table.
        Linkage = 8,
        /// A frame of a signal: the registers are in a `struct rt_sigframe` of
        /// `arch/x86/include/asm/sigframe.h`, whose `uc` is at `rsp + offset`.
        Signal = 9,
        /// `rbp + offset`, on whichever stack that is: the code runs on another one.
        OtherStack = 10,
        /// `*(goroutine + sp) + popped`: Go's runtime runs on the thread's own stack for the
        /// goroutine. That is at `m + more`, `m` at `g + m`, and `g` at `offset` from the thread
        /// pointer.
        Goroutine = 11,
        /// The registers that the goroutine goes on with, which is found in the same way.
        GrowsStack = 12,
        /// `rsp + offset`, and the return address is that of an instruction that was interrupted.
        Injected = 13,
        /// `rsp + offset`. The thread has left the goroutine that it ran.
        Scheduler = 14,
    }
}

numbered! {
    /// Where the caller's `rbp` is.
    pub enum Saved {
        /// In `rbp`.
        Same = 0,
        /// At the canonical frame address `+ saved_at`.
        AtFrame = 1,
        /// At `rbp + saved_at`.
        AtRbp = 2,
        /// Unknown.
        Lost = 3,
    }
}

/// How to find the caller from some instructions. The return address always lies right below the
/// canonical frame address.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Rule {
    /// A [`Base`].
    pub base: u8,
    /// A [`Saved`].
    pub saved: u8,
    /// Its meaning depends on the base.
    pub more: i16,
    /// Bytes.
    pub offset: i32,
    /// Bytes.
    pub saved_at: i32,
    /// Four bytes of [`Base::Goroutine`] and [`Base::GrowsStack`], zero for all others: where
    /// `m`, the saved stack pointer and the saved `rbp` are in a `g`, and `popped`.
    pub extra: u32,
}
const _: () = assert!(size_of::<Rule>() == 16);

/// Where Go's runtime keeps what a thread runs (`g`, `m` and `gobuf` of Go's `runtime/runtime2.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoPlaces {
    /// The `g`, from the thread pointer.
    pub g: i32,
    /// Its `m`, in the `g`.
    pub m: u8,
    /// The goroutine that it runs, in the `m`, which begins with the `g` of the thread's own stack.
    pub curg: i16,
    /// Its stack pointer, in the `g`; the instruction pointer follows.
    pub sp: u8,
    /// Its `rbp`, in the `g`.
    pub bp: u8,
    /// Bytes from the stack pointer up to the frame's address.
    pub popped: u8,
}

impl GoPlaces {
    /// A rule of `base` with these places.
    pub fn rule(self, base: Base) -> Rule {
        Rule {
            base: base as u8,
            more: self.curg,
            offset: self.g,
            extra: u32::from_le_bytes([self.m, self.sp, self.bp, self.popped]),
            ..Rule::default()
        }
    }

    /// The places in a rule.
    pub fn of(rule: &Rule) -> GoPlaces {
        let [m, sp, bp, popped] = rule.extra.to_le_bytes();
        GoPlaces {
            g: rule.offset,
            m,
            curg: rule.more,
            sp,
            bp,
            popped,
        }
    }
}

/// The rows of a file.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// The number of the first block.
    first: u64,
    /// Where the rows of each block begin, and, last, where those of the last one end.
    blocks: &'a [u32],
    rows: &'a [Row],
    rules: &'a [Rule],
}

impl<'a> Table<'a> {
    /// A table whose parts were checked.
    #[inline(always)]
    pub fn kept(first: u64, blocks: &'a [u32], rows: &'a [Row], rules: &'a [Rule]) -> Table<'a> {
        Table {
            first,
            blocks,
            rows,
            rules,
        }
    }

    /// Whether it is the table of a file without rows.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The rule of an instruction; `None` outside of all blocks.
    #[inline]
    pub fn find(&self, file_offset: u64) -> Option<&'a Rule> {
        let block = (file_offset >> BLOCK_BITS).checked_sub(self.first)?;
        let block = usize::try_from(block).ok()?;
        let from = *self.blocks.get(block)? as usize;
        let to = *self.blocks.get(block.checked_add(1)?)? as usize;
        let row = last_not_after(self.rows.get(from..to)?, file_offset as u16)?;
        self.rules.get(usize::from(rule_of(row)))
    }
}

/// The last of the sorted rows that is not after the offset.
#[inline]
fn last_not_after(rows: &[Row], offset: u16) -> Option<Row> {
    let wanted = row(offset, u16::MAX);
    let (mut from, mut length) = (0usize, rows.len());
    while length > 1 {
        let half = length / 2;
        let middle = from.wrapping_add(half);
        if *rows.get(middle)? <= wanted {
            from = middle;
        }
        length = length.wrapping_sub(half);
    }
    rows.get(from).copied().filter(|row| *row <= wanted)
}
