// SPDX-License-Identifier: MIT OR Apache-2.0
//! From one thing to another: members, elements, what pointers point to, casts.

use super::{cut, error, said, Of, Resolver, Result, Thing};
use crate::scope::{Place, ScopeError};
use crate::syntax::{CastType, Expression, Span};
use crate::types::{Member, Shape, Type, TypeId};
use crate::value::BinaryOperator as Operator;
use crate::Value;

/// How deep members of unnamed members are looked for.
const UNNAMED_DEPTH_MAX: u32 = 16;
/// Most members that are looked at for one name: unnamed ones could multiply.
const MEMBERS_MAX: u32 = 1 << 16;
/// Names that are gathered for a message.
const NAMES_MAX: usize = 20;

/// What is known of a search for a member.
struct Search<'a> {
    name: &'a str,
    span: &'a Span,
    /// How many members may still be looked at.
    left: u32,
    /// Members that are there instead.
    names: Vec<String>,
}

impl Resolver<'_> {
    pub(super) fn member(&self, of: &Expression, name: &str, span: &Span) -> Result<Thing> {
        let mut thing = self.thing(of)?;
        // `.` and `->` may both stand for both.
        for _ in 0..2 {
            if thing.of.is_pointer() {
                let target = self.target(&thing.of, &of.span)?;
                let address = self.load(thing, &of.span)?.value;
                thing = Thing::memory(address, target);
            }
        }
        self.member_of(thing, name, span)
    }

    /// A member of a struct.
    pub(super) fn member_of(&self, thing: Thing, name: &str, span: &Span) -> Result<Thing> {
        if thing.of.is_word() {
            return error(
                span,
                "nothing is known of this word; *(u32 *)(arg1 + 8) reads what lies behind it",
            );
        }
        let Some(Shape::Struct { id, .. }) = thing.of.shape() else {
            return error(span, "this has no members");
        };
        let mut search = Search {
            name,
            span,
            left: MEMBERS_MAX,
            names: Vec::new(),
        };
        let found = self.find_member(&mut search, *id, 0, UNNAMED_DEPTH_MAX)?;
        let names = search.names;
        let Some(member) = found else {
            let nearest = crate::nearest::nearest(name, names.iter().cloned(), 3);
            let help = format!("the members are {}", names.join(", "));
            let unknown = ScopeError {
                message: format!("there is no member `{name}`"),
                help: nearest.is_empty().then_some(help),
                nearest,
            };
            return Err(said(span, unknown));
        };
        let kind = self
            .scope
            .resolve(member.type_id)
            .map_err(|why| said(span, why))?;
        self.member_at(thing, &member, Of::Known(kind), span)
    }

    /// The member of that name, also of unnamed members; its offset is that in the
    /// whole.
    fn find_member(
        &self,
        search: &mut Search<'_>,
        id: TypeId,
        base: u64,
        depth: u32,
    ) -> Result<Option<Member>> {
        let members = self.scope.members(id);
        let members = members.map_err(|why| said(search.span, why))?;
        for member in members.iter() {
            let offset = base.wrapping_add(member.offset);
            search.left = search.left.saturating_sub(1);
            if search.left == 0 {
                return error(search.span, "it has too many members to look through");
            }
            match &member.name {
                Some(found) if found.as_ref() == search.name => {
                    return Ok(Some(Member {
                        offset,
                        ..member.clone()
                    }))
                }
                Some(found) => {
                    if search.names.len() < NAMES_MAX {
                        search.names.push(found.to_string());
                    }
                }
                None if depth == 0 => {}
                None => {
                    let inner = self.scope.resolve(member.type_id);
                    if let Ok(Shape::Struct { id, .. }) = inner.map(|inner| inner.shape) {
                        let found = self.find_member(search, id, offset, depth - 1)?;
                        if found.is_some() {
                            return Ok(found);
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    /// A member of what is at a place.
    fn member_at(&self, whole: Thing, member: &Member, of: Of, span: &Span) -> Result<Thing> {
        let of_entry = whole.of_entry;
        let part = match whole.place {
            Place::Memory(address) => Place::Memory(address.plus(member.offset)),
            Place::Value(value) if member.offset < 8 => shifted(value, member.offset),
            Place::Value(_) => return error(span, "this member is not in the register"),
            Place::Pieces(pieces) => {
                let bytes = self.bytes(&of).unwrap_or(u64::MAX);
                let end = member.offset.saturating_add(bytes);
                let piece = pieces.iter().find(|piece| {
                    let piece_end = piece.offset.saturating_add(piece.bytes);
                    piece.offset <= member.offset && end <= piece_end
                });
                let Some(piece) = piece else {
                    return error(span, "this member is not available here");
                };
                let inside = member.offset - piece.offset;
                match &piece.place {
                    Place::Memory(address) => Place::Memory(address.clone().plus(inside)),
                    Place::Value(value) if inside < 8 => shifted(value.clone(), inside),
                    _ => return error(span, "this member is not available here"),
                }
            }
        };
        let Some((lowest, count)) = member.bits else {
            let part = match (part, of.scalar_bytes()) {
                (Place::Value(value), Some(bytes)) => {
                    Place::Value(cut(value, bytes, of.is_negative()))
                }
                (part, _) => part,
            };
            return Ok(Thing {
                place: part,
                of,
                of_entry,
            });
        };
        let whole = match part {
            // As few bytes as hold the bits: more might not be there.
            Place::Memory(address) => {
                let bytes = (u32::from(lowest) + u32::from(count)).div_ceil(8);
                match (bytes.next_power_of_two(), of_entry) {
                    (bytes @ 1..=8, true) => address.load(bytes as u8, false).at_entry(),
                    (bytes @ 1..=8, false) => address.load(bytes as u8, false),
                    _ => return error(span, "this bit-field lies in more than eight bytes"),
                }
            }
            Place::Value(value) => value,
            Place::Pieces(_) => return error(span, "this member is not available here"),
        };
        Ok(Thing::value(
            bits(whole, lowest, count, of.is_negative()),
            of,
        ))
    }

    pub(super) fn element(
        &self,
        of: &Expression,
        index: &Expression,
        span: &Span,
    ) -> Result<Thing> {
        let array = self.thing(of)?;
        let target = self.target(&array.of, &of.span)?;
        let count = match array.of.shape() {
            Some(Shape::Array { count, .. }) => *count,
            _ => None,
        };
        let Some(bytes) = self.bytes(&target) else {
            return error(span, "nobody knows how long an element is");
        };
        let number = self.scalar(index)?.value;
        // Arrays of one element often stand for longer ones.
        if let (Some(count @ 2..), Value::Constant(number)) = (count, &number) {
            if *number >= count {
                let message = format!("this array has {count} elements, counted from 0");
                return error(&index.span, message);
            }
        }
        let distance = Value::binary(Operator::Multiply, number, Value::Constant(bytes));
        let (base, of_entry) = self.first(array, &of.span)?;
        if of_entry && !distance.is_known_at_entry() {
            return error(&index.span, "this must be known at the entry of the call");
        }
        Ok(Thing {
            of_entry,
            ..Thing::memory(Value::binary(Operator::Add, base, distance), target)
        })
    }

    pub(super) fn pointee(&self, of: &Expression) -> Result<Thing> {
        let pointer = self.thing(of)?;
        let target = self.target(&pointer.of, &of.span)?;
        let (address, of_entry) = self.first(pointer, &of.span)?;
        Ok(Thing {
            of_entry,
            ..Thing::memory(address, target)
        })
    }

    /// Where the first element of an array is, or what a pointer points to; and whether
    /// that is of the entry, as an array in memory can be.
    fn first(&self, array: Thing, span: &Span) -> Result<(Value, bool)> {
        match (array.of.shape(), array.place) {
            (Some(Shape::Array { .. }), Place::Memory(address)) => Ok((address, array.of_entry)),
            (_, place) => Ok((self.load(Thing { place, ..array }, span)?.value, false)),
        }
    }

    pub(super) fn address(&self, of: &Expression) -> Result<Thing> {
        let thing = self.thing(of)?;
        match thing.place {
            Place::Memory(address) => {
                let address = match thing.of_entry {
                    true => address.at_entry(),
                    false => address,
                };
                Ok(Thing::value(address, Of::PointerTo(Box::new(thing.of))))
            }
            _ => error(&of.span, "this has no address: it is in a register"),
        }
    }

    pub(super) fn cast(&self, cast: &CastType, of: &Expression) -> Result<Thing> {
        let mut to = match cast.is_char {
            _ if cast.library.is_some() => Self::library_type(cast.library),
            true => Of::Known(Type::new(
                "char",
                Shape::Character {
                    bytes: 1,
                    signed: false,
                },
            )),
            false if cast.bytes == 0 => Of::Known(Type::new("void", Shape::Void)),
            false => Of::integer(cast.bytes.into(), cast.signed),
        };
        let mut value = self.scalar(of)?.value;
        if cast.pointers == 0 {
            value = cut(value, cast.bytes, cast.signed);
        }
        for _ in 0..cast.pointers {
            to = Of::PointerTo(Box::new(to));
        }
        Ok(Thing::value(value, to))
    }
}

/// What lies some bytes into a register.
fn shifted(value: Value, bytes: u64) -> Place {
    Place::Value(match bytes {
        0 => value,
        bytes => Value::binary(Operator::ShiftRight, value, Value::Constant(bytes * 8)),
    })
}

/// The bits of a bit-field.
fn bits(value: Value, lowest: u8, count: u8, signed: bool) -> Value {
    let value = match lowest {
        0 => value,
        lowest => Value::binary(Operator::ShiftRight, value, Value::Constant(lowest.into())),
    };
    match count {
        1..=63 => Value::Truncate {
            value: Box::new(value),
            bits: count,
            signed,
        },
        _ => value,
    }
}
