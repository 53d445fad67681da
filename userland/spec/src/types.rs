// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types of the probed program, as far as printing and computing need them: one
//! step deep. What a type consists of is asked of the [`Scope`](crate::Scope)
//! by its [`TypeId`] when it is needed, for types contain themselves.

use std::rc::Rc;

/// A type of a scope, to be looked at later: what it means is the scope's own
/// business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(pub u64);

/// A type: its name and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// As the source calls it, typedefs kept: `size_t`, `struct request *`. From
    /// the file: to be escaped when it is printed.
    pub name: Rc<str>,
    /// What it is, without typedefs and qualifiers.
    pub shape: Shape,
}

/// What a type is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing: what a `void *` points at, what a `void` function returns.
    Void,
    /// A whole number.
    Integer {
        /// Bytes of one: 1, 2, 4 or 8 can be read.
        bytes: u64,
        /// Whether it can be negative.
        signed: bool,
    },
    /// A truth value.
    Boolean {
        /// Bytes of one.
        bytes: u64,
    },
    /// A character.
    Character {
        /// Bytes of one: 1 for C's `char`, 4 for Rust's.
        bytes: u64,
        /// Whether its number can be negative.
        signed: bool,
    },
    /// A floating-point number; can be shown, not computed with.
    Float {
        /// Bytes of one.
        bytes: u64,
    },
    /// A pointer or a reference: 8 bytes.
    Pointer {
        /// What it points at.
        to: TypeId,
        /// A reference of C++: members are reached by `.` too.
        reference: bool,
    },
    /// Elements one after the other.
    Array {
        /// An element's type; of an array of arrays, the inner array.
        of: TypeId,
        /// How many; none where the program computes it.
        count: Option<u64>,
    },
    /// A struct, class or union; its members are
    /// [`Scope::members`](crate::Scope::members) of `id`.
    Struct {
        /// For the scope.
        id: TypeId,
        /// Bytes of one; none when it is only declared.
        bytes: Option<u64>,
        /// Whether its members overlap.
        union: bool,
    },
    /// A number whose values have names.
    Enumeration {
        /// Bytes of one.
        bytes: u64,
        /// Whether it can be negative.
        signed: bool,
        /// The names, each with its number extended to 64 bits.
        values: Rc<[(Rc<str>, u64)]>,
    },
    /// Code: what a function pointer points at.
    Function,
    /// Eight bytes of which nothing is known.
    Word,
    /// What cannot be looked into, nor computed with.
    Opaque {
        /// Bytes of one, if known.
        bytes: Option<u64>,
    },
}

/// What a struct of Go's runtime is to the programmer (`internal/abi.Kind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoKind {
    /// A value of any type, or of those with some methods.
    Interface,
    /// Elements in memory, with a length and a capacity.
    Slice,
    /// Bytes in memory, with a length.
    String,
}

/// A member of a struct, class or union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name; none when it is anonymous or a base class: then its own members
    /// count as those of the outer type.
    pub name: Option<Rc<str>>,
    /// Bytes from the beginning of the outer type. Of a bit-field, those to the
    /// byte that holds its lowest bit.
    pub offset: u64,
    /// Of a bit-field: the number of its lowest bit in that byte (0 to 7), and
    /// how many bits it has.
    pub bits: Option<(u8, u8)>,
    /// Its type.
    pub type_id: TypeId,
    /// How a base class is found; none for what is no base class.
    pub base: Option<Base>,
}

/// How an object finds a base class of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// At the member's offset.
    Fixed,
    /// A virtual one: the distance to it is a signed word that lies some bytes below where the
    /// object's first word points (Itanium C++ ABI, section 2.5); none: it is found otherwise.
    Virtual {
        /// The bytes.
        below: Option<u64>,
    },
}

/// Parts of a struct of which one is there, as another part says (DWARF 5, section 5.7.10): an
/// `enum` of Rust, a record of Ada.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variants {
    /// The number that says which; none where there is one variant alone.
    pub tag: Option<Member>,
    /// The variants.
    pub each: Vec<Variant>,
}

/// One of the parts that a struct may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The tag's values, as ranges with both ends; none: all that no other variant has.
    pub values: Option<Vec<(u64, u64)>>,
    /// The members that are there then.
    pub members: Vec<Member>,
}

impl Type {
    /// A type of this name.
    pub fn new(name: &str, shape: Shape) -> Type {
        Type {
            name: name.into(),
            shape,
        }
    }

    /// Bytes of one, as far as the type itself says; those of an array also need
    /// its element.
    pub fn bytes(&self) -> Option<u64> {
        match self.shape {
            Shape::Integer { bytes, .. }
            | Shape::Boolean { bytes }
            | Shape::Character { bytes, .. }
            | Shape::Float { bytes }
            | Shape::Enumeration { bytes, .. } => Some(bytes),
            Shape::Pointer { .. } | Shape::Word => Some(8),
            Shape::Struct { bytes, .. } | Shape::Opaque { bytes } => bytes,
            Shape::Void | Shape::Array { .. } | Shape::Function => None,
        }
    }

    /// Whether a value of it can be negative.
    pub fn is_signed(&self) -> bool {
        matches!(
            self.shape,
            Shape::Integer { signed: true, .. }
                | Shape::Character { signed: true, .. }
                | Shape::Enumeration { signed: true, .. }
        )
    }
}
