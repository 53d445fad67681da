// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that processes have mapped, even if other files are at their paths now.
//!
//! The module names them. On overlayfs `/proc/PID/maps` and the links of `/proc/PID/map_files` show
//! the file at the path, which is another one once the mapped file was copied up.

use crate::names::probed_file::FileId;
use anyhow::{bail, Context};
use libnsprobe::common::record::Record;
use libnsprobe::{DumpOptions, Session};
use nix::fcntl::OFlag;
use nsprobe_containers::{open_here, Mapping, OpenedFile, Process};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Most files that one name stands for: a container may map any number.
pub(crate) const FILES_MAX: usize = 64;

/// Files that processes have mapped as code.
pub struct Mapped(Option<Dump>);

/// The mappings as the module reports them.
struct Dump {
    session: Session,
    /// The objects, by process and first address.
    objects: HashMap<(u32, u64), u32>,
    ids: HashMap<u32, FileId>,
    /// The module gives each away once.
    claimed: RefCell<HashMap<u32, File>>,
}

/// A file that processes have mapped.
#[derive(Clone, Debug)]
pub(crate) struct MappedFile {
    pub(crate) id: FileId,
    /// A process that has it, and where.
    pub(crate) pid: u32,
    pub(crate) mapping: Mapping,
    /// Number of processes that have it mapped.
    pub(crate) processes: usize,
}

impl Mapped {
    /// As `/proc` shows it, without the module.
    pub fn by_links() -> Mapped {
        Mapped(None)
    }

    /// The mappings of the processes that pass the filter of a session.
    pub(crate) fn of(session: Session) -> anyhow::Result<Mapped> {
        let dump = session.dump_tasks(DumpOptions {
            mappings: true,
            args: false,
        })?;
        let mut objects = HashMap::new();
        for record in dump.records() {
            let Record::Mappings(process, all) = record else {
                continue;
            };
            let known = all.iter().filter(|mapping| mapping.object != 0);
            objects.extend(known.map(|mapping| ((process.pid, mapping.start), mapping.object)));
        }
        let mut ids = HashMap::new();
        for &object in objects.values() {
            if let (false, Some(identity)) = (ids.contains_key(&object), session.object(object)?) {
                ids.insert(object, identity.into());
            }
        }
        Ok(Mapped(Some(Dump {
            session,
            objects,
            ids,
            claimed: RefCell::default(),
        })))
    }

    /// Whether the module named the files.
    pub(crate) fn is_by_module(&self) -> bool {
        self.0.is_some()
    }

    /// The file that a mapping is of; `None` when it is not known.
    pub fn id(&self, pid: u32, mapping: &Mapping) -> Option<FileId> {
        match &self.0 {
            Some(dump) => match dump.object(pid, mapping) {
                Some(object) => dump.ids.get(&object).copied(),
                // It was mapped later, or the module's table was full.
                None => Some(
                    dump.session
                        .identify(&self.open_linked(pid, mapping)?)
                        .ok()?
                        .into(),
                ),
            },
            None => {
                let metadata = fs::metadata(link(pid, mapping)).ok()?;
                Some(FileId::of_stat(metadata.dev(), metadata.ino()))
            }
        }
    }

    /// Opens what a mapping links to, if the module says that this asks no server.
    pub fn open_linked(&self, pid: u32, mapping: &Mapping) -> Option<File> {
        open(&self.0.as_ref()?.session, pid, mapping)
    }

    /// The identity of a file that was opened.
    pub(crate) fn id_of(&self, opened: &OpenedFile) -> anyhow::Result<FileId> {
        Ok(match &self.0 {
            Some(dump) => dump.session.identify(&opened.file)?.into(),
            None => FileId::of_stat(opened.dev, opened.ino),
        })
    }

    /// The files of the mappings of these processes that `is_meant` accepts, each once.
    pub(crate) fn files(
        &self,
        pids: &[u32],
        is_meant: impl Fn(&Mapping) -> bool,
    ) -> Vec<MappedFile> {
        let mut files: Vec<MappedFile> = Vec::new();
        for &pid in pids {
            // A process that has ended maps nothing.
            let mappings = Process::open(pid).and_then(|process| process.mappings());
            let mut own = Vec::new();
            for mapping in mappings.unwrap_or_default() {
                let is_code = mapping.executable && mapping.ino != 0;
                let Some(id) = (is_code && is_meant(&mapping))
                    .then(|| self.id(pid, &mapping))
                    .flatten()
                else {
                    continue;
                };
                if own.contains(&id) {
                    continue;
                }
                own.push(id);
                if let Some(known) = files.iter_mut().find(|file| file.id == id) {
                    known.processes += 1;
                } else if files.len() < FILES_MAX {
                    files.push(MappedFile {
                        id,
                        pid,
                        mapping,
                        processes: 1,
                    });
                }
            }
        }
        files
    }

    /// Opens a mapped file, which the target knows by `path`.
    pub(crate) fn open(&self, mapped: &MappedFile, path: &Path) -> anyhow::Result<OpenedFile> {
        let (pid, mapping) = (mapped.pid, &mapped.mapping);
        let Some(dump) = &self.0 else {
            let opened = open_here(Path::new(&link(pid, mapping)))?;
            return Ok(OpenedFile {
                path: path.to_owned(),
                ..opened
            });
        };
        let file = match dump.object(pid, mapping) {
            Some(object) => dump.claim(object),
            None => self.open_linked(pid, mapping).context("it is not known"),
        };
        let file = file.with_context(|| {
            let path = path.display();
            format!("cannot open the file that process {pid} has mapped from {path}")
        })?;
        let metadata = file.metadata()?;
        let opened = OpenedFile {
            path: path.to_owned(),
            dev: metadata.dev(),
            ino: metadata.ino(),
            size: metadata.size(),
            file,
        };
        if self.id_of(&opened)? != mapped.id {
            bail!("{} is being replaced", path.display());
        }
        Ok(opened)
    }
}

impl Dump {
    fn object(&self, pid: u32, mapping: &Mapping) -> Option<u32> {
        self.objects.get(&(pid, mapping.start)).copied()
    }

    fn claim(&self, object: u32) -> anyhow::Result<File> {
        let mut claimed = self.claimed.borrow_mut();
        if let Some(file) = claimed.get(&object) {
            return Ok(file.try_clone()?);
        }
        let file = self.session.claim(object)?.context("it is gone")?;
        claimed.insert(object, file.try_clone()?);
        Ok(file)
    }
}

/// Opens a mapped file, if that asks no server: not even a signal ends a wait for one.
pub fn open(session: &Session, pid: u32, mapping: &Mapping) -> Option<File> {
    open_located(session, &locate(pid, mapping)?)
}

/// A descriptor of a mapped file that asks no server, and cannot be read.
pub fn locate(pid: u32, mapping: &Mapping) -> Option<File> {
    let mut options = File::options();
    options.read(true).custom_flags(OFlag::O_PATH.bits());
    options.open(link(pid, mapping)).ok()
}

/// Opens what [`locate`] has found, if that asks no server.
pub fn open_located(session: &Session, place: &File) -> Option<File> {
    // What is no regular file has no answer.
    match session.is_remote(place) {
        Ok(false) => File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok(),
        _ => None,
    }
}

/// A link to a mapped file.
pub fn link(pid: u32, mapping: &Mapping) -> String {
    format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        mapping.start, mapping.end
    )
}
