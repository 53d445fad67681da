// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code that neither a symbol nor a description of frames covers, such as the hidden functions of
//! a stripped C library.
//!
//! Whether a call in it returns is not known. Where one does not, what follows is data or another
//! function, whose `ret` finds the stack as the call left it: so all ways out must find the return
//! address on top of the stack, by the code.

use super::piece::{goes_on, is_padding, target};
use super::reach::JumpTables;
use super::stack::{depths, Depth};
use super::FileCode;
use crate::breakpoint::decode;
use crate::breakpoint::flow::has_notrack;
use iced_x86::{Code as InstructionCode, FlowControl, Instruction};
use std::collections::BTreeMap;

/// Most bytes that are decoded for a piece.
const BYTES_MAX: usize = 16 << 10;
/// Most instructions of dead code after a trap.
const DEAD_MAX: usize = 32;

/// The code that is reached from an address, as far as nothing but padding lies in between; `None`
/// where it is not clear how it is left.
pub(super) fn piece(code: &dyn FileCode, address: u64) -> Option<Vec<u8>> {
    let mut bytes = code.undescribed(address, BYTES_MAX);
    address.checked_add(bytes.len() as u64)?;
    let at = |at: u64| {
        let into = usize::try_from(at.checked_sub(address)?).ok()?;
        decode(bytes.get(into..)?, at)
    };
    let reached = depths(address, at, |_| false, &JumpTables::new());
    if is_padding(&at(address)?) {
        return None;
    }
    let end = end(address, &reached, at);
    if !is_left_clearly(&reached, address..end, address + bytes.len() as u64, at) {
        return None;
    }
    bytes.truncate((end - address) as usize);
    Some(bytes)
}

/// The end of what is reached from its beginning on.
fn end(
    mut at: u64,
    reached: &BTreeMap<u64, Depth>,
    instruction: impl Fn(u64) -> Option<Instruction>,
) -> u64 {
    let mut end = at;
    let mut is_after_trap = false;
    while let Some(here) = instruction(at) {
        let is_reached = reached.contains_key(&at);
        if !is_reached && is_after_trap {
            if let Some(dead) = dead_end(at, reached, &instruction) {
                is_after_trap = false;
                at = dead;
                continue;
            }
        }
        if !is_reached && !is_padding(&here) {
            break;
        }
        is_after_trap = is_reached && here.code() == InstructionCode::Hlt;
        at = here.next_ip();
        if is_reached {
            end = at;
        }
    }
    end
}

/// End of the dead code after a trapping instruction: compilers do not know that inline assembly
/// (musl's `a_crash`) does not return. Dead code rejoins reached code; other code is another
/// function: `None`.
fn dead_end(
    mut at: u64,
    reached: &BTreeMap<u64, Depth>,
    instruction: impl Fn(u64) -> Option<Instruction>,
) -> Option<u64> {
    for _ in 0..DEAD_MAX {
        let here = instruction(at)?;
        let is_inside = || target(&here).is_some_and(|to| reached.contains_key(&to));
        at = here.next_ip();
        match here.flow_control() {
            FlowControl::UnconditionalBranch if is_inside() => return Some(at),
            FlowControl::Next if !is_padding(&here) => {}
            FlowControl::ConditionalBranch if is_inside() => {}
            _ => return None,
        }
        if reached.contains_key(&at) {
            return Some(at);
        }
    }
    None
}

/// Whether all ways out of a piece are known, and there is one.
fn is_left_clearly(
    reached: &BTreeMap<u64, Depth>,
    piece: std::ops::Range<u64>,
    known_to: u64,
    at: impl Fn(u64) -> Option<Instruction>,
) -> bool {
    let is_decoded = |to: u64| !(piece.start..known_to).contains(&to) || at(to).is_some();
    let mut is_left = false;
    for (address, depth) in reached {
        let Some(instruction) = at(*address) else {
            return false;
        };
        let flow = instruction.flow_control();
        let is_call = matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
        let target = target(&instruction).filter(|_| !is_call);
        let next = goes_on(&instruction).then(|| instruction.next_ip());
        if !target.into_iter().chain(next).all(is_decoded) {
            return false;
        }
        let is_out = |to: u64| !piece.contains(&to);
        let leaves = match flow {
            FlowControl::Return | FlowControl::IndirectBranch => true,
            _ => target
                .into_iter()
                .chain(next.filter(|_| !is_call))
                .any(is_out),
        };
        let is_clear = depth.is_at_top() == Some(true) && !has_notrack(&instruction);
        if leaves && piece.contains(address) && !is_clear {
            return false;
        }
        is_left |= leaves;
    }
    is_left
}
