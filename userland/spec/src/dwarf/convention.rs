// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where arguments and return values are by the calling convention (System V psABI
//! for x86-64, section 3.2.3), for places at which debug information speaks of
//! stack slots that are not filled yet.
//!
//! What cannot be told from the debug information is an error, for that argument
//! and for all after it, whose registers depend on it.

use super::types::id_of;
use super::units::DebugNode;
use super::DebugInfo;
use crate::dwarf::error::DwarfError;
use crate::types::{Shape, TypeId};
use gimli::AttributeValue;

/// DWARF numbers of the registers of integer arguments, in order.
const INTEGER_REGISTERS: [u16; 6] = [5, 4, 1, 2, 8, 9];
/// Vector registers for arguments.
const VECTOR_REGISTERS: usize = 8;
/// Deepest nesting of members that is classified.
const NESTING_MAX: usize = 8;
/// Most members of a struct of two registers, nested ones included.
const MEMBERS_MAX: usize = 64;
pub(super) const PARAMETERS_MAX: usize = 256;

/// Strictest alignment on the stack.
const ALIGNMENT_MAX: u64 = 64;

/// How something is passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// Eight bytes each; none: in a vector register.
    Registers(Vec<Option<u16>>),
    /// A register holds its address.
    Reference(u16),
    /// On the stack, this number of bytes above the return address.
    Stack(u64),
    /// Nothing is passed: an empty struct.
    Nothing,
}

/// The class of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    None,
    Integer,
    Vector,
}

/// The class of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Classified {
    /// One class for each eight bytes; and the alignment on the stack.
    Words(Vec<Class>, u64),
    /// In memory: its bytes and alignment.
    Memory(u64, u64),
    /// The address of a copy that the caller made.
    Reference,
}

/// The error says why the convention gives no place.
type ByConvention<T> = Result<T, String>;

/// What earlier arguments have taken.
#[derive(Default)]
struct Taken {
    integer: usize,
    vector: usize,
    stack: u64,
}

impl Taken {
    fn pass(&mut self, class: Classified) -> Passing {
        match class {
            Classified::Words(words, _) if words.iter().all(|class| *class == Class::None) => {
                Passing::Nothing
            }
            Classified::Words(words, alignment) => {
                let count = |wanted| words.iter().filter(|class| **class == wanted).count();
                let integer = self.integer + count(Class::Integer);
                let vector = self.vector + count(Class::Vector);
                if integer > INTEGER_REGISTERS.len() || vector > VECTOR_REGISTERS {
                    return self.on_stack(words.len() as u64 * 8, alignment);
                }
                let mut registers = INTEGER_REGISTERS.iter().skip(self.integer);
                let register = |class: &Class| match class {
                    Class::Vector => None,
                    _ => registers.next().copied(),
                };
                let found = words.iter().map(register).collect();
                (self.integer, self.vector) = (integer, vector);
                Passing::Registers(found)
            }
            Classified::Memory(bytes, alignment) => self.on_stack(bytes, alignment),
            Classified::Reference => match INTEGER_REGISTERS.get(self.integer) {
                Some(register) => {
                    self.integer += 1;
                    Passing::Reference(*register)
                }
                // The slot would hold an address: rare enough to be refused.
                None => self.on_stack(8, 8),
            },
        }
    }

    fn on_stack(&mut self, bytes: u64, alignment: u64) -> Passing {
        let alignment = alignment.clamp(8, ALIGNMENT_MAX);
        let at = self
            .stack
            .checked_next_multiple_of(alignment)
            .unwrap_or(u64::MAX);
        let end = at.saturating_add(bytes);
        self.stack = end.checked_next_multiple_of(8).unwrap_or(u64::MAX);
        Passing::Stack(at)
    }
}

impl<'a> DebugInfo<'a> {
    /// How the function's arguments are passed, in order, with `more` words after those that it
    /// names.
    pub(super) fn passing(
        &self,
        function: &DebugNode<'a>,
        more: usize,
    ) -> Result<Vec<ByConvention<Passing>>, DwarfError> {
        let parameters = self.parameters_of(function)?;
        if let Err(why) = self.conventional(function)? {
            return Ok(vec![Err(why); parameters.len().saturating_add(more)]);
        }
        let mut taken = Taken::default();
        let mut doubt = self.hidden_result(function, &mut taken)?.err();
        let mut found = Vec::new();
        for parameter in &parameters {
            let told = match &doubt {
                Some(why) => Err(why.clone()),
                None => self.classify_parameter(parameter)?,
            };
            if let Err(why) = &told {
                doubt.get_or_insert_with(|| why.clone());
            }
            found.push(told.and_then(|class| {
                let by_reference = class == Classified::Reference;
                match taken.pass(class) {
                    Passing::Stack(_) if by_reference => {
                        Err("its address is on the stack".to_owned())
                    }
                    passing => Ok(passing),
                }
            }));
        }
        found.extend((0..more).map(|_| match &doubt {
            Some(why) => Err(why.clone()),
            None => Ok(taken.pass(Classified::Words(vec![Class::Integer], 8))),
        }));
        Ok(found)
    }

