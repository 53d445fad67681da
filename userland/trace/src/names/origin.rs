// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the file behind a kernel object id.
//!
//! In the order of trust: the probed file, when it is the same; the file that
//! the kernel holds, which is the very one that was mapped and survives the
//! process; the file at the path of a living mapping. What is found counts only
//! when its build-id is the one that the kernel read from the mapping, or, for
//! files without one, when it is the same inode.

use crate::names::build_id::{build_id, hex};
use crate::names::probed_file::ProbedFile;
use crate::names::search::Owner;
use anyhow::{bail, Context};
use libnsprobe::common::abi::ObjectIdentity;
use libnsprobe::Session;
use nsprobe_containers::{open_in, MountView, Process};
use nsprobe_symbolize::{own_vdso, VDSO};
use nsprobe_worker::{SandboxedBinary, Worker};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where an object's file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is the probed file.
    Probed,
    /// The kernel held it open.
    Kernel,
    /// A living process has it mapped.
    Mapping,
    /// It is the vDSO, of which this process has one of its own.
    Vdso,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Probed => "probed",
            Origin::Kernel => "kernel",
            Origin::Mapping => "mapping",
            Origin::Vdso => "vdso",
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FoundFile {
    pub(crate) object: Rc<SandboxedBinary>,
    pub(crate) path: PathBuf,
    /// Its path as the process that mapped it sees it.
    pub(crate) mapped_path: PathBuf,
    pub(crate) origin: Origin,
}

/// What was pinned of an object, for its reader.
#[derive(Debug)]
pub(crate) struct PinnedObject {
    pub(crate) source: FileSource,
    /// The root directory of the process that was first seen with it.
    root: Option<OwnedFd>,
}

impl PinnedObject {
    /// The owner: the pinned root directory, or the process if it lives; `None` if neither is left.
    pub(crate) fn owner(&self, pid: u32) -> Option<Owner> {
        let root = self.root.as_ref().and_then(|root| root.try_clone().ok());
        match root.map(|root| MountView::of_root(pid, root)) {
            Some(mount_view) => mount_view.ok().map(Owner::Seen),
            None => Process::open(pid).ok().map(Owner::Process),
        }
    }

    /// The path of a file that we hold, which need not be read for that.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match &self.source {
            FileSource::Claimed(file) => Some(path_of(file)),
            FileSource::Probed { path, .. } => Some(path.clone()),
            FileSource::Vdso | FileSource::Process => None,
        }
    }
}

/// Holder of an object's file.
#[derive(Debug)]
pub(crate) enum FileSource {
    /// The kernel, in each program.
    Vdso,
    /// We, since it is probed.
    Probed {
        file: File,
        path: PathBuf,
        mapped_path: PathBuf,
    },
    /// We, since the kernel gave it to us.
    Claimed(File),
    /// A process that has it mapped, if that still lives.
    Process,
}

/// Pins the file of object `id` and its surroundings, without reading any of it.
pub(crate) fn secure(
    session: &Session,
    id: u32,
    identity: &ObjectIdentity,
    probed: &[ProbedFile],
) -> anyhow::Result<PinnedObject> {
    // When the kernel holds none, the process has to live.
    let root = session.claim_root(id).ok().flatten();
    let source = source(session, id, identity, probed)?;
    Ok(PinnedObject { source, root })
}

fn source(
    session: &Session,
    id: u32,
    identity: &ObjectIdentity,
    probed: &[ProbedFile],
) -> anyhow::Result<FileSource> {
    if (identity.dev, identity.ino) == (0, 0) {
        return Ok(FileSource::Vdso);
    }
    // Claimed in any case: the kernel shall not keep a container's file open.
    let claimed = session.claim(id);
    let same = probed
        .iter()
        .find(|probed| is_probed(probed, identity).unwrap_or(false));
    if let Some(probed) = same {
        let mapped_path = claimed.ok().flatten().map(|file| path_of(&file));
        return Ok(FileSource::Probed {
            file: probed.file.try_clone()?,
            path: probed.path.clone(),
            mapped_path: mapped_path.unwrap_or_else(|| probed.path.clone()),
        });
    }
    Ok(claimed?.map_or(FileSource::Process, FileSource::Claimed))
}

/// Finds the file of an object, and has it read.
pub(crate) fn find(
    source: &FileSource,
    identity: &ObjectIdentity,
    worker: &Worker,
) -> anyhow::Result<FoundFile> {
    match source {
        FileSource::Vdso => from_vdso(worker, identity),
        FileSource::Probed {
            file,
            path,
            mapped_path,
        } => Ok(FoundFile {
            object: Rc::new(open(worker, file.try_clone()?, path)?),
            path: path.clone(),
            mapped_path: mapped_path.clone(),
            origin: Origin::Probed,
        }),
        FileSource::Claimed(file) => from_kernel(worker, file.try_clone()?, identity),
        FileSource::Process => from_mapping(worker, identity),
    }
}

