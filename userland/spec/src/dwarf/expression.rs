// SPDX-License-Identifier: MIT OR Apache-2.0
//! DWARF expressions (DWARF 5, sections 2.5 and 2.6) as values.
//!
//! The stack machine runs here, at set-up, over expression trees instead of
//! numbers; what is left is computed at the hit. Branches would need numbers and
//! are refused, like everything else that cannot be a [`Value`].

mod item;

use item::{joined, operation_name, IntegerType, Item};

use super::types::encoding_of;
use super::units::{Die, DwarfBytes, GimliUnit, Units};
use crate::value::{BinaryOperator, Value, Width};
use gimli::Operation;
use nsprobe_common::program::Register;

/// Most operations of an expression.
const OPERATIONS_MAX: usize = 512;
const STACK_MAX: usize = 64;
/// DWARF's numbers of %rbp and %rsp.
const FRAME_POINTER: u16 = 6;
pub(super) const STACK_POINTER: u16 = 7;
/// Largest tree, in nodes: more would not fit into a program anyway.
const NODES_MAX: usize = 512;
/// Where a part of a variable is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// In memory, at this address.
    Memory(Value),
    /// This is it: its low bytes are the part's.
    Value(Value),
    /// These bytes are it.
    Bytes(Vec<u8>),
    /// Nowhere, for a reason.
    Nowhere(String),
}

/// Where a variable is: parts in order, lowest address first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VariableLocation {
    pub(super) parts: Vec<VariablePart>,
    /// What of the stack it was computed from.
    pub(super) frame: Frame,
}

impl VariableLocation {
    /// Whether all of a variable of this number of bytes is somewhere.
    pub(super) fn is_whole(&self, bytes: Option<u64>) -> bool {
        let mut bits = bytes.unwrap_or_default().saturating_mul(8);
        self.parts.iter().all(|part| {
            bits = bits.saturating_sub(part.bits.unwrap_or(u64::MAX));
            !matches!(part.storage, Storage::Nowhere(_))
        }) && bits == 0
    }
}

/// What of the stack a location counts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Frame {
    /// Nothing.
    None,
    /// What the caller put there: it is there from the beginning.
    Caller,
    /// What the function's prologue puts there.
    Own,
    /// The same, counted from a register that the prologue sets.
    Register,
}

/// A part of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VariablePart {
    /// Its length; none: all of the variable.
    pub(super) bits: Option<u64>,
    pub(super) storage: Storage,
}

/// What an expression's meaning depends on.
pub(super) struct ExpressionContext<'u, 'a> {
    pub(super) units: &'u Units<'a>,
    pub(super) unit: u32,
    pub(super) parsed: &'u GimliUnit<'a>,
    /// The frame base at the place, or why there is none.
    pub(super) frame_base: &'u dyn Fn() -> Result<Value, String>,
    /// The canonical frame address at the place, or why it is not known.
    pub(super) frame_address: &'u dyn Fn() -> Result<Value, String>,
    /// Whether values at the function's entry are known: at the entry itself, or
    /// at a return, for which the entry keeps them.
    pub(super) at_entry: bool,
}

/// The register of that DWARF number.
pub(super) fn register(number: u16) -> Result<Value, String> {
    let known = u8::try_from(number).ok().and_then(Register::from_u8);
    known.map(Value::Register).ok_or_else(|| match number {
        17..=32 => format!(
            "it is in %xmm{}, and vector registers are not recorded",
            number - 17
        ),
        33..=40 => format!(
            "it is in %st{}, and floating-point registers are not recorded",
            number - 33
        ),
        _ => format!("it is in register {number} (DWARF's number), which is not recorded"),
    })
}

/// The value plus an offset.
pub(super) fn add(value: Value, offset: i64) -> Value {
    let (base, already) = base_and_offset(&value);
    let offset = already.wrapping_add(offset);
    match base {
        Value::Constant(number) => Value::Constant(number.wrapping_add(offset as u64)),
        Value::Image(address) => Value::Image(address.wrapping_add(offset as u64)),
        base if offset == 0 => base.clone(),
        base => Value::Binary(
            BinaryOperator::Add,
            Box::new(base.clone()),
            Box::new(Value::Constant(offset as u64)),
        ),
    }
}

/// The value without the constant that is added to it, and that constant.
pub(super) fn base_and_offset(value: &Value) -> (&Value, i64) {
    match value {
        Value::Binary(BinaryOperator::Add, base, offset) => match **offset {
            Value::Constant(offset) => (base, offset as i64),
            _ => (value, 0),
        },
        _ => (value, 0),
    }
}

