// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strings of the standard libraries of C++ and Rust, as debug information lays them out.

use super::strings::Text;
use super::{Of, Resolver, Thing};
use crate::scope::ValuePlace;
use crate::syntax::{LibraryType, Span};
use crate::types::{Shape, Type};
use crate::value::BinaryOperator as Operator;
use crate::SpecError;
use crate::Value;

/// Steps from a vector of Rust's to its bytes: there are more layers in each release.
const RUST_LAYERS: usize = 8;
/// In front of the bytes of a string of libstdc++'s first ABI lie its length, its capacity
/// and a count of references.
const OLD_HEADER: u64 = 24;

/// What a struct is to the library that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    /// `std::basic_string` of `char`.
    CxxString,
    /// `std::basic_string_view` of `char`.
    CxxView,
    /// `std::filesystem::path`.
    CxxPath,
    /// `String`, `OsString`, `PathBuf`: a vector in this number of structs.
    RustString,
    /// `Vec<u8>`.
    RustBytes,
    /// `&str`, `Box<str>`, `&Path`: an address and a length.
    RustStr,
    /// The same of `[u8]`.
    RustSlice,
}

/// Of which library a struct of that name may be; its members decide.
fn library(name: &str) -> Option<Library> {
    let is_of = |template: &str| {
        let of = name.strip_prefix(template);
        of.is_some_and(|of| of.starts_with("<char,") || of.starts_with("<char>"))
    };
    if is_of("basic_string") {
        return Some(Library::CxxString);
    }
    if is_of("basic_string_view") {
        return Some(Library::CxxView);
    }
    let unboxed = name.strip_prefix("alloc::boxed::Box<");
    let boxed = unboxed.and_then(|of| of.split([',', '>']).next());
    let pointed = name.strip_prefix("&mut ").or(name.strip_prefix('&'));
    match (name, boxed.or(pointed)) {
        ("path", _) => Some(Library::CxxPath),
        ("String" | "OsString" | "PathBuf", _) => Some(Library::RustString),
        (_, Some("str" | "std::path::Path" | "std::ffi::os_str::OsStr")) => Some(Library::RustStr),
        (_, Some("[u8]")) => Some(Library::RustSlice),
        _ if name.starts_with("Vec<u8,") => Some(Library::RustBytes),
        _ => None,
    }
}

/// Whether the last parameter of a template is the allocator without members.
fn has_plain_allocator(template: &str) -> bool {
    let parameters = template.strip_suffix('>').map(str::trim_end);
    parameters.is_some_and(|parameters| parameters.ends_with(", std::allocator<char>"))
}

/// Whether it is a struct of which the debug information has no definition.
fn is_declared(of: &Of) -> bool {
    matches!(of.shape(), Some(Shape::Struct { bytes: None, .. }))
}

/// What libc++ has in one place or the other, by a bit that is 1 or 0. Both are read: they
/// lie in one object.
fn select(is_long: &Value, long: Value, short: Value) -> Value {
    let is_short = Value::IsZero(Box::new(is_long.clone()));
    let long = Value::binary(Operator::Multiply, long, is_long.clone());
    let short = Value::binary(Operator::Multiply, short, is_short);
    Value::binary(Operator::Add, long, short)
}

impl Text {
    /// A string of that length, of an object.
    fn of(thing: &Thing, address: Value, length: Value) -> Text {
        Text {
            address,
            length: Some(length),
            of_entry: thing.of_entry,
            is_owned: false,
            by_default: true,
        }
    }
}

/// How a cast's types are called.
const CAST_STRING: &str = "std::string";
const CAST_VIEW: &str = "std::string_view";

