// SPDX-License-Identifier: MIT OR Apache-2.0
//! Expressions into values, by what a scope knows.

use crate::plain::word;
use crate::scope::{Place, Role, Scope, ScopeError, Typed};
use crate::syntax::{Binary, CastType, Expression, Format, Kind, Span, SpecError, Unary};
use crate::types::{Member, Shape, Type};
use crate::value::BinaryOperator as Operator;
use crate::Value;
use nsprobe_common::program::{Context, Register, BYTES_MAX};

type Result<T> = std::result::Result<T, SpecError>;

/// How deep members of unnamed members are looked for.
const UNNAMED_DEPTH_MAX: u32 = 16;
/// Most members that are looked at for one name: unnamed ones could multiply.
const MEMBERS_MAX: u32 = 1 << 16;
/// Most dimensions of an array.
const DIMENSIONS_MAX: usize = 16;
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

/// Looks up the names of one probe's expressions.
pub(crate) struct Resolver<'a> {
    pub(crate) scope: &'a dyn Scope,
    /// The probe is hit at returns: arguments and variables are those of the entry.
    pub(crate) at_return: bool,
}

/// What something is: as the scope says, or as a cast does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// As the scope says.
    Known(Type),
    /// A pointer to something that has no number in the scope.
    PointerTo(Box<Of>),
}

/// Something, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Thing {
    pub(crate) place: Place,
    pub(crate) of: Of,
    /// It lies in memory that belongs to the call, and what was there at the entry is
    /// meant: at the return the stack may hold anything.
    pub(crate) of_entry: bool,
}

/// A number, ready to be computed.
pub(crate) struct Scalar {
    pub(crate) value: Value,
    pub(crate) of: Of,
}

impl Of {
    pub(crate) fn integer(bytes: u64, signed: bool) -> Of {
        let name = match (bytes, signed) {
            (8, true) => "s64",
            (8, false) => "u64",
            _ => "number",
        };
        Of::Known(Type::new(name, Shape::Integer { bytes, signed }))
    }

    fn boolean() -> Of {
        Of::Known(Type::new("bool", Shape::Boolean { bytes: 8 }))
    }

    /// What the scope says; a pointer for what it does not know.
    pub(crate) fn shape(&self) -> Option<&Shape> {
        match self {
            Of::Known(of) => Some(&of.shape),
            Of::PointerTo(_) => None,
        }
    }

    /// Eight bytes of which nothing is known.
    fn is_word(&self) -> bool {
        matches!(self.shape(), Some(Shape::Opaque { bytes: Some(8) }))
    }

    fn is_pointer(&self) -> bool {
        matches!(self.shape(), None | Some(Shape::Pointer { .. }))
    }

    /// Whether it is a character of one byte.
    pub(crate) fn is_char(&self) -> bool {
        matches!(self.shape(), Some(Shape::Character { bytes: 1, .. }))
    }

    /// Bytes of a number or pointer in memory.
    fn scalar_bytes(&self) -> Option<u8> {
        let bytes = match self {
            Of::PointerTo(_) => Some(8),
            Of::Known(of) => match of.shape {
                Shape::Struct { .. } | Shape::Array { .. } => None,
                _ => of.bytes(),
            },
        };
        bytes
            .filter(|bytes| matches!(bytes, 1 | 2 | 4 | 8))
            .map(|bytes| bytes as u8)
    }

    fn is_negative(&self) -> bool {
        matches!(self, Of::Known(of) if of.is_signed())
    }

    /// Whether computing with it has a sign: all but unsigned numbers of eight bytes,
    /// which would not fit. A word of which nothing is known counts as signed.
    fn counts_as_signed(&self) -> bool {
        match self {
            Of::PointerTo(_) => false,
            Of::Known(of) => match of.shape {
                Shape::Pointer { .. } => false,
                Shape::Integer { bytes: 8, signed } => signed,
                _ => true,
            },
        }
    }
}

fn error<T>(span: &Span, message: impl Into<String>) -> Result<T> {
    Err(SpecError::new(span.clone(), message))
}

