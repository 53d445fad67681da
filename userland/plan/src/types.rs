// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a value is: as much of C's, C++'s and Rust's types as fetching needs.

use crate::{Value, Width};
use std::rc::Rc;

/// A type that a [`Scope`](crate::Scope) knows by a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(pub u64);

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Eight bytes of which nothing is known.
    Word,
    /// A number.
    Integer {
        /// How it lies in memory.
        width: Width,
        /// What it means.
        meaning: Meaning,
    },
    /// A number with names for some values.
    Enumeration {
        /// How it lies in memory.
        width: Width,
        /// The names.
        names: Rc<[(i64, String)]>,
    },
    /// A pointer or reference.
    Pointer(Target),
    /// An array.
    Array {
        /// Of what.
        of: Target,
        /// How many, when that is known.
        count: Option<u64>,
    },
    /// A struct, class or union.
    Record {
        /// Where its members are found.
        id: TypeId,
        /// Its name, for messages.
        name: String,
    },
    /// Something that cannot be fetched, and what it is.
    Other(String),
}

/// What a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A number.
    Number,
    /// A character.
    Char,
    /// True or false.
    Bool,
}

/// What a pointer points to, or an array is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nobody knows.
    Unknown,
    /// This type.
    Known(Rc<Type>),
    /// A type that the scope knows.
    Id(TypeId),
}

/// Where a value is, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed {
    /// Where.
    pub place: Place,
    /// What.
    pub of: Type,
}

/// Where a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// This is the value.
    Value(Value),
    /// It lies in memory, at this address.
    Memory(Value),
}

/// A member of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Bytes from the beginning of the record.
    pub offset: u64,
    /// What it is.
    pub of: Type,
    /// Of a bit-field: its lowest bit within the bytes of its type, and how many bits
    /// it has.
    pub bits: Option<(u8, u8)>,
}

impl Type {
    /// An unsigned or signed number of so many bytes.
    pub fn integer(bytes: u8, signed: bool) -> Type {
        Type::Integer {
            width: Width { bytes, signed },
            meaning: Meaning::Number,
        }
    }

    /// A character.
    pub fn character() -> Type {
        Type::Integer {
            width: Width {
                bytes: 1,
                signed: false,
            },
            meaning: Meaning::Char,
        }
    }

    /// Whether it is a character.
    pub fn is_char(&self) -> bool {
        matches!(
            self,
            Type::Integer { width, meaning: Meaning::Char } if width.bytes == 1
        )
    }

    /// Bytes that a value takes in memory, when it is no record.
    pub fn scalar_bytes(&self) -> Option<u8> {
        match self {
            Type::Word | Type::Pointer(_) => Some(8),
            Type::Integer { width, .. } | Type::Enumeration { width, .. } => Some(width.bytes),
            _ => None,
        }
    }
}

impl Typed {
    /// A value.
    pub fn value(value: Value, of: Type) -> Typed {
        Typed {
            place: Place::Value(value),
            of,
        }
    }

    /// Something in memory.
    pub fn memory(address: Value, of: Type) -> Typed {
        Typed {
            place: Place::Memory(address),
            of,
        }
    }

    /// The same, as it was at the entry of the call; what lies in memory is found at
    /// the same address, but read when it is fetched.
    pub fn at_entry(self) -> Typed {
        Typed {
            place: match self.place {
                Place::Value(value) => Place::Value(value.at_entry()),
                Place::Memory(address) => Place::Memory(address.at_entry()),
            },
            of: self.of,
        }
    }
}
