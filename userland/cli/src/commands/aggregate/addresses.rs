// SPDX-License-Identifier: MIT OR Apache-2.0
//! What addresses in the memory of processes are: variables, where the symbol table of a mapped file
//! names them, else places in files and other memory.

use libnsprobe::Session;
use nsprobe_containers::mappings::Mapping;
use nsprobe_containers::Process;
use nsprobe_symbolize::Segment;
use nsprobe_trace::attach::mapped;
use nsprobe_trace::attach::probes::parsed;
use nsprobe_worker::{ChildLimits, SandboxedBinary, Worker};
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Most processes whose mappings are kept.
const PROCESSES_MAX: usize = 1 << 12;
/// Most files that are kept open.
const FILES_MAX: usize = 64;
/// How long the mappings of a process are believed.
const MAPPINGS_AGE: Duration = Duration::from_millis(500);

/// A file by its device and inode number.
type FileId = (u64, u64);

/// Where an address is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct AddressPlace {
    text: String,
    file: Option<InFile>,
}

/// A place in the memory that a file is mapped to. Distances are from where the file's first byte is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InFile {
    id: FileId,
    distance: u64,
    /// The distance and the offset in the file of the mapping that holds the place, or that it
    /// follows.
    mapping: (u64, u64),
}

/// A mapped file that an address was in.
struct MappedFile {
    /// A descriptor that asks no server.
    place: File,
    path: PathBuf,
    /// Its symbols; none inside if they cannot be read.
    binary: Option<Option<SandboxedBinary>>,
}

/// Knows what addresses are.
pub(super) struct Addresses {
    processes: HashMap<u32, (Instant, Vec<Mapping>)>,
    files: HashMap<FileId, MappedFile>,
    parser: Worker,
}

impl Addresses {
    /// With this parser of files.
    pub(super) fn new(parser: Worker) -> Addresses {
        Addresses {
            processes: HashMap::new(),
            files: HashMap::new(),
            parser,
        }
    }

    /// Where an address of a process is. Waits for no file.
    pub(super) fn find(&mut self, pid: u32, address: u64) -> AddressPlace {
        self.look(pid);
        let all = self.processes.get(&pid).map(|(_, all)| all.as_slice());
        let all = all.unwrap_or_default();
        let bare = |text: String| AddressPlace { text, file: None };
        let Some(at) = all.iter().position(|one| holds(one, address)) else {
            return bare(format!("{address:#x}"));
        };
        if let Some(text) = all.get(at).and_then(|one| special(one, address)) {
            return bare(text);
        }
        let in_file = file_of(all, at).and_then(|of| {
            let first = all.iter().rfind(|one| {
                (one.dev, one.ino) == (of.dev, of.ino)
                    && one.file_offset == 0
                    && one.start <= of.start
            })?;
            Some((of, first.start))
        });
        let Some((of, base)) = in_file else {
            return bare(format!("{address:#x}"));
        };
        let distance = address - base;
        let name = of.path.file_name().unwrap_or_default().to_string_lossy();
        let id = (of.dev, of.ino);
        let place = AddressPlace {
            text: format!("{name}+{distance:#x}"),
            file: Some(InFile {
                id,
                distance,
                mapping: (of.start - base, of.file_offset),
            }),
        };
        if !self.files.contains_key(&id) && self.files.len() < FILES_MAX {
            let file = mapped::locate(pid, of).map(|file| MappedFile {
                place: file,
                path: of.path.clone(),
                binary: None,
            });
            self.files.extend(file.map(|file| (id, file)));
        }
        place
    }

    /// Reads what a process has mapped, if that was not done lately.
    fn look(&mut self, pid: u32) {
        let known = self.processes.get(&pid);
        if known.is_some_and(|(since, _)| since.elapsed() < MAPPINGS_AGE) {
            return;
        }
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        // Of a process that has ended, what was known stays.
        let found = Process::open(pid).and_then(|process| process.mappings());
        if let Ok(found) = found {
            self.processes.insert(pid, (Instant::now(), found));
        }
    }

