// SPDX-License-Identifier: MIT OR Apache-2.0
//! Some bits of what lies in memory, in a register, or in several places.

use crate::scope::{ValuePart, ValuePlace};
use crate::value::BinaryOperator as Operator;
use crate::Value;
use std::rc::Rc;

/// What lies some bytes into a register.
pub(super) fn shifted(value: Value, bytes: u64) -> ValuePlace {
    ValuePlace::Value(match bytes {
        0 => value,
        bytes => Value::binary(Operator::ShiftRight, value, Value::Constant(bytes * 8)),
    })
}

/// A member of what lies in several places: in one of them, or a number in two.
pub(super) fn of_pieces(
    pieces: &Rc<[ValuePart]>,
    offset: u64,
    bytes: u64,
    of_entry: bool,
) -> Option<ValuePlace> {
    let end = offset.saturating_add(bytes);
    let holds = |piece: &&ValuePart| {
        piece.offset <= offset && end <= piece.offset.saturating_add(piece.bytes)
    };
    let Some(piece) = pieces.iter().find(holds) else {
        if bytes > 8 {
            return several(pieces, offset, end).map(ValuePlace::Pieces);
        }
        let whole = ValuePlace::Pieces(Rc::clone(pieces));
        let bits = bytes.checked_mul(8)?;
        return bits_of(&whole, offset.checked_mul(8)?, bits, of_entry).map(ValuePlace::Value);
    };
    match (&piece.place, offset - piece.offset) {
        (ValuePlace::Memory(address), inside) => {
            Some(ValuePlace::Memory(address.clone().plus(inside)))
        }
        (ValuePlace::Value(value), inside @ 0..8) => Some(shifted(value.clone(), inside)),
        _ => None,
    }
}

/// The pieces that a part from an offset to an end consists of, if it begins and ends with one.
fn several(pieces: &[ValuePart], offset: u64, end: u64) -> Option<Rc<[ValuePart]>> {
    let is_in = |piece: &&ValuePart| piece.offset >= offset && piece.offset < end;
    let found: Vec<ValuePart> = pieces
        .iter()
        .filter(is_in)
        .map(|piece| ValuePart {
            offset: piece.offset - offset,
            ..piece.clone()
        })
        .collect();
    let is_whole = found.first()?.offset == 0
        && found
            .iter()
            .all(|piece| piece.offset.saturating_add(piece.bytes) <= end - offset);
    is_whole.then(|| found.into())
}

/// `count` bits, at most 64, from bit `first` on of what is at a place, without a sign; none where
/// not all of them are there.
pub(super) fn bits_of(place: &ValuePlace, first: u64, count: u64, of_entry: bool) -> Option<Value> {
    let right = |value: Value, bits: u64| match bits {
        0 => value,
        bits => Value::binary(Operator::ShiftRight, value, Value::Constant(bits)),
    };
    let left =
        |value: Value, bits: u64| Value::binary(Operator::ShiftLeft, value, Value::Constant(bits));
    let or = |a: Value, b: Value| Value::binary(Operator::Or, a, b);
    let bits = u8::try_from(count)
        .ok()
        .filter(|bits| (1..=64).contains(bits))?;
    let found = match place {
        ValuePlace::Value(value) => {
            let is_inside = first.checked_add(count)? <= 64;
            right(is_inside.then(|| value.clone())?, first)
        }
        ValuePlace::Memory(address) => {
            let load = |from: u64, bytes: u8| {
                let value = address.clone().plus(from).load(bytes, false);
                match of_entry {
                    true => value.at_entry(),
                    false => value,
                }
            };
            let (byte, lowest) = (first / 8, first % 8);
            // As few bytes as hold the bits: more might not be there.
            match (lowest + count).div_ceil(8) {
                bytes @ 1..=8 => right(load(byte, bytes.next_power_of_two() as u8), lowest),
                _ => {
                    let high = left(load(byte.checked_add(8)?, 1), 64 - lowest);
                    or(right(load(byte, 8), lowest), high)
                }
            }
        }
        ValuePlace::Pieces(pieces) => {
            let (end, mut found, mut covered) = (first.checked_add(count)?, None, 0);
            for piece in pieces.iter() {
                let start = piece.offset.checked_mul(8)?;
                let piece_end = start.checked_add(piece.bytes.checked_mul(8)?)?;
                let (from, to) = (first.max(start), end.min(piece_end));
                if from < to {
                    let part = bits_of(&piece.place, from - start, to - from, of_entry)?;
                    let part = left(part, from - first);
                    found = Some(found.map_or(part.clone(), |found| or(found, part)));
                    covered += to - from;
                }
            }
            found.filter(|_| covered == count)?
        }
    };
    Some(extended(found, bits, false))
}

/// The low bits of a value, extended to 64.
pub(super) fn extended(value: Value, bits: u8, signed: bool) -> Value {
    match bits {
        1..=63 => Value::Truncate {
            value: Box::new(value),
            bits,
            signed,
        },
        _ => value,
    }
}
