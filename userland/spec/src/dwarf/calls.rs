// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inlined calls by the source line that makes them.

use super::function::{is_block, DebugFunction};
use super::units::{Children, Die};
use super::DebugInfo;
use crate::dwarf::error::DwarfError;
use gimli::AttributeValue;
use std::collections::BTreeSet;

pub(super) struct InlinedCall {
    /// Where the function that is called begins.
    pub(super) address: u64,
    /// Of the call in its line; 0: not known.
    pub(super) column: u32,
    /// The function that calls; it may be inlined itself.
    pub(super) caller: DebugFunction,
}

impl DebugInfo<'_> {
    /// The inlined calls in a line of these files of a unit.
    pub(super) fn inlined_calls(
        &self,
        unit: u32,
        files: &BTreeSet<u32>,
        line: u32,
    ) -> Result<Vec<InlinedCall>, DwarfError> {
        let mut found = Vec::new();
        // The functions around, each with its depth and the one out of line that holds it.
        let mut around: Vec<(isize, Die, Die)> = Vec::new();
        self.units.walk(&self.units.root(unit)?, |child, depth| {
            while around.last().is_some_and(|(last, ..)| *last >= depth) {
                around.pop();
            }
            let tag = child.tag();
            if tag == gimli::DW_TAG_subprogram {
                around.push((depth, child.die, child.die));
                return Ok(Children::Into);
            }
            let is_scope = tag == gimli::DW_TAG_namespace || tag == gimli::DW_TAG_module;
            let Some(&(_, caller, outer)) = around.last() else {
                return Ok(if is_scope {
                    Children::Into
                } else {
                    Children::Over
                });
            };
            if tag == gimli::DW_TAG_inlined_subroutine {
                around.push((depth, child.die, outer));
                let number = |name| child.number(name);
                let file = match child.attribute(gimli::DW_AT_call_file) {
                    Some(AttributeValue::FileIndex(file)) => file.try_into().ok(),
                    _ => None,
                };
                let is_meant = number(gimli::DW_AT_call_line) == Some(line.into())
                    && file.is_some_and(|file| files.contains(&file));
                if is_meant {
                    let caller = self.function(&self.units.node(caller)?, outer)?;
                    let entry = self.function(child, outer)?.map(|function| function.entry);
                    found.extend(caller.zip(entry).map(|(caller, entry)| {
                        InlinedCall {
                            address: entry.0,
                            column: number(gimli::DW_AT_call_column)
                                .and_then(|column| column.try_into().ok())
                                .unwrap_or(0),
                            caller,
                        }
                    }));
                }
            }
            Ok(if is_block(tag) {
                Children::Into
            } else {
                Children::Over
            })
        })?;
        Ok(found)
    }
}