/// Why a scope does not tell, at a place of the spec.
pub(crate) fn said(span: &Span, why: ScopeError) -> SpecError {
    let mut message = why.message;
    if let Some(help) = why.help {
        message = format!("{message}; {help}");
    }
    if !why.nearest.is_empty() {
        message = format!("{message} (did you mean {}?)", why.nearest.join(", "));
    }
    SpecError::new(span.clone(), message)
}

impl Thing {
    fn value(value: Value, of: Of) -> Thing {
        Thing {
            place: Place::Value(value),
            of,
            of_entry: false,
        }
    }

    fn memory(address: Value, of: Of) -> Thing {
        Thing {
            place: Place::Memory(address),
            of,
            of_entry: false,
        }
    }
}

impl From<Typed> for Thing {
    fn from(typed: Typed) -> Thing {
        Thing {
            place: typed.place,
            of: Of::Known(typed.kind),
            of_entry: false,
        }
    }
}

/// The same place, of which what was there at the entry of the call is meant.
fn at_entry(place: Place) -> Place {
    match place {
        Place::Value(value) => Place::Value(value.at_entry()),
        // It is found and read at once: see `Thing::of_entry`.
        Place::Memory(address) => Place::Memory(address),
        Place::Pieces(pieces) => {
            let pieces = pieces.iter().cloned().map(|mut piece| {
                piece.place = at_entry(piece.place);
                piece
            });
            Place::Pieces(pieces.collect())
        }
    }
}

