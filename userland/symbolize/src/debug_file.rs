// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a file's debug information may lie, when it is not in the file itself.
//!
//! The names come from the file: open them inside the file's own
//! mount namespace, and compares the build-id of what was opened.

use crate::elf::{text_at, u32_at, Elf, Section};
use crate::{Address, Binary};
use object::elf;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Longest file name that a section may hold, in bytes: Linux's PATH_MAX.
const NAME_BYTES_MAX: usize = 4096;
/// Longest build-id of a supplementary file, in bytes.
const BUILD_ID_BYTES_MAX: usize = 64;
/// Where distributions install debug files (gdb's debug-file-directory).
pub(crate) const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// A file named by `.gnu_debuglink` (gdb manual, "Separate Debug Files").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// Its name, without a folder.
    pub name: OsString,
    /// The CRC-32 of its contents.
    pub crc: u32,
}

/// A file of what several debug files share, named by `.gnu_debugaltlink` (dwz).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supplementary {
    /// Its path: absolute, or relative to the folder of the file that names it.
    pub path: PathBuf,
    /// Its build-id.
    pub build_id: Vec<u8>,
}

impl Supplementary {
    /// The paths at which the file may be, best first, when what names it lies in `folder`.
    /// Those below the folder of debug files come without what the link says.
    pub fn names(&self, folder: &Path) -> Vec<PathBuf> {
        let mut names = vec![folder.join(&self.path)];
        names.extend(self.usual_names());
        names
    }

    /// The paths in the folder of debug files alone.
    pub fn usual_names(&self) -> Vec<PathBuf> {
        let mut names: Vec<PathBuf> = build_id_path(&self.build_id).into_iter().collect();
        let parts: Vec<Component<'_>> = self.path.components().collect();
        let dwz = parts.iter().rposition(|part| part.as_os_str() == ".dwz");
        // What follows has no `..`: the rest of such a path could lead anywhere.
        let below: &[Component<'_>] = match dwz {
            Some(at) => parts.get(at + 1..).unwrap_or_default(),
            None => parts.last().map_or(&[], std::slice::from_ref),
        };
        let plain = |part: &Component<'_>| matches!(part, Component::Normal(_));
        if !below.is_empty() && below.iter().all(plain) {
            let below: PathBuf = below.iter().collect();
            names.push(Path::new(DEBUG_FOLDER).join(".dwz").join(below));
        }
        names
    }
}

/// A global variable of the symbol tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSymbol {
    /// Where it is, by the file's own count.
    pub address: Address,
    /// Its length in bytes; 0 when the symbol table does not say.
    pub size: u64,
    /// Whether other files may refer to it.
    pub global: bool,
}

impl Binary {
    /// The paths at which the debug information of this file, which lies at `path`
    /// in its own mount namespace, may be, best first.
    pub fn debug_file_names(&self, path: &Path) -> Vec<PathBuf> {
        let link = self.debug_link();
        let link = link.as_ref().map(|link| link.name.as_os_str());
        debug_file_names(path, self.build_id(), link)
    }

    /// Whether this file holds the debug information of `program`: see
    /// [`Binary::check_debug_file`].
    pub fn is_debug_file_of(&self, program: &Binary) -> bool {
        program.check_debug_file(self).is_ok()
    }

    /// Fails, with the reason, unless `file` holds the debug information of this program: by the
    /// build-id or, for a program without one, by the checksum of its link. A build-id can be
    /// forged, so the code must be where the program has it, too.
    pub fn check_debug_file(&self, file: &Binary) -> std::result::Result<(), String> {
        match (file.build_id(), self.build_id()) {
            (Some(own), Some(wanted)) if own == wanted => {}
            (None, Some(_)) => return Err("it has no build-id".to_owned()),
            (Some(own), Some(_)) => return Err(format!("its build-id is {}", hex(own))),
            (_, None) => {
                let link = self.debug_link().ok_or("nothing tells whose it is")?;
                let crc = file.elf.crc32().map_err(|error| error.to_string())?;
                if crc != link.crc {
                    return Err("its checksum is not that of the link".to_owned());
                }
            }
        }
        crate::layout::check(&self.elf, &file.elf)
    }

    /// What `.gnu_debuglink` says.
    pub fn debug_link(&self) -> Option<DebugLink> {
        let data = self.elf.data(self.elf.section(".gnu_debuglink")?).ok()?;
        let name = text_at(&data, 0, NAME_BYTES_MAX)?;
        if !is_plain_name(name) {
            return None;
        }
        let crc = u32_at(&data, (name.len() + 1).next_multiple_of(4))?;
        let name = OsString::from_vec(name.to_owned());
        Some(DebugLink { name, crc })
    }

    /// Whether the file names functions or lines that a program without them could use.
    pub fn has_debug_names(&self) -> bool {
        self.has_debug_info() || self.has_symbol_table()
    }

    /// Whether the table of all symbols is there, and not only that of the dynamic linker.
    pub fn has_symbol_table(&self) -> bool {
        self.elf.section(".symtab").is_some()
    }

    /// Whether the file has no names but those that the dynamic linker needs; Go's are in its own
    /// table.
    pub fn is_stripped(&self) -> bool {
        let is_full = |section: &Section| section.kind == elf::SHT_SYMTAB.0;
        let mut compressed = self.functions().iter().map(|one| one.is_compressed);
        !self.elf.sections.iter().any(is_full)
            && !compressed.any(|is_compressed| is_compressed)
            && !self.has_go_names()
    }

