// SPDX-License-Identifier: MIT OR Apache-2.0
//! The variables of a function, and where they are at an address.

use super::convention::Passing;
use super::error::{Error, Result};
use super::expression::{self, add, register, Location, Part, Storage};
use super::function::{is_block, Function};
use super::types::id_of;
use super::units::{Attribute, Node, Units, Walk};
use super::DebugInfo;
use crate::scope::{Piece, Place, Role, Typed, Variable};
use crate::types::{Shape, Type, TypeId};
use crate::value::{Value, Width};
use gimli::AttributeValue;
use nsprobe_symbolize::Address;
use std::rc::Rc;

/// Most variables of a function.
const VARIABLES_MAX: usize = 4096;
/// Most entries of a location list.
const LIST_MAX: usize = 65_536;
/// Most bytes of something that is not in memory.
const BYTES_MAX: u64 = 256;
/// Most parts of something that lies in several places.
const PARTS_MAX: usize = 64;

/// A variable of a function, as its entry says.
#[derive(Clone, Debug)]
pub(super) struct Local<'a> {
    pub(super) node: Node<'a>,
    pub(super) name: String,
    pub(super) role: Role,
    /// How many blocks it is inside of.
    depth: isize,
    /// Whether its block holds the address.
    pub(super) visible: bool,
}

/// Where something is asked for.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    pub(super) address: u64,
    pub(super) function: Function,
    /// Where the function that is really called begins.
    pub(super) outer_entry: u64,
}

impl Moment {
    /// Nothing of the called function has run yet.
    pub(super) fn at_entry(&self) -> bool {
        self.address == self.outer_entry
    }
}

impl<'a> DebugInfo<'a> {
    pub(super) fn moment(&self, function: &Function, address: Address) -> Result<Moment> {
        let outer = self.units.node(function.outer)?;
        let ranges = self.units.ranges(&outer)?;
        Ok(Moment {
            address: address.0,
            function: function.clone(),
            outer_entry: ranges.first().map_or(address.0, |range| range.0),
        })
    }

