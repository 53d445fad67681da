// SPDX-License-Identifier: MIT OR Apache-2.0
//! From where something is by DWARF or by the calling convention to a [`ValuePlace`] of
//! its type: numbers extended, structs in registers in pieces.

use super::convention::Passing;
use super::expression::{
    add, register, Frame, Storage, VariableLocation, VariablePart, STACK_POINTER,
};
use super::units::{DebugNode, Units};
use super::variable::unreadable;
use super::DebugInfo;
use crate::dwarf::error::DwarfError;
use crate::scope::{ValuePart, ValuePlace};
use crate::types::{Shape, Type, TypeId};
use crate::value::{Value, Width};
use gimli::AttributeValue;
use std::rc::Rc;

/// Why what is in a vector register is not to be had.
pub(super) const IN_VECTOR: &str = "it is in a vector register, and those are not recorded";

/// Most bytes of something that is not in memory.
const BYTES_MAX: u64 = 256;
/// Most parts of something that lies in several places.
const PARTS_MAX: usize = 64;

impl<'a> DebugInfo<'a> {
    /// The place of something that is passed so, at the function's entry or after
    /// its return.
    pub(super) fn passed(
        &self,
        passing: &Passing,
        id: TypeId,
    ) -> Result<Result<ValuePlace, String>, DwarfError> {
        let location = match passing {
            Passing::Nothing => return Ok(Err("it is empty".to_owned())),
            Passing::Reference(number) => whole(register(*number).map(Storage::Memory)),
            Passing::Stack(bytes) => {
                let stack = register(STACK_POINTER)
                    .map(|stack| add(stack, 8i64.saturating_add(*bytes as i64)));
                whole(stack.map(Storage::Memory))
            }
            Passing::Registers(numbers) => match numbers.as_slice() {
                [one] => whole(word(*one).map(Storage::Value)),
                words => {
                    let part = |number: &Option<u16>| VariablePart {
                        bits: Some(64),
                        storage: word(*number).map_or_else(Storage::Nowhere, Storage::Value),
                    };
                    VariableLocation {
                        parts: words.iter().map(part).collect(),
                        frame: Frame::None,
                    }
                }
            },
        };
        self.place(location, id)
    }

    /// The place of something whose value the compiler knows.
    pub(super) fn constant_place(
        &self,
        node: &DebugNode<'a>,
        name: &str,
        id: TypeId,
    ) -> Result<Option<ValuePlace>, DwarfError> {
        let Some((owner, value)) = self.units.inherited(node, gimli::DW_AT_const_value)? else {
            return Ok(None);
        };
        let storage = match (Units::constant(Some(value)), value) {
            (Some(number), _) => Storage::Value(Value::Constant(number)),
            (None, AttributeValue::Block(bytes)) => Storage::Bytes(bytes.slice().to_vec()),
            (None, text) => match self.units.text(owner.die.unit, &owner.unit, text) {
                Some(text) => Storage::Bytes(text.as_bytes().to_vec()),
                None => Storage::Nowhere("its constant is of an unknown form".to_owned()),
            },
        };
        self.placed(name, whole(Ok(storage)), id).map(Some)
    }

    /// The place of what is at a location.
    pub(super) fn placed(
        &self,
        name: &str,
        location: VariableLocation,
        id: TypeId,
    ) -> Result<ValuePlace, DwarfError> {
        self.place(location, id)?
            .map_err(|why| unreadable(name, why))
    }

    fn place(
        &self,
        location: VariableLocation,
        id: TypeId,
    ) -> Result<Result<ValuePlace, String>, DwarfError> {
        let shape = self.shape(id)?;
        let size = self.size_of(id)?;
        let mut parts = location.parts;
        if let ([part], Some(size)) = (parts.as_mut_slice(), size) {
            // One part that covers the whole is the whole.
            if part.bits.is_some_and(|bits| bits >= size.saturating_mul(8)) {
                part.bits = None;
            }
        }
        Ok(match <[VariablePart; 1]>::try_from(parts) {
            Ok(
                [VariablePart {
                    bits: None,
                    storage,
                }],
            ) => whole_place(storage, &shape, size),
            Ok([part]) => pieces(vec![part], size),
            Err(parts) => pieces(parts, size),
        })
    }
}

fn word(number: Option<u16>) -> Result<Value, String> {
    match number {
        Some(number) => register(number),
        None => Err(IN_VECTOR.to_owned()),
    }
}

fn whole(storage: Result<Storage, String>) -> VariableLocation {
    VariableLocation {
        parts: vec![VariablePart {
            bits: None,
            storage: storage.unwrap_or_else(Storage::Nowhere),
        }],
        frame: Frame::None,
    }
}

