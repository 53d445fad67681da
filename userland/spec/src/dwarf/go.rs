// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the arguments and results of a function of Go are: `ABIInternal` of Go's
//! `src/cmd/compile/abi-internal.md`, "Function call argument and result passing".

use super::error::DwarfError;
use super::expression::{
    add, register, Frame, Storage, VariableLocation, VariablePart, STACK_POINTER,
};
use super::names::NameKind;
use super::place::IN_VECTOR;
use super::types::id_of;
use super::units::DebugNode;
use super::variable::{unreadable, Moment};
use super::DebugInfo;
use crate::plain::GO_WORDS;
use crate::scope::ValuePlace;
use crate::types::{GoKind, Shape, TypeId};
use crate::value::Value;
use nsprobe_common::program::Register;
use nsprobe_symbolize::{Address, GoCode};

/// Vector registers for numbers with a fraction.
const VECTOR_REGISTERS: usize = 15;
/// Most parts of a value in registers.
const PARTS_MAX: usize = GO_WORDS.len() + VECTOR_REGISTERS;
/// Deepest nesting of members.
const NESTING_MAX: usize = 16;
/// Most types that are looked at for one value.
const TYPES_MAX: usize = 256;

/// A part of a value that has a register of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// Bytes from the beginning of the value.
    offset: u64,
    bytes: u64,
    is_vector: bool,
}

/// The parts of a type, as far as it may be in registers.
#[derive(Default)]
struct Parts {
    list: Vec<Part>,
    /// Arrays of several elements are on the stack, and what holds one.
    has_array: bool,
    alignment: u64,
    types: usize,
}

/// Where a value is passed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Passed {
    /// Nowhere: it has no bytes.
    Nothing,
    /// Each part in a register; `None` is a vector register.
    Registers(Vec<(Part, Option<Register>)>),
    /// On the stack, this number of bytes above the return address.
    Stack(u64),
}

/// What earlier values of a call took.
#[derive(Default)]
struct Taken {
    integers: usize,
    vectors: usize,
    stack: u64,
}

impl Taken {
    fn pass(&mut self, parts: &Parts, bytes: u64) -> Passed {
        if bytes == 0 {
            self.align(parts.alignment);
            return Passed::Nothing;
        }
        match self.registers(parts) {
            Some(registers) => Passed::Registers(registers),
            None => {
                self.align(parts.alignment);
                let at = self.stack;
                self.stack = at.saturating_add(bytes);
                Passed::Stack(at)
            }
        }
    }

    fn registers(&mut self, parts: &Parts) -> Option<Vec<(Part, Option<Register>)>> {
        if parts.has_array {
            return None;
        }
        let (mut integers, mut vectors) = (self.integers, self.vectors);
        let mut found = Vec::new();
        for part in &parts.list {
            let register = match part.is_vector {
                true => {
                    vectors += 1;
                    None
                }
                false => {
                    integers += 1;
                    Some(*GO_WORDS.get(integers - 1)?)
                }
            };
            found.push((*part, register));
        }
        if vectors > VECTOR_REGISTERS {
            return None;
        }
        (self.integers, self.vectors) = (integers, vectors);
        Some(found)
    }

    fn align(&mut self, alignment: u64) {
        let aligned = self.stack.checked_next_multiple_of(alignment.max(1));
        self.stack = aligned.unwrap_or(u64::MAX);
    }
}

impl<'a> DebugInfo<'a> {
    /// Whether a function is one of Go's.
    pub(super) fn is_go(&self, node: &DebugNode<'a>) -> Result<bool, DwarfError> {
        Ok(self.units.language(node.die.unit)? == Some(gimli::DW_LANG_Go))
    }

    /// Whether a parameter is a result: Go's are parameters, too.
    pub(super) fn is_go_result(&self, node: &DebugNode<'a>) -> Result<bool, DwarfError> {
        Ok(self.is_go(node)? && node.flag(gimli::DW_AT_variable_parameter))
    }

