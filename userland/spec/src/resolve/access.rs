// SPDX-License-Identifier: MIT OR Apache-2.0
//! From one thing to another: members, elements, what pointers point to, casts.

use super::bits::{bits_of, extended, of_pieces, shifted};
use super::{cut, error, said, Of, Resolver, Thing};
use crate::layout::Layout;
use crate::scope::{ScopeError, ValuePlace};
use crate::syntax::{CastType, Expression, ExpressionKind, Span};
use crate::types::{Base, GoKind, Member, Shape, Type, TypeId};
use crate::value::BinaryOperator as Operator;
use crate::SpecError;
use crate::Value;

/// How deep members of unnamed members and base classes are looked for.
const UNNAMED_DEPTH_MAX: u32 = 16;
/// Most members that are looked at for one name: unnamed ones could multiply.
const MEMBERS_MAX: u32 = 1 << 16;
/// Names that are gathered for a message.
const NAMES_MAX: usize = 20;

/// What is known of a search for a member.
struct MemberSearch<'a> {
    name: &'a str,
    span: &'a Span,
    /// How many members may still be looked at.
    left: u32,
    /// Members that are there instead.
    names: Vec<String>,
}

/// The way from an object to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Way {
    /// The virtual base classes on it, each with the bytes from where the way there begins, and
    /// [`Base::Virtual`]'s distance.
    turns: Vec<(u64, Option<u64>)>,
    /// The last of them: there is one of each in an object, whatever the way.
    last: Option<TypeId>,
    /// Bytes from there, or from the object, on.
    offset: u64,
}

/// Looks for something in a struct.
type Find<R, T> =
    fn(&R, &mut MemberSearch<'_>, TypeId, &Way, u32) -> Result<Vec<(T, Way)>, SpecError>;

impl MemberSearch<'_> {
    fn count(&mut self) -> Result<(), SpecError> {
        self.left = self.left.saturating_sub(1);
        match self.left {
            0 => error(self.span, "it has too many members to look through"),
            _ => Ok(()),
        }
    }
}

impl Way {
    /// The way on to a member of what is there.
    fn to(&self, member: &Member, id: Option<TypeId>) -> Way {
        let mut way = self.clone();
        match member.base {
            Some(Base::Virtual { below }) => {
                way.turns.push((way.offset, below));
                (way.last, way.offset) = (id, 0);
            }
            _ => way.offset = way.offset.wrapping_add(member.offset),
        }
        way
    }

    /// Whether both lead to one part of the object.
    fn is_same(&self, other: &Way) -> bool {
        (self.last, self.offset) == (other.last, other.offset)
    }
}