    /// Whether the function takes more arguments than it names.
    pub(super) fn is_variadic(&self, function: &DebugNode<'a>) -> Result<bool, DwarfError> {
        let children = self.units.children(function)?;
        let is_more = |child: &DebugNode<'a>| child.tag() == gimli::DW_TAG_unspecified_parameters;
        Ok(children.iter().any(is_more))
    }

    /// Whether the function is one that keeps to the convention.
    fn conventional(&self, function: &DebugNode<'a>) -> Result<ByConvention<()>, DwarfError> {
        let own = self
            .units
            .inherited(function, gimli::DW_AT_calling_convention)?;
        if let Some((_, AttributeValue::CallingConvention(convention))) = own {
            if convention != gimli::DW_CC_normal {
                return Ok(Err(
                    "its function has a calling convention of its own".to_owned()
                ));
            }
        }
        let rust = self.units.language(function.die.unit)? == Some(gimli::DW_LANG_Rust);
        let name = self.units.name(function)?.unwrap_or("");
        // `{closure#0}`, `{async_fn#0}`: no function has such a name in the source.
        if rust && name.starts_with('{') {
            let why = "what a closure has captured comes first, and the debug information does \
                       not say how";
            return Ok(Err(why.to_owned()));
        }
        Ok(Ok(()))
    }

    /// Takes the register that holds the address at which the result is stored.
    fn hidden_result(
        &self,
        function: &DebugNode<'a>,
        taken: &mut Taken,
    ) -> Result<ByConvention<()>, DwarfError> {
        let class = self.classify_result(function)?;
        Ok(class.map(|class| {
            if matches!(class, Classified::Memory(..) | Classified::Reference) {
                taken.integer += 1;
            }
        }))
    }

    fn classify_parameter(
        &self,
        parameter: &DebugNode<'a>,
    ) -> Result<ByConvention<Classified>, DwarfError> {
        if is_dereferenced(parameter) {
            return Ok(Ok(Classified::Reference));
        }
        let id = id_of(self.units.type_of(parameter)?);
        self.classify_value(id, parameter)
    }

    /// How the function returns its result: registers, or by the address in %rax.
    pub(super) fn returning(
        &self,
        function: &DebugNode<'a>,
    ) -> Result<ByConvention<Passing>, DwarfError> {
        let class = self.classify_result(function)?;
        Ok(class.map(|class| match class {
            Classified::Words(words, _) => {
                let mut registers = [0u16, 1].into_iter();
                let register = |class: Class| match class {
                    Class::Vector => None,
                    _ => registers.next(),
                };
                Passing::Registers(words.into_iter().map(register).collect())
            }
            Classified::Memory(..) | Classified::Reference => Passing::Reference(0),
        }))
    }

    /// The class of what a function returns: memory for all that is larger than two
    /// registers, whatever else it is.
    fn classify_result(
        &self,
        function: &DebugNode<'a>,
    ) -> Result<ByConvention<Classified>, DwarfError> {
        let id = id_of(self.units.type_of(function)?);
        let rust = self.units.language(function.die.unit)? == Some(gimli::DW_LANG_Rust);
        match self.shape(id)? {
            Shape::Struct {
                bytes: Some(bytes), ..
            } if bytes > 16 && !rust => Ok(Ok(Classified::Memory(bytes, 8))),
            _ => self.classify_value(id, function),
        }
    }

