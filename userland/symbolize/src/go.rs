// SPDX-License-Identifier: MIT OR Apache-2.0
//! `.gopclntab`: what Go's runtime knows of its functions, and what no `strip` removes.
//!
//! The layout is that of Go's own `internal/abi/symtab.go` and `runtime/symtab.go`, since
//! Go 1.18: a header, the functions by rising address with a description each, and lists
//! of values by address (how deep the stack is, which line) that the descriptions name.
//! The crate that makes unwind rows reads the same table.

use crate::elf::{text_at, u32_at, u64_at};
use crate::Binary;
use std::ops::RangeInclusive;

/// What made a function's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoCode {
    /// Go's compiler: arguments and results are in registers, and `g` is in %r14 (`ABIInternal`,
    /// `src/cmd/compile/abi-internal.md`).
    Compiled,
    /// Go's assembler: they are on the stack, and `g` is where the code puts it (`ABI0`).
    Assembly,
}

/// Sections that Go's linker makes.
const SECTIONS: [&str; 3] = [".gopclntab", ".go.buildinfo", ".note.go.buildid"];

impl Binary {
    /// Whether Go's linker made the file: stacks move while functions run, and calls continue in
    /// other threads.
    pub fn is_go(&self) -> bool {
        SECTIONS.iter().any(|name| self.elf.section(name).is_some())
    }

    /// Where a `g` has the number of its goroutine, by the version of Go that made the file.
    pub fn goid_offset(&self) -> Option<u64> {
        let minor = self.go_minor_version()?;
        let known = GOID_OFFSETS.iter();
        known
            .into_iter()
            .find(|(versions, _)| versions.contains(&minor))
            .map(|(_, offset)| *offset)
    }

    /// The second number of the version of Go that made the file, of `go1.24.4` 24, by Go's
    /// `debug/buildinfo/buildinfo.go`.
    fn go_minor_version(&self) -> Option<u32> {
        let section = self.elf.section(".go.buildinfo")?;
        let data = self.elf.data(section).ok()?;
        // Since 1.18 the version follows the header, behind its length.
        let is_inline = data.get(15)? & 2 != 0;
        if !data.starts_with(b"\xff Go buildinf:") || !is_inline {
            return None;
        }
        let length = usize::from(*data.get(32)?);
        let version = std::str::from_utf8(data.get(33..33 + length)?).ok()?;
        let minor = version.strip_prefix("go1.")?;
        let digits = minor.split(|next: char| !next.is_ascii_digit()).next()?;
        digits.parse().ok()
    }
}

/// Where `runtime.g` has `goid`, by the versions 1.N of Go (`src/runtime/runtime2.go`).
const GOID_OFFSETS: [(RangeInclusive<u32>, u64); 3] =
    [(18..=22, 152), (23..=24, 160), (25..=26, 152)];

/// Numbers that the table begins with: of Go 1.18, and since Go 1.20.
const MAGIC_1_18: u32 = 0xffff_fff0;
const MAGIC_1_20: u32 = 0xffff_fff1;

/// Bytes of the header, up to what follows the last offset in it.
const HEADER_BYTES: usize = 72;
/// Bytes of an entry of the list of functions.
const ENTRY_BYTES: usize = 8;
/// Longest name of a function or file, in bytes.
const NAME_BYTES_MAX: usize = 64 << 10;
/// Most steps of a list: of a function of a megabyte.
const STEPS_MAX: usize = 1 << 20;

/// In [`GoFunction::flags`]: a function that has no caller (`FuncFlagTopFrame`).
pub const GO_FLAG_TOP_FRAME: u8 = 1;
/// One that sets the stack pointer, so that its stack depths do not hold (`FuncFlagSPWrite`).
pub const GO_FLAG_SETS_STACK: u8 = 2;
/// One in assembly language (`FuncFlagAsm`).
pub const GO_FLAG_ASSEMBLY: u8 = 4;

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct GoTable<'a> {
    text: u64,
    names: &'a [u8],
    names_at: u64,
    /// For each unit, where in `files` its files' names are.
    units: &'a [u8],
    files: &'a [u8],
    /// The lists of values.
    lists: &'a [u8],
    /// The functions: where they begin, and where in here their descriptions lie.
    functions: &'a [u8],
    count: usize,
    is_1_18: bool,
}