/// Where the expression says that something is.
pub(super) fn compile<'a>(
    expression: DwarfBytes<'a>,
    place: &ExpressionContext<'_, 'a>,
) -> Result<VariableLocation, String> {
    let mut machine = Machine {
        place,
        stack: Vec::new(),
        location: VariableLocation {
            parts: Vec::new(),
            frame: Frame::None,
        },
        pending: None,
    };
    let encoding = place.parsed.encoding();
    let mut operations = gimli::Expression(expression).operations(encoding);
    let mut count = 0;
    while let Some(operation) = operations.next().map_err(|error| error.to_string())? {
        count += 1;
        if count > OPERATIONS_MAX {
            return Err("its location has too many operations".to_owned());
        }
        machine.operation(operation)?;
    }
    machine.finish()
}

struct Machine<'p, 'u, 'a> {
    place: &'p ExpressionContext<'u, 'a>,
    stack: Vec<Item>,
    location: VariableLocation,
    /// What is found where an operation said so that ends a part.
    pending: Option<Storage>,
}

impl<'a> Machine<'_, '_, 'a> {
    fn push(&mut self, item: Item) -> Result<(), String> {
        if self.stack.len() == STACK_MAX || item.nodes > NODES_MAX {
            return Err("its location is too complicated".to_owned());
        }
        self.stack.push(item);
        Ok(())
    }

    fn pop(&mut self) -> Result<Item, String> {
        self.stack
            .pop()
            .ok_or_else(|| "its location is damaged (the stack is empty)".to_owned())
    }

    fn pick(&self, index: usize) -> Result<Item, String> {
        let from_bottom = self.stack.len().checked_sub(index + 1);
        from_bottom
            .and_then(|at| self.stack.get(at))
            .cloned()
            .ok_or_else(|| "its location is damaged (the stack is too short)".to_owned())
    }

    fn operation(&mut self, operation: Operation<DwarfBytes<'a>>) -> Result<(), String> {
        match operation {
            Operation::Nop | Operation::Uninitialized => Ok(()),
            Operation::Drop => self.pop().map(drop),
            Operation::Pick { index } => {
                let item = self.pick(usize::from(index))?;
                self.push(item)
            }
            Operation::Swap => {
                let (top, below) = (self.pop()?, self.pop()?);
                self.push(top)?;
                self.push(below)
            }
            Operation::Rot => {
                let (top, second, third) = (self.pop()?, self.pop()?, self.pop()?);
                self.push(top)?;
                self.push(third)?;
                self.push(second)
            }
            Operation::Piece {
                size_in_bits,
                bit_offset,
            } => self.part(size_in_bits, bit_offset),
            Operation::Register { register: number } => {
                self.end_with(register(number.0).map_or_else(Storage::Nowhere, Storage::Value))
            }
            Operation::ImplicitValue { data } => {
                self.end_with(Storage::Bytes(data.slice().to_vec()))
            }
            Operation::StackValue => {
                let item = self.pop()?;
                self.end_with(Storage::Value(item.value))
            }
            Operation::ImplicitPointer { .. } => self.end_with(Storage::Nowhere(
                "what it points to has no address (DW_OP_implicit_pointer)".to_owned(),
            )),
            other => {
                let item = self.computed(other)?;
                self.push(item)
            }
        }
    }

