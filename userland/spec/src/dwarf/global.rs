// SPDX-License-Identifier: MIT OR Apache-2.0
//! Global and static variables by name.

use super::error::DwarfError;
use super::expression;
use super::names::NameKind;
use super::types::id_of;
use super::units::{DebugNode, Die};
use super::DebugInfo;
use crate::scope::{ScopeError, Typed, ValuePlace, Variable, VariableRole};
use crate::types::{Shape, Type};
use crate::value::Value;
use gimli::AttributeValue;
use nsprobe_symbolize::Binary;
use std::collections::BTreeMap;

/// Most variables of one name.
const SAME_NAME_MAX: usize = 10_000;
/// Most names that an error lists.
const CHOICES_SHOWN: usize = 8;

impl<'a> DebugInfo<'a> {
    /// The global or static variable of that name: `name`, `space::name`, or
    /// `name@file.c` when several files have one. One of unit `near` wins. Without its
    /// namespaces it is meant only when the name need not be `whole`.
    pub(super) fn global(
        &self,
        wanted: &str,
        near: u32,
        whole: bool,
    ) -> Result<Option<Variable>, DwarfError> {
        let (name, file) = match wanted.split_once('@') {
            Some((name, file)) => (name, Some(file)),
            None => (wanted, None),
        };
        let mut found = self.globals_named(name, whole)?;
        if let Some(file) = file {
            let mut fits = Vec::new();
            for node in found {
                let source = self.source_of(&node)?;
                if source == file || source.ends_with(&format!("/{file}")) {
                    fits.push(node);
                }
            }
            found = fits;
        }
        if found.iter().any(|node| node.die.unit == near) {
            found.retain(|node| node.die.unit == near);
        }
        // One variable may be described by several units.
        let mut places: BTreeMap<String, (DebugNode<'a>, Result<Typed, DwarfError>)> =
            BTreeMap::new();
        for node in found {
            let typed = self.global_typed(&node, name);
            let key = format!("{:?}", typed.as_ref().map(|typed| &typed.place));
            places.entry(key).or_insert((node, typed));
        }
        // One that cannot be read gives way to one that can.
        if places.values().any(|(_, typed)| typed.is_ok()) {
            places.retain(|_, (_, typed)| typed.is_ok());
        }
        let found = match places.len() {
            0 | 1 => places.into_values().next(),
            _ => Some(self.chosen(name, places.into_values().collect())?),
        };
        Ok(found.map(|(_, typed)| Variable {
            name: name.into(),
            role: VariableRole::Global,
            value: typed.map_err(ScopeError::from),
        }))
    }

    /// Chooses, of several, the one with the requested full name.
    fn chosen(
        &self,
        name: &str,
        found: Vec<(DebugNode<'a>, Result<Typed, DwarfError>)>,
    ) -> Result<(DebugNode<'a>, Result<Typed, DwarfError>), DwarfError> {
        let mut choices = Vec::new();
        let mut whole = Vec::new();
        for (index, (node, _)) in found.iter().enumerate() {
            let named = self.units.root_origin(node)?;
            let qualified = self.names()?.qualified(&self.units, named.die)?;
            if qualified == name {
                whole.push(index);
            }
            choices.push((qualified, self.source_of(node)?));
        }
        if let [only] = whole[..] {
            return found.into_iter().nth(only).ok_or(DwarfError::Absent);
        }
        choices.truncate(CHOICES_SHOWN);
        let choice = |(name, source)| format!("{name}@{source}");
        Err(DwarfError::Ambiguous {
            name: name.to_owned(),
            choices: choices.into_iter().map(choice).collect(),
        })
    }

    /// The entries that may say where a variable is: definitions before
    /// declarations.
    fn globals_named(&self, name: &str, whole: bool) -> Result<Vec<DebugNode<'a>>, DwarfError> {
        let names = self.names()?;
        let mut found = Vec::new();
        let mut declared = Vec::new();
        let mut dies: Vec<Die> = names.find(&self.units, name, NameKind::Variable, whole)?;
        while let Some(die) = dies.pop() {
            self.units.step()?;
            if found.len() + declared.len() == SAME_NAME_MAX {
                break;
            }
            dies.extend(names.references(die));
            let node = self.units.node(die)?;
            let has_place = [gimli::DW_AT_location, gimli::DW_AT_const_value]
                .iter()
                .any(|attribute| node.attribute(*attribute).is_some());
            match has_place {
                true => found.push(node),
                false => declared.push(node),
            }
        }
        Ok(if found.is_empty() { declared } else { found })
    }

    fn global_typed(&self, node: &DebugNode<'a>, name: &str) -> Result<Typed, DwarfError> {
        let id = id_of(self.units.type_of(node)?);
        let kind = self.resolve_type(id)?;
        if let Some(place) = self.constant_place(node, name, id)? {
            return Ok(Typed { place, kind });
        }
        let Some(AttributeValue::Exprloc(expression)) = node.attribute(gimli::DW_AT_location)
        else {
            // Only declared here: defined in a file without debug information.
            return match symbol(self.binary, name) {
                Ok(Some(symbol)) => Ok(Typed {
                    place: symbol.place,
                    kind,
                }),
                _ => Err(DwarfError::OptimizedOut {
                    name: name.to_owned(),
                    available: Vec::new(),
                }),
            };
        };
        let no_frame = || Err("it is not a variable of a function".to_owned());
        let place = expression::ExpressionContext {
            units: &self.units,
            unit: node.die.unit,
            parsed: &node.unit,
            frame_base: &no_frame,
            frame_address: &no_frame,
            at_entry: false,
        };
        let location =
            expression::compile(expression.0, &place).map_err(|why| DwarfError::Unreadable {
                name: name.to_owned(),
                why,
            })?;
        let place = self.placed(name, location, id)?;
        Ok(Typed { place, kind })
    }

    /// The file that an entry's unit was compiled from.
    fn source_of(&self, node: &DebugNode<'a>) -> Result<String, DwarfError> {
        let name = node
            .unit
            .name
            .map(|name| name.to_string_lossy().into_owned());
        Ok(name.unwrap_or_else(|| "?".to_owned()))
    }
}

/// The variable of that name by the symbol table alone: its type is a number of
/// its size, or nothing that is known. None when there is no such symbol.
///
/// # Errors
/// Several variables have the name, or the symbol table cannot be read.
pub fn symbol(binary: &Binary, name: &str) -> Result<Option<Typed>, ScopeError> {
    let found = binary
        .find_data(name)
        .map_err(|error| ScopeError::new(error.to_string()))?;
    let global: Vec<_> = found.iter().filter(|symbol| symbol.global).collect();
    let symbol = match (global.as_slice(), found.as_slice()) {
        ([one], _) => *one,
        ([], [one]) => one,
        ([], []) => return Ok(None),
        _ => {
            return Err(ScopeError::new(format!(
                "there are {} variables `{name}` in the symbol table",
                found.len()
            )))
        }
    };
    let shape = match symbol.size {
        1 | 2 | 4 | 8 => Shape::Integer {
            bytes: symbol.size,
            signed: false,
        },
        0 => Shape::Opaque { bytes: None },
        bytes => Shape::Opaque { bytes: Some(bytes) },
    };
    Ok(Some(Typed {
        place: ValuePlace::Memory(Value::Image(symbol.address.0)),
        kind: Type::new("", shape),
    }))
}