impl Resolver<'_> {
    pub(super) fn member(
        &self,
        of: &Expression,
        name: &str,
        span: &Span,
    ) -> Result<Thing, SpecError> {
        if let Some(variable) = self.of_package(of, name) {
            return self.variable(&variable, span);
        }
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

    /// The name of a variable of Go, which looks like a member of its package.
    fn of_package(&self, of: &Expression, name: &str) -> Option<String> {
        let ExpressionKind::Name(package) = &of.kind else {
            return None;
        };
        let variable = format!("{package}.{name}");
        let is_known = |name: &str| self.scope.variable(name).is_ok();
        (!is_known(package) && is_known(&variable)).then_some(variable)
    }

    /// The number that a member is.
    pub(crate) fn loaded_member(
        &self,
        thing: &Thing,
        name: &str,
        span: &Span,
    ) -> Result<Value, SpecError> {
        let member = self.member_of(thing.clone(), name, span)?;
        Ok(self.load(member, span)?.value)
    }

    /// What the elements are that a member points at, and the bytes of each.
    pub(crate) fn elements(
        &self,
        thing: &Thing,
        name: &str,
        span: &Span,
    ) -> Result<Option<(Layout, u64)>, SpecError> {
        let pointer = self.member_of(thing.clone(), name, span)?;
        let of = self.target(&pointer.of, span)?;
        let (Of::Known(kind), Some(bytes)) = (&of, self.bytes(&of)) else {
            return Ok(None);
        };
        Ok(self.layout(kind, span).ok().map(|layout| (layout, bytes)))
    }

    /// A member of a struct.
    pub(super) fn member_of(
        &self,
        thing: Thing,
        name: &str,
        span: &Span,
    ) -> Result<Thing, SpecError> {
        if thing.of.is_word() {
            return error(
                span,
                "nothing is known of this word; *(u32 *)(arg1 + 8) reads what lies behind it",
            );
        }
        let Some(Shape::Struct { id, .. }) = thing.of.shape() else {
            return error(span, "this has no members");
        };
        let mut search = MemberSearch {
            name,
            span,
            left: MEMBERS_MAX,
            names: Vec::new(),
        };
        let start = Way {
            turns: Vec::new(),
            last: None,
            offset: 0,
        };
        // `Base::member` is the member as that class has it.
        let (id, start) = match name.rsplit_once("::") {
            Some((class, member)) => {
                search.name = class.rsplit("::").next().unwrap_or(class);
                let found = self.find_base(&mut search, *id, &start, UNNAMED_DEPTH_MAX)?;
                let found = self.one(&mut search, found)?;
                search.name = member;
                found
            }
            None => (*id, start),
        };
        let found = self.find_member(&mut search, id, &start, UNNAMED_DEPTH_MAX)?;
        if found.is_empty() && matches!(self.scope.variants(id), Ok(Some(_))) {
            return error(
                span,
                "members of a variant cannot be named, as another may be there: it is shown as a \
                 whole",
            );
        }
        let (member, way) = self.one(&mut search, found)?;
        let kind = self
            .scope
            .resolve(member.type_id)
            .map_err(|why| said(span, why))?;
        let (thing, offset) = self.along(thing, &way, span)?;
        let member = Member { offset, ..member };
        self.member_at(thing, &member, Of::Known(kind), span)
    }

    /// The only one that was found.
    fn one<T>(
        &self,
        search: &mut MemberSearch<'_>,
        mut found: Vec<(T, Way)>,
    ) -> Result<(T, Way), SpecError> {
        let (name, span) = (search.name, search.span);
        match (found.pop(), found.is_empty()) {
            (Some(found), true) => Ok(found),
            (Some(_), false) => error(
                span,
                format!("`{name}` is in several of the base classes: name one, BASE::MEMBER"),
            ),
            (None, _) => {
                let names = std::mem::take(&mut search.names);
                let nearest = nsprobe_text::nearest(name, names.iter().cloned(), 3);
                let help = format!("the members are {}", names.join(", "));
                let unknown = ScopeError {
                    message: format!("there is no member `{name}`"),
                    help: nearest.is_empty().then_some(help),
                    nearest,
                };
                Err(said(span, unknown))
            }
        }
    }

    /// The members of that name, each with the way to it: the class's own hide those of its base
    /// classes, and what is left of these is ambiguous (C++17, 13.2).
    fn find_member(
        &self,
        search: &mut MemberSearch<'_>,
        id: TypeId,
        way: &Way,
        depth: u32,
    ) -> Result<Vec<(Member, Way)>, SpecError> {
        let members = self.scope.members(id);
        let members = members.map_err(|why| said(search.span, why))?;
        for member in members.iter().filter(|member| member.base.is_none()) {
            search.count()?;
            match &member.name {
                Some(found) if found.as_ref() == search.name => {
                    return Ok(vec![(member.clone(), way.to(member, None))])
                }
                Some(found) => {
                    if search.names.len() < NAMES_MAX {
                        search.names.push(found.to_string());
                    }
                }
                // Its members are the class's own.
                None => {
                    let found = self.inside(search, member, way, depth, Self::find_member)?;
                    if !found.is_empty() {
                        return Ok(found);
                    }
                }
            }
        }
        self.in_bases(search, &members, way, depth, Self::find_member)
    }

    /// The base classes of that name, each with the way to it.
    fn find_base(
        &self,
        search: &mut MemberSearch<'_>,
        id: TypeId,
        way: &Way,
        depth: u32,
    ) -> Result<Vec<(TypeId, Way)>, SpecError> {
        let own = self
            .scope
            .resolve(id)
            .map_err(|why| said(search.span, why))?;
        if own.name.split('<').next() == Some(search.name) {
            return Ok(vec![(id, way.clone())]);
        }
        if search.names.len() < NAMES_MAX {
            search.names.push(own.name.to_string());
        }
        let members = self.scope.members(id);
        let members = members.map_err(|why| said(search.span, why))?;
        self.in_bases(search, &members, way, depth, Self::find_base)
    }

    /// What `find` finds in the base classes among members.
    fn in_bases<T>(
        &self,
        search: &mut MemberSearch<'_>,
        members: &[Member],
        way: &Way,
        depth: u32,
        find: Find<Self, T>,
    ) -> Result<Vec<(T, Way)>, SpecError> {
        let mut all: Vec<(T, Way)> = Vec::new();
        for base in members.iter().filter(|member| member.base.is_some()) {
            search.count()?;
            for (found, way) in self.inside(search, base, way, depth, find)? {
                if !all.iter().any(|(_, known)| known.is_same(&way)) {
                    all.push((found, way));
                }
            }
        }
        Ok(all)
    }

    /// What `find` finds in a member that is a struct.
    fn inside<T>(
        &self,
        search: &mut MemberSearch<'_>,
        member: &Member,
        way: &Way,
        depth: u32,
        find: Find<Self, T>,
    ) -> Result<Vec<(T, Way)>, SpecError> {
        let inner = self.scope.resolve(member.type_id);
        match (inner.map(|inner| inner.shape), depth.checked_sub(1)) {
            (Ok(Shape::Struct { id, .. }), Some(depth)) => {
                find(self, search, id, &way.to(member, Some(id)), depth)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Where the last part of a way begins, and the bytes that are left from there on.
    fn along(&self, thing: Thing, way: &Way, span: &Span) -> Result<(Thing, u64), SpecError> {
        let mut thing = thing;
        for (offset, below) in &way.turns {
            let (ValuePlace::Memory(object), Some(below)) = (&thing.place, below) else {
                return error(span, "where this virtual base class is cannot be told here");
            };
            let object = object.clone().plus(*offset);
            let table = object.clone().load(8, false);
            let distance = table.plus(below.wrapping_neg()).load(8, true);
            let base = Value::binary(Operator::Add, object, distance);
            thing.place = ValuePlace::Memory(base);
        }
        Ok((thing, way.offset))
    }

    /// A member of what is at a place.
    fn member_at(
        &self,
        whole: Thing,
        member: &Member,
        of: Of,
        span: &Span,
    ) -> Result<Thing, SpecError> {
        if let Some((lowest, count)) = member.bits {
            if of.scalar_bytes().is_none() {
                return error(span, "this bit-field is of no number that can be fetched");
            }
            let first = member
                .offset
                .saturating_mul(8)
                .saturating_add(lowest.into());
            let Some(value) = bits_of(&whole.place, first, count.into(), whole.of_entry) else {
                return error(span, "not all of this bit-field is available here");
            };
            return Ok(Thing::value(extended(value, count, of.is_negative()), of));
        }
        let of_entry = whole.of_entry;
        let part = match whole.place {
            ValuePlace::Memory(address) => ValuePlace::Memory(address.plus(member.offset)),
            ValuePlace::Value(value) if member.offset < 8 => shifted(value, member.offset),
            ValuePlace::Value(_) => return error(span, "this member is not in the register"),
            ValuePlace::Pieces(pieces) => {
                let bytes = self.bytes(&of).unwrap_or(u64::MAX);
                match of_pieces(&pieces, member.offset, bytes, of_entry) {
                    Some(part) => part,
                    None => return error(span, "this member is not available here"),
                }
            }
        };
        let place = match (part, of.scalar_bytes()) {
            (ValuePlace::Value(value), Some(bytes)) => {
                ValuePlace::Value(cut(value, bytes, of.is_negative()))
            }
            (part, _) => part,
        };
        Ok(Thing {
            place,
            of,
            of_entry,
        })
    }

    pub(super) fn element(
        &self,
        of: &Expression,
        index: &Expression,
        span: &Span,
    ) -> Result<Thing, SpecError> {
        let mut array = self.thing(of)?;
        if let Some(element) = self.element_of_slice(&array, index, span)? {
            return Ok(element);
        }
        let mut target = self.target(&array.of, &of.span)?;
        // Go's `a[i]` goes through a pointer to an array.
        if self.scope.is_go() && matches!(target.shape(), Some(Shape::Array { .. })) {
            let (address, _) = self.first(array, &of.span)?;
            array = Thing::memory(address, target);
            target = self.target(&array.of, &of.span)?;
        }
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

    /// An element of a slice of Go; it is absent where the slice has none of that number.
    fn element_of_slice(
        &self,
        slice: &Thing,
        index: &Expression,
        span: &Span,
    ) -> Result<Option<Thing>, SpecError> {
        let Of::Known(kind) = &slice.of else {
            return Ok(None);
        };
        if self.go_kind(&kind.shape, span)? != Some(GoKind::Slice) {
            return Ok(None);
        }
        let array = self.member_of(slice.clone(), "array", span)?;
        let target = self.target(&array.of, span)?;
        let Some(bytes) = self.bytes(&target) else {
            return error(span, "how long an element is is not known");
        };
        let number = self.scalar(index)?.value;
        let length = self.loaded_member(slice, "len", span)?;
        let base = self.load(array, span)?.value;
        let distance = Value::binary(Operator::Multiply, number.clone(), Value::Constant(bytes));
        let address = Value::binary(Operator::Add, base, distance);
        // Nothing can be read at zero.
        let is_in = Value::binary(Operator::Below, number, length);
        let address = Value::binary(Operator::Multiply, address, is_in);
        Ok(Some(Thing::memory(address, target)))
    }

    pub(super) fn pointee(&self, of: &Expression) -> Result<Thing, SpecError> {
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
    fn first(&self, array: Thing, span: &Span) -> Result<(Value, bool), SpecError> {
        match (array.of.shape(), array.place) {
            (Some(Shape::Array { .. }), ValuePlace::Memory(address)) => {
                Ok((address, array.of_entry))
            }
            (_, place) => Ok((self.load(Thing { place, ..array }, span)?.value, false)),
        }
    }

    pub(super) fn address(&self, of: &Expression) -> Result<Thing, SpecError> {
        let thing = self.thing(of)?;
        match thing.place {
            ValuePlace::Memory(address) => {
                let address = match thing.of_entry {
                    true => address.at_entry(),
                    false => address,
                };
                Ok(Thing::value(address, Of::PointerTo(Box::new(thing.of))))
            }
            _ => error(&of.span, "this has no address: it is in a register"),
        }
    }

    pub(super) fn cast(&self, cast: &CastType, of: &Expression) -> Result<Thing, SpecError> {
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
