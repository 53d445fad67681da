// SPDX-License-Identifier: MIT OR Apache-2.0
//! A look at the memory of all processes that have a probed file mapped.

use nsprobe_containers::{all_processes, Mapping, Process};
use nsprobe_symbolize::FileOffset;
use nsprobe_trace::attach::mapped::{self, Mapped};
use nsprobe_trace::attach::probes::{Planned, PlannedProbe};
use nsprobe_trace::attach::target::view::was_at;
use nsprobe_trace::attach::target::Target;
use nsprobe_trace::names::build_id;
use nsprobe_trace::names::probed_file::ProbedFile;
use std::collections::HashSet;
use std::fs::File;
use std::iter;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Bytes that are compared.
const BYTES: usize = 6;
/// `int3`.
const BREAKPOINT: u8 = 0xcc;
/// The code to which the kernel changes a ten-byte nop once it was hit (`is_optimized` of
/// `arch/x86/kernel/uprobes.c`): `lea -0x80(%rsp), %rsp`, and a call.
const OPTIMISED: [u8; BYTES] = [0x48, 0x8d, 0x64, 0x24, 0x80, 0xe8];

/// A place of a probe in a process.
#[derive(Debug)]
pub(super) struct Seen {
    /// Index into the planned probes.
    pub(super) probe: usize,
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) look: Look,
}

/// State of a probe's place in a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The breakpoint is there.
    Armed,
    /// No breakpoint, and the process is not traced.
    LeftOut,
    /// No breakpoint, although the process is traced.
    Missing(AtBreakpoint),
}

/// What is in place of the breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtBreakpoint {
    /// The mapping is shared.
    Shared,
    /// The mapping is writable.
    Writable,
    /// It is another file that says the same build-id.
    OtherFile,
    /// Other code than in the file.
    Changed,
    /// The memory cannot be read.
    Unreadable,
    /// A file that was at the path of the probed one before.
    Replaced,
    /// The file's code, and nothing that explains it.
    Bare,
}

/// Looks at all processes; those that end meanwhile are not there.
pub(super) fn everywhere(planned: &Planned, target: &Target) -> anyhow::Result<Vec<Seen>> {
    let traced = Traced::of(target)?;
    let mapped = Target::Host.mapped()?;
    let mut all = Vec::new();
    for pid in all_processes()? {
        let Ok(process) = Process::open(pid) else {
            continue;
        };
        let Ok(mappings) = process.mappings() else {
            continue;
        };
        let looked = Looked {
            process: &process,
            mapped: &mapped,
            memory: File::open(format!("/proc/{pid}/mem")).ok(),
            is_traced: traced.has(pid),
            sees_files: traced.shares_files(&process),
        };
        for (index, file) in planned.files.iter().enumerate() {
            for mapping in &mappings {
                looked.mapping(planned, index, file, mapping, &mut all);
            }
        }
        if !process.still_same() {
            all.retain(|seen| seen.pid != pid);
        }
    }
    Ok(all)
}

/// The traced processes.
enum Traced {
    /// All processes that see files as we do, in this mount namespace.
    All(Option<u64>),
    These(HashSet<u32>),
}

impl Traced {
    fn of(target: &Target) -> anyhow::Result<Traced> {
        Ok(match target {
            Target::Host | Target::Command(_) => {
                let ours = Process::open(std::process::id())?;
                Traced::All(ours.mount_namespace().ok())
            }
            Target::Processes(all) => Traced::These(all.iter().map(Process::pid).collect()),
            Target::Group(group) => {
                let mut pids = HashSet::new();
                for container in &group.members {
                    pids.extend(container.processes()?);
                }
                Traced::These(pids)
            }
            Target::Container(container) => {
                Traced::These(container.processes()?.into_iter().collect())
            }
        })
    }

    /// Whether a traced process has the probed files at their paths.
    fn shares_files(&self, process: &Process) -> bool {
        match self {
            Traced::All(ours) => ours.is_some() && process.mount_namespace().ok() == *ours,
            Traced::These(_) => true,
        }
    }

    fn has(&self, pid: u32) -> bool {
        pid != std::process::id()
            && match self {
                Traced::All(_) => true,
                Traced::These(pids) => pids.contains(&pid),
            }
    }
}

/// A process that is looked at.
struct Looked<'a> {
    process: &'a Process,
    mapped: &'a Mapped,
    memory: Option<File>,
    is_traced: bool,
    /// Whether the paths of the probed files lead it to the same files.
    sees_files: bool,
}

