// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of steps, and the slot of each result.

use super::{Effect, Node};
use crate::syntax::SpecError;
use nsprobe_common::program::{Operation, Step, SLOTS, STEPS_MAX};

/// The steps, and for each the index of the effect that it is for.
pub(super) fn steps(
    nodes: &[Node],
    effects: &[Effect],
) -> Result<(Vec<Step>, Vec<usize>), SpecError> {
    let mut schedule = Schedule::new(nodes, effects);
    let mut is_changing = false;
    for (index, effect) in effects.iter().enumerate() {
        if effect.changes() && !is_changing {
            // All that is written is what was there before the first change.
            is_changing = true;
            schedule.gather(index)?;
        }
        schedule.effect(index, effect)?;
    }
    Ok((schedule.steps, schedule.wanted_by))
}

impl Effect {
    fn operands(&self) -> impl Iterator<Item = usize> {
        [Some(self.node), self.second].into_iter().flatten()
    }

    /// Whether it changes the traced task.
    fn changes(&self) -> bool {
        matches!(
            self.operation,
            Operation::SetRegister | Operation::Store | Operation::Return
        )
    }
}

/// A slot and what is in it.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    node: Option<usize>,
    /// Results that are being put together and read it.
    pins: u32,
}

struct Schedule<'a> {
    nodes: &'a [Node],
    effects: &'a [Effect],
    /// How many slots a node takes at least (Sethi and Ullman's number).
    needs: Vec<u32>,
    /// How often a node will still be read, if nothing is computed twice.
    uses: Vec<u32>,
    slots: [Slot; SLOTS],
    steps: Vec<Step>,
    wanted_by: Vec<usize>,
    /// The effect that is being worked on.
    current: usize,
}