    /// The result of an operation that pushes one value.
    fn computed(&mut self, operation: Operation<DwarfBytes<'a>>) -> Result<Item, String> {
        Ok(match operation {
            Operation::UnsignedConstant { value } => Item::generic(Value::Constant(value)),
            Operation::SignedConstant { value } => Item::generic(Value::Constant(value as u64)),
            Operation::RegisterOffset {
                register: number,
                offset,
                base_type,
            } => {
                if [FRAME_POINTER, STACK_POINTER].contains(&number.0) {
                    self.location.frame = Frame::Own;
                }
                let item = Item::generic(add(register(number.0)?, offset));
                item.into_kind(self.kind(base_type.0)?)
            }
            Operation::FrameOffset { offset } => {
                Item::generic(add((self.place.frame_base)()?, offset))
            }
            Operation::CallFrameCFA => Item::generic((self.place.frame_address)()?),
            Operation::Address { address } => Item::generic(Value::Image(address)),
            Operation::AddressIndex { index } => Item::generic(Value::Image(self.indexed(index)?)),
            Operation::ConstantIndex { index } => {
                Item::generic(Value::Constant(self.indexed(index)?))
            }
            Operation::EntryValue { expression } => self.entry_value(expression)?,
            Operation::TypedLiteral { base_type, value } => {
                let kind = self.kind(base_type.0)?;
                let mut bytes = [0; 8];
                let from = value.slice();
                let into = bytes.get_mut(..from.len());
                let into = into.ok_or("its location has a constant of more than 64 bits")?;
                into.copy_from_slice(from);
                Item::generic(Value::Constant(u64::from_le_bytes(bytes))).into_kind(kind)
            }
            Operation::Convert { base_type } => {
                let kind = self.kind(base_type.0)?;
                self.pop()?.into_kind(kind)
            }
            Operation::Reinterpret { base_type } => {
                let kind = self.kind(base_type.0)?;
                let item = self.pop()?;
                if item.kind.map_or(64, |k| k.bits) != kind.map_or(64, |k| k.bits) {
                    return Err("its location changes a size (DW_OP_reinterpret)".to_owned());
                }
                item.into_kind(kind)
            }
            Operation::Deref {
                base_type,
                size,
                space,
            } => self.load(base_type.0, size, space)?,
            Operation::PlusConstant { value } => {
                let item = self.pop()?;
                let kind = item.kind;
                let sum = Item {
                    value: add(item.value, value as i64),
                    nodes: item.nodes + 2,
                    kind,
                };
                sum.into_kind(kind)
            }
            Operation::Not => {
                let item = self.pop()?;
                let inverted = Item {
                    value: Value::Not(Box::new(item.value)),
                    nodes: item.nodes + 1,
                    kind: item.kind,
                };
                inverted.into_kind(item.kind)
            }
            Operation::Neg => {
                let item = self.pop()?;
                let zero = Item {
                    kind: item.kind,
                    ..Item::generic(Value::Constant(0))
                };
                joined(BinaryOperator::Subtract, zero, item)?
            }
            other => self.arithmetic(&other)?,
        })
    }

    fn arithmetic(&mut self, operation: &Operation<DwarfBytes<'a>>) -> Result<Item, String> {
        let unsupported = || {
            let name = operation_name(operation);
            Err(format!("its location uses {name}, which is not supported"))
        };
        let operator = match operation {
            Operation::Plus => BinaryOperator::Add,
            Operation::Minus => BinaryOperator::Subtract,
            Operation::Mul => BinaryOperator::Multiply,
            Operation::Mod => BinaryOperator::Modulo,
            Operation::And => BinaryOperator::And,
            Operation::Or => BinaryOperator::Or,
            Operation::Xor => BinaryOperator::ExclusiveOr,
            Operation::Shl => BinaryOperator::ShiftLeft,
            Operation::Shr => BinaryOperator::ShiftRight,
            Operation::Shra => BinaryOperator::ShiftRightSigned,
            Operation::Eq | Operation::Ne => BinaryOperator::Equal,
            Operation::Lt | Operation::Gt => BinaryOperator::Less,
            Operation::Le | Operation::Ge => BinaryOperator::LessOrEqual,
            _ => return unsupported(),
        };
        let (top, below) = (self.pop()?, self.pop()?);
        let signed = below.kind.is_some_and(|kind| kind.signed);
        // On values extended from their type, these mean something else.
        let differs = match operator {
            BinaryOperator::Modulo | BinaryOperator::ShiftRight => signed,
            BinaryOperator::ShiftRightSigned => below.kind.is_some() && !signed,
            _ => false,
        };
        if differs {
            return unsupported();
        }
        let unsigned_64 = below.kind.is_some_and(|kind| kind.bits == 64) && !signed;
        let operator = match operator {
            BinaryOperator::Less if unsigned_64 => BinaryOperator::Below,
            BinaryOperator::LessOrEqual if unsigned_64 => BinaryOperator::BelowOrEqual,
            other => other,
        };
        let swapped = matches!(operation, Operation::Gt | Operation::Ge);
        let (left, right) = if swapped { (top, below) } else { (below, top) };
        let result = joined(operator, left, right)?;
        Ok(match operation {
            Operation::Ne => Item {
                value: Value::IsZero(Box::new(result.value)),
                nodes: result.nodes + 1,
                kind: None,
            },
            _ => result,
        })
    }

