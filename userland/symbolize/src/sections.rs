// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sections that debug information lies in, as bytes of our own.
//!
//! A reader of variables has all of them in memory, with a limit; names come from those parts
//! of them that are looked at. What is in the bytes is not looked at here.

use crate::elf::Elf;
use crate::go_names::GoNames;
use crate::parts::{Keeper, SectionBytes};
use crate::SymbolizeError;
use crate::{Address, Binary, GoFunction, GoTable, GO_FLAG_SETS_STACK, GO_FLAG_TOP_FRAME};
use gimli::{
    BaseAddresses, Dwarf, DwarfSections, EhFrame, EhFrameHdr, LittleEndian, SectionId,
    UnwindSection,
};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Most bytes of all DWARF sections that are in memory together.
const SECTIONS_BYTES_MAX: u64 = 2 << 30;

/// Bytes of a section, decompressed.
pub type SectionData = Arc<[u8]>;

/// A section and where it is loaded.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LoadedSection {
    /// Its bytes; none when the file does not have it.
    #[serde(with = "section_data")]
    pub data: SectionData,
    /// Its address by the file's own count.
    pub address: Address,
}

/// What Go's linker writes of its functions (see [`GoTable`](crate::GoTable)).
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct GoSections {
    /// `.gopclntab`; none in a file without it.
    #[serde(with = "section_data")]
    pub table: SectionData,
    /// The address that the table counts from.
    pub text: Address,
    /// The code of functions that the table does not describe well enough.
    pub code: Vec<LoadedSection>,
}

/// What describes the frames of the file's functions (DWARF 5, section 6.4, and others).
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct UnwindSections {
    /// `.eh_frame`.
    pub eh_frame: LoadedSection,
    /// `.debug_frame`.
    #[serde(with = "section_data")]
    pub debug_frame: SectionData,
    /// `.sframe` (The SFrame Format, binutils' `libsframe/doc/sframe-spec.texi`).
    pub sframe: LoadedSection,
    /// What Go's linker writes.
    pub go: GoSections,
    /// Where `.text` is loaded.
    pub text: Address,
    /// Where `.got` is loaded.
    pub got: Address,
    /// The first instruction that runs; zero in a file that is no program.
    pub entry: Address,
}

/// Sections in messages of serde: as bytes, not as a row of numbers.
mod section_data {
    use super::SectionData;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        data: &SectionData,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(data)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<SectionData, D::Error> {
        <&[u8]>::deserialize(deserializer).map(SectionData::from)
    }
}

/// The sections, or why they cannot be read.
pub(crate) type Loaded = Result<DwarfSections<SectionData>, String>;

/// Sections about variables, types and macros, not about functions and lines: some are as large as
/// all others.
const NOT_OF_NAMES: [SectionId; 5] = [
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugTypes,
];

/// What all sections of a file may take.
struct Budget(u64);

impl Budget {
    fn new() -> Budget {
        Budget(SECTIONS_BYTES_MAX)
    }

    /// The section of that name, empty where the file has none.
    fn read(&mut self, elf: &Elf, name: &str) -> Result<SectionData, String> {
        let data = data_of(elf, name).map_err(|error| error.to_string())?;
        let left = self.0.checked_sub(data.len() as u64);
        self.0 = left.ok_or_else(|| {
            let most = SECTIONS_BYTES_MAX >> 20;
            format!("its DWARF takes more than {most} MB of memory")
        })?;
        Ok(data)
    }
}

fn load(elf: &Elf) -> Loaded {
    let mut budget = Budget::new();
    let sections = DwarfSections::load(|id| budget.read(elf, id.name()))?;
    elf.check_unchanged().map_err(|error| error.to_string())?;
    Ok(sections)
}

/// Those that functions and lines come from; the others are empty. Those that are not
/// compressed are read where they are looked at.
fn load_names(elf: &Elf, keeper: &Keeper) -> Result<Dwarf<SectionBytes>, String> {
    let mut budget = Budget::new();
    let in_memory = |data: SectionData| SectionBytes::in_memory(data, keeper);
    let dwarf = Dwarf::load(|id| {
        if NOT_OF_NAMES.contains(&id) {
            return Ok(in_memory(Arc::from([])));
        }
        let section = elf.section(id.name());
        let range = section.map(|section| elf.range_in_file(section));
        match range.transpose().map_err(|error| error.to_string())? {
            Some(Some((offset, length))) => Ok(SectionBytes::in_file(
                elf.share_file(),
                offset,
                length,
                keeper,
            )),
            _ => budget.read(elf, id.name()).map(in_memory),
        }
    })?;
    elf.check_unchanged().map_err(|error| error.to_string())?;
    Ok(dwarf)
}

/// Most bytes of code that are read of a function of Go's runtime, and of all of them.
const GO_FUNCTION_BYTES_MAX: u32 = 4 << 10;
const GO_CODE_BYTES_MAX: usize = 128 << 10;
/// What C calls Go through, which saves `rbp` in its own place.
const GO_CALLED_BY_C: &str = "crosscall2";

/// What Go's linker writes, as far as it can be read.
fn go_sections(binary: &Binary) -> GoSections {
    let names = binary.go_names();
    let (table, text) = names.map_or_else(|| (Arc::from([]), Address(0)), GoNames::table);
    GoSections {
        code: go_code(&binary.elf, &table, text),
        table,
        text,
    }
}

