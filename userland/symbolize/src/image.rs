// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of an ELF file: headers and sections, read with `pread` into memory
//! of our own, each size capped before anything is allocated for it.

use crate::{Address, Error, FileOffset, Result, Segment};
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::pod::{from_bytes, slice_from_bytes, Pod};
use object::read::{CompressedData, CompressionFormat};
use object::LittleEndian as LE;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// Largest section, as it is in the file or decompressed, in bytes.
const SECTION_BYTES_MAX: u64 = 512 << 20;
/// Most sections of a file.
const SECTIONS_MAX: u32 = 1 << 16;

/// A section, as its header declares it.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) address: u64,
    pub(crate) link: u32,
    offset: u64,
    bytes: u64,
}

impl Section {
    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        self.address..self.address.saturating_add(self.bytes)
    }
}

/// An ELF file and its headers.
#[derive(Debug)]
pub(crate) struct Image {
    file: File,
    path: PathBuf,
    bytes: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) sections: Vec<Section>,
    notes: Vec<(u64, u64)>,
}

impl Image {
    pub(crate) fn open(file: File, path: &Path) -> Result<Image> {
        let metadata = file.metadata().map_err(|source| Error::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let mut image = Image {
            bytes: metadata.len(),
            file,
            path: path.to_owned(),
            segments: Vec::new(),
            sections: Vec::new(),
            notes: Vec::new(),
        };
        image.cap("file", image.bytes, FILE_BYTES_MAX)?;
        image.check_magic()?;
        let header: FileHeader64<LE> = image.read_one(0)?;
        image.check_header(&header)?;
        image.read_segments(&header)?;
        image.read_sections(&header)?;
        Ok(image)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn malformed(&self, why: impl Into<String>) -> Error {
        Error::Malformed {
            path: self.path.clone(),
            why: why.into(),
        }
    }

    fn cap(&self, what: &'static str, bytes: u64, limit: u64) -> Result<()> {
        if bytes <= limit {
            return Ok(());
        }
        Err(Error::TooBig {
            path: self.path.clone(),
            what,
            bytes,
            limit,
        })
    }

    /// `bytes` bytes from `offset` on.
    pub(crate) fn read(&self, what: &'static str, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        self.cap(what, bytes, SECTION_BYTES_MAX)?;
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(self.malformed(format!("the {what} reaches behind the end of the file")));
        }
        let mut data = vec![0; bytes as usize];
        match self.file.read_exact_at(&mut data, offset) {
            Ok(()) => Ok(data),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(Error::Changed {
                    path: self.path.clone(),
                })
            }
            Err(source) => Err(Error::Unreadable {
                path: self.path.clone(),
                source,
            }),
        }
    }

    fn read_one<T: Pod>(&self, offset: u64) -> Result<T> {
        let data = self.read("header", offset, size_of::<T>() as u64)?;
        match from_bytes::<T>(&data) {
            Ok((value, _)) => Ok(*value),
            Err(()) => Err(self.malformed("a header is cut short")),
        }
    }

    fn read_table<T: Pod>(&self, what: &'static str, offset: u64, count: u64) -> Result<Vec<T>> {
        let bytes = count
            .checked_mul(size_of::<T>() as u64)
            .ok_or_else(|| self.malformed(format!("the {what} has no end")))?;
        let data = self.read(what, offset, bytes)?;
        match slice_from_bytes::<T>(&data, count as usize) {
            Ok((values, _)) => Ok(values.to_vec()),
            Err(()) => Err(self.malformed(format!("the {what} is cut short"))),
        }
    }

    fn check_magic(&self) -> Result<()> {
        let head = self.read("file", 0, self.bytes.min(256))?;
        let what = match head.as_slice() {
            [] => "empty",
            [0x7f, b'E', b'L', b'F', ..] => return Ok(()),
            [b'#', b'!', ..] => "a script",
            text if text
                .iter()
                .all(|&byte| byte >= 0x20 || byte.is_ascii_whitespace()) =>
            {
                "a text file"
            }
            _ => "something else",
        };
        Err(Error::NotElf {
            path: self.path.clone(),
            what,
        })
    }

    fn check_header(&self, header: &FileHeader64<LE>) -> Result<()> {
        let ident = &header.e_ident;
        let machine = header.e_machine.get(LE);
        let is_ours = ident.class == elf::ELFCLASS64
            && ident.data == elf::ELFDATA2LSB
            && machine == elf::EM_X86_64;
        if !is_ours {
            return Err(Error::WrongMachine {
                path: self.path.clone(),
                machine: match machine {
                    elf::EM_386 => "32-bit x86".to_owned(),
                    elf::EM_AARCH64 => "64-bit ARM".to_owned(),
                    other => format!("machine {}", other.0),
                },
            });
        }
        let what = match header.e_type.get(LE) {
            elf::ET_EXEC | elf::ET_DYN => return Ok(()),
            elf::ET_REL => "an object file",
            elf::ET_CORE => "a core dump",
            _ => "of an unknown kind",
        };
        Err(Error::WrongKind {
            path: self.path.clone(),
            what,
        })
    }

