// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the bytes of a struct or an array are, to show them whole.

use crate::decode::{FieldValue, WordShape};
use crate::resolve::{Of, Resolver};
use crate::syntax::{Span, SpecError};
use crate::types::{self, Type, TypeId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::rc::Rc;

/// Deepest nesting that is shown.
const DEPTH_MAX: usize = 8;
/// Most members, nested ones included, of a type that is shown.
const PARTS_MAX: usize = 256;
/// Most values that are shown of one thing: a file that lies about its types could
/// make many of few bytes.
const VALUES_MAX: usize = 1024;

/// What bytes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// A number, or some bits of one.
    Number {
        /// How it is shown.
        shape: Box<WordShape>,
        /// Its bytes: at most 8, and of a bit-field 9.
        bytes: u8,
        /// Its lowest bit in them, and how many it has.
        bits: (u8, u8),
        /// Whether the highest of them is a sign.
        signed: bool,
    },
    /// Characters up to a NUL, or this number.
    Text(u16),
    /// Elements.
    Array {
        /// How many.
        count: u16,
        /// Bytes of each.
        stride: u16,
        /// What each is.
        of: Box<Layout>,
    },
    /// Members.
    Struct(Vec<LaidMember>),
    /// This number of bytes of which nothing is known.
    Bytes(u16),
    /// Members that are always there, and others whose presence depends on a number.
    Variants {
        /// Those that are always there.
        fixed: Vec<LaidMember>,
        /// Where the number begins, and its bytes: at most 8.
        tag: (u16, u8),
        /// What is there by its value.
        each: Vec<Case>,
    },
}

/// A member: its name, where it begins, and what it is.
type LaidMember = (Rc<str>, u16, Layout);

/// The ranges of a tag's values with both ends, none for all other values, and the members that
/// are there then.
type Case = (Option<Vec<(u64, u64)>>, Vec<LaidMember>);

impl Layout {
    /// How many values it has.
    fn values(&self) -> usize {
        match self {
            // An empty one is a value, too: a file may say that there are many of them.
            Layout::Array { count, of, .. } => {
                usize::from(*count).saturating_mul(of.values()).max(1)
            }
            Layout::Struct(members) => values_of(members),
            Layout::Variants { fixed, each, .. } => {
                let each = each.iter().map(|(_, members)| values_of(members));
                each.fold(values_of(fixed), usize::saturating_add)
            }
            Layout::Number { .. } | Layout::Text(_) | Layout::Bytes(_) => 1,
        }
    }

    /// Whether it has few enough values to be shown.
    pub(crate) fn is_bounded(&self) -> bool {
        self.values() <= VALUES_MAX
    }

    /// The value that bytes hold; what is missing of them is absent.
    pub(crate) fn value(&self, bytes: &[u8]) -> FieldValue {
        let part = |from: usize, length: usize| bytes.get(from..from.checked_add(length)?);
        match self {
            Layout::Number {
                shape,
                bytes: count,
                bits,
                signed,
            } => {
                let mut word = [0u8; 16];
                let found = part(0, (*count).into()).zip(word.get_mut(..(*count).into()));
                let Some((from, to)) = found else {
                    return FieldValue::Absent;
                };
                to.copy_from_slice(from);
                shape.number(some_bits(u128::from_le_bytes(word), *bits, *signed))
            }
            Layout::Text(most) => {
                let text = bytes.get(..usize::from(*most).min(bytes.len()));
                let mut text = text.unwrap_or_default().to_vec();
                let end = text.iter().position(|byte| *byte == 0);
                text.truncate(end.unwrap_or(text.len()));
                FieldValue::Text {
                    bytes: text,
                    cut: false,
                }
            }
            Layout::Array { count, stride, of } => {
                let stride = usize::from(*stride);
                let element = |index: usize| {
                    let found = part(index.saturating_mul(stride), stride);
                    found.map_or(FieldValue::Absent, |bytes| of.value(bytes))
                };
                FieldValue::List((0..usize::from(*count)).map(element).collect())
            }
            Layout::Struct(members) => FieldValue::Struct(parts(members, bytes).collect()),
            Layout::Variants { fixed, tag, each } => {
                let (from, count) = (usize::from(tag.0), usize::from(tag.1));
                let mut word = [0u8; 8];
                match part(from, count).zip(word.get_mut(..count)) {
                    Some((from, to)) => to.copy_from_slice(from),
                    None => return FieldValue::Absent,
                }
                variant(fixed, each, (u64::from_le_bytes(word), tag.1), bytes)
            }
            Layout::Bytes(count) => {
                let found = part(0, (*count).into());
                found.map_or(FieldValue::Absent, |bytes| {
                    FieldValue::Bytes(bytes.to_vec())
                })
            }
        }
    }
}

