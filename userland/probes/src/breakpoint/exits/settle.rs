// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is left to find out of a function when its known parts were swept: which others
//! belong to it, and where its computed jumps go.

use super::budget::Budget;
use super::reach::{orphans, reached, Tables};
use super::table::Before;
use super::unit::{Branch, Kind, Unit};
use super::{Behind, Left, Target, Unclear, When};
use iced_x86::Instruction;
use std::collections::BTreeSet;

impl Unit<'_> {
    pub(super) fn complete(&mut self, budget: &mut Budget) -> Result<(), Unclear> {
        let mut tables = Tables::new();
        let mut seen = 0;
        loop {
            self.adopt(&mut seen, budget)?;
            if !self.resolve(&mut tables, budget) {
                break;
            }
        }
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
            let stays = kind == Kind::Call || self.holds(target);
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
    fn resolve(&mut self, tables: &mut Tables, budget: &mut Budget) -> bool {
        let targets = self.targets();
        let known = self.branches.len();
        for (jump, place) in std::mem::take(&mut self.computed) {
            match self.by_table(jump, &targets, budget) {
                Some(found) => self.goes_by_table(jump, place, found, tables),
                None => self.computed.push((jump, place)),
            }
        }
        self.branches.len() > known
    }

    /// All places that something branches to.
    fn targets(&self) -> Vec<u64> {
        let mut targets: Vec<u64> = self.branches.iter().map(|branch| branch.target).collect();
        targets.sort_unstable();
        targets
    }

    /// A jump, and what is in front of it.
    fn before(&self, jump: u64, targets: &[u64]) -> Option<(Instruction, Before)> {
        let piece = self.pieces.iter().find(|piece| piece.begins(jump))?;
        let jump = piece.at(jump)?;
        let is_target = |address| targets.binary_search(&address).is_ok();
        Some((jump, Before::of(piece, &jump, is_target)))
    }

    fn goes_by_table(&mut self, jump: u64, place: Target, found: Vec<u64>, tables: &mut Tables) {
        let branches = found.iter().map(|target| Branch {
            address: jump,
            target: *target,
            kind: Kind::ByTable(place),
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
    fn decide(&mut self, tables: &Tables) -> Result<(), Unclear> {
        let computed = std::mem::take(&mut self.computed);
        if self.is_tracked() || computed.is_empty() {
            let jumps = computed.iter();
            let left = jumps.map(|(address, _)| Left {
                address: *address,
                when: When::Always,
                behind: Behind::Unknown,
            });
            self.left.extend(left);
            return Ok(());
        }
        let targets = self.targets();
        let is_switch = |jump: u64| {
            let before = self.before(jump, &targets);
            before.is_some_and(|(jump, before)| before.is_switch(&jump))
        };
        let jumps = computed.into_iter();
        let (switches, others) = jumps.partition(|(jump, _)| is_switch(*jump));
        let again = self.again(tables);
        self.decide_all(switches, others, &again)
    }

    /// In a loop a switch goes to its cases, and anything else must not be looked at each time.
    fn decide_all(
        &mut self,
        switches: Vec<(u64, Target)>,
        others: Vec<(u64, Target)>,
        again: &BTreeSet<u64>,
    ) -> Result<(), Unclear> {
        let others = others.into_iter();
        let in_loop = others.clone().find(|(jump, _)| again.contains(jump));
        // What nothing else goes to are the cases of a switch, if there is one.
        if let Some((jump, _)) = in_loop.filter(|_| switches.is_empty()) {
            return Err(Unclear::ComputedJump(jump));
        }
        let once = switches
            .into_iter()
            .filter(|(jump, _)| !again.contains(jump));
        let left = once.chain(others).map(|(address, target)| Left {
            address,
            when: self.outside(target),
            behind: Behind::Unknown,
        });
        let left: Vec<Left> = left.collect();
        self.left.extend(left);
        Ok(())
    }

    /// What may come behind a computed jump that stays in the function: code that nothing
    /// else goes to, and all behind it. Where a frame is known to be, the jump would not go
    /// without one.
    fn again(&self, tables: &Tables) -> BTreeSet<u64> {
        let first = reached(self, tables, vec![self.start, self.entry]);
        let mut orphans = orphans(self, &first);
        orphans.retain(|address| !self.has_frame(*address));
        reached(self, tables, orphans)
    }
}