/// A function, its addresses counted from the beginning of the code.
#[derive(Clone, Copy, Debug)]
pub struct GoFunction<'a> {
    /// Its first byte.
    pub begin: u32,
    /// What is after its last one, padding included.
    pub end: u32,
    table: GoTable<'a>,
    description: &'a [u8],
}

impl<'a> GoTable<'a> {
    /// Reads the header; `None` for another Go's, or one that contradicts itself.
    pub fn of(data: &'a [u8]) -> Option<GoTable<'a>> {
        let is_1_18 = match u32_at(data, 0)? {
            MAGIC_1_18 => true,
            MAGIC_1_20 => false,
            _ => return None,
        };
        // Instructions of one byte, pointers of eight.
        if data.get(4..8)? != [0, 0, 1, 8] || data.len() < HEADER_BYTES {
            return None;
        }
        let part = |number: usize| data.get(usize::try_from(u64_at(data, 8 * number)?).ok()?..);
        let functions = part(8)?;
        // The list ends with where the last function does.
        let most = functions.len().saturating_sub(4) / ENTRY_BYTES;
        Some(GoTable {
            text: u64_at(data, 24)?,
            names: part(4)?,
            names_at: u64_at(data, 32)?,
            units: part(5)?,
            files: part(6)?,
            lists: part(7)?,
            functions,
            count: usize::try_from(u64_at(data, 8)?).ok()?.min(most),
            is_1_18,
        })
    }

    /// The address that functions are counted from; `None` where the dynamic linker puts
    /// it in, since the file need not have it then.
    pub fn text(&self) -> Option<u64> {
        Some(self.text).filter(|text| *text != 0)
    }

    /// How many functions it has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether it is of Go 1.18 or 1.19.
    pub fn is_1_18(&self) -> bool {
        self.is_1_18
    }

    /// Where the functions' names begin, from the table's beginning.
    pub(crate) fn names_at(&self) -> u64 {
        self.names_at
    }

    /// A function; `None` when its description is damaged.
    pub fn function(&self, number: usize) -> Option<GoFunction<'a>> {
        let entry = number.checked_mul(ENTRY_BYTES)?;
        let at = u32_at(self.functions, entry + 4)? as usize;
        Some(GoFunction {
            begin: u32_at(self.functions, entry)?,
            end: u32_at(self.functions, entry + ENTRY_BYTES)?,
            table: *self,
            description: self.functions.get(at..)?,
        })
    }

    /// The function that holds the place, padding included.
    pub fn holding(&self, place: u32) -> Option<GoFunction<'a>> {
        let begins = |number: usize| u32_at(self.functions, number * ENTRY_BYTES);
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match begins(middle)? <= place {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let function = self.function(low.checked_sub(1)?)?;
        (function.begin..function.end)
            .contains(&place)
            .then_some(function)
    }

    /// The function's name at that place of the names; `None` where no name begins.
    pub(crate) fn name_at(&self, at: u32) -> Option<String> {
        let begins = match at.checked_sub(1) {
            Some(before) => *self.names.get(before as usize)? == 0,
            None => true,
        };
        let name = text_at(self.names, at, NAME_BYTES_MAX)?;
        (begins && !name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
    }

    fn values(&self, list: u32) -> GoValues<'a> {
        // The list at zero is none.
        let data = self.lists.get(list as usize..).filter(|_| list != 0);
        GoValues::new(data.unwrap_or_default())
    }
}

impl<'a> GoFunction<'a> {
    /// Bits about it (`internal/abi.FuncFlag`): the constants that begin with `GO_FLAG`.
    pub fn flags(&self) -> Option<u8> {
        self.description.get(self.fixed_bytes() - 3).copied()
    }