impl Resolver<'_> {
    /// What a cast of the spec says that something is, without debug information.
    pub(super) fn library_type(of: Option<LibraryType>) -> Of {
        let name = match of {
            Some(LibraryType::View) => CAST_VIEW,
            _ => CAST_STRING,
        };
        Of::Known(Type::new(name, Shape::Opaque { bytes: None }))
    }

    /// The string that a cast has made of something in memory, as the library's binary
    /// interface has it, which does not change.
    fn cast_text(&self, thing: &Thing) -> Option<Text> {
        let (Of::Known(kind), ValuePlace::Memory(at)) = (&thing.of, &thing.place) else {
            return None;
        };
        if !matches!(kind.shape, Shape::Opaque { bytes: None }) {
            return None;
        }
        let word = |offset: u64| at.clone().plus(offset).load(8, false);
        let is_libcxx = self.scope.has_libcxx();
        let (address, length) = match (kind.name.as_ref(), is_libcxx) {
            (CAST_VIEW, true) => (word(0), word(8)),
            (CAST_VIEW, false) => (word(8), word(0)),
            (CAST_STRING, false) => (word(0), word(8)),
            (CAST_STRING, true) => {
                let size = at.clone().load(1, false);
                let is_long = Value::binary(Operator::And, size.clone(), Value::Constant(1));
                let size = Value::binary(Operator::ShiftRight, size, Value::Constant(1));
                (
                    select(&is_long, word(16), at.clone().plus(1)),
                    select(&is_long, word(8), size),
                )
            }
            _ => return None,
        };
        Some(Text {
            is_owned: kind.name.as_ref() == CAST_STRING,
            ..Text::of(thing, address, length)
        })
    }

    /// The string that something is, by a library of its language; `None` when it is no such.
    pub(super) fn library_text(
        &self,
        thing: &Thing,
        span: &Span,
    ) -> Result<Option<Text>, SpecError> {
        let thing = match self.referred(thing, span)? {
            Some(target) => target,
            None => thing.clone(),
        };
        if let Some(text) = self.cast_text(&thing) {
            return Ok(Some(text));
        }
        let Of::Known(Type {
            shape: Shape::Struct { id, .. },
            ..
        }) = &thing.of
        else {
            return Ok(None);
        };
        // Its own name, not that of a typedef.
        let own = self.scope.resolve(*id).map(|own| own.name);
        let own = own.unwrap_or_default();
        let Some(library) = library(&own) else {
            return Ok(None);
        };
        let text = match library {
            Library::CxxString => match self.libstdcxx_string(&thing, &own, span)? {
                Some(text) => Some(text),
                None => self.libcxx_string(&thing, span)?,
            },
            Library::CxxView => {
                let names = [
                    ["_M_str", "_M_len"],
                    ["__data_", "__size_"],
                    ["__data", "__size"],
                ];
                self.wide(&thing, &names, span)?
            }
            Library::CxxPath => {
                let inner = ["_M_pathname", "__pn_"];
                let inner = inner
                    .iter()
                    .find_map(|name| self.part(&thing, &[name], span));
                return match inner {
                    Some(inner) if inner.of.shape() != thing.of.shape() => {
                        self.library_text(&inner, span)
                    }
                    _ => Ok(None),
                };
            }
            Library::RustStr | Library::RustSlice => {
                self.wide(&thing, &[["data_ptr", "length"]], span)?
            }
            Library::RustString | Library::RustBytes => self.rust_vector(thing.clone(), span)?,
        };
        Ok(text.map(|text| Text {
            by_default: !matches!(library, Library::RustBytes | Library::RustSlice),
            ..text
        }))
    }

    /// What a reference of Rust refers to, which is a pointer by its debug information: as a
    /// string people mean that, not an address.
    fn referred(&self, thing: &Thing, span: &Span) -> Result<Option<Thing>, SpecError> {
        let Of::Known(kind) = &thing.of else {
            return Ok(None);
        };
        let is_pointer = matches!(kind.shape, Shape::Pointer { .. });
        if !is_pointer || !kind.name.starts_with('&') {
            return Ok(None);
        }
        let target = self.target(&thing.of, span)?;
        if !matches!(target.shape(), Some(Shape::Struct { .. })) {
            return Ok(None);
        }
        let address = self.load(thing.clone(), span)?.value;
        Ok(Some(Thing::memory(address, target)))
    }

    /// A member of a member; none when there is none such here.
    fn part(&self, thing: &Thing, names: &[&str], span: &Span) -> Option<Thing> {
        let start = thing.clone();
        names
            .iter()
            .try_fold(start, |thing, name| self.member_of(thing, name, span).ok())
    }

    /// An address and a length, by any of these names.
    pub(super) fn wide(
        &self,
        thing: &Thing,
        names: &[[&str; 2]],
        span: &Span,
    ) -> Result<Option<Text>, SpecError> {
        for [address, length] in names {
            let address = self.part(thing, &[address], span);
            let (Some(address), Some(length)) = (address, self.part(thing, &[length], span)) else {
                continue;
            };
            let (address, length) = (self.load(address, span)?, self.load(length, span)?);
            return Ok(Some(Text::of(thing, address.value, length.value)));
        }
        Ok(None)
    }

    fn libstdcxx_string(
        &self,
        thing: &Thing,
        name: &str,
        span: &Span,
    ) -> Result<Option<Text>, SpecError> {
        let Some(holder) = self.part(thing, &["_M_dataplus"], span) else {
            return Ok(None);
        };
        let address = match self.part(&holder, &["_M_p"], span) {
            Some(address) => address,
            // clang defines this struct only where its constructor is called. An allocator
            // that has no members takes no room in front of the address.
            None if is_declared(&holder.of) && has_plain_allocator(name) => Thing {
                of: Of::PointerTo(Box::new(Of::integer(1, false))),
                ..holder
            },
            None => return Ok(None),
        };
        let address = self.load(address, span)?.value;
        let length = match self.part(thing, &["_M_string_length"], span) {
            Some(length) => self.load(length, span)?.value,
            // The first ABI, which programs of before GCC 5 have, and those that ask for it.
            None => {
                let length = address
                    .clone()
                    .plus(OLD_HEADER.wrapping_neg())
                    .load(8, false);
                match thing.of_entry {
                    true => length.at_entry(),
                    false => length,
                }
            }
        };
        Ok(Some(Text {
            is_owned: true,
            ..Text::of(thing, address, length)
        }))
    }

    /// libc++ keeps short strings in the object, in place of the address and the length: one bit
    /// distinguishes the two forms.
    fn libcxx_string(&self, thing: &Thing, span: &Span) -> Result<Option<Text>, SpecError> {
        let whole = [
            &["__rep_"][..],
            &["__r_", "__value_"],
            &["__r_", "__first_"],
        ];
        let whole = whole.iter().find_map(|path| self.part(thing, path, span));
        let Some(whole) = whole else {
            return Ok(None);
        };
        let part = |names: &[&str]| self.part(&whole, names, span);
        let (Some(short), Some(size)) = (part(&["__s"]), part(&["__s", "__size_"])) else {
            return Ok(None);
        };
        let (Some(bytes), Some(address), Some(length)) = (
            part(&["__s", "__data_"]),
            part(&["__l", "__data_"]),
            part(&["__l", "__size_"]),
        ) else {
            return Ok(None);
        };
        let ValuePlace::Memory(bytes) = bytes.place else {
            return Ok(None);
        };
        let number = |thing: Thing| Ok(self.load(thing, span)?.value);
        let constant = Value::Constant;
        let is_first = size.place == short.place;
        let size = number(size)?;
        let (is_long, size) = match part(&["__s", "__is_long_"]) {
            Some(bit) => (number(bit)?, size),
            // Before LLVM 15 the bit is one of the size's: the lowest where the size comes
            // first, else the highest.
            None if is_first => (
                Value::binary(Operator::And, size.clone(), constant(1)),
                Value::binary(Operator::ShiftRight, size, constant(1)),
            ),
            None => (
                Value::binary(Operator::ShiftRight, size.clone(), constant(7)),
                size,
            ),
        };
        let bytes = match thing.of_entry {
            true => bytes.at_entry(),
            false => bytes,
        };
        let address = select(&is_long, number(address)?, bytes);
        let length = select(&is_long, number(length)?, size);
        Ok(Some(Text {
            is_owned: true,
            ..Text::of(thing, address, length)
        }))
    }

    /// A vector of bytes, in however many structs.
    fn rust_vector(&self, mut thing: Thing, span: &Span) -> Result<Option<Text>, SpecError> {
        let whole = thing.clone();
        for _ in 0..RUST_LAYERS {
            if let Some(length) = self.part(&thing, &["len"], span) {
                let Some(address) = self.rust_bytes(&thing, span) else {
                    return Ok(None);
                };
                let (address, length) = (self.load(address, span)?, self.load(length, span)?);
                return Ok(Some(Text {
                    is_owned: true,
                    ..Text::of(&whole, address.value, length.value)
                }));
            }
            let inner = ["vec", "inner"];
            let inner = inner
                .iter()
                .find_map(|name| self.part(&thing, &[name], span));
            match inner {
                Some(inner) => thing = inner,
                None => break,
            }
        }
        Ok(None)
    }

    /// The address of a vector's bytes.
    fn rust_bytes(&self, vector: &Thing, span: &Span) -> Option<Thing> {
        let mut thing = self.part(vector, &["buf"], span)?;
        for _ in 0..RUST_LAYERS {
            if matches!(thing.of.shape(), Some(Shape::Pointer { .. })) {
                let target = self.target(&thing.of, span).ok()?;
                return (target.scalar_bytes() == Some(1)).then_some(thing);
            }
            let layers = ["inner", "ptr", "pointer", "__0"];
            thing = layers
                .iter()
                .find_map(|name| self.part(&thing, &[name], span))?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_struct_may_be() {
        for (name, expected) in [
            (
                "basic_string<char, std::char_traits<char>, std::allocator<char> >",
                Some(Library::CxxString),
            ),
            (
                "basic_string_view<char, std::char_traits<char>>",
                Some(Library::CxxView),
            ),
            ("basic_string<wchar_t, std::char_traits<wchar_t> >", None),
            ("path", Some(Library::CxxPath)),
            ("String", Some(Library::RustString)),
            ("&str", Some(Library::RustStr)),
            ("&mut str", Some(Library::RustStr)),
            ("&[u8]", Some(Library::RustSlice)),
            ("&[u16]", None),
            (
                "alloc::boxed::Box<str, alloc::alloc::Global>",
                Some(Library::RustStr),
            ),
            ("Vec<u8, alloc::alloc::Global>", Some(Library::RustBytes)),
            ("Vec<u64, alloc::alloc::Global>", None),
            ("string", None),
        ] {
            assert_eq!(library(name), expected, "{name}");
        }
    }

    #[test]
    fn an_allocator_that_may_have_members_is_not_the_plain_one() {
        for (allocator, is_plain) in [
            ("std::allocator<char>", true),
            ("std::allocator<char> ", true),
            ("Pool<int, std::allocator<char>>", false),
            ("Pool<char>", false),
        ] {
            let name = format!("basic_string<char, std::char_traits<char>, {allocator}>");
            assert_eq!(has_plain_allocator(&name), is_plain, "{name}");
        }
        assert!(!has_plain_allocator("path"));
    }
}
