// SPDX-License-Identifier: MIT OR Apache-2.0
//! The variables of a function, and where they are at an address.

use super::error::DwarfError;
use super::expression::{
    self, add, base_and_offset, register, Frame, Storage, VariableLocation, STACK_POINTER,
};
use super::function::{is_block, DebugFunction};
use super::types::id_of;
use super::units::{Attribute, Children, DebugNode, DwarfBytes};
use super::DebugInfo;
use crate::scope::{Typed, ValuePlace, Variable, VariableRole};
use crate::types::TypeId;
use crate::value::Value;
use gimli::AttributeValue;
use nsprobe_symbolize::Address;
use std::cell::Cell;

/// Most variables of a function.
const VARIABLES_MAX: usize = 4096;
/// Most entries of a location list.
const LIST_MAX: usize = 65_536;

/// A variable of a function, as its entry says.
#[derive(Clone, Debug)]
pub(super) struct Local<'a> {
    pub(super) node: DebugNode<'a>,
    pub(super) name: String,
    pub(super) role: VariableRole,
    /// How many blocks it is inside of.
    depth: isize,
    /// Whether its block holds the address.
    pub(super) visible: bool,
}

/// Where something is asked for.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    pub(super) address: u64,
    pub(super) function: DebugFunction,
    /// Where the function that is really called begins.
    pub(super) outer_entry: u64,
}

impl Moment {
    /// Nothing of the called function has run yet.
    pub(super) fn at_entry(&self) -> bool {
        self.address == self.outer_entry
    }
}

impl<'a> DebugInfo<'a> {
    pub(super) fn moment(
        &self,
        function: &DebugFunction,
        address: Address,
    ) -> Result<Moment, DwarfError> {
        let outer = self.units.node(function.outer)?;
        let ranges = self.units.ranges(&outer)?;
        Ok(Moment {
            address: address.0,
            function: function.clone(),
            outer_entry: ranges.first().map_or(address.0, |range| range.0),
        })
    }