    /// The variables of a function, those of inner blocks first, without those of
    /// functions that are inlined in it.
    pub(super) fn variables_of(&self, moment: &Moment) -> Result<Vec<Local<'a>>> {
        let function = self.units.node(moment.function.die)?;
        let mut found: Vec<Local<'a>> = Vec::new();
        // The depth of the outermost block that does not hold the address.
        let mut outside = isize::MAX;
        self.units.walk(&function, |child, depth| {
            if depth <= outside {
                outside = isize::MAX;
            }
            let role = match child.tag() {
                gimli::DW_TAG_formal_parameter => Role::Parameter,
                gimli::DW_TAG_variable => Role::Local,
                gimli::DW_TAG_inlined_subroutine => return Ok(Walk::Over),
                tag if is_block(tag) => {
                    let ranges = self.units.ranges(child)?;
                    let holds = |(from, to): &(u64, u64)| (*from..*to).contains(&moment.address);
                    if outside == isize::MAX && !ranges.iter().any(holds) {
                        outside = depth;
                    }
                    return Ok(Walk::Into);
                }
                _ => return Ok(Walk::Over),
            };
            if found.len() == VARIABLES_MAX {
                return Err(Error::TooBig("a function has too many variables"));
            }
            // One that is damaged takes only itself with it.
            if let Ok(Some(name)) = self.units.name(child) {
                found.push(Local {
                    node: child.clone(),
                    name: name.to_owned(),
                    role,
                    depth,
                    visible: depth <= outside,
                });
            }
            Ok(Walk::Over)
        })?;
        // Stable: in the order of the source within a block.
        found.sort_by_key(|local| std::cmp::Reverse(local.depth));
        Ok(found)
    }

    /// The variable as the spec language sees it.
    pub(super) fn variable_at(&self, local: &Local<'a>, moment: &Moment) -> Variable {
        Variable {
            name: local.name.as_str().into(),
            role: local.role,
            value: self.typed_at(local, moment).map_err(Into::into),
        }
    }

    fn typed_at(&self, local: &Local<'a>, moment: &Moment) -> Result<Typed> {
        let id = id_of(self.units.type_of(&local.node)?);
        let kind = self.resolve_type(id)?;
        let place = self.place_of(local, moment, id)?;
        Ok(Typed { place, kind })
    }

    fn place_of(&self, local: &Local<'a>, moment: &Moment, id: TypeId) -> Result<Place> {
        let name = &local.name;
        if let Some(place) = self.constant_place(&local.node, name, id)? {
            return Ok(place);
        }
        let location = self.location_at(&local.node, name, moment);
        let untold = matches!(location, Err(Error::OptimizedOut { .. }));
        let in_list = self.has_list(&local.node)?;
        let of_frame = location.as_ref().is_ok_and(|location| location.of_frame);
        if !untold && (in_list || !of_frame) {
            return self.placed(name, location?, id);
        }
        if moment.at_entry() && local.role == Role::Parameter && !moment.function.inlined {
            return self.passed_place(local, moment, id, location);
        }
        let body = self.body_of(moment.function.outer)?;
        let before_body = (moment.outer_entry..body.0).contains(&moment.address);
        if before_body && !untold {
            return Err(unreadable(
                name,
                format!(
                    "its stack slot is not filled yet at this place; probe behind the prologue, \
                     at {body}"
                ),
            ));
        }
        self.placed(name, location?, id)
    }

    /// Where an argument is at the entry, when the debug information speaks of
    /// a stack slot that is not filled yet, or says nothing.
    fn passed_place(
        &self,
        local: &Local<'a>,
        moment: &Moment,
        id: TypeId,
        location: Result<Location>,
    ) -> Result<Place> {
        let function = self.units.node(moment.function.outer)?;
        let untold = location.is_err();
        if untold && !self.keeps_convention(&function, moment)? {
            return Err(location.err().unwrap_or(Error::Absent));
        }
        let parameters = self.parameters_of(&function)?;
        let index = parameters
            .iter()
            .position(|parameter| parameter.die == local.node.die);
        let passing = index.map(|at| (at, self.passing(&function)));
        let passing = match passing {
            Some((at, passing)) => passing?.into_iter().nth(at),
            None => None,
        };
        let failed = |why| Err(unreadable(&local.name, why));
        match passing {
            Some(Ok(passing)) => match self.passed(&passing, id)? {
                Ok(place) => Ok(place),
                Err(why) => failed(why),
            },
            Some(Err(why)) => failed(format!(
                "its stack slot is not filled yet at the entry, and of its register: {why}"
            )),
            None => failed("its stack slot is not filled yet at the entry".to_owned()),
        }
    }

    /// Whether an argument that the debug information does not mention is still
    /// passed: others call the function by its symbol, and no compiler made a
    /// variant of it (`.constprop`, `.isra`).
    fn keeps_convention(&self, function: &Node<'a>, moment: &Moment) -> Result<bool> {
        let external = self.units.inherited(function, gimli::DW_AT_external)?;
        let external = matches!(external, Some((_, AttributeValue::Flag(true))));
        let symbols = self.binary.functions();
        let mut here = symbols
            .iter()
            .skip(symbols.partition_point(|symbol| symbol.address.0 < moment.outer_entry))
            .take_while(|symbol| symbol.address.0 == moment.outer_entry)
            .peekable();
        let named = here.peek().is_some();
        Ok(external && named && here.all(|symbol| !symbol.name.contains('.')))
    }

    /// The place of something that is passed so, at the function's entry or after
    /// its return.
    pub(super) fn passed(
        &self,
        passing: &Passing,
        id: TypeId,
    ) -> Result<std::result::Result<Place, String>> {
        let location = match passing {
            Passing::Nothing => return Ok(Err("it is empty".to_owned())),
            Passing::Reference(number) => whole(register(*number).map(Storage::Memory)),
            Passing::Stack(bytes) => {
                let stack = register(7).map(|stack| add(stack, 8i64.saturating_add(*bytes as i64)));
                whole(stack.map(Storage::Memory))
            }
            Passing::Registers(numbers) => match numbers.as_slice() {
                [one] => whole(word(*one).map(Storage::Value)),
                words => {
                    let part = |number: &Option<u16>| Part {
                        bits: Some(64),
                        storage: word(*number).map_or_else(Storage::Nowhere, Storage::Value),
                    };
                    Location {
                        parts: words.iter().map(part).collect(),
                        of_frame: false,
                    }
                }
            },
        };
        self.place(location, id)
    }

    /// The place of something whose value the compiler knows.
    pub(super) fn constant_place(
        &self,
        node: &Node<'a>,
        name: &str,
        id: TypeId,
    ) -> Result<Option<Place>> {
        let Some((owner, value)) = self.units.inherited(node, gimli::DW_AT_const_value)? else {
            return Ok(None);
        };
        let storage = match (Units::constant(Some(value)), value) {
            (Some(number), _) => Storage::Value(Value::Constant(number)),
            (None, AttributeValue::Block(bytes)) => Storage::Bytes(bytes.slice().to_vec()),
            (None, text) => match self.units.text(owner.die.unit, &owner.unit, text) {
                Some(text) => Storage::Bytes(text.as_bytes().to_vec()),
                None => Storage::Nowhere("its constant is of an unknown form".to_owned()),
            },
        };
        self.placed(name, whole(Ok(storage)), id).map(Some)
    }

    fn has_list(&self, node: &Node<'a>) -> Result<bool> {
        let location = self.units.inherited(node, gimli::DW_AT_location)?;
        Ok(location.is_some_and(|(_, value)| {
            !matches!(value, AttributeValue::Exprloc(_) | AttributeValue::Block(_))
        }))
    }

    /// Whether the compiler tracked where the function's variables are.
    pub(super) fn has_location_lists(&self, function: &Node<'a>) -> Result<bool> {
        for parameter in self.parameters_of(function)? {
            if self.has_list(&parameter)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn location_at(&self, node: &Node<'a>, name: &str, moment: &Moment) -> Result<Location> {
        let optimized_out = |available| {
            Err(Error::OptimizedOut {
                name: name.to_owned(),
                available,
            })
        };
        let Some((owner, value)) = self.units.inherited(node, gimli::DW_AT_location)? else {
            return optimized_out(Vec::new());
        };
        let (expression, available) = self.expression_at(&owner, value, moment.address)?;
        let Some(expression) = expression else {
            return optimized_out(available);
        };
        let unit = owner.die.unit;
        let location = self.compile((unit, &owner), expression.0, moment);
        match location.map_err(|why| unreadable(name, why))? {
            location if location.parts.is_empty() => optimized_out(available),
            location => Ok(location),
        }
    }

    fn compile(
        &self,
        (unit, owner): (u32, &Node<'a>),
        expression: super::units::Bytes<'a>,
        moment: &Moment,
    ) -> std::result::Result<Location, String> {
        let frame_address = || self.frame_address(moment.address);
        let frame_base = || self.frame_base(moment);
        let place = expression::Place {
            units: &self.units,
            unit,
            parsed: &owner.unit,
            frame_base: &frame_base,
            frame_address: &frame_address,
            at_entry: moment.at_entry(),
        };
        expression::compile(expression, &place)
    }

    fn frame_address(&self, address: u64) -> std::result::Result<Value, String> {
        let frames = self.frames().map_err(|error| error.to_string())?;
        frames.address_at(address)
    }

    /// DW_AT_frame_base of the function that is really called.
    fn frame_base(&self, moment: &Moment) -> std::result::Result<Value, String> {
        let text = |error: Error| error.to_string();
        let missing = || "its function has no frame base at this place".to_owned();
        let function = self.units.node(moment.function.outer).map_err(text)?;
        let found = self.units.inherited(&function, gimli::DW_AT_frame_base);
        let (owner, value) = found.map_err(text)?.ok_or_else(missing)?;
        let (expression, _) = self
            .expression_at(&owner, value, moment.address)
            .map_err(text)?;
        let expression = expression.ok_or_else(missing)?;
        let frame_address = || self.frame_address(moment.address);
        let nested = || Err("its frame base refers to itself".to_owned());
        let place = expression::Place {
            units: &self.units,
            unit: owner.die.unit,
            parsed: &owner.unit,
            frame_base: &nested,
            frame_address: &frame_address,
            at_entry: false,
        };
        let location = expression::compile(expression.0, &place)?;
        match <[Part; 1]>::try_from(location.parts) {
            // A register holds the base itself; else its address was computed.
            Ok(
                [Part {
                    bits: None,
                    storage: Storage::Value(base) | Storage::Memory(base),
                }],
            ) => Ok(base),
            _ => Err("its frame base is of an unknown form".to_owned()),
        }
    }

    /// The expression of a location that holds at the address; with all ranges of
    /// its list.
    #[allow(clippy::type_complexity, reason = "used by two functions here")]
    fn expression_at(
        &self,
        owner: &Node<'a>,
        value: Attribute<'a>,
        address: u64,
    ) -> Result<(
        Option<gimli::Expression<super::units::Bytes<'a>>>,
        Vec<(Address, Address)>,
    )> {
        match value {
            AttributeValue::Exprloc(expression) => return Ok((Some(expression), Vec::new())),
            AttributeValue::Block(bytes) => {
                return Ok((Some(gimli::Expression(bytes)), Vec::new()))
            }
            _ => {}
        }
        let dwarf = self.units.dwarf_of(owner.die.unit);
        let Some(mut list) = dwarf.attr_locations(&owner.unit, value)? else {
            return Err(Error::Damaged(
                "a location is of an unknown form".to_owned(),
            ));
        };
        let (mut found, mut available) = (None, Vec::new());
        while let Some(entry) = list.next()? {
            self.units.step()?;
            if available.len() == LIST_MAX {
                return Err(Error::TooBig("a location list is too long"));
            }
            let range = entry.range;
            if range.begin >= range.end || entry.data.0.slice().is_empty() {
                continue;
            }
            if found.is_none() && (range.begin..range.end).contains(&address) {
                found = Some(entry.data);
            }
            available.push((Address(range.begin), Address(range.end)));
        }
        Ok((found, available))
    }

    /// The place of what is at a location.
    pub(super) fn placed(&self, name: &str, location: Location, id: TypeId) -> Result<Place> {
        self.place(location, id)?
            .map_err(|why| unreadable(name, why))
    }

    fn place(&self, location: Location, id: TypeId) -> Result<std::result::Result<Place, String>> {
        let shape = self.shape(id)?;
        let size = self.size_of(id)?;
        let mut parts = location.parts;
        if let ([part], Some(size)) = (parts.as_mut_slice(), size) {
            // One part that covers the whole is the whole.
            if part.bits.is_some_and(|bits| bits >= size.saturating_mul(8)) {
                part.bits = None;
            }
        }
        Ok(match <[Part; 1]>::try_from(parts) {
            Ok(
                [Part {
                    bits: None,
                    storage,
                }],
            ) => whole_place(storage, &shape, size),
            Ok([part]) => pieces(vec![part], size),
            Err(parts) => pieces(parts, size),
        })
    }
}

fn unreadable(name: &str, why: String) -> Error {
    Error::Unreadable {
        name: name.to_owned(),
        why,
    }
}

fn word(number: Option<u16>) -> std::result::Result<Value, String> {
    match number {
        Some(number) => register(number),
        None => Err("it is in a vector register, and those are not recorded".to_owned()),
    }
}

fn whole(storage: std::result::Result<Storage, String>) -> Location {
    Location {
        parts: vec![Part {
            bits: None,
            storage: storage.unwrap_or_else(Storage::Nowhere),
        }],
        of_frame: false,
    }
}

/// Bytes and sign of what fits into a register.
fn scalar(shape: &Shape) -> Option<(u64, bool)> {
    let kind = Type::new("", shape.clone());
    let is_scalar = matches!(
        shape,
        Shape::Integer { .. }
            | Shape::Boolean { .. }
            | Shape::Character { .. }
            | Shape::Enumeration { .. }
            | Shape::Pointer { .. }
            | Shape::Float { .. }
    );
    let bytes = kind.bytes().filter(|bytes| (1..=8).contains(bytes))?;
    is_scalar.then(|| (bytes, kind.is_signed()))
}

/// The value extended to 64 bits from its type.
fn extended(value: Value, bytes: u64, signed: bool) -> Value {
    if bytes >= 8 {
        return value;
    }
    let bits = bytes as u8 * 8;
    match value {
        Value::Constant(number) => {
            let unused = 64 - u32::from(bits);
            let high = number << unused;
            Value::Constant(match signed {
                true => ((high as i64) >> unused) as u64,
                false => high >> unused,
            })
        }
        Value::Load { address, width } if u64::from(width.bytes) == bytes => Value::Load {
            address,
            width: Width { signed, ..width },
        },
        value => Value::Truncate {
            value: Box::new(value),
            bits,
            signed,
        },
    }
}

fn whole_place(
    storage: Storage,
    shape: &Shape,
    size: Option<u64>,
) -> std::result::Result<Place, String> {
    match (storage, scalar(shape)) {
        (Storage::Memory(address), _) => Ok(Place::Memory(address)),
        (Storage::Nowhere(why), _) => Err(why),
        (Storage::Value(value), Some((bytes, signed))) => {
            Ok(Place::Value(extended(value, bytes, signed)))
        }
        (Storage::Bytes(bytes), Some((wanted, signed))) => {
            let number = number_of(&bytes);
            let fits = bytes.len() as u64 >= wanted;
            number
                .filter(|_| fits)
                .map(|number| Place::Value(extended(Value::Constant(number), wanted, signed)))
                .ok_or_else(|| "its constant has another size".to_owned())
        }
        (storage, None) => {
            let bytes = size.ok_or("its size is not known, and it is not in memory")?;
            if matches!(storage, Storage::Value(_)) && bytes > 8 {
                return Err(format!("it has {bytes} bytes, but is in one register"));
            }
            let part = Part {
                bits: Some(bytes.saturating_mul(8)),
                storage,
            };
            pieces(vec![part], size)
        }
    }
}

/// The first eight bytes as a number.
fn number_of(bytes: &[u8]) -> Option<u64> {
    let mut word = [0; 8];
    let length = bytes.len().min(8);
    word.get_mut(..length)?
        .copy_from_slice(bytes.get(..length)?);
    (length > 0).then(|| u64::from_le_bytes(word))
}

fn pieces(parts: Vec<Part>, size: Option<u64>) -> std::result::Result<Place, String> {
    let mut found = Vec::new();
    let mut missing = None;
    let mut offset = 0u64;
    for part in parts {
        let bits = part.bits.unwrap_or(0);
        if bits == 0 || bits % 8 != 0 {
            return Err("it is in parts that are not whole bytes".to_owned());
        }
        let bytes = bits / 8;
        if found.len() >= PARTS_MAX {
            return Err("it is in too many parts".to_owned());
        }
        match part.storage {
            Storage::Nowhere(why) => missing = Some(why),
            Storage::Memory(address) => found.push(Piece {
                offset,
                bytes,
                place: Place::Memory(address),
            }),
            Storage::Value(value) if bytes <= 8 => found.push(Piece {
                offset,
                bytes,
                place: Place::Value(value),
            }),
            Storage::Value(_) => missing = Some(format!("{bytes} bytes are in one register")),
            Storage::Bytes(data) => constant_pieces(&data, offset, bytes, &mut found)?,
        }
        offset = offset.saturating_add(bytes);
    }
    let all = size.is_some_and(|size| offset > size.next_multiple_of(8).saturating_add(8));
    match (found.is_empty(), missing) {
        _ if all => Err("its parts are larger than it".to_owned()),
        (true, Some(why)) => Err(why),
        (true, None) => Err("it is nowhere".to_owned()),
        (false, _) => Ok(Place::Pieces(Rc::from(found))),
    }
}

fn constant_pieces(
    data: &[u8],
    offset: u64,
    bytes: u64,
    found: &mut Vec<Piece>,
) -> std::result::Result<(), String> {
    if bytes > BYTES_MAX || data.len() as u64 > BYTES_MAX {
        return Err(format!("it is a constant of more than {BYTES_MAX} bytes"));
    }
    for (index, chunk) in data.chunks(8).enumerate() {
        let at = index as u64 * 8;
        let length = (chunk.len() as u64).min(bytes.saturating_sub(at));
        if let Some(number) = number_of(chunk).filter(|_| length > 0) {
            found.push(Piece {
                offset: offset.saturating_add(at),
                bytes: length,
                place: Place::Value(Value::Constant(number)),
            });
        }
    }
    Ok(())
}
