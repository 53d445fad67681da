// SPDX-License-Identifier: MIT OR Apache-2.0
//! Split DWARF: what the compiler has left in `.dwo` files, and in packages of these
//! (DWARF 5, sections 3.1.3 and 7.3.2; for DWARF 4 the same as a GNU extension).
//!
//! The program names its `.dwo` files by path; which of them are opened, and where, is
//! others' to decide. A unit is only believed when it has the id that the program gives.

use crate::dwarf::{check_nesting, guarded};
use crate::elf::Elf;
use crate::open_files::{NamesFrom, OpenFile, OpenFiles};
use crate::parts::{Keeper, SectionBytes};
use crate::{Binary, SectionData};
use gimli::{DwarfPackage, DwarfPackageSections, DwarfSections, DwoId, Reader, SectionId};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest `.debug_info` of a program that is looked through for split units, in bytes:
/// such a unit takes some 60.
const SKELETONS_BYTES_MAX: u64 = 64 << 20;
/// Most units that are asked for.
const UNITS_MAX: usize = 1 << 16;
/// Longest path of a file, in bytes.
const PATH_BYTES_MAX: usize = 4096;
/// Most bytes of DWARF in all split files of a program.
const SPLIT_BYTES_MAX: u64 = 1 << 30;

type SplitError = String;

/// Why a section was not read, for gimli, which wants to add reasons of its own.
struct Unread(SplitError);

impl From<gimli::Error> for Unread {
    fn from(error: gimli::Error) -> Unread {
        Unread(error.to_string())
    }
}

/// A unit whose DWARF is in another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitUnit {
    /// Its id, which that file must have, too.
    pub id: u64,
    /// The file's name, as the compiler was given it; hostile.
    pub name: PathBuf,
    /// The folder in which the compiler ran; hostile.
    pub folder: PathBuf,
}

impl Binary {
    /// The units of the file's DWARF that are elsewhere, at most 65,536. The error says why they
    /// cannot be listed.
    pub fn split_units(&self) -> Result<Vec<SplitUnit>, String> {
        guarded(|| self.read_split_units())
    }

    fn read_split_units(&self) -> Result<Vec<SplitUnit>, String> {
        // Units that are split, and few others, need addresses from this section.
        let (Some(_), Some(info)) = (
            self.elf.section(".debug_addr"),
            self.elf.section(".debug_info"),
        ) else {
            return Ok(Vec::new());
        };
        if info.bytes > SKELETONS_BYTES_MAX || !self.has_split_units()? {
            return Ok(Vec::new());
        }
        let sections = self.dwarf_sections()?;
        let keeper = Keeper::default();
        let dwarf = sections.borrow(|data| SectionBytes::in_memory(Arc::clone(data), &keeper));
        let mut found = Vec::new();
        let mut units = dwarf.units();
        let failed = |error: gimli::Error| error.to_string();
        while let Some(header) = units.next().map_err(failed)? {
            let unit = dwarf.unit(header).map_err(failed)?;
            found.extend(split_unit(&dwarf, &unit));
            if found.len() == UNITS_MAX {
                break;
            }
        }
        Ok(found)
    }