impl Resolver<'_> {
    /// What an expression is and where.
    pub(crate) fn thing(&self, expression: &Expression) -> Result<Thing> {
        let span = &expression.span;
        match &expression.kind {
            Kind::Number(value) => Ok(Thing::value(Value::Constant(*value), Of::integer(8, true))),
            Kind::Name(name) => self.variable(name, span),
            Kind::Argument(number) => {
                let found = self.scope.argument(*number as usize);
                let thing = Thing::from(found.map_err(|why| said(span, why))?);
                Ok(self.of_entry(thing))
            }
            Kind::Returned => match self.at_return {
                true => Ok(self.scope.retval().map_err(|why| said(span, why))?.into()),
                false => error(span, "$retval is there at the return only"),
            },
            Kind::Register(register, bytes) => {
                let value = Value::Register(*register);
                Ok(match bytes {
                    8 => Thing::value(value, Of::Known(word())),
                    bytes => {
                        let of = Of::integer((*bytes).into(), false);
                        Thing::value(cut(value, *bytes, false), of)
                    }
                })
            }
            Kind::StackWord(number) => {
                let address = Value::Register(Register::Rsp).plus(u64::from(*number) * 8);
                Ok(Thing::memory(address, Of::Known(word())))
            }
            Kind::Context(Context::Elapsed) if !self.at_return => {
                error(span, "$elapsed is there at the return only")
            }
            Kind::Context(context) => Ok(Thing::value(
                Value::Context(*context),
                Of::integer(8, false),
            )),
            Kind::Member { of, name } => self.member(of, name, span),
            Kind::Element { of, index } => self.element(of, index, span),
            Kind::Unary(Unary::Load, of) => self.pointee(of),
            Kind::Unary(Unary::Address, of) => self.address(of),
            Kind::Cast(cast, of) => self.cast(cast, of),
            Kind::AtEntry(of) => {
                let inner = Resolver {
                    scope: self.scope,
                    at_return: false,
                };
                let scalar = inner.scalar(of)?;
                let value = match self.at_return {
                    true => scalar.value.at_entry(),
                    false => scalar.value,
                };
                Ok(Thing::value(value, scalar.of))
            }
            Kind::Unary(Unary::Minus | Unary::BitNot | Unary::Not, _) | Kind::Binary(..) => {
                let scalar = self.computed(expression)?;
                Ok(Thing::value(scalar.value, scalar.of))
            }
            Kind::Text(_) => error(span, "a string can only be compared: NAME == \"text\""),
            Kind::Comm => error(span, "$comm can only be compared, shown, or counted by"),
            Kind::All { .. } => error(span, "this stands for several values: only as a field"),
        }
    }

    fn variable(&self, name: &str, span: &Span) -> Result<Thing> {
        let failed = |why| said(span, why);
        let variable = self.scope.variable(name).map_err(failed)?;
        let thing = Thing::from(variable.value.map_err(failed)?);
        match variable.role {
            Role::Parameter => Ok(self.of_entry(thing)),
            Role::Local if self.at_return => error(
                span,
                format!("`{name}` is a local variable: it is gone when the function has returned"),
            ),
            Role::Local | Role::Global => Ok(thing),
        }
    }

    /// What was found at the entry, for a return.
    fn of_entry(&self, thing: Thing) -> Thing {
        match self.at_return {
            true => Thing {
                place: at_entry(thing.place),
                of_entry: true,
                ..thing
            },
            false => thing,
        }
    }

    /// The number that an expression is.
    pub(crate) fn scalar(&self, expression: &Expression) -> Result<Scalar> {
        let thing = self.thing(expression)?;
        self.load(thing, &expression.span)
    }

    /// The number that is at a place.
    fn load(&self, thing: Thing, span: &Span) -> Result<Scalar> {
        let Thing {
            place,
            of,
            of_entry,
        } = thing;
        let then = |value: Value| match of_entry {
            true => value.at_entry(),
            false => value,
        };
        if let Of::Known(known) = &of {
            let name = &known.name;
            match &known.shape {
                Shape::Struct { .. } => {
                    return error(
                        span,
                        format!("this is a {name}: one of its members must be named"),
                    )
                }
                Shape::Array { of, .. } => {
                    let Place::Memory(address) = place else {
                        return error(span, "this array is not in memory");
                    };
                    // The address of its first element.
                    let pointer = Shape::Pointer {
                        to: *of,
                        reference: false,
                    };
                    return Ok(Scalar {
                        value: then(address),
                        of: Of::Known(Type::new(name, pointer)),
                    });
                }
                _ => {}
            }
        }
        let Some(bytes) = of.scalar_bytes() else {
            return error(
                span,
                "this is not of 1, 2, 4 or 8 bytes: it cannot be fetched",
            );
        };
        let value = match place {
            Place::Memory(address) => then(address.load(bytes, of.is_negative())),
            Place::Value(value) => value,
            Place::Pieces(_) => {
                return error(
                    span,
                    "this lies in several places: it cannot be fetched at once",
                )
            }
        };
        Ok(Scalar { value, of })
    }

    /// What a pointer or an array leads to.
    fn target(&self, of: &Of, span: &Span) -> Result<Of> {
        let id = match of {
            Of::PointerTo(of) => return Ok(of.as_ref().clone()),
            Of::Known(of) => match of.shape {
                Shape::Pointer { to, .. } => to,
                Shape::Array { of, .. } => of,
                // As perf and bpftrace have it: a word.
                Shape::Opaque { bytes: Some(8) } | Shape::Integer { bytes: 8, .. } => {
                    return Ok(Of::Known(word()))
                }
                _ => return error(span, "this is neither a pointer nor an array"),
            },
        };
        self.scope
            .resolve(id)
            .map(Of::Known)
            .map_err(|why| said(span, why))
    }

    /// Bytes of something in memory.
    pub(crate) fn bytes(&self, of: &Of) -> Option<u64> {
        let Of::Known(known) = of else {
            return Some(8);
        };
        let (mut kind, mut count) = (known.clone(), 1u64);
        // A file that lies may have arrays of themselves.
        for _ in 0..DIMENSIONS_MAX {
            let Shape::Array { of, count: more } = kind.shape else {
                return kind.bytes()?.checked_mul(count);
            };
            count = count.checked_mul(more?)?;
            kind = self.scope.resolve(of).ok()?;
        }
        None
    }

    fn member(&self, of: &Expression, name: &str, span: &Span) -> Result<Thing> {
        let mut thing = self.thing(of)?;
        // `.` and `->` may both stand for both.
        for _ in 0..2 {
            if thing.of.is_pointer() {
                let target = self.target(&thing.of, &of.span)?;
                let address = self.load(thing, &of.span)?.value;
                thing = Thing::memory(address, target);
            }
        }
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
        id: crate::types::TypeId,
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

    fn element(&self, of: &Expression, index: &Expression, span: &Span) -> Result<Thing> {
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

    fn pointee(&self, of: &Expression) -> Result<Thing> {
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

    fn address(&self, of: &Expression) -> Result<Thing> {
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

    fn cast(&self, cast: &CastType, of: &Expression) -> Result<Thing> {
        let mut to = match cast.is_char {
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

    /// An operator's result.
    fn computed(&self, expression: &Expression) -> Result<Scalar> {
        let span = &expression.span;
        match &expression.kind {
            Kind::Unary(Unary::Not, of) => {
                Ok(boolean(Value::IsZero(Box::new(self.condition(of)?))))
            }
            Kind::Unary(operator, of) => {
                let scalar = self.scalar(of)?;
                let signed = scalar.of.counts_as_signed();
                let value = match operator {
                    Unary::Minus => {
                        Value::binary(Operator::Subtract, Value::Constant(0), scalar.value)
                    }
                    _ => Value::Not(Box::new(scalar.value)),
                };
                Ok(Scalar {
                    value,
                    of: Of::integer(8, signed || *operator == Unary::Minus),
                })
            }
            Kind::Binary(Binary::And | Binary::Or, a, b) => {
                let operator = match &expression.kind {
                    Kind::Binary(Binary::And, ..) => Operator::Both,
                    _ => Operator::Either,
                };
                let (a, b) = (self.condition(a)?, self.condition(b)?);
                Ok(boolean(Value::binary(operator, a, b)))
            }
            Kind::Binary(operator @ (Binary::Equal | Binary::NotEqual | Binary::Matches), a, b)
                if [a, b].iter().any(|side| matches!(side.kind, Kind::Text(_))) =>
            {
                self.text(*operator, a, b, span).map(boolean)
            }
            Kind::Binary(Binary::Matches, ..) => error(
                span,
                "~ compares with a string that ends in *: NAME ~ \"text*\"",
            ),
            Kind::Binary(operator, a, b) => self.arithmetic(*operator, a, b),
            _ => error(span, "this is no number"),
        }
    }

    /// A condition: what is not zero holds.
    pub(crate) fn condition(&self, expression: &Expression) -> Result<Value> {
        Ok(self.scalar(expression)?.value)
    }

    fn arithmetic(&self, operator: Binary, a: &Expression, b: &Expression) -> Result<Scalar> {
        let (left, right) = (&a.span, &b.span);
        let (a, b) = (self.scalar(a)?, self.scalar(b)?);
        let signed = a.of.counts_as_signed() && b.of.counts_as_signed();
        let number = Of::integer(8, signed);
        let (operator, of) = match operator {
            Binary::Add | Binary::Subtract => {
                return self.sum(operator, (a, left), (b, right), number)
            }
            Binary::Multiply => (Operator::Multiply, number),
            Binary::Divide if signed => (Operator::DivideSigned, number),
            Binary::Divide => (Operator::Divide, number),
            Binary::Modulo if signed => (Operator::ModuloSigned, number),
            Binary::Modulo => (Operator::Modulo, number),
            Binary::BitAnd => (Operator::And, number),
            Binary::BitOr => (Operator::Or, number),
            Binary::BitXor => (Operator::ExclusiveOr, number),
            Binary::ShiftLeft => (Operator::ShiftLeft, number),
            Binary::ShiftRight if a.of.counts_as_signed() => (Operator::ShiftRightSigned, number),
            Binary::ShiftRight => (Operator::ShiftRight, number),
            comparison => return Ok(boolean(compare(comparison, a.value, b.value, signed))),
        };
        Ok(Scalar {
            value: Value::binary(operator, a.value, b.value),
            of,
        })
    }

    /// A sum or difference; a pointer moves by what it points to.
    fn sum(
        &self,
        operator: Binary,
        (a, left): (Scalar, &Span),
        (b, right): (Scalar, &Span),
        number: Of,
    ) -> Result<Scalar> {
        let is_sum = operator == Binary::Add;
        let operator = match is_sum {
            true => Operator::Add,
            false => Operator::Subtract,
        };
        // Void counts in bytes, as GNU C has it.
        let unit = |pointer: &Of, span: &Span| -> Result<Value> {
            let target = self.target(pointer, span)?;
            Ok(Value::Constant(self.bytes(&target).unwrap_or(1).max(1)))
        };
        let (value, of) = match (a.of.is_pointer(), b.of.is_pointer()) {
            (true, false) => {
                let b = Value::binary(Operator::Multiply, b.value, unit(&a.of, left)?);
                (Value::binary(operator, a.value, b), a.of)
            }
            (false, true) if is_sum => {
                let a = Value::binary(Operator::Multiply, a.value, unit(&b.of, right)?);
                (Value::binary(operator, a, b.value), b.of)
            }
            (true, true) if is_sum => return error(right, "two addresses cannot be added"),
            (true, true) => {
                let bytes = Value::binary(operator, a.value, b.value);
                let distance = Value::binary(Operator::DivideSigned, bytes, unit(&a.of, left)?);
                (distance, Of::integer(8, true))
            }
            _ => (Value::binary(operator, a.value, b.value), number),
        };
        Ok(Scalar { value, of })
    }

    /// A comparison with a string.
    fn text(&self, operator: Binary, a: &Expression, b: &Expression, span: &Span) -> Result<Value> {
        let (of, text, text_span) = match (&a.kind, &b.kind) {
            (Kind::Text(_), Kind::Text(_)) => return error(span, "these are two constants"),
            (Kind::Text(text), _) => (b, text, &a.span),
            (_, Kind::Text(text)) => (a, text, &b.span),
            _ => return error(span, "here a string should stand"),
        };
        let (text, whole) = match (operator, text.strip_suffix(b"*")) {
            (Binary::Matches, Some(beginning)) => (beginning, false),
            (Binary::Matches, None) => {
                return error(text_span, "what stands behind ~ must end in *")
            }
            _ => (text.as_slice(), true),
        };
        if text.len() > BYTES_MAX {
            return error(
                text_span,
                format!("no more than {BYTES_MAX} bytes are compared"),
            );
        }
        let equal = match &of.kind {
            Kind::Comm => comm_is(text, whole, text_span)?,
            _ => Value::Compare {
                address: Box::new(self.text_address(of)?),
                text: text.to_vec(),
                whole,
            },
        };
        Ok(match operator {
            Binary::NotEqual => Value::IsZero(Box::new(equal)),
            _ => equal,
        })
    }

    /// Where a string is.
    pub(crate) fn text_address(&self, of: &Expression) -> Result<Value> {
        let thing = self.thing(of)?;
        if thing.of_entry && matches!(thing.of.shape(), Some(Shape::Array { .. })) {
            return error(
                &of.span,
                "this array lies on the stack of a call that is over; entry(...) compares it in \
                 time",
            );
        }
        let scalar = self.load(thing, &of.span)?;
        let is_address = scalar.of.is_pointer()
            || scalar.of.is_word()
            || matches!(scalar.of.shape(), Some(Shape::Integer { bytes: 8, .. }));
        match is_address {
            true => Ok(scalar.value),
            false => error(&of.span, "this is neither a string nor an address"),
        }
    }

    /// Whether it points to characters.
    pub(crate) fn is_text(&self, of: &Of) -> bool {
        let points = of.is_pointer() || matches!(of.shape(), Some(Shape::Array { .. }));
        points && self.target(of, &(0..0)).is_ok_and(|of| of.is_char())
    }

    /// How a number is shown when the spec does not say.
    pub(crate) fn shape(&self, of: &Of) -> crate::decode::Shape {
        use crate::decode::Shape as Shown;
        match of.shape() {
            Some(Shape::Enumeration { values, .. }) => Shown::Enumeration {
                names: values.clone(),
            },
            Some(Shape::Float { bytes }) => Shown::Float {
                bytes: *bytes as u8,
            },
            Some(Shape::Pointer { .. }) | None => Shown::Number(Format::Hex { bytes: 8 }),
            _ => match self.format(of) {
                Some(format) => Shown::Number(format),
                None => Shown::Word,
            },
        }
    }

    /// How a value is shown when the spec does not say; `None` for a number of
    /// unknown meaning.
    pub(crate) fn format(&self, of: &Of) -> Option<Format> {
        let Of::Known(known) = of else {
            return Some(match self.is_text(of) {
                true => Format::Text {
                    most: crate::syntax::TEXT_BYTES,
                },
                false => Format::Hex { bytes: 8 },
            });
        };
        match known.shape {
            Shape::Character { .. } => Some(Format::Char),
            Shape::Boolean { .. } => Some(Format::Bool),
            Shape::Integer { bytes, signed } | Shape::Enumeration { bytes, signed, .. } => {
                Some(Format::Decimal {
                    bytes: bytes.clamp(1, 8) as u8,
                    signed,
                })
            }
            Shape::Array {
                count: Some(count), ..
            } if self.is_text(of) => Some(Format::Text {
                most: count.clamp(1, BYTES_MAX as u64) as u16,
            }),
            Shape::Array { .. } | Shape::Pointer { .. } => Some(match self.is_text(of) {
                true => Format::Text {
                    most: crate::syntax::TEXT_BYTES,
                },
                false => Format::Hex { bytes: 8 },
            }),
            _ => None,
        }
    }
}

/// The low bytes of a value, extended.
fn cut(value: Value, bytes: u8, signed: bool) -> Value {
    match (bytes, value) {
        (8.., value) => value,
        (bytes, value) => Value::Truncate {
            value: Box::new(value),
            bits: bytes * 8,
            signed,
        },
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

fn boolean(value: Value) -> Scalar {
    Scalar {
        value,
        of: Of::boolean(),
    }
}

fn compare(operator: Binary, a: Value, b: Value, signed: bool) -> Value {
    let (less, less_or_equal) = match signed {
        true => (Operator::Less, Operator::LessOrEqual),
        false => (Operator::Below, Operator::BelowOrEqual),
    };
    match operator {
        Binary::Less => Value::binary(less, a, b),
        Binary::LessOrEqual => Value::binary(less_or_equal, a, b),
        Binary::Greater => Value::binary(less, b, a),
        Binary::GreaterOrEqual => Value::binary(less_or_equal, b, a),
        Binary::NotEqual => Value::IsZero(Box::new(Value::binary(Operator::Equal, a, b))),
        _ => Value::binary(Operator::Equal, a, b),
    }
}

/// Whether the thread's name, which is 15 bytes and a NUL at most, is a text or
/// begins with it.
fn comm_is(text: &[u8], whole: bool, span: &Span) -> Result<Value> {
    if text.len() > 15 {
        return error(span, "a thread's name has 15 bytes at most");
    }
    let mut wanted = [0u8; 16];
    let mut mask = [0u8; 16];
    for (index, byte) in text.iter().enumerate() {
        if let (Some(to), Some(bits)) = (wanted.get_mut(index), mask.get_mut(index)) {
            (*to, *bits) = (*byte, 0xff);
        }
    }
    if whole {
        mask = [0xff; 16];
    }
    let half = |from: usize, context: Context| {
        let word = |bytes: &[u8; 16]| {
            let half = bytes.get(from..).and_then(|half| half.first_chunk());
            u64::from_le_bytes(half.copied().unwrap_or_default())
        };
        let masked = Value::binary(
            Operator::And,
            Value::Context(context),
            Value::Constant(word(&mask)),
        );
        Value::binary(Operator::Equal, masked, Value::Constant(word(&wanted)))
    };
    Ok(Value::binary(
        Operator::And,
        half(0, Context::CommLow),
        half(8, Context::CommHigh),
    ))
}