    /// The name of a place.
    pub(super) fn name(&mut self, session: &Session, place: &AddressPlace) -> String {
        match self.variable(session, place) {
            Some(name) => format!("{name} ({})", place.text),
            None => place.text.clone(),
        }
    }

    fn variable(&mut self, session: &Session, place: &AddressPlace) -> Option<String> {
        let in_file = place.file.as_ref()?;
        let file = self.files.get_mut(&in_file.id)?;
        let parser = &self.parser;
        let binary = file.binary.get_or_insert_with(|| {
            let opened = mapped::open_located(session, &file.place)?;
            parsed::open(parser, ChildLimits::default(), opened, &file.path).ok()
        });
        let binary = binary.as_ref()?;
        let address = address_in(binary.segments(), in_file)?;
        binary.variable_at(address).ok()?
    }
}

fn holds(mapping: &Mapping, address: u64) -> bool {
    (mapping.start..mapping.end).contains(&address)
}

/// Memory that the kernel has a name for.
fn special(mapping: &Mapping, address: u64) -> Option<String> {
    let name = mapping.path.to_str()?;
    let is_known = name.starts_with("[heap") || name.starts_with("[stack");
    is_known.then(|| format!("{address:#x} {name}"))
}

/// The mapping of a file that is this one, or that this one follows without a gap: its `.bss`.
fn file_of(all: &[Mapping], at: usize) -> Option<&Mapping> {
    let own = all.get(at)?;
    if own.ino != 0 {
        return Some(own);
    }
    let before = all.get(at.checked_sub(1)?)?;
    let is_bss = own.path.as_os_str().is_empty() && before.end == own.start && before.writable;
    (is_bss && before.ino != 0).then_some(before)
}

/// The address of a place by its file's own count, if the file is mapped as its headers say.
fn address_in(segments: &[Segment], place: &InFile) -> Option<u64> {
    let bias = |segment: &Segment| segment.address.0.wrapping_sub(segment.file_offset.0);
    let first = segments.iter().min_by_key(|one| one.file_offset.0)?;
    let base = bias(first);
    let (distance, offset) = place.mapping;
    let wanted = base.wrapping_add(distance).wrapping_sub(offset);
    let page = |offset: u64| offset & !0xfff;
    let fits = segments.iter().any(|one| {
        let end = one.file_offset.0.saturating_add(one.file_bytes);
        (page(one.file_offset.0)..end).contains(&offset) && bias(one) == wanted
    });
    fits.then(|| base.wrapping_add(place.distance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nsprobe_symbolize::{Address, FileOffset};

    fn segment(file_offset: u64, address: u64, file_bytes: u64) -> Segment {
        Segment {
            file_offset: FileOffset(file_offset),
            address: Address(address),
            file_bytes,
            executable: false,
            writable: true,
        }
    }

    fn at(distance: u64, mapping: (u64, u64)) -> InFile {
        InFile {
            id: (1, 2),
            distance,
            mapping,
        }
    }

    #[test]
    fn addresses_are_those_of_the_headers() {
        let program = [segment(0, 0, 0x800), segment(0x2df0, 0x3df0, 0x300)];
        // In .data, in the part that is read-only later, and in .bss.
        assert_eq!(
            address_in(&program, &at(0x4010, (0x4000, 0x3000))),
            Some(0x4010)
        );
        assert_eq!(
            address_in(&program, &at(0x3df8, (0x3000, 0x2000))),
            Some(0x3df8)
        );
        assert_eq!(
            address_in(&program, &at(0x5008, (0x4000, 0x3000))),
            Some(0x5008)
        );
        // The same, not position-independent.
        let fixed = [
            segment(0, 0x400000, 0x800),
            segment(0x2df0, 0x403df0, 0x300),
        ];
        assert_eq!(
            address_in(&fixed, &at(0x4010, (0x4000, 0x3000))),
            Some(0x404010)
        );
        // A mapping that the headers do not know.
        assert_eq!(address_in(&program, &at(0x9010, (0x9000, 0x3000))), None);
        assert_eq!(address_in(&[], &at(0, (0, 0))), None);
    }
}
