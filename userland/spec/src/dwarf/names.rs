// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where names are: functions, variables and types by name, and the entries that refer to them. One
//! pass over all entries, made when the first name is requested.

use super::error::DwarfError;
use super::units::{Attribute, DebugNode, Die, DwarfBytes, GimliUnit, Units};
use gimli::{AttributeValue, DwTag};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Most names of a file: 20 bytes are kept for each.
const NAMES_MAX: usize = 30_000_000;
/// Most entries of a file.
const ENTRIES_MAX: u64 = 500_000_000;
/// Most scopes around a name that are compared.
const SCOPES_MAX: usize = 64;
/// Most names that are compared with one that does not exist.
const SUGGESTED_MAX: usize = 50_000;
const NO_SCOPE: u32 = u32::MAX;
/// What stands for a scope without a name.
const UNNAMED: &str = "(anonymous namespace)";

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameKind {
    Function,
    /// A global or static variable.
    Variable,
    Type,
}

#[derive(Clone, Copy, Debug)]
struct NamedEntry {
    hash: u32,
    unit: u32,
    offset: u32,
    scope: u32,
    kind: NameKind,
}

#[derive(Clone, Copy, Debug)]
struct NameScope {
    unit: u32,
    offset: u32,
    parent: u32,
    /// A namespace, not a class or function: its names may stand without it.
    open: bool,
    /// A namespace without a name, or an inline one: its names are those of what is around.
    clear: bool,
}

fn die_at(unit: u32, offset: u32) -> Die {
    Die {
        unit,
        offset: offset as usize,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    target: (u32, u32),
    from: (u32, u32),
}

#[derive(Debug, Default)]
pub(super) struct NameIndex {
    /// By rising hash of the name without template arguments.
    named: Vec<NamedEntry>,
    scopes: Vec<NameScope>,
    /// By rising target.
    references: Vec<Reference>,
}

/// The name without its template arguments: `max` of `max<int>`.
fn base(name: &str) -> &str {
    match name.find('<') {
        Some(at) if at > 0 && !name.starts_with("operator") => name.get(..at).unwrap_or(name),
        _ => name,
    }
}

fn hash(name: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    base(name).hash(&mut hasher);
    hasher.finish() as u32
}

/// The parts of a qualified name; `::` inside of `<…>` or `(…)` parts nothing.
pub(super) fn parts(name: &str) -> Vec<&str> {
    let (mut found, mut depth, mut from, mut previous) = (Vec::new(), 0i32, 0, ' ');
    for (at, character) in name.char_indices() {
        match character {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            ':' if previous == ':' && depth == 0 => {
                found.extend(name.get(from..at - 1));
                from = at + 1;
                previous = ' ';
                continue;
            }
            _ => {}
        }
        previous = character;
    }
    found.extend(name.get(from..));
    found.retain(|part| !part.is_empty());
    found
}

/// Whether a part of the requested name matches one of the actual name.
fn part_fits(wanted: &str, name: &str) -> bool {
    wanted == name || (!wanted.contains('<') && wanted == base(name))
}

fn is_scope(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_module
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_subprogram
    )
}

fn kind_of(tag: DwTag) -> Option<NameKind> {
    Some(match tag {
        gimli::DW_TAG_subprogram => NameKind::Function,
        gimli::DW_TAG_variable | gimli::DW_TAG_member => NameKind::Variable,
        gimli::DW_TAG_structure_type
        | gimli::DW_TAG_class_type
        | gimli::DW_TAG_union_type
        | gimli::DW_TAG_enumeration_type
        | gimli::DW_TAG_typedef
        | gimli::DW_TAG_base_type => NameKind::Type,
        _ => return None,
    })
}

/// Whether the location is an address of the file or of a thread's own part of it,
/// not one of a frame.
fn is_static(location: Option<Attribute<'_>>) -> bool {
    let Some(AttributeValue::Exprloc(expression)) = location else {
        return false;
    };
    let first = expression.0.slice().first().copied();
    let addresses = [
        gimli::DW_OP_addr,
        gimli::DW_OP_addrx,
        gimli::DW_OP_GNU_addr_index,
        gimli::DW_OP_const4u,
        gimli::DW_OP_const8u,
        gimli::DW_OP_constx,
        gimli::DW_OP_GNU_const_index,
    ];
    addresses.iter().any(|op| first == Some(op.0))
}

