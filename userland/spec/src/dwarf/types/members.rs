// SPDX-License-Identifier: MIT OR Apache-2.0
//! Members of structs and unions, and variants of enums with data.

use super::id_of;
use crate::dwarf::error::DwarfError;
use crate::dwarf::units::{DebugNode, Units};
use crate::dwarf::DebugInfo;
use crate::types::{Base, Member, Type, TypeId, Variant, Variants};
use gimli::{AttributeValue, Reader};
use std::rc::Rc;

/// Most members of a type, nested ones included.
pub(super) const MEMBERS_MAX: usize = 65_536;

impl<'a> DebugInfo<'a> {
    /// The members of a struct, class or union, base classes included; static
    /// members are none.
    pub(in crate::dwarf) fn members_of(&self, id: TypeId) -> Result<Vec<Member>, DwarfError> {
        match self.type_node(id)? {
            Some(node) => self.members_in(&node),
            None => Ok(Vec::new()),
        }
    }

    fn members_in(&self, node: &DebugNode<'a>) -> Result<Vec<Member>, DwarfError> {
        let mut found = Vec::new();
        for child in self.units.children(node)? {
            let base_class = child.tag() == gimli::DW_TAG_inheritance;
            let is_static =
                child.flag(gimli::DW_AT_external) || child.flag(gimli::DW_AT_declaration);
            if !base_class && (child.tag() != gimli::DW_TAG_member || is_static) {
                continue;
            }
            if found.len() == MEMBERS_MAX {
                return Err(DwarfError::TooBig("a type has too many members"));
            }
            found.extend(self.member(&child, base_class)?);
        }
        Ok(found)
    }

    /// The variants of a struct.
    pub(in crate::dwarf) fn variants_of(&self, id: TypeId) -> Result<Option<Variants>, DwarfError> {
        let Some(node) = self.type_node(id)? else {
            return Ok(None);
        };
        let children = self.units.children(&node)?;
        let is_part = |child: &&DebugNode<'a>| child.tag() == gimli::DW_TAG_variant_part;
        let Some(part) = children.iter().find(is_part) else {
            return Ok(None);
        };
        let tag = match self.units.target(part, gimli::DW_AT_discr)? {
            Some(tag) => self.member(&self.units.node(tag)?, false)?,
            None => None,
        };
        let signed = match &tag {
            Some(tag) => Type::new("", self.shape(tag.type_id)?).is_signed(),
            None => false,
        };
        let mut each = Vec::new();
        for child in self.units.children(part)? {
            if child.tag() != gimli::DW_TAG_variant {
                continue;
            }
            if each.len() == MEMBERS_MAX {
                return Err(DwarfError::TooBig("a type has too many variants"));
            }
            each.push(Variant {
                values: variant_values(&child, signed)?,
                members: self.members_in(&child)?,
            });
        }
        Ok(Some(Variants { tag, each }))
    }

    /// A member; none where only the object itself knows where it is.
    fn member(&self, node: &DebugNode<'a>, base_class: bool) -> Result<Option<Member>, DwarfError> {
        let type_id = id_of(self.units.type_of(node)?);
        let bits = node.number(gimli::DW_AT_bit_size);
        let virtual_base = matches!(
            node.attribute(gimli::DW_AT_virtuality),
            Some(AttributeValue::Virtuality(virtuality)) if virtuality != gimli::DW_VIRTUALITY_none
        );
        let base = match (base_class, virtual_base) {
            (false, _) => None,
            (true, false) => Some(Base::Fixed),
            (true, true) => Some(Base::Virtual {
                below: virtual_offset(node),
            }),
        };
        let byte_offset = match virtual_base {
            true => Some(0),
            false => member_offset(node),
        };
        let Some(byte_offset) = byte_offset else {
            return Ok(None);
        };
        let start = byte_offset.saturating_mul(8);
        let bit_offset = match (bits, node.number(gimli::DW_AT_data_bit_offset)) {
            (_, Some(bit)) => start.saturating_add(bit),
            (Some(bits), None) => self.old_bit_offset(node, start, bits, type_id)?,
            (None, None) => start,
        };
        let name = self.units.name(node)?;
        let bits = bits.map(|bits| {
            (
                (bit_offset % 8) as u8,
                u8::try_from(bits).unwrap_or(u8::MAX),
            )
        });
        Ok(Some(Member {
            name: name
                .filter(|name| !base_class && !name.is_empty())
                .map(Rc::from),
            offset: bit_offset / 8,
            bits,
            type_id,
            base,
        }))
    }

