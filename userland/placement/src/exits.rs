// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a function is left.

use crate::flow::has_notrack;
use crate::{decode, Function, FUNCTION_BYTES_MAX};
use iced_x86::{Code, FlowControl, Instruction, Mnemonic};
use std::fmt;

/// An instruction by which a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its address, by the function's count.
    pub address: u64,
    /// How.
    pub way: Way,
}

/// How a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a `ret`: the result is there, and the return address on top of the stack.
    Return,
    /// By a jump to another function, which returns in its place: the result is not
    /// known yet.
    Jump,
}

/// Why it is not known where a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclear {
    /// Nothing is known of its code.
    NoCode,
    /// It is longer than what is looked through.
    TooLong,
    /// What is at this address cannot be decoded.
    Undecodable(u64),
    /// The jump at this address goes to a computed place: in the function, or not.
    ComputedJump(u64),
    /// The branch at this address goes elsewhere, or not.
    Branch(u64),
    /// It never returns.
    Never,
}

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unclear::NoCode => f.write_str("its length is not known"),
            Unclear::TooLong => f.write_str("it is too long to be looked through"),
            Unclear::Undecodable(address) => {
                write!(f, "its code at {address:#x} cannot be decoded")
            }
            Unclear::ComputedJump(address) => write!(
                f,
                "its jump at {address:#x} goes to a computed place, which may be in it or not"
            ),
            Unclear::Branch(address) => {
                write!(f, "its branch at {address:#x} leaves it only sometimes")
            }
            Unclear::Never => f.write_str("it has no instruction by which it returns"),
        }
    }
}

/// All instructions by which a function is left, but for calls that do not return.
pub fn exits(function: &Function<'_>) -> Result<Vec<Exit>, Unclear> {
    if function.bytes.is_empty() {
        return Err(Unclear::NoCode);
    }
    let whole = (function.address, function.bytes);
    let parts: Vec<(u64, &[u8])> = std::iter::once(&whole)
        .chain(function.elsewhere)
        .copied()
        .collect();
    let own = |address: u64| {
        parts
            .iter()
            .any(|(start, bytes)| address.wrapping_sub(*start) < bytes.len() as u64)
    };
    let mut found = Vec::new();
    let mut landings = Landings::default();
    for &(start, bytes) in &parts {
        if bytes.len() > FUNCTION_BYTES_MAX {
            return Err(Unclear::TooLong);
        }
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let address = start.wrapping_add(at as u64);
            let instruction = decode(rest, address).ok_or(Unclear::Undecodable(address))?;
            landings.look(&instruction, address == function.address);
            if let Some(way) = way(&instruction, own)? {
                found.push(Exit { address, way });
            }
            at += instruction.len();
        }
    }
    landings.check()?;
    match found.is_empty() {
        true => Err(Unclear::Never),
        false => Ok(found),
    }
}

/// Where the function's computed jumps may land.
///
/// With indirect branch tracking, tables are jumped through untracked, and what is
/// tracked lands on an `endbr64`: in another function, when this one has none but its
/// first. One with labels as values has more (and so has one with landing pads).
#[derive(Default)]
struct Landings {
    begins_with_one: bool,
    has_more: bool,
    /// The first jump that is computed and tracked.
    jump: Option<u64>,
}

impl Landings {
    fn look(&mut self, instruction: &Instruction, is_first: bool) {
        if instruction.code() == Code::Endbr64 {
            self.begins_with_one |= is_first;
            self.has_more |= !is_first;
        }
        let is_jump = instruction.flow_control() == FlowControl::IndirectBranch;
        if is_jump && !has_notrack(instruction) {
            self.jump.get_or_insert(instruction.ip());
        }
    }

    fn check(&self) -> Result<(), Unclear> {
        match self.jump {
            Some(address) if self.has_more || !self.begins_with_one => {
                Err(Unclear::ComputedJump(address))
            }
            _ => Ok(()),
        }
    }
}

