// SPDX-License-Identifier: MIT OR Apache-2.0
//! The headers and sections of an ELF file, read with `pread`.
//!
//! Every offset and size comes from a hostile file: each read is checked
//! against the file's length and a cap before memory is allocated. The layout is
//! that of the System V gABI for 64-bit little-endian files.

mod headers;
mod watched_file;

pub(crate) use watched_file::WatchedFile;

use crate::{dynamic, Address, FileOffset, Segment, SymbolizeError};
use headers::{code_in_memory, guess, machine_name, machine_of, parse_segment};
use object::elf;
use object::read::{CompressedData, CompressionFormat};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// Largest section that is read as a whole, in bytes.
const SECTION_BYTES_MAX: u64 = 1536 << 20;
/// Largest section that comes of a compressed one, in bytes: it may be a few in the file.
const UNPACKED_BYTES_MAX: u64 = 512 << 20;
const SEGMENTS_MAX: u16 = 256;
/// Largest table of section headers, in bytes: 65,535 sections and some.
const SECTION_TABLE_BYTES_MAX: u64 = 8 << 20;
/// Longest section name that is compared, in bytes.
const SECTION_NAME_BYTES_MAX: usize = 64;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const SECTION_HEADER_BYTES: usize = 64;
const COMPRESSION_HEADER_BYTES: usize = 24;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The text at `at` up to its NUL, at most `limit` bytes long.
pub(crate) fn text_at(strings: &[u8], at: u32, limit: usize) -> Option<&[u8]> {
    let rest = strings.get(at as usize..)?;
    let end = rest.iter().take(limit + 1).position(|&byte| byte == 0)?;
    rest.get(..end)
}

#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) link: u32,
    pub(crate) entry_bytes: u64,
    /// Whether the file calls it `.zdebug_…`, as older binutils do with what they compress.
    pub(crate) is_zdebug: bool,
}

impl Section {
    /// Gives it the name that the file has for it; all others go by the usual one.
    fn call(&mut self, name: &str) {
        let usual = name.strip_prefix(".zdebug_");
        self.is_zdebug = usual.is_some();
        self.name = usual.map_or_else(|| name.to_owned(), |rest| format!(".debug_{rest}"));
    }

    /// One that no header describes.
    pub(crate) fn without_header(name: &str, kind: elf::SectionType, bytes: u64) -> Section {
        Section {
            name: name.to_owned(),
            is_zdebug: false,
            kind: kind.0,
            flags: elf::SHF_ALLOC.0,
            address: 0,
            offset: 0,
            bytes,
            link: 0,
            entry_bytes: 0,
        }
    }

    fn parse(header: &[u8]) -> Option<(u32, Section)> {
        let section = Section {
            name: String::new(),
            is_zdebug: false,
            kind: u32_at(header, 4)?,
            flags: u64_at(header, 8)?,
            address: u64_at(header, 16)?,
            offset: u64_at(header, 24)?,
            bytes: u64_at(header, 32)?,
            link: u32_at(header, 40)?,
            entry_bytes: u64_at(header, 56)?,
        };
        Some((u32_at(header, 0)?, section))
    }

    /// Whether its bytes are those of the file: it has some, and they are not compressed.
    fn is_as_in_file(&self) -> bool {
        let is_plain = self.flags & elf::SHF_COMPRESSED.0 == 0 && !self.is_zdebug;
        self.kind != elf::SHT_NOBITS.0 && is_plain
    }

    pub(crate) fn is_code(&self) -> bool {
        self.flags & elf::SHF_EXECINSTR.0 != 0
    }

    /// Where the section ends, if it holds code and the address.
    pub(crate) fn code_end(&self, address: u64) -> Option<u64> {
        let end = self.address.checked_add(self.bytes)?;
        (self.is_code() && (self.address..end).contains(&address)).then_some(end)
    }
}

#[derive(Debug)]
pub(crate) struct Elf {
    file: Arc<WatchedFile>,
    path: PathBuf,
    /// Address of the first instruction that runs; zero when there is none.
    pub(crate) entry: u64,
    pub(crate) segments: Vec<Segment>,
    /// Where the path of the dynamic linker is, and its length in bytes.
    pub(crate) interpreter: Option<(u64, u64)>,
    /// Where the executable segments are in memory, also those that hold no byte of the
    /// file: in a debug file, all.
    pub(crate) code: Vec<Range<u64>>,
    pub(crate) sections: Vec<Section>,
}

