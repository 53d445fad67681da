// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files in which a process describes the code that it generates, and the child without
//! privileges that reads them.

use super::Times;
use nsprobe_containers::{open_in, OpenedFile, Process, TargetError};
use nsprobe_worker::{Generated, GeneratedFile, GeneratedName, Worker};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Granularity of the times of files and processes.
const SLACK: Duration = Duration::from_millis(50);

/// Reads the files of a process.
#[derive(Debug)]
pub(super) struct JitReader {
    worker: Worker,
    pub(super) child: Option<Generated>,
    /// Why there will be none any more.
    pub(super) trouble: Option<String>,
    /// The memory that the child takes, as of the last look.
    pub(super) bytes: u64,
}

/// A file that grows, as far as it was read.
#[derive(Debug)]
pub(super) struct Followed {
    kind: GeneratedFile,
    pub(super) path: PathBuf,
    inode: (u64, u64),
    bytes: u64,
    /// Pieces of code that there was no room for.
    pub(super) left_out: u64,
    /// Why it is of no use.
    pub(super) trouble: Option<String>,
    /// Its file system does not answer: it is not asked again.
    pub(super) hangs: bool,
}

impl JitReader {
    pub(super) fn new(worker: &Worker) -> JitReader {
        JitReader {
            worker: worker.clone(),
            child: None,
            trouble: None,
            bytes: 0,
        }
    }

    /// The child, which is started for the first file. An error is permanent.
    fn child(&mut self) -> Result<&mut Generated, String> {
        if let Some(trouble) = &self.trouble {
            return Err(trouble.clone());
        }
        match &mut self.child {
            Some(child) => Ok(child),
            none => {
                let child = Generated::start(&self.worker).map_err(|why| why.to_string());
                Ok(none.insert(child.inspect_err(|why| self.trouble = Some(why.clone()))?))
            }
        }
    }

    /// Asks the child, which is no more when it fails.
    fn ask<T>(
        &mut self,
        ask: impl FnOnce(&mut Generated) -> Result<T, nsprobe_worker::WorkerError>,
    ) -> Result<T, String> {
        let answer = ask(self.child()?);
        answer.map_err(|why| {
            let why = match why {
                nsprobe_worker::WorkerError::Fatal(death) => {
                    format!("the parser {death} on what its process says of it")
                }
                why => why.to_string(),
            };
            (self.child, self.trouble) = (None, Some(why.clone()));
            why
        })
    }

    /// Names the address; `None` if nothing was read.
    pub(super) fn at(
        &mut self,
        address: u64,
        time_ns: u64,
    ) -> Result<Option<GeneratedName>, String> {
        if self.child.is_none() && self.trouble.is_none() {
            return Ok(None);
        }
        self.ask(|child| child.at(address, time_ns)).map(Some)
    }

    /// Looks how much memory the child takes.
    pub(super) fn weigh(&mut self) {
        self.bytes = self.child.as_ref().map_or(0, Generated::memory_bytes);
    }
}

impl Followed {
    pub(super) fn new(kind: GeneratedFile) -> Followed {
        Followed {
            kind,
            path: PathBuf::new(),
            inode: (0, 0),
            bytes: 0,
            left_out: 0,
            trouble: None,
            hangs: false,
        }
    }

    /// A state that changes when more of the file, or another file, was read.
    pub(super) fn state(&self) -> ((u64, u64), u64, bool) {
        (self.inode, self.bytes, self.is_usable())
    }

    pub(super) fn is_usable(&self) -> bool {
        self.trouble.is_none() && self.bytes > 0
    }

    /// Opens the file and has what is new in it read. Returns whether that was all.
    pub(super) fn follow(
        &mut self,
        process: &Process,
        started: Times,
        path: PathBuf,
        reader: &mut JitReader,
    ) -> bool {
        let opened = open_in(process, &path);
        self.path = path;
        self.hangs = matches!(opened, Err(TargetError::TimedOut { .. }));
        let opened = opened.map_err(|error| match error {
            TargetError::NotFound { .. } => format!("no {}", self.path.display()),
            error => error.to_string(),
        });
        let checked = opened.and_then(|opened| check(opened, process, started));
        match checked {
            Ok(opened) => {
                self.trouble = None;
                // Another file, or begun anew.
                if (opened.dev, opened.ino) != self.inode || opened.size < self.bytes {
                    (self.left_out, self.bytes) = (0, 0);
                    self.inode = (opened.dev, opened.ino);
                }
                self.read(&opened, reader)
            }
            // Names read from a deleted file remain valid.
            Err(trouble) if self.bytes == 0 => {
                self.trouble = Some(trouble);
                true
            }
            Err(_) => true,
        }
    }

    fn read(&mut self, opened: &OpenedFile, reader: &mut JitReader) -> bool {
        // An empty file is no reason to start a child; one that was read before must be forgotten.
        if opened.size == self.bytes && reader.child.is_none() {
            return true;
        }
        let (kind, from) = (self.kind, self.bytes);
        let read = reader.ask(|child| child.read(kind, &opened.file, from, opened.size));
        match read {
            Ok(read) => {
                (self.bytes, self.left_out) = (read.to, read.left_out);
                read.is_all
            }
            Err(trouble) => {
                (self.bytes, self.trouble) = (0, Some(trouble));
                true
            }
        }
    }
}

/// Fails with a reason for a file that is not the process's own.
fn check(opened: OpenedFile, process: &Process, started: Times) -> Result<OpenedFile, String> {
    let path = opened.path.display();
    let metadata = opened.file.metadata();
    let metadata = metadata.map_err(|error| format!("cannot look at {path}: {error}"))?;
    let user = process.effective_uid().map_err(|error| error.to_string())?;
    if metadata.uid() != user {
        return Err(format!(
            "{path} belongs to user {}, but the process to {user}",
            metadata.uid()
        ));
    }
    let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
    let written = Duration::new(seconds, metadata.mtime_nsec() as u32);
    if written + SLACK < started.wall {
        return Err(format!("{path} is older than the process"));
    }
    Ok(opened)
}

pub(super) fn tmp(name: String) -> PathBuf {
    Path::new("/tmp").join(name)
}

/// The path of the file of that name that the process has mapped.
pub(super) fn mapped(process: &Process, name: &str) -> Option<PathBuf> {
    let mappings = process.mappings().ok()?.into_iter();
    let mut paths = mappings.filter(|mapping| mapping.ino != 0 && !mapping.deleted);
    paths
        .find(|mapping| mapping.path.file_name().is_some_and(|last| last == name))
        .map(|mapping| mapping.path)
}