impl NameIndex {
    pub(super) fn read(units: &Units<'_>) -> Result<NameIndex, DwarfError> {
        let mut names = NameIndex::default();
        let mut entries_left = ENTRIES_MAX;
        for unit in 0..units.count() {
            // A unit that is damaged takes only its own names with it.
            let Ok(parsed) = units.parse(unit) else {
                continue;
            };
            match names.read_unit(units, unit, &parsed, &mut entries_left) {
                Err(DwarfError::Damaged(_)) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        names
            .named
            .sort_unstable_by_key(|named| (named.hash, named.unit, named.offset));
        names.references.sort_unstable();
        Ok(names)
    }

    fn read_unit<'a>(
        &mut self,
        units: &Units<'a>,
        unit: u32,
        parsed: &GimliUnit<'a>,
        entries_left: &mut u64,
    ) -> Result<(), DwarfError> {
        let mut entries = parsed.entries_raw(None)?;
        // The scopes around, each with its depth.
        let mut around: Vec<(isize, u32)> = Vec::new();
        while !entries.is_empty() {
            units.step()?;
            *entries_left = entries_left
                .checked_sub(1)
                .ok_or(DwarfError::TooBig("it has too many entries"))?;
            let depth = entries.next_depth();
            while around.last().is_some_and(|(outer, _)| *outer >= depth) {
                around.pop();
            }
            let offset = entries.next_offset().0;
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            let tag = abbreviation.tag();
            let wanted =
                kind_of(tag).is_some() || is_scope(tag) || tag == gimli::DW_TAG_inlined_subroutine;
            if !wanted {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut attributes = Attributes::default();
            for specification in abbreviation.attributes() {
                let attribute = entries.read_attribute_inline(*specification)?;
                attributes.take(attribute.name(), || attribute.value());
            }
            let offset = u32::try_from(offset)
                .map_err(|_| DwarfError::TooBig("a unit is larger than 4 GiB"))?;
            let scope = around.last().map_or(NO_SCOPE, |(_, scope)| *scope);
            self.add(units, (unit, parsed), (offset, tag), scope, &attributes)?;
            if abbreviation.has_children() && is_scope(tag) {
                around.push((depth, self.scopes.len() as u32));
                self.scopes.push(NameScope {
                    unit,
                    offset,
                    parent: scope,
                    open: matches!(tag, gimli::DW_TAG_namespace | gimli::DW_TAG_module),
                    clear: tag == gimli::DW_TAG_namespace
                        && (attributes.name.is_none() || attributes.is_inline),
                });
            }
        }
        Ok(())
    }

    fn add<'a>(
        &mut self,
        units: &Units<'a>,
        (unit, parsed): (u32, &GimliUnit<'a>),
        (offset, tag): (u32, DwTag),
        scope: u32,
        attributes: &Attributes<'a>,
    ) -> Result<(), DwarfError> {
        if self.named.len() + self.references.len() + self.scopes.len() >= NAMES_MAX {
            return Err(DwarfError::TooBig("it has too many names"));
        }
        for origin in attributes.origins.iter().flatten() {
            let Ok(Some(target)) = units.reference(unit, origin) else {
                continue;
            };
            let Ok(target_offset) = u32::try_from(target.offset) else {
                continue;
            };
            self.references.push(Reference {
                target: (target.unit, target_offset),
                from: (unit, offset),
            });
        }
        let (Some(kind), Some(name)) = (kind_of(tag), attributes.name) else {
            return Ok(());
        };
        // Locals and members belong to their functions and types.
        let is_constant = attributes.is_constant && self.is_open(scope);
        let local = kind == NameKind::Variable
            && !attributes.declaration
            && !is_constant
            && !is_static(attributes.location);
        let Some(name) = units.text(unit, parsed, name).filter(|_| !local) else {
            return Ok(());
        };
        self.named.push(NamedEntry {
            hash: hash(name),
            unit,
            offset,
            scope,
            kind,
        });
        Ok(())
    }

    /// The entries that have the name, which may be qualified (`space::name`)
    /// and need not be so wholly, unless it is `whole`; only variables need their class or
    /// function.
    pub(super) fn find(
        &self,
        units: &Units<'_>,
        name: &str,
        kind: NameKind,
        whole: bool,
    ) -> Result<Vec<Die>, DwarfError> {
        let wanted = parts(name);
        let Some(last) = wanted.last() else {
            return Ok(Vec::new());
        };
        let hash = hash(last);
        let from = self.named.partition_point(|named| named.hash < hash);
        let mut found = Vec::new();
        for named in self.named.get(from..).unwrap_or_default() {
            if named.hash != hash {
                break;
            }
            units.step()?;
            let alone = wanted.len() == 1 && kind == NameKind::Variable;
            if alone && !self.is_open(named.scope) {
                continue;
            }
            if named.kind == kind && self.fits(units, named, &wanted, whole)? {
                found.push(die_at(named.unit, named.offset));
            }
        }
        Ok(found)
    }

    /// Whether names of the scope may stand without it.
    fn is_open(&self, scope: u32) -> bool {
        let scope = self.scopes.get(scope as usize);
        scope.is_none_or(|scope| scope.open)
    }

    fn fits(
        &self,
        units: &Units<'_>,
        named: &NamedEntry,
        wanted: &[&str],
        whole: bool,
    ) -> Result<bool, DwarfError> {
        let mut parts = wanted.iter().rev();
        let fits = |part: Option<&&str>, name: Option<&str>| {
            part.is_some_and(|part| part_fits(part, name.unwrap_or(UNNAMED)))
        };
        let node = units.node(die_at(named.unit, named.offset))?;
        if !fits(parts.next(), units.name(&node)?) {
            return Ok(false);
        }
        let mut part = parts.next();
        let mut scope = self.around(units, &node, named.scope)?;
        for _ in 0..SCOPES_MAX {
            let outer = self.scopes.get(scope as usize);
            let Some(outer) = outer.filter(|_| part.is_some() || whole) else {
                return Ok(part.is_none());
            };
            let node = units.node(die_at(outer.unit, outer.offset))?;
            match fits(part, units.name(&node)?) {
                true => part = parts.next(),
                false if whole && outer.clear => {}
                false => return Ok(false),
            }
            scope = self.around(units, &node, outer.parent)?;
        }
        Ok(false)
    }

    /// The scope of an entry that is in `scope`, or the one of what it defines: gcc defines what
    /// is in a type unit outside of its namespaces.
    fn around<'a>(
        &self,
        units: &Units<'a>,
        node: &DebugNode<'a>,
        scope: u32,
    ) -> Result<u32, DwarfError> {
        let declared = units.target(node, gimli::DW_AT_specification)?;
        let name = units.name(node)?;
        let found = declared
            .zip(name)
            .and_then(|(die, name)| self.named(name, die));
        Ok(found.map_or(scope, |named| named.scope))
    }

    /// What is known of an entry of that name.
    fn named(&self, name: &str, die: Die) -> Option<&NamedEntry> {
        let key = (hash(name), die.unit, u32::try_from(die.offset).ok()?);
        let at = self
            .named
            .binary_search_by_key(&key, |named| (named.hash, named.unit, named.offset));
        self.named.get(at.ok()?)
    }

    /// The whole name of an entry that [`NameIndex::find`] found.
    pub(super) fn qualified(&self, units: &Units<'_>, die: Die) -> Result<String, DwarfError> {
        let node = units.node(die)?;
        let name = units.name(&node)?.unwrap_or("(unnamed)");
        let found = self.named(name, die);
        let mut parts = vec![name.to_owned()];
        let mut scope = self.around(units, &node, found.map_or(NO_SCOPE, |named| named.scope))?;
        while let Some(outer) = self.scopes.get(scope as usize) {
            if parts.len() == SCOPES_MAX {
                break;
            }
            let node = units.node(die_at(outer.unit, outer.offset))?;
            parts.push(units.name(&node)?.unwrap_or(UNNAMED).to_owned());
            scope = self.around(units, &node, outer.parent)?;
        }
        parts.reverse();
        Ok(parts.join("::"))
    }

    /// Names of variables that stand for themselves, for messages about one that does
    /// not exist.
    pub(super) fn variables(&self, units: &Units<'_>) -> Vec<String> {
        let variables = self.named.iter().filter(|n| n.kind == NameKind::Variable);
        let name = |named: &NamedEntry| {
            let node = units.node(die_at(named.unit, named.offset));
            Some(units.name(&node.ok()?).ok()??.to_owned())
        };
        variables
            .filter(|named| self.is_open(named.scope))
            .take(SUGGESTED_MAX)
            .filter_map(name)
            .collect()
    }

    /// The entries that name `die` as their origin or specification.
    pub(super) fn references(&self, die: Die) -> impl Iterator<Item = Die> + '_ {
        let target = u32::try_from(die.offset).map_or((u32::MAX, 0), |at| (die.unit, at));
        let from = self.references.partition_point(|r| r.target < target);
        self.references
            .get(from..)
            .unwrap_or_default()
            .iter()
            .take_while(move |reference| reference.target == target)
            .map(|reference| Die {
                unit: reference.from.0,
                offset: reference.from.1 as usize,
            })
    }
}

