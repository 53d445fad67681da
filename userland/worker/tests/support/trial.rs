// SPDX-License-Identifier: MIT OR Apache-2.0
//! A child that is given hostile files, beside a sound one.

use super::elf::{program, symbols, Section, TEXT};
use super::{file, options, Folder};
use nsprobe_symbolize::{FileOffset, FrameSource, Lookup};
use nsprobe_worker::{Answer, Query, SandboxedBinary, Worker, WorkerError};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// What a child may take for each question; the tests' builds are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);
/// Bytes of memory that a child may have had in use, where there is no reason for more.
pub(crate) const MEMORY_BYTES_MAX: u64 = 200 << 20;

/// A child that has a sound file open, and a place for others.
pub(crate) struct Trial {
    pub(crate) folder: Folder,
    worker: Worker,
    sound: SandboxedBinary,
}

/// The answers to a few questions about a file, or why there are none.
pub(crate) type Outcome = Result<Vec<Answer>, WorkerError>;

fn query(offset: u64) -> Query {
    Query {
        offset: FileOffset(offset),
        lookup: Lookup::Instruction,
    }
}

impl Trial {
    pub(crate) fn new(name: &str) -> Trial {
        let folder = Folder::new(name);
        let mut options = options();
        options.limits.load = PATIENCE;
        options.limits.query = PATIENCE;
        let worker = Worker::start(options).unwrap();
        let sound = program(&symbols(2, &[(b"sound", TEXT, 64)]));
        let path = folder.file("sound", &sound);
        let sound = SandboxedBinary::open(&worker, file(&path), &path).unwrap();
        Trial {
            folder,
            worker,
            sound,
        }
    }

    /// Asks about a file.
    pub(crate) fn of(&self, bytes: &[u8]) -> Outcome {
        // Written anew: another file for the quarantine.
        let path = self.folder.0.join("hostile");
        let _ = fs::remove_file(&path);
        self.at(&self.folder.file("hostile", bytes))
    }

    pub(crate) fn at(&self, path: &Path) -> Outcome {
        let outcome = SandboxedBinary::open(&self.worker, file(path), path).and_then(|object| {
            // The first question reads the debug information.
            object.resolve(query(TEXT))?;
            let offsets = [
                0,
                TEXT,
                TEXT + 1,
                TEXT + 16,
                TEXT + 4095,
                TEXT + 4096,
                u64::MAX,
            ];
            object.resolve_all(&offsets.map(query))
        });
        let _ = SandboxedBinary::open_sections(&self.worker, file(path), path)
            .and_then(|o| o.rows(None, true));
        let answer = self.sound.resolve(query(TEXT + 3)).unwrap();
        assert_eq!(name(&answer), "sound");
        outcome
    }

    /// Most bytes of memory that the child has had in use.
    pub(crate) fn memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.worker.pid().unwrap());
        let status = fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<u64>().unwrap() << 10
    }
}

pub(crate) fn name(answer: &Answer) -> &str {
    &answer.found.as_ref().unwrap().frames[0].function
}

/// A name that the symbol table gives, and what is said of the debug information.
pub(crate) fn note(outcome: &Outcome) -> &str {
    let found = outcome.as_ref().unwrap()[1].found.as_ref().unwrap();
    assert_eq!(
        (found.source, &*found.frames[0].function),
        (FrameSource::Symbols, "code")
    );
    found.note.as_deref().unwrap_or_default()
}

/// Either died of what it was given, or was too slow.
pub(crate) fn assert_fatal(outcome: &Outcome) {
    assert!(matches!(outcome, Err(WorkerError::Fatal(_))), "{outcome:?}");
}

/// A program with one named function and other sections.
pub(crate) fn with(mut sections: Vec<Section>) -> Vec<u8> {
    let at = 2 + sections.len() as u32;
    sections.extend(symbols(at, &[(b"code", TEXT, 4096)]));
    program(&sections)
}