    fn load(&mut self, base_type: usize, size: u8, space: bool) -> Result<Item, String> {
        if space || ![1, 2, 4, 8].contains(&size) {
            return Err(format!("its location loads {size} bytes at once"));
        }
        let kind = self.kind(base_type)?;
        let address = self.pop()?;
        Ok(Item {
            nodes: address.nodes + 1,
            value: Value::Load {
                address: Box::new(address.value),
                width: Width {
                    bytes: size,
                    signed: kind.is_some_and(|kind| kind.signed),
                },
            },
            kind,
        })
    }

    /// What the expression was when the function was entered.
    fn entry_value(&mut self, expression: DwarfBytes<'a>) -> Result<Item, String> {
        if !self.place.at_entry {
            return Err(
                "only its value at the function's entry is known here (DW_OP_entry_value); \
                 probe the entry or the return"
                    .to_owned(),
            );
        }
        let nested = || Err("it depends on a frame inside of DW_OP_entry_value".to_owned());
        let place = ExpressionContext {
            frame_base: &nested,
            frame_address: &nested,
            // Not again: the stack could be made to overflow.
            at_entry: false,
            ..*self.place
        };
        let location = compile(expression, &place)?;
        let value = match <[VariablePart; 1]>::try_from(location.parts) {
            // An expression without a register is one whose value was pushed.
            Ok(
                [VariablePart {
                    bits: None,
                    storage: Storage::Value(value) | Storage::Memory(value),
                }],
            ) => value,
            _ => return Err("its DW_OP_entry_value is not a register".to_owned()),
        };
        Ok(Item::generic(Value::AtEntry(Box::new(value))))
    }

    fn indexed(&self, index: gimli::DebugAddrIndex<usize>) -> Result<u64, String> {
        let dwarf = self.place.units.dwarf_of(self.place.unit);
        dwarf
            .address(self.place.parsed, index)
            .map_err(|error| error.to_string())
    }

    /// The integer type at that offset of the unit; 0 is the generic one.
    fn kind(&self, base_type: usize) -> Result<Option<IntegerType>, String> {
        if base_type == 0 {
            return Ok(None);
        }
        let die = Die {
            unit: self.place.unit,
            offset: base_type,
        };
        let node = self.place.units.node(die).map_err(|e| e.to_string())?;
        let (encoding, bytes) = encoding_of(&node);
        let signed = match encoding {
            gimli::DW_ATE_signed | gimli::DW_ATE_signed_char => true,
            gimli::DW_ATE_unsigned
            | gimli::DW_ATE_unsigned_char
            | gimli::DW_ATE_boolean
            | gimli::DW_ATE_UTF
            | gimli::DW_ATE_address => false,
            _ => return Err("its location computes with floating-point numbers".to_owned()),
        };
        if ![1, 2, 4, 8].contains(&bytes) {
            return Err(format!("its location computes with {bytes}-byte numbers"));
        }
        Ok(Some(IntegerType {
            bits: bytes as u8 * 8,
            signed,
        }))
    }

    fn end_with(&mut self, storage: Storage) -> Result<(), String> {
        match self.pending.replace(storage) {
            None => Ok(()),
            Some(_) => Err("its location is damaged (two places at once)".to_owned()),
        }
    }

    /// What the operations since the last part say.
    fn ended(&mut self) -> Option<Storage> {
        let stack = std::mem::take(&mut self.stack).pop();
        let pending = self.pending.take();
        pending.or_else(|| stack.map(|item| Storage::Memory(item.value)))
    }

    fn part(&mut self, bits: u64, bit_offset: Option<u64>) -> Result<(), String> {
        if bit_offset.is_some_and(|offset| offset != 0) {
            return Err("its location uses DW_OP_bit_piece with an offset".to_owned());
        }
        let storage = self
            .ended()
            .unwrap_or_else(|| Storage::Nowhere("this part of it is optimized out".to_owned()));
        self.location.parts.push(VariablePart {
            bits: Some(bits),
            storage,
        });
        Ok(())
    }

    fn finish(mut self) -> Result<VariableLocation, String> {
        match (self.ended(), self.location.parts.is_empty()) {
            (Some(storage), true) => self.location.parts.push(VariablePart {
                bits: None,
                storage,
            }),
            (Some(_), false) => {
                return Err("its location is damaged (something behind its parts)".to_owned())
            }
            (None, _) => {}
        }
        Ok(self.location)
    }
}