impl Elf {
    /// Reads the headers of a program or library or, if `objects`, an object file.
    pub(crate) fn open(file: File, label: &Path, objects: bool) -> Result<Elf, SymbolizeError> {
        match WatchedFile::new(file) {
            Ok(file) => Elf::of(file, label, objects),
            Err(source) => Err(SymbolizeError::Unreadable {
                path: label.to_owned(),
                source,
            }),
        }
    }

    /// Reads the headers of a program or library that is in memory.
    pub(crate) fn in_memory(bytes: Vec<u8>, label: &Path) -> Result<Elf, SymbolizeError> {
        Elf::of(WatchedFile::Memory(bytes), label, false)
    }

    fn of(file: WatchedFile, label: &Path, objects: bool) -> Result<Elf, SymbolizeError> {
        let mut elf = Elf {
            file: Arc::new(file),
            path: label.to_owned(),
            entry: 0,
            segments: Vec::new(),
            interpreter: None,
            code: Vec::new(),
            sections: Vec::new(),
        };
        elf.check_size("the file", elf.bytes(), FILE_BYTES_MAX)?;
        let header = elf.header(objects)?;
        elf.entry = u64_at(&header, 24).unwrap_or(0);
        let headers = elf.program_headers(&header)?;
        let headers = headers.chunks_exact(PROGRAM_HEADER_BYTES);
        elf.segments = headers.clone().filter_map(parse_segment).collect();
        elf.interpreter = headers.clone().find_map(headers::interpreter);
        elf.code = headers.clone().filter_map(code_in_memory).collect();
        elf.sections = elf.read_sections(&header)?;
        if elf.has_no_sections() {
            elf.sections = dynamic::sections(&elf, headers);
        }
        Ok(elf)
    }

    /// What it is called in errors.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn try_clone_file(&self) -> io::Result<File> {
        match &*self.file {
            WatchedFile::Open(file, _) => file.try_clone(),
            WatchedFile::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// A shared handle: the file is open as long as one of its holders exists.
    pub(crate) fn share_file(&self) -> Arc<WatchedFile> {
        Arc::clone(&self.file)
    }

    /// The file's length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    pub(crate) fn malformed(&self, why: impl Into<String>) -> SymbolizeError {
        SymbolizeError::Malformed {
            path: self.path.clone(),
            why: why.into(),
        }
    }

    pub(crate) fn check_size(
        &self,
        what: &'static str,
        bytes: u64,
        limit: u64,
    ) -> Result<(), SymbolizeError> {
        if bytes <= limit {
            return Ok(());
        }
        Err(SymbolizeError::TooBig {
            path: self.path.clone(),
            what,
            bytes,
            limit,
        })
    }