    /// The lowest bit by DW_AT_bit_offset of DWARF 3 and before, which counts from
    /// the highest bit of the storage unit.
    fn old_bit_offset(
        &self,
        node: &DebugNode<'a>,
        start: u64,
        bits: u64,
        type_id: TypeId,
    ) -> Result<u64, DwarfError> {
        let high = match node.attribute(gimli::DW_AT_bit_offset) {
            // It may reach before the storage unit: then it is negative, which clang writes as a
            // number without a sign.
            Some(value) => {
                let high = value.sdata_value().map(|high| high as u64);
                high.or(value.udata_value()).unwrap_or(0)
            }
            None => return Ok(start),
        };
        let bytes = match node.number(gimli::DW_AT_byte_size) {
            Some(bytes) => bytes,
            None => self.size_of(type_id)?.unwrap_or(0),
        };
        let from_low = bytes.wrapping_mul(8).wrapping_sub(high).wrapping_sub(bits);
        Ok(start.wrapping_add(from_low))
    }
}

/// The values of the tag with which a variant is there; none for all others.
fn variant_values(
    node: &DebugNode<'_>,
    signed: bool,
) -> Result<Option<Vec<(u64, u64)>>, DwarfError> {
    let unknown = || DwarfError::Damaged("the tag of a variant is of an unknown form".to_owned());
    if let Some(value) = node.attribute(gimli::DW_AT_discr_value) {
        let value = Units::constant(Some(value)).ok_or_else(unknown)?;
        return Ok(Some(vec![(value, value)]));
    }
    let mut list = match node.attribute(gimli::DW_AT_discr_list) {
        None => return Ok(None),
        Some(AttributeValue::Block(bytes)) => bytes,
        Some(_) => return Err(unknown()),
    };
    let mut found = Vec::new();
    while !list.is_empty() {
        let is_range = gimli::DwDsc(list.read_u8()?) == gimli::DW_DSC_range;
        let mut number = || match signed {
            true => list.read_sleb128().map(|number| number as u64),
            false => list.read_uleb128(),
        };
        let first = number()?;
        found.push((first, if is_range { number()? } else { first }));
    }
    Ok(Some(found))
}

/// How far below where the object's first word points the distance to a virtual base stands:
/// `DW_OP_dup, DW_OP_deref, DW_OP_constu N, DW_OP_minus, DW_OP_deref, DW_OP_plus`.
fn virtual_offset(node: &DebugNode<'_>) -> Option<u64> {
    use gimli::Operation::{Deref, Minus, Pick, Plus, UnsignedConstant};
    let Some(AttributeValue::Exprloc(expression)) =
        node.attribute(gimli::DW_AT_data_member_location)
    else {
        return None;
    };
    let mut operations = expression.operations(node.unit.encoding());
    let mut found = [None; 7];
    for operation in &mut found {
        *operation = operations.next().ok()?;
    }
    match found {
        [Some(Pick { index: 0 }), Some(Deref { .. }), Some(UnsignedConstant { value }), Some(Minus), Some(Deref { .. }), Some(Plus), None] => {
            Some(value)
        }
        _ => None,
    }
}

/// Where a member begins, in bytes; none when it takes more than a constant.
fn member_offset(node: &DebugNode<'_>) -> Option<u64> {
    match node.attribute(gimli::DW_AT_data_member_location) {
        // The members of a union, and bit-fields by DW_AT_data_bit_offset.
        None => Some(0),
        Some(AttributeValue::Exprloc(expression)) => {
            // DWARF 2: DW_OP_plus_uconst on the address of the whole.
            let mut bytes = expression.0;
            let operation = gimli::Operation::parse(&mut bytes, node.unit.encoding()).ok()?;
            match operation {
                gimli::Operation::PlusConstant { value } if bytes.slice().is_empty() => Some(value),
                _ => None,
            }
        }
        Some(value) => value.udata_value(),
    }
}