    /// The class of a value of the type, which `user` passes or returns.
    fn classify_value(
        &self,
        id: TypeId,
        user: &DebugNode<'a>,
    ) -> Result<ByConvention<Classified>, DwarfError> {
        let language = self.units.language(user.die.unit)?;
        let rust = language == Some(gimli::DW_LANG_Rust);
        let words = |classes: &[Class]| Ok(Ok(Classified::Words(classes.to_vec(), 8)));
        let shape = self.shape(id)?;
        match &shape {
            Shape::Void => words(&[]),
            Shape::Integer { bytes, .. }
            | Shape::Boolean { bytes }
            | Shape::Character { bytes, .. }
            | Shape::Enumeration { bytes, .. } => match bytes {
                1..=8 => words(&[Class::Integer]),
                // clang splits it, and does not align it.
                16 if self.units.is_of_gcc(user.die.unit)? => {
                    Ok(Ok(Classified::Words(vec![Class::Integer; 2], 16)))
                }
                _ => Ok(Err(format!(
                    "a number of {bytes} bytes comes before or is it"
                ))),
            },
            Shape::Pointer { .. } => words(&[Class::Integer]),
            Shape::Float { .. } => words(&[Class::Vector]),
            Shape::Opaque { bytes: Some(16) } if self.is_long_double(id)? => {
                Ok(Ok(Classified::Memory(16, 16)))
            }
            Shape::Struct { .. } if rust => self.classify_wide_pointer(id),
            Shape::Struct {
                bytes: Some(bytes), ..
            } => self.classify_struct(id, *bytes),
            _ => {
                let name = self.resolve_type(id)?.name;
                Ok(Err(format!("how a `{name}` is passed is not known")))
            }
        }
    }

    fn is_long_double(&self, id: TypeId) -> Result<bool, DwarfError> {
        let node = self.type_node(id)?;
        let name = node.map(|node| self.units.name(&node)).transpose()?;
        Ok(name.flatten() == Some("long double"))
    }

    /// Rust promises nothing, but passes the pointer and the length of a `&str` or
    /// `&[T]` as two arguments.
    fn classify_wide_pointer(&self, id: TypeId) -> Result<ByConvention<Classified>, DwarfError> {
        let members = self.members_of(id)?;
        let names = members.iter().map(|member| member.name.as_deref());
        if names.eq([Some("data_ptr"), Some("length")]) {
            return Ok(Ok(Classified::Words(vec![Class::Integer; 2], 8)));
        }
        Ok(Err(
            "Rust does not specify how it passes structs; behind the function's prologue they are \
             found, and %rax is what a call leaves there"
                .to_owned(),
        ))
    }

    fn classify_struct(
        &self,
        id: TypeId,
        bytes: u64,
    ) -> Result<ByConvention<Classified>, DwarfError> {
        if self.is_class(id)? && !self.is_view(id)? {
            return Ok(Err(
                "whether a C++ class is passed by its address is not recorded".to_owned(),
            ));
        }
        let mut classes = vec![Class::None; bytes.div_ceil(8).min(2) as usize];
        let mut state = Members {
            left: MEMBERS_MAX,
            alignment: 1,
            packed: false,
        };
        // Larger ones are looked at too, for their alignment on the stack.
        match self.classify_members(id, 0, &mut classes, &mut state, NESTING_MAX)? {
            // A long list: by its size, it is aligned to 8 at most.
            Err(_) if bytes > 16 && !bytes.is_multiple_of(16) && state.left == 0 => {}
            Err(why) => return Ok(Err(why)),
            Ok(()) => {}
        }
        if self.demanded_alignment(id)? > state.alignment {
            return Ok(Err(
                "compilers differ in how they pass a struct that a typedef aligns".to_owned(),
            ));
        }
        if bytes > 16 || state.packed {
            return Ok(Ok(Classified::Memory(bytes, state.alignment)));
        }
        // One byte is what C++ gives to a struct without members.
        if bytes > 1 && classes.contains(&Class::None) {
            return Ok(Err(
                "a struct that is passed has bytes that belong to no member".to_owned(),
            ));
        }
        Ok(Ok(Classified::Words(classes, state.alignment)))
    }