    /// What a struct is to a programmer of Go, by `DW_AT_go_kind` (`src/cmd/internal/dwarf`).
    pub(super) fn go_kind(&self, id: TypeId) -> Result<Option<GoKind>, DwarfError> {
        const DW_AT_GO_KIND: gimli::DwAt = gimli::DwAt(0x2900);
        let Some(node) = self.type_node(id)? else {
            return Ok(None);
        };
        if !self.is_go(&node)? {
            return Ok(None);
        }
        // An interface is by its own name a typedef of one of these.
        let is_interface = matches!(
            self.units.name(&node)?,
            Some("runtime.iface" | "runtime.eface")
        );
        Ok(match node.number(DW_AT_GO_KIND) {
            _ if is_interface => Some(GoKind::Interface),
            Some(23) => Some(GoKind::Slice),
            Some(24) => Some(GoKind::String),
            _ => None,
        })
    }

    /// Where a `g` has the number of its goroutine.
    pub(super) fn goid_offset(&self) -> Result<Option<u64>, DwarfError> {
        let names = self.names()?;
        for die in names.find(&self.units, "runtime.g", NameKind::Type, true)? {
            for member in self.members_of(id_of(Some(die)))? {
                if member.name.as_deref() == Some("goid") {
                    return Ok(Some(member.offset));
                }
            }
        }
        Ok(None)
    }

    /// Where a parameter of a function of Go is at its entry, or a result at its return.
    pub(super) fn go_place(
        &self,
        node: &DebugNode<'a>,
        name: &str,
        moment: &Moment,
    ) -> Result<ValuePlace, DwarfError> {
        let is_result = self.is_go_result(node)?;
        let passed = self.go_passed(node, moment, is_result)?;
        let passed = passed.map_err(|why| unreadable(name, why))?;
        let id = id_of(self.units.type_of(node)?);
        let parts = match passed {
            Passed::Nothing => return Err(unreadable(name, "it is empty".to_owned())),
            Passed::Stack(above) => {
                // A return has taken its address off the stack.
                let address = if is_result { 0 } else { 8 };
                let above = i64::try_from(above).unwrap_or(i64::MAX);
                let above = above.saturating_add(address);
                let stack = register(STACK_POINTER).map(|stack| add(stack, above));
                vec![VariablePart {
                    bits: None,
                    storage: stack.map_or_else(Storage::Nowhere, Storage::Memory),
                }]
            }
            Passed::Registers(parts) => in_registers(&parts, self.size_of(id)?.unwrap_or_default()),
        };
        let frame = Frame::None;
        self.placed(name, VariableLocation { parts, frame }, id)
    }

    /// How a parameter is passed, or a result; or why that is not known.
    fn go_passed(
        &self,
        node: &DebugNode<'a>,
        moment: &Moment,
        is_result: bool,
    ) -> Result<Result<Passed, String>, DwarfError> {
        if self.binary.go_code(Address(moment.outer_entry)) != Some(GoCode::Compiled) {
            return Ok(Err(
                "the function is not called as those of Go's compiler".to_owned()
            ));
        }
        let function = self.units.node(moment.function.outer)?;
        // The dictionary that code for several types gets is no parameter in the debug information.
        let is_generic = self
            .units
            .name(&function)?
            .is_some_and(|name| name.contains('['));
        let mut taken = Taken::default();
        let mut doubt = is_generic.then(|| "the function is generic".to_owned());
        let mut results = false;
        for parameter in self.parameters_of(&function)? {
            if self.is_go_result(&parameter)? && !results {
                results = true;
                taken.align(8);
                taken = Taken {
                    stack: taken.stack,
                    ..Taken::default()
                };
            }
            let id = id_of(self.units.type_of(&parameter)?);
            let mut parts = Parts::default();
            let passed = match (self.size_of(id)?, self.parts(id, 0, 0, &mut parts)?) {
                (Some(bytes), Ok(())) => taken.pass(&parts, bytes),
                (_, found) => {
                    let why = found
                        .err()
                        .unwrap_or_else(|| "its size is not known".to_owned());
                    if parameter.die == node.die || is_result == results {
                        return Ok(Err(why));
                    }
                    doubt.get_or_insert(why);
                    continue;
                }
            };
            if parameter.die == node.die {
                let is_certain = matches!(&passed, Passed::Registers(_)) && is_result;
                return Ok(match doubt.filter(|_| !is_certain) {
                    Some(why) => Err(why),
                    None => Ok(passed),
                });
            }
        }
        Ok(Err("it is no parameter of the function".to_owned()))
    }