    /// Whether any unit is elsewhere, by the units and abbreviations alone: the other
    /// sections are many times as big.
    fn has_split_units(&self) -> Result<bool, String> {
        let failed = |error: gimli::Error| error.to_string();
        let mut bytes = 0;
        let keeper = Keeper::default();
        let dwarf = gimli::Dwarf::load(|id| {
            let name = [SectionId::DebugInfo, SectionId::DebugAbbrev].contains(&id);
            let data = section(self, name.then(|| id.name()), &mut bytes)?;
            Ok::<_, SplitError>(SectionBytes::in_memory(data, &keeper))
        })?;
        let mut units = dwarf.units();
        while let Some(header) = units.next().map_err(failed)? {
            if matches!(header.type_(), gimli::UnitType::Skeleton(_)) {
                return Ok(true);
            }
            if header.version() >= 5 {
                continue;
            }
            let abbreviations = dwarf.abbreviations(&header).map_err(failed)?;
            let mut entries = header.entries_raw(&abbreviations, None).map_err(failed)?;
            let first = entries.read_abbreviation().map_err(failed)?;
            let attributes = first.map_or(&[][..], |entry| entry.attributes());
            let mut names = attributes.iter().map(|attribute| attribute.name());
            if names.any(|name| name == gimli::DW_AT_GNU_dwo_name) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn split_unit(
    dwarf: &gimli::Dwarf<SectionBytes>,
    unit: &gimli::Unit<SectionBytes>,
) -> Option<SplitUnit> {
    let id = unit.dwo_id?;
    let name = dwarf.attr_string(unit, unit.dwo_name().ok()??).ok()?;
    let folder = unit.comp_dir.as_ref().and_then(path_in);
    Some(SplitUnit {
        id: id.0,
        name: path_in(&name)?,
        folder: folder.unwrap_or_default(),
    })
}

fn path_in(text: &SectionBytes) -> Option<PathBuf> {
    let bytes = text.to_slice().ok()?;
    let usable = (1..=PATH_BYTES_MAX).contains(&bytes.len());
    usable.then(|| OsString::from_vec(bytes.into_owned()).into())
}

/// The sections of the files with a program's split DWARF, for readers of all of it. Nothing in
/// them was checked.
#[derive(Debug, Default)]
pub struct SplitSections {
    /// Those of packages.
    pub packages: Vec<DwarfPackageSections<SectionData>>,
    /// Those of files, each with the id of the unit that it may hold.
    pub files: Vec<(u64, DwarfSections<SectionData>)>,
    /// Why files could not be used.
    pub(crate) failures: Vec<SplitError>,
}

impl SplitSections {
    pub(crate) fn read(files: &OpenFiles) -> SplitSections {
        let mut read = SplitSections::default();
        let mut bytes = 0;
        for file in &files.packages {
            match package_sections(file, &mut bytes) {
                Ok(sections) => read.packages.push(sections),
                Err(why) => read.fail(file, &why),
            }
        }
        for (id, file) in &files.split {
            match file_sections(file, &mut bytes) {
                Ok(sections) => read.files.push((*id, sections)),
                Err(why) => read.fail(file, &why),
            }
        }
        read
    }

    fn fail(&mut self, file: &OpenFile, why: &str) {
        self.failures
            .push(format!("{}: {why}", file.path.display()));
    }
}

fn package_sections(
    file: &OpenFile,
    bytes: &mut u64,
) -> Result<DwarfPackageSections<SectionData>, SplitError> {
    let elf = open(file)?;
    let load = |id: SectionId| section(&elf, id.dwo_name(), bytes).map_err(Unread);
    DwarfPackageSections::load(load).map_err(|Unread(why)| why)
}

fn file_sections(
    file: &OpenFile,
    bytes: &mut u64,
) -> Result<DwarfSections<SectionData>, SplitError> {
    let elf = open(file)?;
    DwarfSections::load(|id| section(&elf, id.dwo_name(), bytes))
}

/// The split DWARF of a program.
#[derive(Debug)]
pub(crate) struct Split<'a> {
    files: &'a OpenFiles,
}

/// What was read of split DWARF.
#[derive(Default)]
pub(crate) struct Loaded {
    packages: Option<Vec<Result<DwarfPackage<SectionBytes>, SplitError>>>,
    /// Where each unit was found.
    found: HashMap<u64, NamesFrom>,
    bytes: u64,
    keeper: Keeper,
    /// Why files could not be used, by path.
    pub(crate) failures: BTreeMap<PathBuf, SplitError>,
}

impl<'a> Split<'a> {
    pub(crate) fn new(files: &'a OpenFiles) -> Split<'a> {
        Split { files }
    }

    /// The DWARF of a unit, if some file has it.
    pub(crate) fn load(
        &self,
        loaded: &mut Loaded,
        id: DwoId,
        parent: &gimli::Dwarf<SectionBytes>,
    ) -> Option<gimli::Dwarf<SectionBytes>> {
        let (dwarf, from) = self
            .in_packages(loaded, id, parent)
            .or_else(|| self.in_files(loaded, id, parent))?;
        loaded.found.insert(id.0, from);
        Some(dwarf)
    }

    fn in_packages(
        &self,
        loaded: &mut Loaded,
        id: DwoId,
        parent: &gimli::Dwarf<SectionBytes>,
    ) -> Option<(gimli::Dwarf<SectionBytes>, NamesFrom)> {
        let mut packages = loaded.packages.take().unwrap_or_else(|| {
            let open = |file| package(file, &mut loaded.bytes, &loaded.keeper);
            self.files.packages.iter().map(open).collect()
        });
        let mut found = None;
        for (file, package) in self.files.packages.iter().zip(&mut packages) {
            let dwarf = package.as_ref().map_err(Clone::clone).and_then(|package| {
                let dwarf = package.find_cu(id, parent);
                checked(dwarf.map_err(|error| error.to_string())?, id)
            });
            match dwarf {
                Ok(Some(dwarf)) => found = found.or(Some((dwarf, file.names_from()))),
                Ok(None) => {}
                Err(why) => drop(loaded.failures.insert(file.path.to_path_buf(), why)),
            }
        }
        loaded.packages = Some(packages);
        found
    }

    fn in_files(
        &self,
        loaded: &mut Loaded,
        id: DwoId,
        parent: &gimli::Dwarf<SectionBytes>,
    ) -> Option<(gimli::Dwarf<SectionBytes>, NamesFrom)> {
        let files = self.files.split.iter().filter(|(of, _)| *of == id.0);
        for (_, file) in files {
            match unit_in(file, id, parent, loaded) {
                Ok(dwarf) => return Some((dwarf, file.names_from())),
                Err(why) => drop(loaded.failures.insert(file.path.to_path_buf(), why)),
            }
        }
        None
    }
}

impl Loaded {
    /// Whether no unit was taken from any file.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The file that a unit was taken from.
    pub(crate) fn file_of(&self, id: u64) -> Option<&NamesFrom> {
        self.found.get(&id)
    }
}

fn package(
    file: &OpenFile,
    bytes: &mut u64,
    keeper: &Keeper,
) -> Result<DwarfPackage<SectionBytes>, SplitError> {
    let sections = package_sections(file, bytes)?;
    let borrow = |data: &SectionData| SectionBytes::in_memory(Arc::clone(data), keeper);
    let empty = SectionBytes::in_memory(Arc::from([]), keeper);
    let package = sections.borrow(borrow, empty);
    package.map_err(|error| error.to_string())
}

/// The unit of that id in a `.dwo` file.
fn unit_in(
    file: &OpenFile,
    id: DwoId,
    parent: &gimli::Dwarf<SectionBytes>,
    loaded: &mut Loaded,
) -> Result<gimli::Dwarf<SectionBytes>, SplitError> {
    let sections = file_sections(file, &mut loaded.bytes)?;
    let keeper = &loaded.keeper;
    let mut dwarf = sections.borrow(|data| SectionBytes::in_memory(Arc::clone(data), keeper));
    dwarf.make_dwo(parent);
    checked(Some(dwarf), id)?.ok_or_else(|| "it is another unit's, of an older build".to_owned())
}

/// The DWARF, if its first unit has the id and its nesting can be borne.
fn checked(
    dwarf: Option<gimli::Dwarf<SectionBytes>>,
    id: DwoId,
) -> Result<Option<gimli::Dwarf<SectionBytes>>, SplitError> {
    let Some(dwarf) = dwarf else {
        return Ok(None);
    };
    let failed = |error: gimli::Error| error.to_string();
    let Some(header) = dwarf.units().next().map_err(failed)? else {
        return Ok(None);
    };
    let unit = dwarf.unit(header).map_err(failed)?;
    if unit.dwo_id != Some(id) {
        return Ok(None);
    }
    check_nesting(&dwarf)?;
    Ok(Some(dwarf))
}

fn open(file: &OpenFile) -> Result<Binary, SplitError> {
    let opened = file.file.try_clone().map_err(|error| error.to_string())?;
    Binary::open_split(opened, Path::new(&*file.path)).map_err(|error| error.to_string())
}

/// A section's bytes, which count; none of a section that is not there.
fn section(
    binary: &Binary,
    name: Option<&str>,
    bytes: &mut u64,
) -> Result<SectionData, SplitError> {
    let elf: &Elf = &binary.elf;
    let Some(section) = name.and_then(|name| elf.section(name)) else {
        return Ok(Arc::from([]));
    };
    let data = elf.data(section).map_err(|error| error.to_string())?;
    *bytes = bytes.saturating_add(data.len() as u64);
    if *bytes > SPLIT_BYTES_MAX {
        return Err("the split DWARF is too big".to_owned());
    }
    Ok(Arc::from(data))
}