    /// Whether the type has constructors, a destructor or base classes, and so may
    /// not be passed in registers.
    fn is_class(&self, id: TypeId) -> Result<bool, DwarfError> {
        let Some(node) = self.type_node(id)? else {
            return Ok(false);
        };
        let name = self.units.name(&node)?.unwrap_or("");
        let base = name.split('<').next().unwrap_or(name);
        for child in self.units.children(&node)? {
            let special = match child.tag() {
                gimli::DW_TAG_inheritance => true,
                gimli::DW_TAG_subprogram => {
                    let method = self.units.name(&child)?.unwrap_or("");
                    method.starts_with('~') || method == base || method == name
                }
                _ => false,
            };
            if special {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the type is a `std::string_view`, which has constructors, but is a pair of
    /// numbers to all libraries and by the standard ("trivially copyable").
    fn is_view(&self, id: TypeId) -> Result<bool, DwarfError> {
        let node = self.type_node(id)?;
        let name = node.map(|node| self.units.name(&node)).transpose()?;
        Ok(name
            .flatten()
            .is_some_and(|name| name.starts_with("basic_string_view<")))
    }

    fn classify_members(
        &self,
        id: TypeId,
        start: u64,
        classes: &mut [Class],
        state: &mut Members,
        nesting: usize,
    ) -> Result<ByConvention<()>, DwarfError> {
        if let Some(node) = self.type_node(id)? {
            state.align(&node);
            let children = self.units.children(&node)?;
            children.iter().for_each(|child| state.align(child));
        }
        for member in self.members_of(id)? {
            let at = start.saturating_add(member.offset);
            let told =
                self.classify_member(member.type_id, at, member.bits, classes, state, nesting)?;
            if told.is_err() {
                return Ok(told);
            }
        }
        Ok(Ok(()))
    }

    fn classify_member(
        &self,
        id: TypeId,
        at: u64,
        bits: Option<(u8, u8)>,
        classes: &mut [Class],
        state: &mut Members,
        nesting: usize,
    ) -> Result<ByConvention<()>, DwarfError> {
        let Some(nesting) = nesting.checked_sub(1) else {
            return Ok(Err(
                "a struct that is passed is nested too deeply".to_owned()
            ));
        };
        let Some(left) = state.left.checked_sub(1) else {
            return Ok(Err(
                "a struct that is passed has too many members".to_owned()
            ));
        };
        state.left = left;
        state.alignment = state.alignment.max(self.demanded_alignment(id)?);
        let (class, bytes) = match self.shape(id)? {
            Shape::Struct {
                id, bytes: Some(_), ..
            } => {
                if self.is_class(id)? {
                    return Ok(Err(
                        "whether a C++ class is passed by its address is not recorded".to_owned(),
                    ));
                }
                return self.classify_members(id, at, classes, state, nesting);
            }
            Shape::Array { of, count } => {
                let size = self.size_of(of)?.unwrap_or(0);
                // A flexible array at the end is not passed.
                for index in 0..count.unwrap_or(0) {
                    let at = at.saturating_add(size.saturating_mul(index));
                    let told = self.classify_member(of, at, None, classes, state, nesting)?;
                    if told.is_err() {
                        return Ok(told);
                    }
                }
                return Ok(Ok(()));
            }
            Shape::Float { bytes } => (Class::Vector, bytes),
            Shape::Integer { bytes, .. }
            | Shape::Boolean { bytes }
            | Shape::Character { bytes, .. }
            | Shape::Enumeration { bytes, .. }
                if bytes <= 8 =>
            {
                (Class::Integer, bytes)
            }
            Shape::Pointer { .. } => (Class::Integer, 8),
            _ => {
                return Ok(Err(
                    "a struct that is passed has a member that is neither a number of up to 64 \
                     bits nor a pointer"
                        .to_owned(),
                ))
            }
        };
        state.alignment = state.alignment.max(bytes);
        let (first, last) = match bits {
            None => {
                state.packed |= bytes != 0 && !at.is_multiple_of(bytes);
                (at, at.saturating_add(bytes.saturating_sub(1)))
            }
            Some((low, count)) => {
                let bits = u64::from(low) + u64::from(count);
                (at, at.saturating_add(bits.saturating_sub(1) / 8))
            }
        };
        for word in [first / 8, last / 8] {
            if let Some(place) = usize::try_from(word).ok().and_then(|w| classes.get_mut(w)) {
                // INTEGER wins over what else is in the same eight bytes.
                if *place != Class::Integer {
                    *place = class;
                }
            }
        }
        Ok(Ok(()))
    }
}

/// What is known of the members so far.
struct Members {
    left: usize,
    alignment: u64,
    packed: bool,
}

impl Members {
    /// Takes the alignment that the source demands of a type or a member.
    fn align(&mut self, node: &DebugNode<'_>) {
        let alignment = node.number(gimli::DW_AT_alignment);
        self.alignment = self.alignment.max(alignment.unwrap_or(1));
    }
}

/// Whether the parameter's stack slot holds its address: the way compilers say
/// that a C++ object is passed by reference.
fn is_dereferenced(parameter: &DebugNode<'_>) -> bool {
    let Some(AttributeValue::Exprloc(expression)) = parameter.attribute(gimli::DW_AT_location)
    else {
        return false;
    };
    let mut operations = expression.operations(parameter.unit.encoding());
    let mut next = || operations.next().ok().flatten();
    let slot = matches!(
        next(),
        Some(gimli::Operation::FrameOffset { .. } | gimli::Operation::RegisterOffset { .. })
    );
    slot && matches!(next(), Some(gimli::Operation::Deref { .. })) && next().is_none()
}