fn is_probed(probed: &ProbedFile, identity: &ObjectIdentity) -> anyhow::Result<bool> {
    let metadata = probed.file.metadata()?;
    let claim = build_id(identity);
    let same_id = claim == probed.build_id.as_deref().unwrap_or_default();
    // On overlayfs, stat shows the overlay's device, but the real file's size
    // and times.
    let same_inode = is_same_inode(&metadata, identity);
    let same_change = metadata.size() == identity.file_bytes
        && ctime_ns(&metadata) == identity.ctime_ns
        && !claim.is_empty();
    Ok(same_id && (same_inode || same_change))
}

fn is_same_inode(metadata: &Metadata, identity: &ObjectIdentity) -> bool {
    (metadata.dev(), metadata.ino(), metadata.size())
        == (identity.dev, identity.ino, identity.file_bytes)
}

fn ctime_ns(metadata: &Metadata) -> u64 {
    let seconds = metadata.ctime() as u64;
    seconds
        .wrapping_mul(1_000_000_000)
        .wrapping_add(metadata.ctime_nsec() as u64)
}

/// Has a file read by the process that parses for us.
fn open(worker: &Worker, file: File, path: &Path) -> anyhow::Result<SandboxedBinary> {
    Ok(SandboxedBinary::open(worker, file, path)?)
}

/// The kernel's file is the mapped one by construction; its build-id can still
/// differ, when the process wrote to the mapping or the file was written to.
fn from_kernel(
    worker: &Worker,
    file: File,
    identity: &ObjectIdentity,
) -> anyhow::Result<FoundFile> {
    let path = path_of(&file);
    let object = open(worker, file, &path)?;
    verify(&object, &path, identity)?;
    Ok(FoundFile {
        object: Rc::new(object),
        mapped_path: path.clone(),
        path,
        origin: Origin::Kernel,
    })
}

/// The vDSO of another kind of program (a 32-bit one) has another build-id.
fn from_vdso(worker: &Worker, identity: &ObjectIdentity) -> anyhow::Result<FoundFile> {
    let path = PathBuf::from(VDSO);
    let object = open(worker, own_vdso()?, &path)?;
    verify(&object, &path, identity)?;
    Ok(FoundFile {
        object: Rc::new(object),
        mapped_path: path.clone(),
        path,
        origin: Origin::Vdso,
    })
}

/// The path by which the kernel knows an open file. For one of another mount
/// namespace that is the path in there.
fn path_of(file: &File) -> PathBuf {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = fs::read_link(link).unwrap_or_else(|_| PathBuf::from("(no path)"));
    // What memfd_create(2) makes never has a name in a directory.
    let bytes = path.as_os_str().as_bytes();
    let memfd = bytes
        .starts_with(b"/memfd:")
        .then(|| bytes.strip_suffix(b" (deleted)"));
    match memfd.flatten() {
        Some(name) => PathBuf::from(OsStr::from_bytes(name)),
        None => path,
    }
}

fn verify(object: &SandboxedBinary, path: &Path, identity: &ObjectIdentity) -> anyhow::Result<()> {
    let (claim, own) = (build_id(identity), object.build_id().unwrap_or_default());
    // None was read: the page of the note was not in memory.
    if claim.is_empty() || claim == own {
        return Ok(());
    }
    bail!(
        "{} has the build-id {}, but {} was mapped",
        path.display(),
        if own.is_empty() {
            "none".into()
        } else {
            hex(own)
        },
        hex(claim)
    )
}

/// The file at the path of a mapping of the process that mapped it first.
fn from_mapping(worker: &Worker, identity: &ObjectIdentity) -> anyhow::Result<FoundFile> {
    if identity.pid == 0 {
        bail!("the kernel no longer holds the file, and its process is not known");
    }
    let process = Process::open(identity.pid)
        .context("the kernel no longer holds the file, and it has no process")?;
    let mut paths: Vec<PathBuf> = process
        .mappings()?
        .into_iter()
        .filter(|mapping| mapping.executable && mapping.ino != 0 && !mapping.deleted)
        .map(|mapping| mapping.path)
        .collect();
    paths.dedup();
    paths
        .iter()
        .find_map(|path| at_path(worker, &process, path, identity))
        .with_context(|| format!("process {} has it no longer mapped", identity.pid))
}

fn at_path(
    worker: &Worker,
    process: &Process,
    path: &Path,
    identity: &ObjectIdentity,
) -> Option<FoundFile> {
    let opened = open_in(process, path).ok()?;
    let metadata = opened.file.metadata().ok()?;
    let unchanged =
        metadata.size() == identity.file_bytes && ctime_ns(&metadata) == identity.ctime_ns;
    if !unchanged && !is_same_inode(&metadata, identity) {
        return None;
    }
    let is_certain = is_same_inode(&metadata, identity) || !build_id(identity).is_empty();
    let object = open(worker, opened.file, path).ok()?;
    if !is_certain || verify(&object, path, identity).is_err() {
        return None;
    }
    Some(FoundFile {
        object: Rc::new(object),
        path: path.to_owned(),
        mapped_path: path.to_owned(),
        origin: Origin::Mapping,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{memfd_create, MFdFlags};

    #[test]
    fn memory_that_is_mapped_as_a_file_has_its_name() {
        let file = memfd_create("jit", MFdFlags::MFD_CLOEXEC).expect("there is memory");
        assert_eq!(path_of(&file.into()), Path::new("/memfd:jit"));
    }
}