/// What the index needs of an entry.
#[derive(Default)]
struct Attributes<'a> {
    name: Option<Attribute<'a>>,
    location: Option<Attribute<'a>>,
    origins: [Option<Attribute<'a>>; 2],
    declaration: bool,
    is_constant: bool,
    is_inline: bool,
}

impl<'a> Attributes<'a> {
    fn take(&mut self, name: gimli::DwAt, value: impl FnOnce() -> AttributeValue<DwarfBytes<'a>>) {
        match name {
            gimli::DW_AT_name => self.name = Some(value()),
            gimli::DW_AT_location => self.location = Some(value()),
            gimli::DW_AT_specification => self.origins[0] = Some(value()),
            gimli::DW_AT_abstract_origin => self.origins[1] = Some(value()),
            gimli::DW_AT_declaration => self.declaration = true,
            gimli::DW_AT_const_value => self.is_constant = true,
            gimli::DW_AT_export_symbols => self.is_inline = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_names_come_apart_outside_of_brackets() {
        assert_eq!(parts("a"), ["a"]);
        assert_eq!(parts("a::b<c::d>::e"), ["a", "b<c::d>", "e"]);
        assert_eq!(parts("::a::b"), ["a", "b"]);
        assert_eq!(parts("a::"), ["a"]);
        assert!(parts("").is_empty());
    }

    #[test]
    fn template_arguments_may_be_left_out() {
        assert!(part_fits("max", "max<int>"));
        assert!(part_fits("max<int>", "max<int>"));
        assert!(!part_fits("max<long>", "max<int>"));
        assert_eq!(base("operator<"), "operator<");
        assert_eq!(base("<impl>"), "<impl>");
    }
}