/// Bytes and sign of what fits into a register.
fn scalar(shape: &Shape) -> Option<(u64, bool)> {
    let kind = Type::new("", shape.clone());
    let is_scalar = matches!(
        shape,
        Shape::Integer { .. }
            | Shape::Boolean { .. }
            | Shape::Character { .. }
            | Shape::Enumeration { .. }
            | Shape::Pointer { .. }
            | Shape::Float { .. }
    );
    let bytes = kind.bytes().filter(|bytes| (1..=8).contains(bytes))?;
    is_scalar.then(|| (bytes, kind.is_signed()))
}

/// The value extended to 64 bits from its type.
fn extended(value: Value, bytes: u64, signed: bool) -> Value {
    if bytes >= 8 {
        return value;
    }
    let bits = bytes as u8 * 8;
    match value {
        Value::Constant(number) => {
            let unused = 64 - u32::from(bits);
            let high = number << unused;
            Value::Constant(match signed {
                true => ((high as i64) >> unused) as u64,
                false => high >> unused,
            })
        }
        Value::Load { address, width } if u64::from(width.bytes) == bytes => Value::Load {
            address,
            width: Width { signed, ..width },
        },
        value => Value::Truncate {
            value: Box::new(value),
            bits,
            signed,
        },
    }
}

fn whole_place(storage: Storage, shape: &Shape, size: Option<u64>) -> Result<ValuePlace, String> {
    match (storage, scalar(shape)) {
        (Storage::Memory(address), _) => Ok(ValuePlace::Memory(address)),
        (Storage::Nowhere(why), _) => Err(why),
        (Storage::Value(value), Some((bytes, signed))) => {
            Ok(ValuePlace::Value(extended(value, bytes, signed)))
        }
        (Storage::Bytes(bytes), Some((wanted, signed))) => {
            let number = number_of(&bytes);
            let fits = bytes.len() as u64 >= wanted;
            number
                .filter(|_| fits)
                .map(|number| ValuePlace::Value(extended(Value::Constant(number), wanted, signed)))
                .ok_or_else(|| "its constant has another size".to_owned())
        }
        (storage, None) => {
            let bytes = size.ok_or("its size is not known, and it is not in memory")?;
            if matches!(storage, Storage::Value(_)) && bytes > 8 {
                return Err(format!("it has {bytes} bytes, but is in one register"));
            }
            let part = VariablePart {
                bits: Some(bytes.saturating_mul(8)),
                storage,
            };
            pieces(vec![part], size)
        }
    }
}

/// The first eight bytes as a number.
fn number_of(bytes: &[u8]) -> Option<u64> {
    let mut word = [0; 8];
    let length = bytes.len().min(8);
    word.get_mut(..length)?
        .copy_from_slice(bytes.get(..length)?);
    (length > 0).then(|| u64::from_le_bytes(word))
}

fn pieces(parts: Vec<VariablePart>, size: Option<u64>) -> Result<ValuePlace, String> {
    let mut found = Vec::new();
    let mut missing = None;
    let mut offset = 0u64;
    for part in parts {
        let bits = part.bits.unwrap_or(0);
        if bits == 0 || bits % 8 != 0 {
            return Err("it is in parts that are not whole bytes".to_owned());
        }
        let bytes = bits / 8;
        if found.len() >= PARTS_MAX {
            return Err("it is in too many parts".to_owned());
        }
        match part.storage {
            Storage::Nowhere(why) => missing = Some(why),
            Storage::Memory(address) => found.push(ValuePart {
                offset,
                bytes,
                place: ValuePlace::Memory(address),
            }),
            Storage::Value(value) if bytes <= 8 => found.push(ValuePart {
                offset,
                bytes,
                place: ValuePlace::Value(value),
            }),
            Storage::Value(_) => missing = Some(format!("{bytes} bytes are in one register")),
            Storage::Bytes(data) => constant_pieces(&data, offset, bytes, &mut found)?,
        }
        offset = offset.saturating_add(bytes);
    }
    let all = size.is_some_and(|size| offset > size.next_multiple_of(8).saturating_add(8));
    match (found.is_empty(), missing) {
        _ if all => Err("its parts are larger than it".to_owned()),
        (true, Some(why)) => Err(why),
        (true, None) => Err("it is nowhere".to_owned()),
        (false, _) => Ok(ValuePlace::Pieces(Rc::from(found))),
    }
}

fn constant_pieces(
    data: &[u8],
    offset: u64,
    bytes: u64,
    found: &mut Vec<ValuePart>,
) -> Result<(), String> {
    if bytes > BYTES_MAX || data.len() as u64 > BYTES_MAX {
        return Err(format!("it is a constant of more than {BYTES_MAX} bytes"));
    }
    for (index, chunk) in data.chunks(8).enumerate() {
        let at = index as u64 * 8;
        let length = (chunk.len() as u64).min(bytes.saturating_sub(at));
        if let Some(number) = number_of(chunk).filter(|_| length > 0) {
            found.push(ValuePart {
                offset: offset.saturating_add(at),
                bytes: length,
                place: ValuePlace::Value(Value::Constant(number)),
            });
        }
    }
    Ok(())
}
