// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types as DWARF has them (DWARF 5, chapter 5), one step at a time: a struct may
//! contain itself by a pointer, and a hostile one without.

mod members;

use super::error::DwarfError;
use super::names::NameKind;
use super::units::{Attribute, DebugNode, Die, Units};
use super::DebugInfo;
use crate::types::{Shape, Type, TypeId};
use gimli::{AttributeValue, DwAte};
use members::MEMBERS_MAX;
use std::rc::Rc;

/// Most qualifiers and typedefs around a type.
const CHAIN_MAX: usize = 32;
/// Most dimensions of an array.
const DIMENSIONS_MAX: usize = 16;

/// The `void` that a pointer may point at.
const VOID: TypeId = TypeId(u64::MAX);
/// Where a [`TypeId`] keeps the unit, and the dimension of an array.
const UNIT_SHIFT: u32 = 32;
const DIMENSION_SHIFT: u32 = 56;

/// Names of IEEE 754's numbers of 2 bytes.
const HALF: [&str; 4] = ["_Float16", "__fp16", "half", "f16"];

/// The name and the number of a value of an enumeration.
type Enumerator = (Rc<str>, u64);

/// A type by its entry, and how many of an array's dimensions were passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reference {
    die: Die,
    dimension: u8,
}

/// The id of the type that an entry is; none is `void`.
pub(super) fn id_of(die: Option<Die>) -> TypeId {
    die.map_or(VOID, |die| Reference { die, dimension: 0 }.id())
}

impl Reference {
    fn id(self) -> TypeId {
        let unit = u64::from(self.die.unit) << UNIT_SHIFT;
        let dimension = u64::from(self.dimension) << DIMENSION_SHIFT;
        // UNITS_MAX keeps the unit below the dimension.
        TypeId(dimension | unit | self.die.offset as u64 & u64::from(u32::MAX))
    }

    fn of(id: TypeId) -> Option<Reference> {
        (id != VOID).then(|| Reference {
            die: Die {
                unit: (id.0 >> UNIT_SHIFT) as u32 & 0xff_ffff,
                offset: (id.0 & u64::from(u32::MAX)) as usize,
            },
            dimension: (id.0 >> DIMENSION_SHIFT) as u8,
        })
    }
}

/// The encoding and the size of a base type.
pub(super) fn encoding_of(node: &DebugNode<'_>) -> (DwAte, u64) {
    let encoding = match node.attribute(gimli::DW_AT_encoding) {
        Some(AttributeValue::Encoding(encoding)) => encoding,
        _ => DwAte(0),
    };
    (encoding, node.number(gimli::DW_AT_byte_size).unwrap_or(0))
}

/// The name as it is in the source, for messages: `struct point`.
fn keyword(tag: gimli::DwTag) -> &'static str {
    match tag {
        gimli::DW_TAG_structure_type => "struct ",
        gimli::DW_TAG_union_type => "union ",
        gimli::DW_TAG_class_type => "class ",
        gimli::DW_TAG_enumeration_type => "enum ",
        _ => "",
    }
}

/// Whether the type is another one by another name, or with a qualifier.
fn is_alias(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_immutable_type
            | gimli::DW_TAG_packed_type
            | gimli::DW_TAG_shared_type
    )
}

fn is_c(language: Option<gimli::DwLang>) -> bool {
    matches!(
        language,
        Some(
            gimli::DW_LANG_C
                | gimli::DW_LANG_C89
                | gimli::DW_LANG_C99
                | gimli::DW_LANG_C11
                | gimli::DW_LANG_C17
        )
    )
}

impl<'a> Units<'a> {
    /// The language of a unit.
    pub(super) fn language(&self, unit: u32) -> Result<Option<gimli::DwLang>, DwarfError> {
        Ok(match self.root(unit)?.attribute(gimli::DW_AT_language) {
            Some(AttributeValue::Language(language)) => Some(language),
            _ => None,
        })
    }