    /// Adds the parts of a type at an offset of the value.
    fn parts(
        &self,
        id: TypeId,
        offset: u64,
        depth: usize,
        parts: &mut Parts,
    ) -> Result<Result<(), String>, DwarfError> {
        parts.types += 1;
        if depth > NESTING_MAX || parts.types > TYPES_MAX {
            return Ok(Err("its type is too large to be looked through".to_owned()));
        }
        let (bytes, is_vector) = match self.shape(id)? {
            Shape::Integer { bytes, .. }
            | Shape::Boolean { bytes }
            | Shape::Character { bytes, .. }
            | Shape::Enumeration { bytes, .. } => (bytes, false),
            Shape::Pointer { .. } => (8, false),
            Shape::Float { bytes } => (bytes, true),
            Shape::Struct {
                id, union: false, ..
            } => {
                for member in self.members_of(id)? {
                    let at = offset.saturating_add(member.offset);
                    if let Err(why) = self.parts(member.type_id, at, depth + 1, parts)? {
                        return Ok(Err(why));
                    }
                }
                return Ok(Ok(()));
            }
            Shape::Array { of, count } => {
                parts.has_array |= count.is_none_or(|count| count > 1);
                return match count {
                    Some(0) => {
                        let mut element = Parts::default();
                        let found = self.parts(of, 0, depth + 1, &mut element)?;
                        parts.alignment = parts.alignment.max(element.alignment);
                        Ok(found)
                    }
                    _ => self.parts(of, offset, depth + 1, parts),
                };
            }
            _ => match self.complex(id)? {
                Some(half) => {
                    parts.push(offset, half, true);
                    parts.push(offset.saturating_add(half), half, true);
                    return Ok(Ok(()));
                }
                None => {
                    let name = self.resolve_type(id)?.name;
                    return Ok(Err(format!("how a `{name}` is passed is not known")));
                }
            },
        };
        parts.push(offset, bytes, is_vector);
        Ok(Ok(()))
    }

    /// Bytes of one half of a complex number.
    fn complex(&self, id: TypeId) -> Result<Option<u64>, DwarfError> {
        let Some(node) = self.type_node(id)? else {
            return Ok(None);
        };
        let (encoding, bytes) = super::types::encoding_of(&node);
        Ok((encoding == gimli::DW_ATE_complex_float).then_some(bytes / 2))
    }
}

impl Parts {
    fn push(&mut self, offset: u64, bytes: u64, is_vector: bool) {
        self.alignment = self.alignment.max(bytes.min(8));
        // One more than fits says that it does not.
        if self.list.len() <= PARTS_MAX {
            self.list.push(Part {
                offset,
                bytes,
                is_vector,
            });
        }
    }
}

/// The parts of a value of `bytes` that is in registers; what lies between them counts as zero.
fn in_registers(parts: &[(Part, Option<Register>)], bytes: u64) -> Vec<VariablePart> {
    let in_register = |register: &Option<Register>| match register {
        Some(register) => Storage::Value(Value::Register(*register)),
        None => Storage::Nowhere(IN_VECTOR.to_owned()),
    };
    let part = |bits: u64, storage| VariablePart {
        bits: Some(bits.saturating_mul(8)),
        storage,
    };
    if let [(only, number)] = parts {
        if only.bytes == bytes {
            return vec![part(bytes, in_register(number))];
        }
    }
    let mut found = Vec::new();
    let mut end = 0;
    for (own, number) in parts {
        found.push(part(own.offset.saturating_sub(end), padding()));
        found.push(part(own.bytes, in_register(number)));
        end = own.offset.saturating_add(own.bytes);
    }
    found.push(part(bytes.saturating_sub(end), padding()));
    found.retain(|part| part.bits != Some(0));
    found
}

fn padding() -> Storage {
    Storage::Value(Value::Constant(0))
}