    /// How far the stack pointer is below the return address.
    pub fn stack_depths(&self) -> Option<GoValues<'a>> {
        Some(self.table.values(u32_at(self.description, 16)?))
    }

    /// Its name, as the table has it.
    pub(crate) fn raw_name(&self) -> Option<&'a [u8]> {
        text_at(
            self.table.names,
            u32_at(self.description, 4)?,
            NAME_BYTES_MAX,
        )
    }

    /// The number by which the runtime knows it, zero for most (`internal/abi.FuncID`).
    pub(crate) fn number(&self) -> Option<u8> {
        self.description.get(self.fixed_bytes() - 4).copied()
    }

    /// Bytes of its code, without padding.
    pub(crate) fn code_bytes(&self) -> Option<u32> {
        let depths = self.stack_depths()?.take(STEPS_MAX);
        let code: u32 = depths.fold(0, |sum, (bytes, _)| sum.saturating_add(bytes));
        Some(code.min(self.end.checked_sub(self.begin)?))
    }

    pub(crate) fn code(&self) -> Option<GoCode> {
        Some(match self.flags()? & GO_FLAG_ASSEMBLY {
            0 => GoCode::Compiled,
            _ => GoCode::Assembly,
        })
    }

    /// Its name, as Go's runtime prints it.
    pub fn name(&self) -> Option<String> {
        self.table.name_at(u32_at(self.description, 4)?)
    }

    /// The source file and line of a place in the function.
    pub(crate) fn line_at(&self, place: u32) -> Option<(String, u32)> {
        let file = u32::try_from(self.value_at(20, place)?).ok()?;
        let line = u32::try_from(self.value_at(24, place)?).ok()?;
        let unit = u32_at(self.description, 32)?.checked_add(file)? as usize;
        let name = u32_at(self.table.units, unit.checked_mul(4)?)?;
        let name = text_at(self.table.files, name, NAME_BYTES_MAX)?;
        let name = String::from_utf8_lossy(name).into_owned();
        (line != 0 && !name.is_empty()).then_some((name, line))
    }

    /// Whether its code, which may end before padding, holds the place.
    pub(crate) fn has_code_at(&self, place: u32) -> bool {
        self.value_at(16, place).is_some()
    }

    /// The value of that number of `PCDATA` at a place; `None` when it has none there.
    pub(crate) fn data_at(&self, number: u32, place: u32) -> Option<i32> {
        let count = u32_at(self.description, 28)?;
        let field = self.fixed_bytes() + 4 * number as usize;
        (number < count).then(|| self.value_at(field, place))?
    }

    /// What is at that number of `FUNCDATA`, counted from where Go keeps all of it.
    pub(crate) fn data(&self, number: u8) -> Option<u32> {
        let values = u32_at(self.description, 28)? as usize;
        let count = *self.description.get(self.fixed_bytes() - 1)?;
        let field = values.checked_add(usize::from(number))?.checked_mul(4)?;
        let at = u32_at(self.description, self.fixed_bytes().checked_add(field)?)?;
        (number < count && at != u32::MAX).then_some(at)
    }

    /// The value at a place of the list that is named at `field` of the description.
    fn value_at(&self, field: usize, place: u32) -> Option<i32> {
        let mut values = self.table.values(u32_at(self.description, field)?);
        let mut from = self.begin;
        for _ in 0..STEPS_MAX {
            let (bytes, value) = values.next()?;
            from = from.checked_add(bytes)?;
            if place < from {
                return Some(value);
            }
        }
        None
    }

    /// Bytes of a description without the lists after it.
    fn fixed_bytes(&self) -> usize {
        match self.table.is_1_18 {
            true => 40,
            false => 44,
        }
    }
}

/// A list of values, each with the bytes of code that it is for, as differences.
#[derive(Clone, Debug)]
pub struct GoValues<'a> {
    data: &'a [u8],
    value: i32,
    is_first: bool,
}

impl<'a> GoValues<'a> {
    fn new(data: &'a [u8]) -> GoValues<'a> {
        GoValues {
            data,
            value: -1,
            is_first: true,
        }
    }

    /// A number in as many bytes as it needs, seven bits each (LEB128).
    fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for shift in (0..35).step_by(7) {
            let (byte, rest) = self.data.split_first()?;
            self.data = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(number).ok();
            }
        }
        None
    }
}