    /// Fails if the file was written to since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), SymbolizeError> {
        if self.file.is_unchanged() {
            return Ok(());
        }
        Err(SymbolizeError::Changed {
            path: self.path.clone(),
        })
    }

    /// Fills `out` from the file offset on.
    pub(crate) fn read_into(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    /// The CRC-32 of the whole file.
    pub(crate) fn crc32(&self) -> io::Result<u32> {
        let mut hasher = crc32fast::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        let mut offset = 0;
        while offset < self.file.bytes() {
            let left = self.file.bytes() - offset;
            let length = buffer
                .len()
                .min(usize::try_from(left).unwrap_or(usize::MAX));
            let Some(piece) = buffer.get_mut(..length) else {
                break;
            };
            self.read_into(offset, piece)?;
            hasher.update(piece);
            offset += length as u64;
        }
        Ok(hasher.finalize())
    }

    /// `bytes` bytes from `offset` on, which must be inside the file.
    fn read(&self, what: &str, offset: u64, bytes: u64) -> Result<Vec<u8>, SymbolizeError> {
        self.check_inside(what, offset, bytes)?;
        let mut out = vec![0; bytes as usize];
        self.read_into(offset, &mut out)
            .map_err(|source| self.unreadable(source))?;
        Ok(out)
    }

    fn check_inside(&self, what: &str, offset: u64, bytes: u64) -> Result<(), SymbolizeError> {
        let end = offset.checked_add(bytes);
        match end.is_some_and(|end| end <= self.file.bytes()) {
            true => Ok(()),
            false => Err(self.malformed(format!(
                "{what} lies behind the end of the file (cut short?)"
            ))),
        }
    }

    fn unreadable(&self, source: io::Error) -> SymbolizeError {
        SymbolizeError::Unreadable {
            path: self.path.clone(),
            source,
        }
    }

    /// The file header, of a file that we can use.
    fn header(&self, objects: bool) -> Result<Vec<u8>, SymbolizeError> {
        let start = self.read("the beginning", 0, self.file.bytes().min(512))?;
        if !start.starts_with(&elf::ELFMAG) {
            return Err(SymbolizeError::NotElf {
                path: self.path.clone(),
                what: guess(&start),
            });
        }
        let header = start
            .get(..HEADER_BYTES)
            .ok_or_else(|| self.malformed("the file header is cut short"))?;
        let machine = machine_of(header);
        let wide = header.get(4..6) == Some(&[elf::ELFCLASS64.0, elf::ELFDATA2LSB.0]);
        if !wide || machine != elf::EM_X86_64.0 {
            return Err(SymbolizeError::WrongMachine {
                path: self.path.clone(),
                machine: machine_name(machine, header),
            });
        }
        let kind = u16_at(header, 16).map(elf::FileType);
        let what = match kind {
            Some(elf::ET_EXEC | elf::ET_DYN) => return Ok(header.to_owned()),
            Some(elf::ET_REL) if objects => return Ok(header.to_owned()),
            Some(elf::ET_REL) => "an object file",
            Some(elf::ET_CORE) => "a core dump",
            _ => "an ELF file of an unknown kind",
        };
        Err(SymbolizeError::WrongKind {
            path: self.path.clone(),
            what,
        })
    }

    fn program_headers(&self, header: &[u8]) -> Result<Vec<u8>, SymbolizeError> {
        let offset = u64_at(header, 32).unwrap_or(0);
        let count = u16_at(header, 56).unwrap_or(0);
        if count > SEGMENTS_MAX {
            return Err(self.malformed(format!("it has {count} program headers")));
        }
        if count > 0 && u16_at(header, 54) != Some(PROGRAM_HEADER_BYTES as u16) {
            return Err(self.malformed("its program headers have another size"));
        }
        let bytes = u64::from(count) * PROGRAM_HEADER_BYTES as u64;
        self.read("the program header table", offset, bytes)
    }

    /// Whether a tool has taken all section headers away.
    fn has_no_sections(&self) -> bool {
        let mut sections = self.sections.iter();
        sections.all(|section| section.kind == elf::SHT_NULL.0)
    }

    fn read_sections(&self, header: &[u8]) -> Result<Vec<Section>, SymbolizeError> {
        let offset = u64_at(header, 40).unwrap_or(0);
        if offset == 0 {
            return Ok(Vec::new());
        }
        if u16_at(header, 58) != Some(SECTION_HEADER_BYTES as u16) {
            return Err(self.malformed("its section headers have another size"));
        }
        let what = "the section header table";
        let first = self.read(what, offset, SECTION_HEADER_BYTES as u64)?;
        // Numbers that do not fit into the file header are in section 0.
        let count = match u16_at(header, 60) {
            Some(count) if count != 0 => u64::from(count),
            _ => u64_at(&first, 32).unwrap_or(0),
        };
        let names = match u16_at(header, 62) {
            Some(index) if index != 0xffff => u32::from(index),
            _ => u32_at(&first, 40).unwrap_or(0),
        };
        let bytes = count.saturating_mul(SECTION_HEADER_BYTES as u64);
        self.check_size(what, bytes, SECTION_TABLE_BYTES_MAX)?;
        let table = self.read(what, offset, bytes)?;
        let headers = table.chunks_exact(SECTION_HEADER_BYTES);
        let (name_offsets, mut sections): (Vec<u32>, Vec<Section>) =
            headers.filter_map(Section::parse).unzip();
        let strings = match sections.get(names as usize) {
            Some(section) => self.raw_data(section)?,
            None => Vec::new(),
        };
        for (section, at) in sections.iter_mut().zip(name_offsets) {
            let name = text_at(&strings, at, SECTION_NAME_BYTES_MAX).unwrap_or_default();
            section.call(&String::from_utf8_lossy(name));
        }
        Ok(sections)
    }

    /// The section's bytes as they are in the file.
    fn raw_data(&self, section: &Section) -> Result<Vec<u8>, SymbolizeError> {
        if section.kind == elf::SHT_NOBITS.0 {
            return Ok(Vec::new());
        }
        self.check_size("a section", section.bytes, SECTION_BYTES_MAX)?;
        self.read("a section", section.offset, section.bytes)
    }

    /// The section's bytes, decompressed, to be shared: they are never there twice.
    pub(crate) fn shared_data(&self, section: &Section) -> Result<Arc<[u8]>, SymbolizeError> {
        if !section.is_as_in_file() {
            return Ok(Arc::from(self.data(section)?));
        }
        self.check_size("a section", section.bytes, SECTION_BYTES_MAX)?;
        self.check_inside("a section", section.offset, section.bytes)?;
        let mut data: Arc<[u8]> = std::iter::repeat_n(0, section.bytes as usize).collect();
        let bytes = Arc::get_mut(&mut data).unwrap_or_default();
        self.read_into(section.offset, bytes)
            .map_err(|source| self.unreadable(source))?;
        Ok(data)
    }

    /// Where the section's bytes are in the file, and how many; none when they are not there
    /// as they are.
    pub(crate) fn range_in_file(
        &self,
        section: &Section,
    ) -> Result<Option<(u64, usize)>, SymbolizeError> {
        if !section.is_as_in_file() {
            return Ok(None);
        }
        self.check_inside("a section", section.offset, section.bytes)?;
        let length = usize::try_from(section.bytes);
        Ok(length.ok().map(|length| (section.offset, length)))
    }

    /// The section's bytes, decompressed.
    pub(crate) fn data(&self, section: &Section) -> Result<Vec<u8>, SymbolizeError> {
        let raw = self.raw_data(section)?;
        let compressed = match section.is_zdebug {
            true => zdebug(&raw),
            false if section.flags & elf::SHF_COMPRESSED.0 == 0 => None,
            false => Some(compressed(&raw).map_err(|why| self.malformed(why))?),
        };
        let Some(compressed) = compressed else {
            return Ok(raw);
        };
        // The decoder reserves what is declared: a bomb ends here.
        let declared = compressed.uncompressed_size;
        self.check_size("a compressed section", declared, UNPACKED_BYTES_MAX)?;
        let data = compressed
            .decompress()
            .map_err(|error| self.malformed(error.to_string()))?;
        Ok(data.into_owned())
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The loaded segment that holds the offset; an executable one if there are
    /// several.
    pub(crate) fn segment_of(&self, offset: FileOffset) -> Option<&Segment> {
        let holds = |segment: &&Segment| segment.address_of(offset).is_some();
        let mut holders = self.segments.iter().filter(holds);
        let first = holders.next()?;
        if first.executable {
            return Some(first);
        }
        Some(holders.find(|segment| segment.executable).unwrap_or(first))
    }

    /// The executable segment that holds the address in the file.
    pub(crate) fn code_segment_at(&self, address: Address) -> Option<&Segment> {
        let holds = |segment: &&Segment| segment.offset_of(address).is_some();
        self.segments
            .iter()
            .filter(|segment| segment.executable)
            .find(holds)
    }
}

/// What is in a section that says that it is compressed (ELF gABI, "Section Compression").
fn compressed(raw: &[u8]) -> Result<CompressedData<'_>, &'static str> {
    let parts = raw.split_at_checked(COMPRESSION_HEADER_BYTES);
    let (header, data) = parts.ok_or("a compressed section is cut short")?;
    let format = match u32_at(header, 0).map(elf::CompressionType) {
        Some(elf::ELFCOMPRESS_ZLIB) => CompressionFormat::Zlib,
        Some(elf::ELFCOMPRESS_ZSTD) => CompressionFormat::Zstandard,
        _ => return Err("a section is compressed in an unknown way"),
    };
    Ok(CompressedData {
        format,
        data,
        uncompressed_size: u64_at(header, 8).unwrap_or(u64::MAX),
    })
}

/// What is in a section called `.zdebug_…`: `ZLIB`, its length with the highest byte first, a
/// stream (binutils' `bfd/compress.c`). Without that it is not compressed.
fn zdebug(raw: &[u8]) -> Option<CompressedData<'_>> {
    let (length, data) = raw.strip_prefix(b"ZLIB")?.split_first_chunk()?;
    Some(CompressedData {
        format: CompressionFormat::Zlib,
        data,
        uncompressed_size: u64::from_be_bytes(*length),
    })
}