    fn read_segments(&mut self, header: &FileHeader64<LE>) -> Result<()> {
        let count = header.e_phnum.get(LE).into();
        let table: Vec<ProgramHeader64<LE>> =
            self.read_table("program header table", header.e_phoff.get(LE), count)?;
        for segment in &table {
            let (offset, bytes) = (segment.p_offset.get(LE), segment.p_filesz.get(LE));
            match segment.p_type.get(LE) {
                elf::PT_LOAD => self.segments.push(Segment {
                    file_offset: FileOffset(offset),
                    address: Address(segment.p_vaddr.get(LE)),
                    file_bytes: bytes.min(self.bytes.saturating_sub(offset)),
                    executable: segment.p_flags.get(LE).0 & elf::PF_X.0 != 0,
                }),
                elf::PT_NOTE => self.notes.push((offset, bytes)),
                _ => {}
            }
        }
        Ok(())
    }

    /// A file without a section table, or with a broken one, still has segments.
    fn read_sections(&mut self, header: &FileHeader64<LE>) -> Result<()> {
        let offset = header.e_shoff.get(LE);
        if offset == 0 {
            return Ok(());
        }
        let first: SectionHeader64<LE> = self.read_one(offset)?;
        // Beyond 65,279 sections the count stands in the first header.
        let count = match u64::from(header.e_shnum.get(LE)) {
            0 => first.sh_size.get(LE),
            count => count,
        };
        self.cap("section table", count, SECTIONS_MAX.into())?;
        let table: Vec<SectionHeader64<LE>> = self.read_table("section table", offset, count)?;
        let names = match header.e_shstrndx.get(LE) {
            elf::SHN_XINDEX => first.sh_link.get(LE),
            index => u32::from(index.0),
        };
        let names = match table.get(names as usize) {
            Some(names) => self.read(
                "section names",
                names.sh_offset.get(LE),
                names.sh_size.get(LE),
            )?,
            None => Vec::new(),
        };
        self.sections = table
            .iter()
            .map(|section| Section {
                name: string_at(&names, section.sh_name.get(LE)).to_vec(),
                kind: section.sh_type.get(LE).0,
                flags: section.sh_flags.get(LE).0,
                address: section.sh_addr.get(LE),
                link: section.sh_link.get(LE),
                offset: section.sh_offset.get(LE),
                bytes: section.sh_size.get(LE),
            })
            .collect();
        Ok(())
    }

    /// The first section of that name.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections
            .iter()
            .find(|section| section.name == name.as_bytes())
    }

    /// Where the section of code ends that holds an address; no limit when there
    /// are no sections.
    pub(crate) fn section_end(&self, address: Address) -> u64 {
        let holds = |section: &&Section| {
            section.flags & elf::SHF_EXECINSTR.0 != 0 && section.range().contains(&address.0)
        };
        let found = self.sections.iter().find(holds);
        found.map_or(u64::MAX, |section| section.range().end)
    }

    /// A section's bytes, decompressed.
    pub(crate) fn data(&self, section: &Section) -> Result<Vec<u8>> {
        if section.kind == elf::SHT_NOBITS.0 {
            return Ok(Vec::new());
        }
        let data = self.read("section", section.offset, section.bytes)?;
        if section.flags & elf::SHF_COMPRESSED.0 == 0 {
            return Ok(data);
        }
        self.decompress(&data)
    }

    /// The declared size is capped before anything is reserved for it.
    fn decompress(&self, data: &[u8]) -> Result<Vec<u8>> {
        let (header, rest) = from_bytes::<elf::CompressionHeader64<LE>>(data)
            .map_err(|()| self.malformed("a compressed section has no header"))?;
        let bytes = header.ch_size.get(LE);
        self.cap("decompressed section", bytes, SECTION_BYTES_MAX)?;
        let format = match header.ch_type.get(LE) {
            elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
            elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
            _ => return Err(self.malformed("a section is compressed in an unknown way")),
        };
        let compressed = CompressedData {
            format,
            data: rest,
            uncompressed_size: bytes,
        };
        compressed
            .decompress()
            .map(|data| data.into_owned())
            .map_err(|error| self.malformed(error.to_string()))
    }

    /// The build-id in the file's notes.
    pub(crate) fn build_id(&self) -> Option<Vec<u8>> {
        let found = nsprobe_common::elf_note::find(|offset, out| {
            self.file.read_exact_at(out, offset).is_ok()
        });
        found.ok().map(|id| id.as_bytes().to_vec())
    }

    /// The loaded segment that holds a file offset.
    pub(crate) fn segment_of(&self, offset: FileOffset) -> Option<&Segment> {
        let holds = |segment: &&Segment| {
            let start = segment.file_offset.0;
            (start..start.saturating_add(segment.file_bytes)).contains(&offset.0)
        };
        // Segments may share a page of the file: the code's is the one meant.
        let code = self.segments.iter().find(|s| s.executable && holds(s));
        code.or_else(|| self.segments.iter().find(holds))
    }

    /// The file offset of an address, when it lies in an executable segment.
    pub(crate) fn code_offset(&self, address: Address) -> Option<FileOffset> {
        self.segments.iter().find_map(|segment| {
            let into = address.0.checked_sub(segment.address.0)?;
            (segment.executable && into < segment.file_bytes)
                .then(|| FileOffset(segment.file_offset.0 + into))
        })
    }
}

/// The NUL-terminated string at `at`; empty when there is none.
pub(crate) fn string_at(strings: &[u8], at: u32) -> &[u8] {
    let rest = strings.get(at as usize..).unwrap_or(&[]);
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(0);
    &rest[..end]
}