impl Looked<'_> {
    /// Looks at the places of a file's probes in a mapping.
    fn mapping(
        &self,
        planned: &Planned,
        index: usize,
        file: &ProbedFile,
        mapping: &Mapping,
        all: &mut Vec<Seen>,
    ) {
        let own = |probe: &&PlannedProbe| probe.file == Some(index);
        let places = planned.probes.iter().enumerate();
        let places = places
            .filter(|(_, probe)| own(probe))
            .flat_map(|(at, probe)| {
                let breakpoints = super::breakpoints(probe);
                breakpoints.into_iter().map(move |offset| (at, offset))
            });
        let places: Vec<(usize, FileOffset, u64)> = places
            .filter_map(|(at, offset)| Some((at, offset, mapping.address_of(offset.0)?)))
            .collect();
        let is_other = match places.is_empty() || !may_be(file, mapping) {
            true => None,
            false => self.is_other_file(planned, file, mapping),
        };
        let is_replaced = is_other != Some(false) && self.is_replaced(planned, file, mapping);
        if is_other.is_none() && !is_replaced {
            return;
        }
        let comm = self.process.comm().unwrap_or_default();
        let seen = |probe: usize, look: Look| Seen {
            probe,
            pid: self.process.pid(),
            comm: comm.clone(),
            look,
        };
        match is_other.filter(|_| !is_replaced) {
            Some(is_other) => all.extend(places.into_iter().map(|(probe, offset, address)| {
                seen(probe, self.look(file, mapping, is_other, offset, address))
            })),
            None => {
                let probes = planned.probes.iter().enumerate();
                let own = probes.filter(|(_, probe)| own(probe));
                all.extend(
                    own.map(|(probe, _)| seen(probe, Look::Missing(AtBreakpoint::Replaced))),
                );
            }
        }
    }

    /// Whether the mapping is of code in a file without probes that was at the path of the probed
    /// one before.
    fn is_replaced(&self, planned: &Planned, file: &ProbedFile, mapping: &Mapping) -> bool {
        self.is_traced
            && self.sees_files
            && was_at(mapping, &file.file, &file.path)
            && !self.is_one_of(planned.probed(), mapping)
    }

    /// Whether the mapping is of one of these files. For code, the module reports the file; for the
    /// rest, a link does.
    fn is_one_of<'b>(
        &self,
        mut files: impl Iterator<Item = &'b ProbedFile>,
        mapping: &Mapping,
    ) -> bool {
        match self.mapped.id(self.process.pid(), mapping) {
            Some(id) => files.any(|file| file.id == id),
            None => {
                let metadata = std::fs::metadata(self.link(mapping));
                metadata.is_ok_and(|at| files.any(|file| file.is_at(at.dev(), at.ino())))
            }
        }
    }

    /// A link to the file that is mapped, or is at its path in an overlay.
    fn link(&self, mapping: &Mapping) -> String {
        mapped::link(self.process.pid(), mapping)
    }

    /// Whether the mapping is of another file with the same build-id; `None` if the file is
    /// unrelated to the probed one, or has probes of its own.
    fn is_other_file(
        &self,
        planned: &Planned,
        file: &ProbedFile,
        mapping: &Mapping,
    ) -> Option<bool> {
        if self.is_one_of(iter::once(file), mapping) {
            return Some(false);
        }
        if self.is_one_of(planned.probed(), mapping) {
            return None;
        }
        let other = build_id::of(&self.mapped.open_linked(self.process.pid(), mapping)?)?;
        let same = file.build_id.as_ref() == Some(&other);
        same.then_some(true)
    }

    fn look(
        &self,
        file: &ProbedFile,
        mapping: &Mapping,
        is_other: bool,
        offset: FileOffset,
        address: u64,
    ) -> Look {
        let (mut found, mut original) = ([0; BYTES], [0; BYTES]);
        let in_file = file.file.read_at(&mut original, offset.0);
        let in_memory = self
            .memory
            .as_ref()
            .map(|memory| memory.read_at(&mut found, address));
        let is_read = matches!((in_file, in_memory), (Ok(1..), Some(Ok(1..))));
        if is_read && is_armed(found, original) {
            return Look::Armed;
        }
        if !self.is_traced {
            return Look::LeftOut;
        }
        Look::Missing(match is_read {
            _ if is_other => AtBreakpoint::OtherFile,
            _ if mapping.shared => AtBreakpoint::Shared,
            _ if mapping.writable => AtBreakpoint::Writable,
            false => AtBreakpoint::Unreadable,
            true if found[0] != original[0] => AtBreakpoint::Changed,
            true => AtBreakpoint::Bare,
        })
    }
}

/// Whether a breakpoint, or the kernel's replacement for one, is in place of an instruction.
fn is_armed(found: [u8; BYTES], original: [u8; BYTES]) -> bool {
    let [now, ..] = found;
    let [before, ..] = original;
    now == BREAKPOINT && now != before || found == OPTIMISED && found != original
}

/// Whether a mapping may be of the probed file or of a copy: opening the file itself is expensive.
fn may_be(file: &ProbedFile, mapping: &Mapping) -> bool {
    let same_name = mapping.path.file_name() == file.path.file_name();
    same_name || file.has_inode(mapping.ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoints_and_calls_are_told_from_code() {
        let push = [0x55, 0x48, 0x89, 0xe5, 0xc3, 0x90];
        assert!(!is_armed(push, push));
        assert!(is_armed([BREAKPOINT, 0x48, 0x89, 0xe5, 0xc3, 0x90], push));
        let nop = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0];
        assert!(is_armed(OPTIMISED, nop));
        // Breakpoints of the program itself are not ours.
        assert!(!is_armed(OPTIMISED, OPTIMISED));
        assert!(!is_armed([BREAKPOINT; BYTES], [BREAKPOINT; BYTES]));
        assert!(!is_armed([0x90, 0x48, 0x89, 0xe5, 0xc3, 0x90], push));
    }
}