    /// The compiler of a unit, in its own words.
    pub(super) fn producer(&self, unit: u32) -> Result<Option<&'a str>, DwarfError> {
        let root = self.root(unit)?;
        let producer = root.attribute(gimli::DW_AT_producer);
        Ok(producer.and_then(|text| self.text(unit, &root.unit, text)))
    }

    pub(super) fn is_of_gcc(&self, unit: u32) -> Result<bool, DwarfError> {
        let producer = self.producer(unit)?;
        Ok(producer.is_some_and(|producer| producer.starts_with("GNU ")))
    }

    /// A number that an attribute gives as a constant.
    pub(super) fn constant(value: Option<Attribute<'a>>) -> Option<u64> {
        match value? {
            AttributeValue::Exprloc(_) => None,
            value => value
                .udata_value()
                .or(value.sdata_value().map(|v| v as u64)),
        }
    }

    fn counts(&self, array: &DebugNode<'a>) -> Result<Vec<Option<u64>>, DwarfError> {
        let mut counts = Vec::new();
        for child in self.children(array)? {
            if child.tag() != gimli::DW_TAG_subrange_type || counts.len() == DIMENSIONS_MAX {
                continue;
            }
            let lower = Self::constant(child.attribute(gimli::DW_AT_lower_bound)).unwrap_or(0);
            let upper = child.attribute(gimli::DW_AT_upper_bound);
            // GCC bounds `int a[0]` by an upper bound of -1, some by none at all.
            let count = Self::constant(child.attribute(gimli::DW_AT_count))
                .or_else(|| Some(Self::constant(upper)?.wrapping_sub(lower).wrapping_add(1)));
            counts.push(count.filter(|count| *count <= u64::from(u32::MAX)));
        }
        Ok(counts)
    }
}