/// Whether an instruction leaves the function whose `own` addresses these are, given
/// that computed jumps that are tracked do.
fn way(instruction: &Instruction, own: impl Fn(u64) -> bool) -> Result<Option<Way>, Unclear> {
    let address = instruction.ip();
    let leaves = || !own(instruction.near_branch_target());
    Ok(match instruction.flow_control() {
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => Some(Way::Return),
        FlowControl::Return => return Err(Unclear::Undecodable(address)),
        FlowControl::UnconditionalBranch if leaves() => Some(Way::Jump),
        FlowControl::ConditionalBranch if leaves() => return Err(Unclear::Branch(address)),
        FlowControl::IndirectBranch if !has_notrack(instruction) => Some(Way::Jump),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(bytes: &[u8], elsewhere: &[(u64, &[u8])]) -> Result<Vec<(u64, Way)>, Unclear> {
        let function = Function {
            address: 0x1000,
            bytes,
            elsewhere,
        };
        let found = exits(&function)?;
        Ok(found.iter().map(|exit| (exit.address, exit.way)).collect())
    }

    #[test]
    fn every_ret_is_an_exit() {
        // test %edi,%edi; je +1; ret; rep ret; ret $8
        let code = [0x85, 0xff, 0x74, 0x01, 0xc3, 0xf3, 0xc3, 0xc2, 0x08, 0x00];
        let returns = [0x1004, 0x1005, 0x1007].map(|at| (at, Way::Return));
        assert_eq!(of(&code, &[]), Ok(returns.to_vec()));
    }

    #[test]
    fn a_jump_elsewhere_is_one_and_a_jump_within_is_none() {
        // jmp +0 (to the ret); ret; jmp 0x2000
        let code = [0xeb, 0x00, 0xc3, 0xe9, 0xf8, 0x0f, 0, 0];
        assert_eq!(
            of(&code, &[]),
            Ok(vec![(0x1002, Way::Return), (0x1003, Way::Jump)])
        );
        // Where the compiler moved a part of it, the jump stays in it.
        let cold = [0x0f, 0x0b];
        assert_eq!(
            of(&code, &[(0x2000, &cold)]),
            Ok(vec![(0x1002, Way::Return)])
        );
    }

    #[test]
    fn what_is_not_known_is_said() {
        let endbr64 = [0xf3, 0x0f, 0x1e, 0xfa];
        let jump = [0xff, 0xe0]; // jmp *%rax
        let table = [0x3e, 0xff, 0xe0]; // notrack jmp *%rax
        assert_eq!(of(&jump, &[]), Err(Unclear::ComputedJump(0x1000)));
        let tracked = [&endbr64[..], &jump].concat();
        assert_eq!(of(&tracked, &[]), Ok(vec![(0x1004, Way::Jump)]));
        // Labels as values: the jump may land at the second.
        let labels = [&endbr64[..], &jump, &endbr64, &[0xc3]].concat();
        assert_eq!(of(&labels, &[]), Err(Unclear::ComputedJump(0x1004)));
        let switch = [&endbr64[..], &table, &[0xc3]].concat();
        assert_eq!(of(&switch, &[]), Ok(vec![(0x1007, Way::Return)]));
        assert_eq!(of(&[0x74, 0x10, 0xc3], &[]), Err(Unclear::Branch(0x1000)));
        assert_eq!(of(&[0x0f, 0x0b], &[]), Err(Unclear::Never));
        assert_eq!(of(&[0xc3, 0x06], &[]), Err(Unclear::Undecodable(0x1001)));
        assert_eq!(of(&[], &[]), Err(Unclear::NoCode));
        // An interrupt's return is no function's.
        assert_eq!(of(&[0x48, 0xcf], &[]), Err(Unclear::Undecodable(0x1000)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_through(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            part in proptest::collection::vec(any::<u8>(), 0..16),
            at: u64,
        ) {
            let function = Function { address: at, bytes: &bytes, elsewhere: &[(!at, &part)] };
            if let Ok(found) = exits(&function) {
                prop_assert!(!found.is_empty());
            }
        }
    }
}
