// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is left to find out of a function when its known parts were swept: which others
//! belong to it, and where its computed jumps go.

use super::budget::Budget;
use super::reach::{orphans, reached, JumpTables};
use super::table::Before;
use super::unit::{Branch, BranchKind, JumpSource, SweptFunction};
use super::{Behind, Left, Target, Unclear, When};
use crate::breakpoint::flow::has_notrack;
use iced_x86::Instruction;
use std::collections::BTreeSet;

impl SweptFunction<'_> {
    pub(super) fn complete(&mut self, budget: &mut Budget) -> Result<(), Unclear> {
        let mut tables = JumpTables::new();
        let mut seen = 0;
        loop {
            self.adopt(&mut seen, budget)?;
            if !self.resolve(&mut tables, budget) {
                break;
            }
        }
        self.undisguise(&tables)?;
        self.follow_variables();
        self.check()?;
        self.decide(&tables)
    }

    /// Sweeps the parts that were moved elsewhere: jumps to them have a frame, and they have
    /// it, too. A function that is jumped to from where a frame is returns to what was put
    /// there; its own `ret` is found by the stack pointer, or is none of this call.
    fn adopt(&mut self, seen: &mut usize, budget: &mut Budget) -> Result<(), Unclear> {
        while let Some(&Branch {
            address,
            target,
            kind,
        }) = self.branches.get(*seen)
        {
            *seen += 1;
            let stays = kind == BranchKind::Call || self.holds(target);
            if stays || !self.has_frame(address) || !self.has_frame(target) {
                continue;
            }
            let piece = budget.piece(self.code, target);
            let (start, bytes) = piece.ok_or(Unclear::Branch(address))?;
            self.add(start, bytes, budget)?;
        }
        Ok(())
    }

    /// Finds tables that computed jumps go by; whether there are more branches now.
    fn resolve(&mut self, tables: &mut JumpTables, budget: &mut Budget) -> bool {
        if self.computed.is_empty() {
            return false;
        }
        let (targets, depths) = (self.targets(), self.depths(tables));
        let known = self.branches.len();
        for (jump, place) in std::mem::take(&mut self.computed) {
            if self.stays(jump, &depths) {
                continue;
            }
            match (place, self.by_table(jump, &targets, budget)) {
                (JumpSource::Target(target), Some(found)) => {
                    self.goes_by_table(jump, target, found, tables);
                }
                _ => self.computed.push((jump, place)),
            }
        }
        self.branches.len() > known
    }

    /// Of jumps to where a variable says, the linker may know where that is; no switch jumps so.
    fn follow_variables(&mut self) {
        for (address, place) in std::mem::take(&mut self.computed) {
            let JumpSource::Variable(slot) = place else {
                self.computed.push((address, place));
                continue;
            };
            match self.code.linked(slot) {
                Some(target) => self.branches.push(Branch {
                    address,
                    target,
                    kind: BranchKind::Always,
                }),
                None => self.left.push(Left {
                    address,
                    when: When::Always,
                    behind: self.code.behind(slot, Some(slot)),
                }),
            }
        }
    }

    /// All places that something branches to.
    pub(super) fn targets(&self) -> Vec<u64> {
        let mut targets: Vec<u64> = self.branches.iter().map(|branch| branch.target).collect();
        targets.sort_unstable();
        targets
    }

    /// A jump, and what is in front of it.
    pub(super) fn before(&self, jump: u64, targets: &[u64]) -> Option<(Instruction, Before)> {
        let piece = self.pieces.iter().find(|piece| piece.begins(jump))?;
        let jump = piece.at(jump)?;
        let is_target = |address| targets.binary_search(&address).is_ok();
        Some((jump, Before::of(piece, &jump, is_target)))
    }

    fn goes_by_table(
        &mut self,
        jump: u64,
        place: Target,
        found: Vec<u64>,
        tables: &mut JumpTables,
    ) {
        let branches = found.iter().map(|target| Branch {
            address: jump,
            target: *target,
            kind: BranchKind::ByTable(place),
        });
        self.branches.extend(branches);
        tables.insert(jump, found);
    }

    /// Where a jump goes, when a table says it and all of that is code.
    fn by_table(&self, jump: u64, targets: &[u64], budget: &mut Budget) -> Option<Vec<u64>> {
        let (jump, before) = self.before(jump, targets)?;
        let found = budget.targets(self.code, before.table(&jump)?)?;
        let is_code = |target: u64, budget: &mut Budget| match self.holds(target) {
            true => self.at_address(target).is_some(),
            false => budget.piece(self.code, target).is_some(),
        };
        let mut all = found.iter();
        all.all(|target| is_code(*target, budget)).then_some(found)
    }

    /// Whether all that says where it goes goes to instructions: else there is data among
    /// them.
    fn check(&self) -> Result<(), Unclear> {
        for branch in &self.branches {
            if self.holds(branch.target) && !self.is_landing(branch.target) {
                return Err(Unclear::Undecodable(branch.target));
            }
        }
        Ok(())
    }

    /// Decides where computed jumps go of which nothing else is known.
    fn decide(&mut self, tables: &JumpTables) -> Result<(), Unclear> {
        let targets = self.targets();
        let mut tracked = Vec::new();
        for (jump, place) in std::mem::take(&mut self.computed) {
            let JumpSource::Target(target) = place else {
                continue;
            };
            let before = self.before(jump, &targets);
            let (instruction, before) = before.ok_or(Unclear::ComputedJump(jump))?;
            let is_switch = before.is_switch(&instruction);
            match has_notrack(&instruction) {
                false => tracked.push((jump, target, is_switch)),
                true if is_switch || self.has_cases(&instruction, &before) => {}
                true => return Err(Unclear::NoBreakpoint(jump)),
            }
        }
        if self.is_tracked() {
            let jumps = tracked.into_iter();
            self.left.extend(jumps.map(|(address, _, _)| Left {
                address,
                when: When::Always,
                behind: Behind::Unknown,
            }));
            return Ok(());
        }
        self.decide_all(tracked, tables)
    }

    /// Whether the first of the addresses that a jump goes by is in the function.
    fn has_cases(&self, jump: &Instruction, before: &Before) -> bool {
        let table = before.addresses(jump);
        let first = table.and_then(|table| self.code.data(table, 8));
        let first =
            first.and_then(|first| Some(u64::from_le_bytes(first.get(..8)?.try_into().ok()?)));
        first.is_some_and(|first| first != self.start && self.at_address(first).is_some())
    }

    /// In a loop a switch goes to its cases, and anything else must not be looked at each time.
    fn decide_all(
        &mut self,
        jumps: Vec<(u64, Target, bool)>,
        tables: &JumpTables,
    ) -> Result<(), Unclear> {
        if jumps.is_empty() {
            return Ok(());
        }
        let again = self.again(tables);
        // What nothing else goes to are the cases of a switch, if there is one.
        let has_switch = jumps.iter().any(|(_, _, is_switch)| *is_switch);
        for (address, target, is_switch) in jumps {
            match (again.contains(&address), is_switch) {
                (true, true) => continue,
                (true, false) if !has_switch => return Err(Unclear::ComputedJump(address)),
                _ => self.left.push(Left {
                    address,
                    when: self.outside(target),
                    behind: Behind::Unknown,
                }),
            }
        }
        Ok(())
    }

    /// What may come after a computed jump that stays in the function: code that nothing
    /// else goes to, and all after it. Where a frame is known to be, the jump would not go
    /// without one.
    fn again(&self, tables: &JumpTables) -> BTreeSet<u64> {
        let first = reached(self, tables, vec![self.start, self.entry]);
        let mut orphans = orphans(self, &first);
        orphans.retain(|address| !self.has_frame(*address));
        reached(self, tables, orphans)
    }
}