impl<'a> DebugInfo<'a> {
    /// The type behind its typedefs and qualifiers, and whatever stands in for its
    /// definition.
    pub(super) fn strip(&self, die: Die) -> Result<Option<DebugNode<'a>>, DwarfError> {
        let mut die = die;
        for _ in 0..CHAIN_MAX {
            let node = self.units.node(die)?;
            match node.tag() {
                tag if is_alias(tag) => match self.units.type_of(&node)? {
                    Some(target) => die = target,
                    None => return Ok(None),
                },
                _ => return self.defined(node).map(Some),
            }
        }
        Err(DwarfError::Damaged("typedefs lead in a circle".to_owned()))
    }

    /// The alignment that the source demands of a type by a typedef.
    pub(super) fn demanded_alignment(&self, id: TypeId) -> Result<u64, DwarfError> {
        let (mut most, mut die) = (1, Reference::of(id).map(|reference| reference.die));
        for _ in 0..CHAIN_MAX {
            let Some(at) = die else {
                break;
            };
            let node = self.units.node(at)?;
            most = node.number(gimli::DW_AT_alignment).unwrap_or(1).max(most);
            die = match is_alias(node.tag()) {
                true => self.units.type_of(&node)?,
                false => None,
            };
        }
        Ok(most)
    }

    /// The definition of a type that is only declared here.
    fn defined(&self, node: DebugNode<'a>) -> Result<DebugNode<'a>, DwarfError> {
        // A type unit holds the definition.
        if let Some(target) = self.units.target(&node, gimli::DW_AT_signature)? {
            return self.units.node(target);
        }
        if !node.flag(gimli::DW_AT_declaration) {
            return Ok(node);
        }
        let Some(name) = self.units.name(&node)? else {
            return Ok(node);
        };
        let names = self.names()?;
        // Within namespaces and classes, only one of the same whole name will do.
        let whole = match is_c(self.units.language(node.die.unit)?) {
            true => name.to_owned(),
            false => names.qualified(&self.units, node.die)?,
        };
        for die in names.find(&self.units, &whole, NameKind::Type, true)? {
            let candidate = self.units.node(die)?;
            let defines = candidate.tag() == node.tag()
                && !candidate.flag(gimli::DW_AT_declaration)
                && self.units.name(&candidate)? == Some(name);
            if defines {
                return Ok(candidate);
            }
        }
        Ok(node)
    }

    /// What the type is.
    pub(super) fn resolve_type(&self, id: TypeId) -> Result<Type, DwarfError> {
        let reference = Reference::of(id);
        let name = self.type_name(reference.map(|reference| reference.die))?;
        Ok(Type::new(&name, self.shape(id)?))
    }

    /// The entry of a type without typedefs; none for `void`.
    pub(super) fn type_node(&self, id: TypeId) -> Result<Option<DebugNode<'a>>, DwarfError> {
        match Reference::of(id) {
            Some(reference) => self.strip(reference.die),
            None => Ok(None),
        }
    }

    /// What the type is without its name.
    pub(super) fn shape(&self, id: TypeId) -> Result<Shape, DwarfError> {
        let Some(reference) = Reference::of(id) else {
            return Ok(Shape::Void);
        };
        let Some(node) = self.strip(reference.die)? else {
            return Ok(Shape::Void);
        };
        Ok(match node.tag() {
            gimli::DW_TAG_base_type => base_shape(&node, self.units.name(&node)?.unwrap_or("")),
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => Shape::Pointer {
                to: id_of(self.units.type_of(&node)?),
                reference: node.tag() != gimli::DW_TAG_pointer_type,
            },
            gimli::DW_TAG_unspecified_type => match self.units.name(&node)? {
                Some("decltype(nullptr)") => Shape::Pointer {
                    to: VOID,
                    reference: false,
                },
                _ => Shape::Void,
            },
            gimli::DW_TAG_array_type => self.array_shape(&node, reference.dimension)?,
            gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_interface_type => Shape::Struct {
                id: id_of(Some(node.die)),
                bytes: node
                    .number(gimli::DW_AT_byte_size)
                    .filter(|_| !node.flag(gimli::DW_AT_declaration)),
                union: node.tag() == gimli::DW_TAG_union_type,
            },
            gimli::DW_TAG_enumeration_type => self.enumeration_shape(&node)?,
            // A value of such a type of Go is the address of a closure.
            gimli::DW_TAG_subroutine_type
                if self.units.language(node.die.unit)? == Some(gimli::DW_LANG_Go) =>
            {
                Shape::Pointer {
                    to: VOID,
                    reference: false,
                }
            }
            gimli::DW_TAG_subroutine_type => Shape::Function,
            _ => Shape::Opaque {
                bytes: node.number(gimli::DW_AT_byte_size),
            },
        })
    }

    fn array_shape(&self, node: &DebugNode<'a>, dimension: u8) -> Result<Shape, DwarfError> {
        let counts = self.units.counts(node)?;
        let count = counts.get(usize::from(dimension)).copied().flatten();
        let inner = Reference {
            die: node.die,
            dimension: dimension.saturating_add(1),
        };
        let of = match usize::from(inner.dimension) < counts.len() {
            true => inner.id(),
            false => id_of(self.units.type_of(node)?),
        };
        Ok(Shape::Array { of, count })
    }

    fn enumeration_shape(&self, node: &DebugNode<'a>) -> Result<Shape, DwarfError> {
        let underlying = match self.units.type_of(node)? {
            Some(die) => self.strip(die)?,
            None => None,
        };
        let is_reversed = underlying.as_ref().is_some_and(is_big_endian) || is_big_endian(node);
        let underlying = underlying.map(|base| encoding_of(&base));
        let (encoding, bytes) = underlying.unwrap_or(encoding_of(node));
        if is_reversed {
            return Ok(Shape::Opaque { bytes: Some(bytes) });
        }
        let values = self.enumerators(node)?;
        // C has no type below an enumeration: a negative value is its sign.
        let negative = values.iter().any(|(_, value)| (*value as i64) < 0);
        let signed = matches!(encoding, gimli::DW_ATE_signed | gimli::DW_ATE_signed_char);
        Ok(Shape::Enumeration {
            bytes: node.number(gimli::DW_AT_byte_size).unwrap_or(bytes),
            signed: signed || (encoding == DwAte(0) && negative),
            values,
        })
    }

    /// The size of a type in bytes; none when it has none or is not known.
    pub(super) fn size_of(&self, id: TypeId) -> Result<Option<u64>, DwarfError> {
        let (mut factor, mut id) = (1u64, id);
        for _ in 0..CHAIN_MAX {
            let shape = self.shape(id)?;
            let Shape::Array { of, count } = shape else {
                let bytes = Type::new("", shape).bytes();
                return Ok(bytes.map(|bytes| bytes.saturating_mul(factor)));
            };
            let Some(count) = count else {
                return Ok(None);
            };
            factor = factor.saturating_mul(count);
            id = of;
        }
        Err(DwarfError::Damaged("arrays lead in a circle".to_owned()))
    }

    /// The names and values of an enumeration.
    fn enumerators(&self, node: &DebugNode<'a>) -> Result<Rc<[Enumerator]>, DwarfError> {
        let mut found: Vec<Enumerator> = Vec::new();
        for child in self.units.children(node)? {
            if child.tag() != gimli::DW_TAG_enumerator || found.len() == MEMBERS_MAX {
                continue;
            }
            let value = child.attribute(gimli::DW_AT_const_value);
            if let (Some(name), Some(value)) = (self.units.name(&child)?, Units::constant(value)) {
                found.push((name.into(), value));
            }
        }
        Ok(found.into())
    }

    /// The type as its language writes it.
    pub(super) fn type_name(&self, die: Option<Die>) -> Result<String, DwarfError> {
        // What stands after the name, last first.
        let (mut behind, mut die) = (Vec::new(), die);
        let mut name = "void".to_owned();
        for _ in 0..CHAIN_MAX {
            let Some(at) = die else {
                break;
            };
            let node = self.units.node(at)?;
            let own = self.units.name(&node)?;
            match node.tag() {
                // Rust names its pointers itself.
                gimli::DW_TAG_pointer_type if own.is_none() => behind.push("*"),
                gimli::DW_TAG_reference_type => behind.push("&"),
                gimli::DW_TAG_rvalue_reference_type => behind.push("&&"),
                gimli::DW_TAG_array_type => behind.push("[]"),
                gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => {}
                gimli::DW_TAG_subroutine_type => {
                    name = "function".to_owned();
                    break;
                }
                tag => {
                    let c = is_c(self.units.language(at.unit)?);
                    let keyword = if c { keyword(tag) } else { "" };
                    name = format!("{keyword}{}", own.unwrap_or("(unnamed)"));
                    break;
                }
            }
            die = self.units.type_of(&node)?;
        }
        if !behind.is_empty() {
            name.push(' ');
            name.extend(behind.into_iter().rev());
        }
        Ok(name)
    }
}

