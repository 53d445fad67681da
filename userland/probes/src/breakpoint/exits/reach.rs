// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which instructions come after others.

use super::piece::{goes_on, is_padding, target};
use super::unit::SweptFunction;
use iced_x86::FlowControl;
use std::collections::{BTreeMap, BTreeSet};

/// Where the jumps of a function go that find their target in a table.
pub(super) type JumpTables = BTreeMap<u64, Vec<u64>>;

/// What can be reached from some addresses by branches that say where they go, and by tables;
/// a call returns.
pub(super) fn reached(
    unit: &SweptFunction<'_>,
    tables: &JumpTables,
    mut from: Vec<u64>,
) -> BTreeSet<u64> {
    let mut reached = BTreeSet::new();
    while let Some(address) = from.pop() {
        let Some(instruction) = unit.at_address(address) else {
            continue;
        };
        if !reached.insert(address) {
            continue;
        }
        if goes_on(&instruction) {
            from.push(instruction.next_ip());
        }
        let is_call = instruction.flow_control() == FlowControl::Call;
        from.extend(target(&instruction).filter(|_| !is_call));
        from.extend(tables.get(&address).into_iter().flatten());
    }
    reached
}

/// What is not reached although it is there: only computed jumps go there, or exceptions.
/// Gives the first instructions of each such part.
pub(super) fn orphans(unit: &SweptFunction<'_>, reached: &BTreeSet<u64>) -> Vec<u64> {
    let mut orphans = Vec::new();
    for piece in &unit.pieces {
        let mut follows = false;
        for address in piece.addresses() {
            let Some(instruction) = piece.at(address) else {
                continue;
            };
            let is_reached = reached.contains(&address);
            if !is_reached && !follows && !is_padding(&instruction) {
                orphans.push(address);
            }
            follows = !is_padding(&instruction) && goes_on(&instruction);
        }
    }
    orphans
}