fn values_of(members: &[LaidMember]) -> usize {
    members
        .iter()
        .fold(1, |sum: usize, (_, _, of)| sum.saturating_add(of.values()))
}

/// The names and values of members in bytes.
fn parts<'a>(
    members: &'a [LaidMember],
    bytes: &'a [u8],
) -> impl Iterator<Item = (Rc<str>, FieldValue)> + 'a {
    members.iter().map(|(name, from, layout)| {
        let found = bytes.get(usize::from(*from)..);
        let value = found.map_or(FieldValue::Absent, |bytes| layout.value(bytes));
        (Rc::clone(name), value)
    })
}

/// What is there by the value of a tag and its size in bytes; absent for a value that none has.
fn variant(
    fixed: &[LaidMember],
    each: &[Case],
    (tag, count): (u64, u8),
    bytes: &[u8],
) -> FieldValue {
    let unused = 64 - u32::from(count.clamp(1, 8)) * 8;
    // Of a tag with a sign, the ends of a range have 64 bits.
    let signed = ((tag << unused) as i64) >> unused;
    let holds = |(first, last): &(u64, u64)| {
        (*first..=*last).contains(&tag) || (*first as i64..=*last as i64).contains(&signed)
    };
    let of_value = each.iter().find(|(values, _)| {
        let values = values.as_deref();
        values.is_some_and(|values| values.iter().any(holds))
    });
    let others = || each.iter().find(|(values, _)| values.is_none());
    let Some((_, members)) = of_value.or_else(others) else {
        return FieldValue::Absent;
    };
    let mut found = parts(members, bytes);
    match (fixed, members.len()) {
        ([], 1) => found.next().map_or(FieldValue::Absent, |(name, value)| {
            FieldValue::Variant(name, Box::new(value))
        }),
        _ => FieldValue::Struct(parts(fixed, bytes).chain(found).collect()),
    }
}

/// Some bits of a number, extended to 64.
fn some_bits(word: u128, (lowest, count): (u8, u8), signed: bool) -> u64 {
    let word = word.checked_shr(lowest.into()).unwrap_or(0) as u64;
    let unused = 64 - u32::from(count.clamp(1, 64));
    match signed {
        true => (((word << unused) as i64) >> unused) as u64,
        false => (word << unused) >> unused,
    }
}

impl Resolver<'_> {
    /// What the bytes of a type are.
    pub(crate) fn layout(&self, kind: &Type, span: &Span) -> Result<Layout, SpecError> {
        let mut builder = Builder {
            resolver: self,
            span,
            parts: 0,
        };
        let layout = builder.of(kind, None, 0)?;
        match layout.is_bounded() {
            true => Ok(layout),
            false => builder.error(TOO_MUCH),
        }
    }
}

const TOO_MUCH: &str = "this has too many parts to be shown: name a member or an element";

struct Builder<'a> {
    resolver: &'a Resolver<'a>,
    span: &'a Span,
    parts: usize,
}