fn base_shape(node: &DebugNode<'_>, name: &str) -> Shape {
    let (encoding, bytes) = encoding_of(node);
    match encoding {
        _ if bytes > 1 && is_big_endian(node) => Shape::Opaque { bytes: Some(bytes) },
        gimli::DW_ATE_boolean => Shape::Boolean { bytes },
        gimli::DW_ATE_signed_char => Shape::Character {
            bytes,
            signed: true,
        },
        gimli::DW_ATE_unsigned_char | gimli::DW_ATE_UTF => Shape::Character {
            bytes,
            signed: false,
        },
        gimli::DW_ATE_signed | gimli::DW_ATE_unsigned | gimli::DW_ATE_address => Shape::Integer {
            bytes,
            signed: encoding == gimli::DW_ATE_signed,
        },
        // Of 2 bytes there is another kind (`__bf16`), of 16 bytes there are two.
        gimli::DW_ATE_float if matches!(bytes, 4 | 8) || bytes == 2 && HALF.contains(&name) => {
            Shape::Float { bytes }
        }
        _ => Shape::Opaque { bytes: Some(bytes) },
    }
}

/// Whether its bytes stand the other way round than the processor's (`scalar_storage_order`).
fn is_big_endian(node: &DebugNode<'_>) -> bool {
    matches!(
        node.attribute(gimli::DW_AT_endianity),
        Some(AttributeValue::Endianity(gimli::DW_END_big))
    )
}