    /// What `.gnu_debugaltlink` says.
    pub fn supplementary(&self) -> Option<Supplementary> {
        let data = self.elf.data(self.elf.section(".gnu_debugaltlink")?).ok()?;
        let path = text_at(&data, 0, NAME_BYTES_MAX)?;
        let build_id = data.get(path.len() + 1..)?;
        let usable = !path.is_empty() && (1..=BUILD_ID_BYTES_MAX).contains(&build_id.len());
        usable.then(|| Supplementary {
            path: OsString::from_vec(path.to_owned()).into(),
            build_id: build_id.to_owned(),
        })
    }

    /// The variables of that name in the symbol tables, each address once, by
    /// rising address.
    pub fn find_data(&self, name: &str) -> Result<Vec<DataSymbol>, crate::SymbolizeError> {
        let mut found = Vec::new();
        self.each_variable(|variable, (full, short)| {
            if [full, short].contains(&name.as_bytes()) {
                found.push(variable);
            }
        })?;
        // The global name of an address comes first and is kept.
        found.sort_by_key(|symbol| (symbol.address, !symbol.global));
        found.dedup_by_key(|symbol| symbol.address);
        Ok(found)
    }

    /// The variable of the symbol tables that holds an address by the file's own count, and the
    /// distance from its beginning. Of several the smallest one, of these a global one.
    pub fn variable_at(
        &self,
        address: Address,
    ) -> Result<Option<(String, u64)>, crate::SymbolizeError> {
        let mut best: Option<((u64, bool, usize), String, u64)> = None;
        self.each_variable(|variable, (_, name)| {
            let distance = address.0.checked_sub(variable.address.0);
            let Some(distance) = distance.filter(|distance| *distance < variable.size) else {
                return;
            };
            let rank = (variable.size, !variable.global, name.len());
            if best.as_ref().is_none_or(|(known, ..)| rank < *known) {
                best = Some((rank, String::from_utf8_lossy(name).into_owned(), distance));
            }
        })?;
        Ok(best.map(|(_, name, distance)| (name, distance)))
    }

    /// Passes each variable of the symbol tables to `take`, with its name, and that without a
    /// version.
    fn each_variable(
        &self,
        mut take: impl FnMut(DataSymbol, (&[u8], &[u8])),
    ) -> Result<(), crate::SymbolizeError> {
        for table in &self.elf.sections {
            if ![elf::SHT_SYMTAB.0, elf::SHT_DYNSYM.0].contains(&table.kind) {
                continue;
            }
            let Some(strings) = self.elf.sections.get(table.link as usize) else {
                continue;
            };
            let (symbols, strings) = (self.elf.data(table)?, self.elf.data(strings)?);
            for symbol in symbols.chunks_exact(crate::function::SYMBOL_BYTES) {
                let variable = crate::function::data_symbol(symbol);
                let names = crate::function::symbol_names(symbol, &strings);
                if let (Some(variable), Some(names)) = (variable, names) {
                    take(variable, names);
                }
            }
        }
        self.elf.check_unchanged()
    }
}

/// The paths at which the debug information of a file may be, best first: of one that lies
/// at `path` in its own mount namespace, has this build-id, and this name in its debug link.
pub fn debug_file_names(
    path: &Path,
    build_id: Option<&[u8]>,
    link: Option<&OsStr>,
) -> Vec<PathBuf> {
    let path_by_id = build_id.and_then(build_id_path);
    let mut names: Vec<PathBuf> = path_by_id.into_iter().collect();
    if let (Some(link), Some(folder)) = (link, path.parent()) {
        let below = folder.strip_prefix("/").unwrap_or(folder);
        names.push(folder.join(link));
        names.push(folder.join(".debug").join(link));
        names.push(Path::new(DEBUG_FOLDER).join(below).join(link));
    }
    names.retain(|name| name != path);
    names
}

/// Whether a debug link may have this name: one with a folder in it would lead out of the
/// places that are searched.
pub fn is_plain_name(name: &[u8]) -> bool {
    let usable = (1..=NAME_BYTES_MAX).contains(&name.len());
    usable && !name.contains(&b'/') && !name.contains(&0) && name != b".." && name != b"."
}

/// The build-id in `.note.gnu.build-id`, of a file without program headers.
pub(crate) fn build_id_of_section(elf: &Elf) -> Result<Option<Vec<u8>>, crate::SymbolizeError> {
    let Some(section) = elf.section(".note.gnu.build-id") else {
        return Ok(None);
    };
    let note = elf.data(section)?;
    Ok(build_id_note(&note).map(<[u8]>::to_vec))
}

/// The id in a note of the GNU build-id: its sizes and type, `GNU\0`, the id.
fn build_id_note(note: &[u8]) -> Option<&[u8]> {
    let length = u32_at(note, 4)? as usize;
    let named = u32_at(note, 0)? == 4 && note.get(12..16)? == b"GNU\0";
    let is_build_id = named && u32_at(note, 8)? == elf::NT_GNU_BUILD_ID.0;
    let id = note.get(16..)?.get(..length)?;
    (is_build_id && (1..=BUILD_ID_BYTES_MAX).contains(&length)).then_some(id)
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `/usr/lib/debug/.build-id/xx/yyyy….debug`.
fn build_id_path(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_at_checked(1)?;
    if rest.is_empty() {
        return None;
    }
    let name = format!(
        "{DEBUG_FOLDER}/.build-id/{}/{}.debug",
        hex(first),
        hex(rest)
    );
    Some(name.into())
}
