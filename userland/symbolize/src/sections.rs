// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sections that debug information lies in, as bytes of our own.
//!
//! Read once for a file, whoever asks first: addr2line for lines of frames, or
//! a reader of variables. Sizes are capped; what is in the bytes is not looked at.

use crate::dwarf::Bytes;
use crate::elf::Elf;
use crate::{Address, Binary, Result};
use gimli::{Dwarf, DwarfSections, LittleEndian, SectionId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Most bytes of all DWARF sections together.
const SECTIONS_BYTES_MAX: u64 = 1 << 30;

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
    /// `.gopclntab`, which Go's linker writes.
    #[serde(with = "section_data")]
    pub go: SectionData,
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
pub(crate) type Loaded = std::result::Result<DwarfSections<SectionData>, String>;

/// Sections that tell of variables, types and macros, not of functions and lines: some are
/// as large as all others.
const NOT_OF_NAMES: [SectionId; 5] = [
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugTypes,
];

/// Reads the sections that are wanted; the others are empty.
fn load(elf: &Elf, is_wanted: impl Fn(SectionId) -> bool) -> Loaded {
    let mut budget = SECTIONS_BYTES_MAX;
    let sections = DwarfSections::load(|id| {
        let data = match is_wanted(id) {
            true => data_of(elf, id.name()).map_err(|error| error.to_string())?,
            false => Arc::from([]),
        };
        budget = budget
            .checked_sub(data.len() as u64)
            .ok_or("the DWARF is too big")?;
        Ok::<_, String>(data)
    })?;
    elf.check_unchanged().map_err(|error| error.to_string())?;
    Ok(sections)
}

fn data_of(elf: &Elf, name: &str) -> Result<SectionData> {
    match elf.section(name) {
        Some(section) => elf.shared_data(section),
        None => Ok(Arc::from([])),
    }
}

impl Binary {
    /// The file's DWARF sections (empty where it has none), read at the first
    /// call. The error says why they cannot be read.
    ///
    /// The bytes are hostile: nothing in them was checked.
    pub fn dwarf_sections(&self) -> std::result::Result<&DwarfSections<SectionData>, &str> {
        let loaded = self.sections.get_or_init(|| load(&self.elf, |_| true));
        loaded.as_ref().map_err(String::as_str)
    }

    /// Those of them that functions and lines come from; they are not kept here, unless all
    /// were read for something else.
    pub(crate) fn dwarf_of_names(&self) -> std::result::Result<Dwarf<Bytes>, String> {
        let shared = |data: &SectionData| Bytes::new(Arc::clone(data), LittleEndian);
        match self.sections.get() {
            Some(all) => all
                .as_ref()
                .map(|all| all.borrow(shared))
                .map_err(Clone::clone),
            None => {
                let sections = load(&self.elf, |id| !NOT_OF_NAMES.contains(&id))?;
                Ok(sections.borrow(shared))
            }
        }
    }

    /// The addresses of each section with code that the file holds: the first, and the
    /// one behind the last.
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
    pub fn unwind_sections(&self) -> Result<UnwindSections> {
        let address = |name| {
            let section = self.elf.section(name);
            Address(section.map_or(0, |section| section.address))
        };
        let loaded = |name| -> Result<LoadedSection> {
            Ok(LoadedSection {
                data: data_of(&self.elf, name)?,
                address: address(name),
            })
        };
        let sections = UnwindSections {
            eh_frame: loaded(".eh_frame")?,
            debug_frame: data_of(&self.elf, ".debug_frame")?,
            sframe: loaded(".sframe")?,
            go: data_of(&self.elf, ".gopclntab")?,
            text: address(".text"),
            got: address(".got"),
            entry: Address(self.elf.entry),
        };
        self.elf.check_unchanged()?;
        Ok(sections)
    }
}
