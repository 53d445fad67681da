// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments at the entry of a function, where debug information alone does not place them.

use super::convention::{Passing, PARAMETERS_MAX};
use super::error::DwarfError;
use super::expression::{add, register, Frame, Storage, VariableLocation, STACK_POINTER};
use super::units::{Children, DebugNode};
use super::variable::{unreadable, Local, Moment};
use super::DebugInfo;
use crate::scope::{Typed, ValuePlace};
use crate::types::TypeId;
use crate::value::Value;
use gimli::AttributeValue;

impl<'a> DebugInfo<'a> {
    /// The parameters of a function, out of line or inlined, in the order of the source: gcc lists
    /// those of a copy in another one, and compilers leave out what a copy does not have.
    pub(super) fn parameters_of(
        &self,
        function: &DebugNode<'a>,
    ) -> Result<Vec<DebugNode<'a>>, DwarfError> {
        let mut own = self.listed_parameters(function)?;
        let Some(origin) = self.units.target(function, gimli::DW_AT_abstract_origin)? else {
            return Ok(own);
        };
        let mut origins = Vec::new();
        for parameter in &own {
            origins.push(self.units.root_origin(parameter)?.die);
        }
        let mut found = Vec::new();
        for parameter in self.listed_parameters(&self.units.node(origin)?)? {
            let die = self.units.root_origin(&parameter)?.die;
            match origins.iter().position(|origin| *origin == die) {
                Some(at) => {
                    origins.remove(at);
                    found.push(own.remove(at));
                }
                // What tells constructors apart is there or not.
                None if parameter.flag(gimli::DW_AT_artificial) => {}
                None => found.push(parameter),
            }
        }
        found.extend(own);
        found.truncate(PARAMETERS_MAX);
        Ok(found)
    }

    /// The parameters that an entry lists, those of packs included.
    fn listed_parameters(
        &self,
        function: &DebugNode<'a>,
    ) -> Result<Vec<DebugNode<'a>>, DwarfError> {
        let mut found = Vec::new();
        self.units.walk(function, |child, _| {
            Ok(match child.tag() {
                gimli::DW_TAG_GNU_formal_parameter_pack => Children::Into,
                gimli::DW_TAG_formal_parameter if found.len() < PARAMETERS_MAX => {
                    found.push(child.clone());
                    Children::Over
                }
                _ => Children::Over,
            })
        })?;
        Ok(found)
    }

    /// The same with their names. One without a name is called by its number; those of one name,
    /// which a pack has, have numbers after it.
    pub(super) fn named_parameters(
        &self,
        function: &DebugNode<'a>,
    ) -> Result<Vec<(DebugNode<'a>, String)>, DwarfError> {
        let parameters = self.parameters_of(function)?;
        // One that is damaged takes only itself with it.
        let name = |node: &DebugNode<'a>| self.units.name(node).ok().flatten();
        let names: Vec<Option<&str>> = parameters.iter().map(name).collect();
        let called = |at: usize, name: Option<&str>| {
            let is_same = |other: &&Option<&str>| **other == name;
            let before = names.iter().take(at).filter(is_same).count();
            match name {
                None | Some("") => format!("arg{}", at + 1),
                Some(name) if before == 0 && names.iter().filter(is_same).count() == 1 => {
                    name.to_owned()
                }
                Some(name) => format!("{name}#{before}"),
            }
        };
        let called: Vec<String> = names
            .iter()
            .enumerate()
            .map(|(at, name)| called(at, *name))
            .collect();
        Ok(parameters.into_iter().zip(called).collect())
    }

    /// Where an argument is at the entry, when the debug information speaks of
    /// a stack slot that is not filled yet, or says nothing.
    pub(super) fn passed_place(
        &self,
        local: &Local<'a>,
        moment: &Moment,
        id: TypeId,
        location: Result<VariableLocation, DwarfError>,
    ) -> Result<ValuePlace, DwarfError> {
        let function = self.units.node(moment.function.outer)?;
        if location.is_err() && !self.keeps_convention(&function, moment)? {
            return Err(location.err().unwrap_or(DwarfError::Absent));
        }
        if self.is_foreign(moment)? {
            return self.foreign(&local.name, moment);
        }
        let parameters = self.parameters_of(&function)?;
        let index = parameters
            .iter()
            .position(|parameter| parameter.die == local.node.die);
        let passing = match index {
            Some(index) => self.passing(&function, 0)?.into_iter().nth(index),
            None => None,
        };
        let why = match passing {
            Some(Ok(passing)) => match self.passed(&passing, id)? {
                Ok(place) => return Ok(place),
                Err(why) => why,
            },
            failed => {
                // Without a location there is no slot.
                location?;
                let why = failed.map(|why| format!(": {}", why.err().unwrap_or_default()));
                format!(
                    "its stack slot is not filled yet at the entry, and in which register it \
                     comes is not known{}; probe behind the prologue, at {}",
                    why.unwrap_or_default(),
                    self.prologue_end(moment.function.outer)?
                )
            }
        };
        Err(unreadable(&local.name, why))
    }

    /// Whether the function has another calling convention than the System V one, such as
    /// `ms_abi`, of which compilers say nothing: a parameter has its slot in the caller's frame, or
    /// comes in a register, where it is in another by that convention.
    pub(super) fn is_foreign(&self, moment: &Moment) -> Result<bool, DwarfError> {
        let function = self.units.node(moment.function.outer)?;
        let parameters = self.parameters_of(&function)?;
        for (parameter, passing) in parameters.iter().zip(self.passing(&function, 0)?) {
            let Ok(Passing::Registers(registers)) = passing else {
                continue;
            };
            let Ok(location) = self.location_at(parameter, "", moment) else {
                continue;
            };
            let has_list = self.has_list(parameter)?;
            let is_foreign = match (location.parts.as_slice(), registers.as_slice()) {
                _ if location.frame == Frame::Caller => !has_list,
                ([part], [Some(number)]) if has_list => match &part.storage {
                    Storage::Value(found @ Value::Register(_)) => {
                        register(*number).is_ok_and(|expected| expected != *found)
                    }
                    _ => false,
                },
                _ => false,
            };
            if is_foreign {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Why a parameter of such a function is not to be had at its entry.
    pub(super) fn foreign(&self, name: &str, moment: &Moment) -> Result<ValuePlace, DwarfError> {
        let body = self.prologue_end(moment.function.outer)?;
        let why = format!(
            "its function does not have the calling convention of Linux, and at the entry it is \
             not known in which register it comes; probe behind the prologue, at {body}"
        );
        Err(unreadable(name, why))
    }

    /// A word after the named arguments of a variadic function; none where it takes no more.
    pub(super) fn further_argument(
        &self,
        moment: &Moment,
        index: usize,
    ) -> Result<Option<Typed>, DwarfError> {
        let function = self.units.node(moment.function.outer)?;
        if moment.function.inlined || !self.is_variadic(&function)? || index >= PARAMETERS_MAX {
            return Ok(None);
        }
        let unreadable = |why: String| unreadable("an argument that is not named", why);
        if !moment.at_entry() {
            return Err(unreadable(
                "it is where the call put it only at the entry".to_owned(),
            ));
        }
        match self.passing(&function, index + 1)?.pop() {
            Some(Ok(Passing::Registers(registers))) => match registers.as_slice() {
                [Some(number)] => Ok(Some(Typed {
                    place: ValuePlace::Value(register(*number).map_err(unreadable)?),
                    kind: crate::plain::word(),
                })),
                _ => Ok(None),
            },
            Some(Ok(Passing::Stack(bytes))) => {
                let stack = register(STACK_POINTER).map_err(unreadable)?;
                let above = 8i64.saturating_add(bytes as i64);
                Ok(Some(Typed {
                    place: ValuePlace::Memory(add(stack, above)),
                    kind: crate::plain::word(),
                }))
            }
            Some(Err(why)) => Err(unreadable(why)),
            Some(Ok(_)) | None => Ok(None),
        }
    }

    /// Whether an argument that the debug information does not mention is still
    /// passed: others call the function by its symbol, and no compiler made a
    /// variant of it (`.constprop`, `.isra`). LLVM's callers leave unset what they see
    /// that a function does not use.
    fn keeps_convention(
        &self,
        function: &DebugNode<'a>,
        moment: &Moment,
    ) -> Result<bool, DwarfError> {
        let external = self.units.inherited(function, gimli::DW_AT_external)?;
        let external = matches!(external, Some((_, AttributeValue::Flag(true))));
        let of_gcc = self.units.is_of_gcc(function.die.unit)?;
        let symbols = self.binary.functions();
        let mut here = symbols
            .iter()
            .skip(symbols.partition_point(|symbol| symbol.address.0 < moment.outer_entry))
            .take_while(|symbol| symbol.address.0 == moment.outer_entry)
            .peekable();
        let named = here.peek().is_some();
        Ok(of_gcc && external && named && here.all(|symbol| !symbol.name.contains('.')))
    }
}