/// The code of the functions of which the table does not say enough.
fn go_code(elf: &Elf, table: &[u8], text: Address) -> Vec<LoadedSection> {
    let Some(table) = GoTable::of(table) else {
        return Vec::new();
    };
    let functions = (0..table.count()).filter_map(|number| table.function(number));
    let mut room = GO_CODE_BYTES_MAX;
    let mut found = Vec::new();
    for function in functions.filter(is_read_by_code) {
        let bytes = function.end.saturating_sub(function.begin);
        let address = text.0.checked_add(function.begin.into());
        let segments = &mut elf.segments.iter();
        let at = address.and_then(|at| segments.find_map(|part| part.offset_of(Address(at))));
        let (Some(address), Some(at)) = (address, at) else {
            continue;
        };
        let mut data = vec![0; bytes.min(GO_FUNCTION_BYTES_MAX) as usize];
        let left = room.checked_sub(data.len());
        if let (Some(left), Ok(())) = (left, elf.read_into(at.0, &mut data)) {
            room = left;
            found.push(LoadedSection {
                data: data.into(),
                address: Address(address),
            });
        }
    }
    found
}

fn is_read_by_code(function: &GoFunction<'_>) -> bool {
    let flags = function.flags().unwrap_or_default();
    match flags & (GO_FLAG_SETS_STACK | GO_FLAG_TOP_FRAME) {
        GO_FLAG_SETS_STACK => true,
        _ => function.name().as_deref() == Some(GO_CALLED_BY_C),
    }
}

fn data_of(elf: &Elf, name: &str) -> Result<SectionData, SymbolizeError> {
    match elf.section(name) {
        Some(section) => elf.shared_data(section),
        None => Ok(Arc::from([])),
    }
}

/// `.eh_frame`, and the index of it.
#[derive(Debug)]
pub(crate) struct LoadedFrames {
    index: SectionData,
    frames: SectionData,
    bases: BaseAddresses,
}

impl LoadedFrames {
    fn read(elf: &Elf) -> Option<LoadedFrames> {
        let (index, frames) = (elf.section(".eh_frame_hdr")?, elf.section(".eh_frame")?);
        let address = |name| elf.section(name).map_or(0, |section| section.address);
        Some(LoadedFrames {
            index: elf.shared_data(index).ok()?,
            frames: elf.shared_data(frames).ok()?,
            bases: BaseAddresses::default()
                .set_eh_frame_hdr(index.address)
                .set_eh_frame(frames.address)
                .set_text(address(".text"))
                .set_got(address(".got")),
        })
    }
}

impl Binary {
    /// The addresses that the entry of `.eh_frame` for an address covers, by the index of it.
    pub(crate) fn frame_at(&self, address: Address) -> Option<Range<u64>> {
        let read = || LoadedFrames::read(&self.elf);
        let loaded = self.frames.get_or_init(read).as_ref()?;
        let index = EhFrameHdr::new(&loaded.index, LittleEndian);
        let index = index.parse(&loaded.bases, 8).ok()?;
        let mut frames = EhFrame::new(&loaded.frames, LittleEndian);
        frames.set_address_size(8);
        let find = EhFrame::cie_from_offset;
        let found = index.table()?;
        let found = found.fde_for_address(&frames, &loaded.bases, address.0, find);
        let found = found.ok()?;
        let start = found.initial_address();
        Some(start..start.checked_add(found.len())?)
    }

    /// The file's DWARF sections (empty where it has none), read at the first
    /// call. The error says why they cannot be read.
    ///
    /// The bytes are hostile: nothing in them was checked.
    pub fn dwarf_sections(&self) -> Result<&DwarfSections<SectionData>, &str> {
        let loaded = self.sections.get_or_init(|| load(&self.elf));
        loaded.as_ref().map_err(String::as_str)
    }

    /// Those of them that functions and lines come from; they are not kept here.
    pub(crate) fn dwarf_of_names(&self, keeper: &Keeper) -> Result<Dwarf<SectionBytes>, String> {
        load_names(&self.elf, keeper)
    }

    /// The addresses of each section with code that the file holds: the first, and the
    /// one after the last.
    pub fn code_ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let code = self.elf.sections.iter().filter(|section| section.is_code());
        code.filter_map(|section| {
            let end = section.address.checked_add(section.bytes)?;
            Some((section.address, end))
        })
    }

    /// Bytes of all sections with code.
    pub fn code_bytes(&self) -> u64 {
        let code = self.elf.sections.iter().filter(|section| section.is_code());
        code.fold(0, |sum, section| sum.saturating_add(section.bytes))
    }

    /// The sections that describe frames.
    pub fn unwind_sections(&self) -> Result<UnwindSections, SymbolizeError> {
        let address = |name| {
            let section = self.elf.section(name);
            Address(section.map_or(0, |section| section.address))
        };
        let loaded = |name| -> Result<LoadedSection, SymbolizeError> {
            Ok(LoadedSection {
                data: data_of(&self.elf, name)?,
                address: address(name),
            })
        };
        let sections = UnwindSections {
            eh_frame: loaded(".eh_frame")?,
            debug_frame: data_of(&self.elf, ".debug_frame")?,
            sframe: loaded(".sframe")?,
            go: go_sections(self),
            text: address(".text"),
            got: address(".got"),
            entry: Address(self.elf.entry),
        };
        self.elf.check_unchanged()?;
        Ok(sections)
    }
}