impl Iterator for GoValues<'_> {
    type Item = (u32, i32);

    /// The bytes of code and the value there; none at the end.
    fn next(&mut self) -> Option<(u32, i32)> {
        let difference = self.number()?;
        let is_first = std::mem::replace(&mut self.is_first, false);
        if difference == 0 && !is_first {
            return None;
        }
        // The lowest bit is the sign.
        let difference = (difference >> 1) as i32 ^ -((difference & 1) as i32);
        self.value = self.value.wrapping_add(difference);
        let bytes = self.number()?;
        Some((bytes, self.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table of Go 1.24 with one function of 28 bytes, `main.run` of `run.go`: lines 7
    /// and 9, and an inlined call in its last 12 bytes.
    fn table() -> Vec<u8> {
        let names = b"\0main.run\0main.add\0";
        let (units, files) = (0u32.to_le_bytes(), b"run.go\0");
        // 16 bytes of 0, 12 of 8; file 0; line 7 and 9; call 0 from the 16th byte on.
        let lists: [&[u8]; 5] = [
            &[0],
            &[2, 16, 16, 12, 0],
            &[2, 28, 0],
            &[16, 16, 4, 12, 0],
            &[0, 16, 2, 12, 0],
        ];
        let mut functions = Vec::new();
        functions.extend([0, 12, 28].iter().flat_map(|word: &u32| word.to_le_bytes()));
        let description = [0, 1, 0, 0, 1, 6, 9, 3, 0, 6, 4 << 24, 0, 0, 14, 9, 9, 9, 64];
        functions.extend(description.iter().flat_map(|word: &u32| word.to_le_bytes()));
        let parts: [&[u8]; 5] = [names, &units, files, &lists.concat(), &functions];
        let mut data = MAGIC_1_20.to_le_bytes().to_vec();
        data.extend([0, 0, 1, 8]);
        let mut words = vec![1, 1, 0x40_1000];
        words.extend(parts.iter().scan(HEADER_BYTES as u64, |at, part| {
            let here = *at;
            *at += part.len() as u64;
            Some(here)
        }));
        data.extend(words.iter().flat_map(|word: &u64| word.to_le_bytes()));
        data.extend(parts.concat());
        data
    }

    #[test]
    fn a_function_is_described() {
        let data = table();
        let table = GoTable::of(&data).unwrap();
        assert_eq!((table.text(), table.count()), (Some(0x40_1000), 1));
        assert!(table.holding(28).is_none());
        let function = table.holding(27).unwrap();
        assert_eq!(function.name().as_deref(), Some("main.run"));
        assert_eq!(function.flags(), Some(0));
        let line = |place| function.line_at(place).unwrap();
        assert_eq!(line(0), ("run.go".to_owned(), 7));
        assert_eq!(line(16), ("run.go".to_owned(), 9));
        let call = |place| function.data_at(2, place);
        assert_eq!((call(15), call(16), call(28)), (Some(-1), Some(0), None));
        assert_eq!(
            (function.data(3), function.data(0), function.data(4)),
            (Some(64), Some(9), None)
        );
        assert_eq!(table.name_at(10).as_deref(), Some("main.add"));
        // Inside of a name no name begins.
        assert_eq!(table.name_at(11), None);
    }

    /// All that a table is asked for.
    fn ask(data: &[u8]) {
        let Some(table) = GoTable::of(data) else {
            return;
        };
        for place in [0, 15, 16, 27, 28, u32::MAX] {
            let Some(function) = table.holding(place) else {
                continue;
            };
            let _ = (function.name(), function.flags(), function.line_at(place));
            let _ = (function.data(3), function.has_code_at(place));
            for number in [0, 2, u32::MAX] {
                let _ = function.data_at(number, place);
            }
        }
    }

    #[test]
    fn no_length_is_too_short() {
        let whole = table();
        (0..whole.len()).for_each(|length| ask(&whole[..length]));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(
            changes in prop::collection::vec((0usize..260, any::<u8>()), 1..24),
        ) {
            let mut data = table();
            for (at, byte) in changes {
                if let Some(place) = data.get_mut(at) {
                    *place = byte;
                }
            }
            ask(&data);
        }
    }
}