impl<'a> Schedule<'a> {
    fn new(nodes: &'a [Node], effects: &'a [Effect]) -> Schedule<'a> {
        Schedule {
            nodes,
            effects,
            needs: needs(nodes),
            uses: uses(nodes, effects),
            slots: [Slot::default(); SLOTS],
            steps: Vec::new(),
            wanted_by: Vec::new(),
            current: 0,
        }
    }

    fn error<T>(&self, message: String) -> Result<T, SpecError> {
        let effect = self.effects.get(self.current);
        let span = effect.map_or(0..0, |effect| effect.span.clone());
        Err(SpecError::new(span, message))
    }

    fn effect(&mut self, index: usize, effect: &Effect) -> Result<(), SpecError> {
        self.current = index;
        let a = self.pinned(Some(effect.node))?;
        let b = self.pinned(effect.second)?;
        for operand in effect.operands() {
            self.unpin(operand);
            self.used(operand);
        }
        if effect.operation == Operation::EndSpan {
            // It is done when it is computed.
            return Ok(());
        }
        self.push(Step {
            operation: effect.operation as u8,
            to: 0,
            a,
            b,
            small: effect.small,
            large: effect.large,
        })
    }

    /// Computes and keeps all operands of the effects from `first` on.
    fn gather(&mut self, first: usize) -> Result<(), SpecError> {
        let effects = self.effects;
        for (index, effect) in effects.iter().enumerate().skip(first) {
            self.current = index;
            for operand in effect.operands() {
                self.pinned(Some(operand))?;
            }
        }
        Ok(())
    }

    fn push(&mut self, step: Step) -> Result<(), SpecError> {
        if self.steps.len() >= STEPS_MAX {
            return self.error(format!(
                "with this the program is longer than {STEPS_MAX} steps"
            ));
        }
        self.steps.push(step);
        self.wanted_by.push(self.current);
        Ok(())
    }

    fn need(&self, node: usize) -> u32 {
        self.needs.get(node).copied().unwrap_or(0)
    }

    /// The slot that holds the node's value, which is computed if need be.
    fn slot_of(&mut self, index: usize) -> Result<u8, SpecError> {
        let holds = |slot: &Slot| slot.node == Some(index);
        if let Some(slot) = self.slots.iter().position(holds) {
            return Ok(slot as u8);
        }
        let Some(&node) = self.nodes.get(index) else {
            return self.error("this cannot be computed".to_owned());
        };
        // First what takes more slots: all of them but one are free again then.
        let (a, b) = match (node.a, node.b) {
            (Some(first), Some(second)) if self.need(second) > self.need(first) => {
                let b = self.pinned(node.b)?;
                (self.pinned(node.a)?, b)
            }
            _ => (self.pinned(node.a)?, self.pinned(node.b)?),
        };
        for operand in [node.a, node.b].into_iter().flatten() {
            self.unpin(operand);
            self.used(operand);
        }
        let to = self.free_slot()?;
        if let Some(slot) = self.slots.get_mut(usize::from(to)) {
            slot.node = Some(index);
        }
        self.push(Step {
            operation: node.operation,
            to,
            a,
            b,
            small: node.small,
            large: node.large,
        })?;
        Ok(to)
    }

    /// The slot of an operand, which stays there until it is unpinned; 0 for none.
    fn pinned(&mut self, node: Option<usize>) -> Result<u8, SpecError> {
        let Some(node) = node else {
            return Ok(0);
        };
        let slot = self.slot_of(node)?;
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            slot.pins += 1;
        }
        Ok(slot)
    }

    fn unpin(&mut self, node: usize) {
        for slot in self.slots.iter_mut().filter(|s| s.node == Some(node)) {
            slot.pins = slot.pins.saturating_sub(1);
        }
    }

    /// A node was read once; after the last time its slot is free.
    fn used(&mut self, node: usize) {
        let Some(uses) = self.uses.get_mut(node) else {
            return;
        };
        *uses = uses.saturating_sub(1);
        if *uses > 0 {
            return;
        }
        for slot in &mut self.slots {
            if slot.node == Some(node) && slot.pins == 0 {
                slot.node = None;
            }
        }
    }

    /// A slot for a result: a free one, or that of what takes least to be computed
    /// again.
    fn free_slot(&mut self) -> Result<u8, SpecError> {
        if let Some(free) = self.slots.iter().position(|slot| slot.node.is_none()) {
            return Ok(free as u8);
        }
        let movable = self.slots.iter().enumerate();
        let cheapest = movable
            .filter(|(_, slot)| slot.pins == 0)
            .min_by_key(|(_, slot)| slot.node.map_or(0, |node| self.need(node)));
        match cheapest {
            Some((index, _)) => Ok(index as u8),
            None => self.error(format!(
                "this is too complex: it needs more than {SLOTS} intermediate values at once"
            )),
        }
    }
}

/// How many slots each node takes at least, counting what it is made of.
fn needs(nodes: &[Node]) -> Vec<u32> {
    let mut needs: Vec<u32> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let of = |operand: Option<usize>| operand.and_then(|at| needs.get(at)).copied();
        let need = match (of(node.a), of(node.b)) {
            (Some(a), Some(b)) if a == b => a + 1,
            (a, b) => a.max(b).unwrap_or(1),
        };
        needs.push(need);
    }
    needs
}

/// How often each node is read.
fn uses(nodes: &[Node], effects: &[Effect]) -> Vec<u32> {
    let mut uses = vec![0u32; nodes.len()];
    let mut reached = vec![false; nodes.len()];
    for effect in effects {
        for operand in effect.operands() {
            if let (Some(uses), Some(reached)) = (uses.get_mut(operand), reached.get_mut(operand)) {
                *uses += 1;
                *reached = true;
            }
        }
    }
    // Operands come before what is made of them. A value that is not needed reads nothing.
    for index in (0..nodes.len()).rev() {
        let (Some(node), Some(true)) = (nodes.get(index), reached.get(index)) else {
            continue;
        };
        for operand in [node.a, node.b].into_iter().flatten() {
            if let (Some(uses), Some(reached)) = (uses.get_mut(operand), reached.get_mut(operand)) {
                *uses += 1;
                *reached = true;
            }
        }
    }
    uses
}