impl Builder<'_> {
    fn error<T>(&self, message: &str) -> Result<T, SpecError> {
        Err(SpecError::new(self.span.clone(), message))
    }

    fn count(&mut self, depth: usize) -> Result<(), SpecError> {
        self.parts += 1;
        match depth > DEPTH_MAX || self.parts > PARTS_MAX {
            true => self.error(TOO_MUCH),
            false => Ok(()),
        }
    }

    fn resolve(&self, id: TypeId) -> Result<Type, SpecError> {
        let found = self.resolver.scope.resolve(id);
        found.map_err(|why| crate::resolve::said(self.span, why))
    }

    fn short(&self, bytes: u64) -> Result<u16, SpecError> {
        match u16::try_from(bytes) {
            Ok(bytes) => Ok(bytes),
            Err(_) => self.error("this is too long to be shown"),
        }
    }

    fn of(
        &mut self,
        kind: &Type,
        bits: Option<(u8, u8)>,
        depth: usize,
    ) -> Result<Layout, SpecError> {
        self.count(depth)?;
        match &kind.shape {
            types::Shape::Array { of, .. } => self.array(kind, *of, depth),
            types::Shape::Struct { id, .. } => {
                let mut fixed = Vec::new();
                let members = self.resolver.scope.members(*id);
                let members = members.map_err(|why| crate::resolve::said(self.span, why))?;
                self.members(&members, 0, depth, &mut fixed)?;
                self.variants(*id, fixed, depth)
            }
            _ => self.number(kind, bits),
        }
    }

    fn number(&self, kind: &Type, bits: Option<(u8, u8)>) -> Result<Layout, SpecError> {
        let bytes = kind.bytes().unwrap_or(0);
        let is_opaque = matches!(kind.shape, types::Shape::Opaque { .. });
        if is_opaque && bits.is_some() {
            return self.error("this has a bit-field of no known kind; :bytes[N] shows its bytes");
        }
        if is_opaque || !matches!(bytes, 1 | 2 | 4 | 8) {
            return Ok(Layout::Bytes(self.short(bytes)?));
        }
        let bits = bits.unwrap_or((0, bytes as u8 * 8));
        let end = (u32::from(bits.0) + u32::from(bits.1)).div_ceil(8);
        Ok(Layout::Number {
            shape: Box::new(self.resolver.shape(&Of::Known(kind.clone()))),
            bytes: end.min(9) as u8,
            bits,
            signed: kind.is_signed(),
        })
    }

    fn array(&mut self, kind: &Type, of: TypeId, depth: usize) -> Result<Layout, SpecError> {
        let element = Of::Known(self.resolve(of)?);
        let bytes = |of: &Of| self.resolver.bytes(of).unwrap_or(0);
        let (whole, stride) = (bytes(&Of::Known(kind.clone())), bytes(&element));
        let count = self.short(whole.checked_div(stride).unwrap_or(0))?;
        if element.is_char() {
            return Ok(Layout::Text(count));
        }
        let Of::Known(element) = element else {
            return self.error("this cannot be shown");
        };
        Ok(Layout::Array {
            count,
            stride: self.short(stride)?,
            of: Box::new(self.of(&element, None, depth + 1)?),
        })
    }

    /// A struct with these members, and the variants that it has.
    fn variants(
        &mut self,
        id: TypeId,
        fixed: Vec<LaidMember>,
        depth: usize,
    ) -> Result<Layout, SpecError> {
        let found = self.resolver.scope.variants(id);
        let found = found.map_err(|why| crate::resolve::said(self.span, why))?;
        let Some(variants) = found else {
            return Ok(Layout::Struct(fixed));
        };
        let tag = match &variants.tag {
            None => (0, 0),
            Some(tag) => match (self.resolve(tag.type_id)?.bytes(), tag.bits) {
                (Some(bytes @ 1..=8), None) => (self.short(tag.offset)?, bytes as u8),
                _ => return self.error("what tells its variants apart is of an unknown form"),
            },
        };
        let mut each = Vec::new();
        for variant in variants.each {
            let mut members = Vec::new();
            self.members(&variant.members, 0, depth, &mut members)?;
            each.push((variant.values, members));
        }
        Ok(Layout::Variants { fixed, tag, each })
    }

    /// Members of a struct; those of unnamed members and of base classes count as its own, with
    /// the class before the name where another has the same. Only an object itself tells where
    /// its virtual base classes are.
    fn members(
        &mut self,
        members: &[types::Member],
        base: u64,
        depth: usize,
        found: &mut Vec<LaidMember>,
    ) -> Result<(), SpecError> {
        let mut of_classes: Vec<(Option<Rc<str>>, LaidMember)> = Vec::new();
        for member in members {
            if matches!(member.base, Some(types::Base::Virtual { .. })) {
                continue;
            }
            let kind = self.resolve(member.type_id)?;
            let offset = base.saturating_add(member.offset);
            match (&member.name, &kind.shape) {
                (None, types::Shape::Struct { id, .. }) => {
                    self.count(depth)?;
                    let inner = self.resolver.scope.members(*id);
                    let inner = inner.map_err(|why| crate::resolve::said(self.span, why))?;
                    let mut parts = Vec::new();
                    self.members(&inner, offset, depth + 1, &mut parts)?;
                    let class = member.base.map(|_| Rc::clone(&kind.name));
                    of_classes.extend(parts.into_iter().map(|part| (class.clone(), part)));
                }
                (None, _) => self.count(depth)?,
                (Some(name), _) => {
                    let layout = self.of(&kind, member.bits, depth + 1)?;
                    let part = (Rc::clone(name), self.short(offset)?, layout);
                    of_classes.push((None, part));
                }
            }
        }
        let mut names: HashMap<Rc<str>, usize> = HashMap::new();
        for (_, (name, ..)) in &of_classes {
            *names.entry(Rc::clone(name)).or_default() += 1;
        }
        found.extend(of_classes.into_iter().map(|(class, (name, at, layout))| {
            let is_one = names.get(&name) == Some(&1);
            match class.filter(|_| !is_one) {
                Some(class) => (Rc::from(format!("{class}::{name}")), at, layout),
                None => (name, at, layout),
            }
        }));
        Ok(())
    }
}
