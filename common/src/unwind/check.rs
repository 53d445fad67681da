// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Checks a table of unwind rows before it is used.

use super::super::record::OFFSET_BITS;
use super::{offset_of, rule_of, Base, Row, Rule, Saved, Table, BLOCK_BITS, RULES_MAX};

numbered! {
    /// The defect of a table.
    pub enum Defect {
        /// The table is empty.
        Empty = 1,
        /// It has too many rules.
        TooManyRules = 2,
        /// Its blocks reach beyond the largest file offset.
        TooFar = 3,
        /// The blocks do not divide the rows.
        Blocks = 4,
        /// A block's first row is not that of its begin.
        NoFirstRow = 5,
        /// Rows are not sorted.
        Unsorted = 6,
        /// A row names a rule that does not exist.
        NoRule = 7,
        /// A rule is invalid.
        BadRule = 8,
    }
}

impl<'a> Table<'a> {
    /// Checks the parts of a table.
    pub fn check(
        first: u64,
        blocks: &'a [u32],
        rows: &'a [Row],
        rules: &'a [Rule],
    ) -> Result<Table<'a>, Defect> {
        let table = Table::kept(first, blocks, rows, rules);
        if blocks.len() < 2 || rows.is_empty() || rules.is_empty() {
            return Err(Defect::Empty);
        }
        if rules.len() > RULES_MAX {
            return Err(Defect::TooManyRules);
        }
        let last = first.checked_add(blocks.len() as u64);
        if last.is_none_or(|last| last > 1 << (OFFSET_BITS - BLOCK_BITS)) {
            return Err(Defect::TooFar);
        }
        if !rules.iter().all(Rule::is_sound) {
            return Err(Defect::BadRule);
        }
        if blocks.first() != Some(&0) || blocks.last().map(|end| *end as usize) != Some(rows.len())
        {
            return Err(Defect::Blocks);
        }
        for pair in blocks.windows(2) {
            table.check_block(pair)?;
        }
        Ok(table)
    }

    fn check_block(&self, ends: &[u32]) -> Result<(), Defect> {
        let &[from, to] = ends else {
            return Err(Defect::Blocks);
        };
        let rows = self.rows.get(from as usize..to as usize);
        let rows = rows.ok_or(Defect::Blocks)?;
        if rows.first().is_none_or(|row| offset_of(*row) != 0) {
            return Err(Defect::NoFirstRow);
        }
        let mut before = None;
        for row in rows {
            if before.is_some_and(|before| before >= offset_of(*row)) {
                return Err(Defect::Unsorted);
            }
            before = Some(offset_of(*row));
            if usize::from(rule_of(*row)) >= self.rules.len() {
                return Err(Defect::NoRule);
            }
        }
        Ok(())
    }
}

impl Rule {
    /// Whether the caller is unknown, and frame pointers may be followed.
    pub fn leads_by_frame_pointer(&self) -> bool {
        self.base == Base::Unknown as u8 && self.more == 1
    }

    fn is_sound(&self) -> bool {
        let Some(base) = Base::from_u8(self.base) else {
            return false;
        };
        let more_counts = matches!(
            base,
            Base::AtRsp
                | Base::AtRbp
                | Base::Register
                | Base::Linkage
                | Base::Goroutine
                | Base::GrowsStack
        );
        Saved::from_u8(self.saved).is_some()
            && (self.extra == 0 || matches!(base, Base::Goroutine | Base::GrowsStack))
            && (more_counts || self.more == 0 || self.leads_by_frame_pointer())
            && (base != Base::Register || (0..16).contains(&self.more))
    }
}