    /// The variables of a function, those of inner blocks first, without those of
    /// functions that are inlined in it.
    pub(super) fn variables_of(&self, moment: &Moment) -> Result<Vec<Local<'a>>, DwarfError> {
        let function = self.units.node(moment.function.die)?;
        let parameters = self.named_parameters(&function)?;
        let mut found = Vec::new();
        for (node, name) in parameters {
            let role = match self.is_go_result(&node)? {
                true => VariableRole::Result,
                false => VariableRole::Parameter,
            };
            found.push(Local {
                node,
                name,
                role,
                depth: 1,
                visible: true,
            });
        }
        // The depth of the outermost block that does not hold the address.
        let mut outside = isize::MAX;
        self.units.walk(&function, |child, depth| {
            if depth <= outside {
                outside = isize::MAX;
            }
            match child.tag() {
                gimli::DW_TAG_variable => {}
                gimli::DW_TAG_inlined_subroutine => return Ok(Children::Over),
                tag if is_block(tag) => {
                    let ranges = self.units.ranges(child)?;
                    let holds = |(from, to): &(u64, u64)| (*from..*to).contains(&moment.address);
                    if outside == isize::MAX && !ranges.iter().any(holds) {
                        outside = depth;
                    }
                    return Ok(Children::Into);
                }
                _ => return Ok(Children::Over),
            }
            if found.len() == VARIABLES_MAX {
                return Err(DwarfError::TooBig("a function has too many variables"));
            }
            // One that is damaged takes only itself with it.
            if let Ok(Some(name)) = self.units.name(child) {
                found.push(Local {
                    node: child.clone(),
                    name: name.to_owned(),
                    role: VariableRole::Local,
                    depth,
                    visible: depth <= outside,
                });
            }
            Ok(Children::Over)
        })?;
        // Stable: in the order of the source within a block.
        found.sort_by_key(|local| std::cmp::Reverse(local.depth));
        Ok(found)
    }

    /// The variable as the spec language sees it.
    pub(super) fn variable_at(&self, local: &Local<'a>, moment: &Moment) -> Variable {
        Variable {
            name: local.name.as_str().into(),
            role: local.role,
            value: self.typed_at(local, moment).map_err(Into::into),
        }
    }

    fn typed_at(&self, local: &Local<'a>, moment: &Moment) -> Result<Typed, DwarfError> {
        let id = id_of(self.units.type_of(&local.node)?);
        let kind = self.resolve_type(id)?;
        let place = self.place_of(local, moment, id)?;
        Ok(Typed { place, kind })
    }

    fn place_of(
        &self,
        local: &Local<'a>,
        moment: &Moment,
        id: TypeId,
    ) -> Result<ValuePlace, DwarfError> {
        let name = &local.name;
        if let Some(place) = self.constant_place(&local.node, name, id)? {
            return Ok(place);
        }
        if local.role == VariableRole::Result {
            if moment.function.inlined {
                let why = "the function is inlined here and does not return";
                return Err(unreadable(name, why.to_owned()));
            }
            return self.go_place(&local.node, name, moment);
        }
        let is_parameter = local.role == VariableRole::Parameter && !moment.function.inlined;
        let is_go = is_parameter && moment.at_entry() && self.is_go(&local.node)?;
        let location = match self.location_at(&local.node, name, moment) {
            // Go's debug information has no place of a parameter that the function does not use.
            Err(_) if is_go => return self.go_place(&local.node, name, moment),
            Ok(location) if is_go => {
                // Nor of what lies between the members of a struct.
                return match location.is_whole(self.size_of(id)?) {
                    true => self.placed(name, location, id),
                    false => match self.go_place(&local.node, name, moment) {
                        Ok(place) => Ok(place),
                        Err(_) => self.placed(name, location, id),
                    },
                };
            }
            Ok(location) if !self.is_early(&location, &local.node, moment)? => {
                let is_slot = location.frame == Frame::Caller
                    && moment.at_entry()
                    && local.role == VariableRole::Parameter
                    && !self.has_list(&local.node)?;
                if is_slot && !moment.function.inlined && self.is_foreign(moment)? {
                    return self.foreign(name, moment);
                }
                return self.placed(name, location, id);
            }
            location => location,
        };
        if moment.at_entry() && local.role == VariableRole::Parameter && !moment.function.inlined {
            return self.passed_place(local, moment, id, location);
        }
        location?;
        let body = self.prologue_end(moment.function.outer)?;
        Err(unreadable(
            name,
            format!(
                "its stack slot is not filled yet at this place; probe behind the prologue, \
                 at {body}"
            ),
        ))
    }

    /// Whether a location speaks of the function's own frame at a place where the
    /// prologue may not have made it yet.
    fn is_early(
        &self,
        location: &VariableLocation,
        node: &DebugNode<'a>,
        moment: &Moment,
    ) -> Result<bool, DwarfError> {
        let certain = match location.frame {
            Frame::None | Frame::Caller => true,
            // A list says from where on it holds.
            Frame::Own => self.has_list(node)?,
            // But the register that it counts from must be set.
            Frame::Register => false,
        };
        if certain {
            return Ok(false);
        }
        let body = self.prologue_end(moment.function.outer)?;
        Ok((moment.outer_entry..body.0).contains(&moment.address))
    }

    pub(super) fn has_list(&self, node: &DebugNode<'a>) -> Result<bool, DwarfError> {
        let location = self.units.inherited(node, gimli::DW_AT_location)?;
        Ok(location.is_some_and(|(_, value)| is_list(&value)))
    }

    /// Whether the compiler tracked where the function's variables are.
    pub(super) fn has_location_lists(&self, function: &DebugNode<'a>) -> Result<bool, DwarfError> {
        for parameter in self.parameters_of(function)? {
            if self.has_list(&parameter)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn location_at(
        &self,
        node: &DebugNode<'a>,
        name: &str,
        moment: &Moment,
    ) -> Result<VariableLocation, DwarfError> {
        let optimized_out = |available| {
            Err(DwarfError::OptimizedOut {
                name: name.to_owned(),
                available,
            })
        };
        let Some((owner, value)) = self.units.inherited(node, gimli::DW_AT_location)? else {
            return optimized_out(Vec::new());
        };
        let (expression, available) = self.expression_at(&owner, value, moment.address)?;
        let Some(expression) = expression else {
            return optimized_out(available);
        };
        let location = self.compile(&owner, expression.0, moment, is_list(&value));
        match location.map_err(|why| unreadable(name, why))? {
            location if location.parts.is_empty() => optimized_out(available),
            location => Ok(location),
        }
    }

    fn compile(
        &self,
        owner: &DebugNode<'a>,
        expression: DwarfBytes<'a>,
        moment: &Moment,
        of_list: bool,
    ) -> Result<VariableLocation, String> {
        let frame = Cell::new(Frame::None);
        let frame_address = || {
            frame.set(frame.get().max(Frame::Own));
            self.frame_address(moment)
        };
        let frame_base = || {
            let (base, kind) = self.frame_base(moment)?;
            frame.set(frame.get().max(kind));
            Ok(base)
        };
        let place = expression::ExpressionContext {
            units: &self.units,
            unit: owner.die.unit,
            parsed: &owner.unit,
            frame_base: &frame_base,
            frame_address: &frame_address,
            at_entry: moment.at_entry(),
        };
        let mut location = expression::compile(expression, &place)?;
        // %rsp is not at the entry what it is in the body, which a location without a list means.
        let of_register = location.frame == Frame::Own && !of_list;
        location.frame = location.frame.max(frame.get());
        if location.frame == Frame::Own && !of_register && self.is_of_caller(&location, moment) {
            location.frame = Frame::Caller;
        }
        Ok(location)
    }

    /// Whether all of it lies above the frame: where the caller put arguments.
    fn is_of_caller(&self, location: &VariableLocation, moment: &Moment) -> bool {
        let Ok(frame_address) = self.frame_address(moment) else {
            return false;
        };
        let (base, above) = base_and_offset(&frame_address);
        location.parts.iter().all(|part| match &part.storage {
            Storage::Memory(address) => {
                let (of, offset) = base_and_offset(address);
                of == base && offset >= above
            }
            _ => false,
        })
    }

    /// The canonical frame address.
    fn frame_address(&self, moment: &Moment) -> Result<Value, String> {
        let frames = self.frames().map_err(|error| error.to_string())?;
        match frames.address_at(moment.address) {
            // Only the return address was pushed.
            Err(_) if moment.at_entry() => Ok(add(register(STACK_POINTER)?, 8)),
            found => found,
        }
    }

    /// DW_AT_frame_base of the function that is really called.
    fn frame_base(&self, moment: &Moment) -> Result<(Value, Frame), String> {
        let text = |error: DwarfError| error.to_string();
        let missing = || "its function has no frame base at this place".to_owned();
        let function = self.units.node(moment.function.outer).map_err(text)?;
        let found = self.units.inherited(&function, gimli::DW_AT_frame_base);
        let (owner, value) = found.map_err(text)?.ok_or_else(missing)?;
        let (expression, _) = self
            .expression_at(&owner, value, moment.address)
            .map_err(text)?;
        let expression = expression.ok_or_else(missing)?;
        let frame_address = || self.frame_address(moment);
        let nested = || Err("its frame base refers to itself".to_owned());
        let place = expression::ExpressionContext {
            units: &self.units,
            unit: owner.die.unit,
            parsed: &owner.unit,
            frame_base: &nested,
            frame_address: &frame_address,
            at_entry: false,
        };
        let mut parts = expression::compile(expression.0, &place)?.parts;
        match (parts.pop().map(|part| part.storage), parts.is_empty()) {
            // A register holds the base; else the base was computed.
            (Some(Storage::Value(base)), true) => Ok((base, Frame::Register)),
            (Some(Storage::Memory(base)), true) => Ok((base, Frame::Own)),
            _ => Err("its frame base is of an unknown form".to_owned()),
        }
    }

    /// The expression of a location that holds at the address; with all ranges of
    /// its list.
    #[allow(clippy::type_complexity, reason = "used by two functions here")]
    fn expression_at(
        &self,
        owner: &DebugNode<'a>,
        value: Attribute<'a>,
        address: u64,
    ) -> Result<
        (
            Option<gimli::Expression<DwarfBytes<'a>>>,
            Vec<(Address, Address)>,
        ),
        DwarfError,
    > {
        match value {
            AttributeValue::Exprloc(expression) => return Ok((Some(expression), Vec::new())),
            AttributeValue::Block(bytes) => {
                return Ok((Some(gimli::Expression(bytes)), Vec::new()))
            }
            _ => {}
        }
        let dwarf = self.units.dwarf_of(owner.die.unit);
        let Some(mut list) = dwarf.attr_locations(&owner.unit, value)? else {
            return Err(DwarfError::Damaged(
                "a location is of an unknown form".to_owned(),
            ));
        };
        let (mut found, mut available) = (None, Vec::new());
        while let Some(entry) = list.next()? {
            self.units.step()?;
            if available.len() == LIST_MAX {
                return Err(DwarfError::TooBig("a location list is too long"));
            }
            let range = entry.range;
            if range.begin >= range.end || entry.data.0.slice().is_empty() {
                continue;
            }
            if found.is_none() && (range.begin..range.end).contains(&address) {
                found = Some(entry.data);
            }
            available.push((Address(range.begin), Address(range.end)));
        }
        Ok((found, available))
    }
}

fn is_list(location: &Attribute<'_>) -> bool {
    !matches!(
        location,
        AttributeValue::Exprloc(_) | AttributeValue::Block(_)
    )
}

pub(super) fn unreadable(name: &str, why: String) -> DwarfError {
    DwarfError::Unreadable {
        name: name.to_owned(),
        why,
    }
}
