// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the returns of a function are seen: at the instructions that leave it.

use crate::answer::ExitProbes;
use crate::breakpoint::{exits, Behind, Condition, FileCode, Left, Target, When};
use crate::place::Searched;
use crate::spot::Spot;
use nsprobe_common::program::Register;
use nsprobe_spec::BinaryOperator::{Add, And, Below, ExclusiveOr, Multiply, Or, Subtract};
use nsprobe_spec::{StepProgram, Value};
use nsprobe_symbolize::{Address, FileOffset};
use std::borrow::Cow;
use std::ops::Range;

/// Functions of C that return their first argument.
const FILLS: [&str; 3] = ["memset", "memcpy", "memmove"];

/// A file, as exits are followed through it.
struct Followed<'a, 'b> {
    file: &'a Searched<'b>,
    ends: CallEnds<'a>,
}

/// Jumps that end a call of a function, besides its returns, where only its result matters.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallEnds<'a> {
    /// The program for what a function returns by a jump to one that returns its first argument.
    pub(crate) by_argument: Option<&'a StepProgram>,
    /// Functions that have probes of their own.
    pub(crate) probed: &'a [String],
}

impl FileCode for Followed<'_, '_> {
    fn piece(&self, address: u64) -> Option<(u64, Cow<'_, [u8]>)> {
        let piece = self.file.piece(address)?;
        Some((piece.start, self.file.code(&piece).into()))
    }

    fn undescribed(&self, address: u64, bytes: usize) -> Vec<u8> {
        self.file.undescribed(address, bytes as u64)
    }

    fn is_at_top(&self, address: u64) -> Option<bool> {
        self.file.frames()?.is_at_top(address)
    }

    fn linked(&self, variable: u64) -> Option<u64> {
        self.file.binary.linked(variable)
    }

    fn behind(&self, address: u64, slot: Option<u64>) -> Behind {
        let (binary, ends) = (self.file.binary, &self.ends);
        if ends.by_argument.is_none() && ends.probed.is_empty() {
            return Behind::Unknown;
        }
        let at = |address| binary.functions_at(Address(address)).iter();
        let own = match slot {
            Some(slot) => binary.linked(slot),
            None => Some(address),
        };
        let own = own.into_iter().flat_map(at).map(|function| &*function.name);
        let linked = slot.into_iter().flat_map(|slot| binary.linked_names(slot));
        let mut names = own.clone().chain(linked);
        let fills = |name: &str| ends.by_argument.is_some() && FILLS.contains(&name);
        // A function of another file may be interposed by one that has no probe.
        let is_probed = |name: &str| ends.probed.iter().any(|probed| probed == name);
        match () {
            _ if names.any(fills) => Behind::ReturnsArgument,
            _ if own.clone().any(is_probed) => Behind::HasProbe,
            _ => Behind::Unknown,
        }
    }

    fn data(&self, address: u64, bytes: usize) -> Option<Cow<'_, [u8]>> {
        self.file
            .binary
            .read_only(address, bytes as u64)
            .map(Cow::from)
    }
}

impl Searched<'_> {
    /// The exits of the function at a spot; or why they are not known.
    pub(crate) fn exits(
        &self,
        spot: &Spot,
        ends: CallEnds<'_>,
    ) -> Result<ExitProbes<StepProgram>, String> {
        let file = Followed { file: self, ends };
        let found = self.with_code(spot, |function| exits(function, &file))?;
        let found = found.map_err(|unclear| unclear.to_string())?;
        let mut probes = ExitProbes {
            is_go: self.binary.go_code(spot.address).is_some(),
            returns: Vec::new(),
            left: Vec::new(),
            by_argument: Vec::new(),
            handed_on: Vec::new(),
        };
        for address in &found.returns {
            probes.returns.push(self.place(spot, *address)?);
        }
        for left in &found.left {
            let place = self.place(spot, left.address)?;
            match (left.behind, ends.by_argument) {
                (Behind::ReturnsArgument, Some(code)) => {
                    probes.by_argument.push((place, code.clone()));
                }
                (Behind::HasProbe, _) => probes.handed_on.push(place),
                _ => probes.left.push((place, decides(spot, left)?)),
            }
        }
        let is_seen = probes.places().count() > probes.left.len();
        if let (false, Some(first)) = (is_seen, found.left.first()) {
            return Err(format!(
                "it is left by jumps alone, to where returns are not seen, such as that at {:#x}",
                first.address
            ));
        }
        Ok(probes)
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
fn decides(spot: &Spot, left: &Left) -> Result<Option<StepProgram>, String> {
    let conditions = match &left.when {
        When::Always => Vec::new(),
        When::Flags(condition) => vec![holds(*condition)],
        When::Outside { target, inside } => {
            let target = place_of(target);
            inside
                .iter()
                .map(|piece| is_outside(&target, piece))
                .collect()
        }
    };
    StepProgram::requiring(spot.address.0, &conditions)
        .map_err(|_| "it is in too many pieces".to_owned())
}

/// Whether a condition of a jump holds (Intel's manual, volume 1, appendix B).
fn holds(Condition(code): Condition) -> Value {
    const CARRY: u64 = 1 << 0;
    const PARITY: u64 = 1 << 2;
    const ZERO: u64 = 1 << 6;
    const SIGN: u64 = 1 << 7;
    const OVERFLOW: u64 = 1 << 11;
    let differ = || Value::binary(ExclusiveOr, is_set(SIGN), is_set(OVERFLOW));
    let value = match code >> 1 {
        0 => is_set(OVERFLOW),
        1 => is_set(CARRY),
        2 => is_set(ZERO),
        3 => is_set(CARRY | ZERO),
        4 => is_set(SIGN),
        5 => is_set(PARITY),
        6 => differ(),
        _ => Value::binary(Or, differ(), is_set(ZERO)),
    };
    match code & 1 {
        0 => value,
        _ => Value::IsZero(value.into()),
    }
}

/// Whether any of these flags is set: one or zero.
fn is_set(flags: u64) -> Value {
    let flags = Value::binary(
        And,
        Value::Register(Register::Flags),
        Value::Constant(flags),
    );
    Value::IsZero(Value::IsZero(flags.into()).into())
}

/// Whether an address is not in a piece of the file.
fn is_outside(address: &Value, piece: &Range<u64>) -> Value {
    let into = Value::binary(Subtract, address.clone(), Value::Image(piece.start));
    let length = piece.end.saturating_sub(piece.start);
    Value::IsZero(Value::binary(Below, into, Value::Constant(length)).into())
}

/// Where a computed jump goes.
fn place_of(target: &Target) -> Value {
    match *target {
        Target::Register(number) => register(number),
        Target::Memory {
            base,
            index,
            displacement,
        } => {
            let base = base.map_or(Value::Constant(0), register);
            let scaled = |(index, scale): (u8, u8)| {
                Value::binary(Multiply, register(index), Value::Constant(scale.into()))
            };
            let index = index.map_or(Value::Constant(0), scaled);
            let start = Value::binary(Add, base, index);
            start.plus(displacement as u64).load(8, false)
        }
    }
}

/// The register that instructions have under a number: in another order than the psABI, which
/// counts ours.
fn register(number: u8) -> Value {
    const FIRST: [u8; 8] = [0, 2, 1, 3, 7, 6, 4, 5];
    let ours = FIRST.get(usize::from(number)).copied().unwrap_or(number);
    Value::Register(Register::from_u8(ours).unwrap_or(Register::Rax))
}
