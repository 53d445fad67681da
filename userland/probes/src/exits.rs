// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the returns of a function are seen: at the instructions that leave it.

use crate::place::{Searched, Spot};
use nsprobe_common::program::{Operation, Register, Step, STEPS_MAX};
use nsprobe_placement::{exits, Code as FileCode, Condition, Left, Target, When};
use nsprobe_plan::Code;
use nsprobe_symbolize::{Address, FileOffset};
use std::borrow::Cow;
use std::ops::Range;

/// Where a function is left.
pub(crate) struct Exits {
    pub(crate) returns: Vec<FileOffset>,
    pub(crate) of_callees: Vec<FileOffset>,
    /// Jumps to where returns are not seen, and the programs that tell whether they go there.
    pub(crate) left: Vec<(FileOffset, Option<Code>)>,
}

impl FileCode for Searched<'_> {
    fn piece(&self, address: u64) -> Option<(u64, Cow<'_, [u8]>)> {
        let piece = Searched::piece(self, address)?;
        Some((piece.start, self.code(&piece).into()))
    }

    fn is_at_top(&self, address: u64) -> Option<bool> {
        self.frames()?.is_at_top(address)
    }

    fn linked(&self, variable: u64) -> Option<u64> {
        self.binary.linked(variable)
    }

    fn data(&self, address: u64, bytes: usize) -> Option<Cow<'_, [u8]>> {
        self.binary.read_only(address, bytes as u64).map(Cow::from)
    }
}

impl Searched<'_> {
    /// The exits of the function at a spot; or why they are not known.
    pub(crate) fn exits(&self, spot: &Spot) -> Result<Exits, String> {
        let found = self.with_code(spot, |function| exits(function, self))?;
        let found = found.map_err(|unclear| unclear.to_string())?;
        if let ([], [], [first, ..]) = (&*found.returns, &*found.of_callees, &*found.left) {
            return Err(format!(
                "it is left by jumps alone, to where returns are not seen, such as that at {:#x}",
                first.address
            ));
        }
        let places = |addresses: &[u64]| -> Result<Vec<FileOffset>, String> {
            addresses.iter().map(|at| self.place(spot, *at)).collect()
        };
        let left = found.left.iter();
        let left = left.map(|left| Ok((self.place(spot, left.address)?, decides(spot, left)?)));
        Ok(Exits {
            returns: places(&found.returns)?,
            of_callees: places(&found.of_callees)?,
            left: left.collect::<Result<_, String>>()?,
        })
    }

    /// The offset of an exit, in the segment of the function: a process may have others
    /// elsewhere.
    fn place(&self, spot: &Spot, address: u64) -> Result<FileOffset, String> {
        let segment = self.binary.segment_of(spot.offset);
        let offset = segment.and_then(|segment| segment.offset_of(Address(address)));
        offset.ok_or_else(|| format!("its exit at {address:#x} is in another part of the file"))
    }
}

/// The program that lets a jump through which goes where returns are not seen; none when it
/// always does.
fn decides(spot: &Spot, left: &Left) -> Result<Option<Code>, String> {
    let mut program = Program::default();
    match &left.when {
        When::Always => return Ok(None),
        When::Flags(condition) => program.require_flags(*condition),
        When::Outside { target, inside } => {
            program.target(target);
            program.require_outside(spot.address.0, inside);
        }
    }
    if program.0.len() > STEPS_MAX {
        return Err("it is in too many pieces".to_owned());
    }
    Ok(Some(Code {
        steps: program.0,
        data: Vec::new(),
    }))
}

/// Bits of the flags register.
const CARRY: u64 = 1 << 0;
const PARITY: u64 = 1 << 2;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;

/// The registers by their numbers in instructions.
const NUMBERED: [Register; 16] = [
    Register::Rax,
    Register::Rcx,
    Register::Rdx,
    Register::Rbx,
    Register::Rsp,
    Register::Rbp,
    Register::Rsi,
    Register::Rdi,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

#[derive(Default)]
struct Program(Vec<Step>);

impl Program {
    fn push(&mut self, operation: Operation, to: u8, [a, b]: [u8; 2], (small, large): (i32, u64)) {
        self.0.push(Step {
            operation: operation as u8,
            to,
            a,
            b,
            small,
            large,
        });
    }

    fn register(&mut self, to: u8, register: Register) {
        self.push(Operation::Register, to, [0, 0], (register as i32, 0));
    }

    fn constant(&mut self, to: u8, value: u64) {
        self.push(Operation::Constant, to, [0, 0], (0, value));
    }

    fn compute(&mut self, operation: Operation, to: u8, a: u8, b: u8) {
        self.push(operation, to, [a, b], (0, 0));
    }

    /// Slot `to` becomes whether any of these flags is set.
    fn any_flag(&mut self, to: u8, flags: u64) {
        const SPARE: u8 = 3;
        self.register(to, Register::Flags);
        self.constant(SPARE, flags);
        self.compute(Operation::And, to, to, SPARE);
        self.compute(Operation::IsZero, to, to, 0);
        self.compute(Operation::IsZero, to, to, 0);
    }

    /// Only where a condition of a jump holds: Intel's manual, volume 1, appendix B.
    fn require_flags(&mut self, Condition(code): Condition) {
        match code >> 1 {
            0 => self.any_flag(0, OVERFLOW),
            1 => self.any_flag(0, CARRY),
            2 => self.any_flag(0, ZERO),
            3 => self.any_flag(0, CARRY | ZERO),
            4 => self.any_flag(0, SIGN),
            5 => self.any_flag(0, PARITY),
            kind => {
                self.any_flag(0, SIGN);
                self.any_flag(1, OVERFLOW);
                self.compute(Operation::ExclusiveOr, 0, 0, 1);
                if kind == 7 {
                    self.any_flag(1, ZERO);
                    self.compute(Operation::Or, 0, 0, 1);
                }
            }
        }
        if code & 1 != 0 {
            self.compute(Operation::IsZero, 0, 0, 0);
        }
        self.compute(Operation::Require, 0, 0, 0);
    }

    /// Only where slot 0 is an address in none of these pieces of a function.
    fn require_outside(&mut self, function: u64, pieces: &[Range<u64>]) {
        for piece in pieces {
            let from = piece.start.wrapping_sub(function);
            self.push(Operation::FromProbe, 1, [0, 0], (0, from));
            self.compute(Operation::Subtract, 1, 0, 1);
            self.constant(2, piece.end.saturating_sub(piece.start));
            self.compute(Operation::Below, 1, 1, 2);
            self.compute(Operation::IsZero, 1, 1, 0);
            self.compute(Operation::Require, 0, 1, 0);
        }
    }

    /// Slot 0 becomes the place that a jump goes to.
    fn target(&mut self, target: &Target) {
        match *target {
            Target::Register(number) => self.numbered(0, number),
            Target::Memory {
                base,
                index,
                displacement,
            } => {
                self.constant(0, displacement as u64);
                if let Some(base) = base {
                    self.numbered(1, base);
                    self.compute(Operation::Add, 0, 0, 1);
                }
                if let Some((index, scale)) = index {
                    self.numbered(1, index);
                    self.constant(2, scale.into());
                    self.compute(Operation::Multiply, 1, 1, 2);
                    self.compute(Operation::Add, 0, 0, 1);
                }
                self.push(Operation::Load, 0, [0, 0], (0, 8));
            }
        }
    }

    /// Slot `to` becomes the register that instructions have under a number.
    fn numbered(&mut self, to: u8, number: u8) {
        let register = NUMBERED.get(usize::from(number));
        self.register(to, *register.unwrap_or(&Register::Rax));
    }
}
