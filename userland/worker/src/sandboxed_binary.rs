// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that is queried through a child: the counterpart of `nsprobe_symbolize::Binary`, which
//! parses in the caller's process.

use crate::error::{unreadable, Death, WorkerError};
use crate::protocol::{Facts, Form, Query, Reply, Reported, Request, SourceFrames, QUERIES_MAX};
use crate::quarantine::FileKey;
use crate::worker::{Subject, Worker};
use nsprobe_symbolize::{FileOffset, Resolution, Segment, Unresolved};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

/// A file. It is kept open, here and in the child, until it is dropped.
#[derive(Debug)]
pub struct SandboxedBinary {
    worker: Worker,
    subject: Subject,
    facts: Facts,
    /// Why debug files could not be used, as far as is known.
    failures: RefCell<Vec<String>>,
}

/// What is at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its source frames, or why there are none.
    pub found: Result<Resolution, Unresolved>,
    /// Whether a call may end there; none when it is not in code.
    pub is_after_call: Option<bool>,
    /// Where the function begins that it is in, if that has no name and a frame.
    pub function_start: Option<FileOffset>,
}

impl SandboxedBinary {
    /// Has the headers and symbol tables of `file` read, which errors call `label`.
    pub fn open(worker: &Worker, file: File, label: &Path) -> Result<SandboxedBinary, WorkerError> {
        SandboxedBinary::open_as(worker, file, label, Form::Program)
    }

    /// Has the headers alone read: it has no functions.
    pub fn open_sections(
        worker: &Worker,
        file: File,
        label: &Path,
    ) -> Result<SandboxedBinary, WorkerError> {
        SandboxedBinary::open_as(worker, file, label, Form::Sections)
    }

    /// Has a file read of what several debug files share.
    pub fn open_supplementary(
        worker: &Worker,
        file: File,
        label: &Path,
    ) -> Result<SandboxedBinary, WorkerError> {
        SandboxedBinary::open_as(worker, file, label, Form::Supplementary)
    }

    fn open_as(
        worker: &Worker,
        file: File,
        label: &Path,
        form: Form,
    ) -> Result<SandboxedBinary, WorkerError> {
        let subject = Subject {
            number: worker.inner().number(),
            key: FileKey::of(&file)?,
            file,
            label: label.as_os_str().as_bytes().to_vec(),
            form,
            debug: RefCell::default(),
        };
        let facts = worker.inner().open(&subject)?;
        Ok(SandboxedBinary {
            worker: worker.clone(),
            subject,
            facts,
            failures: RefCell::default(),
        })
    }

    /// The worker that answers for it.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Another handle of the file.
    pub fn try_clone_file(&self) -> Result<File, WorkerError> {
        self.subject.file.try_clone().map_err(unreadable)
    }

    /// The build-id that the file claims.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.facts.build_id.as_deref()
    }

    /// Whether it names any function.
    pub fn has_symbols(&self) -> bool {
        self.facts.has_symbols
    }

    /// Whether it holds DWARF.
    pub fn has_debug_info(&self) -> bool {
        self.facts.has_debug_info
    }

    /// All parts that are loaded into memory, in the file's order.
    pub fn segments(&self) -> &[Segment] {
        &self.facts.segments
    }

    /// Why debug files could not be used, as far as they were needed.
    pub fn failures(&self) -> Vec<String> {
        self.failures.borrow().clone()
    }

    /// What is at an offset.
    pub fn resolve(&self, query: Query) -> Result<Answer, WorkerError> {
        let mut answers = self.resolve_all(&[query])?;
        answers.pop().ok_or(WorkerError::Fatal(Death::Nonsense))
    }

    /// What is at some offsets, in the same order: many at once cost less.
    pub fn resolve_all(&self, queries: &[Query]) -> Result<Vec<Answer>, WorkerError> {
        let mut answers = Vec::with_capacity(queries.len());
        for queries in queries.chunks(QUERIES_MAX) {
            let begun = Instant::now();
            let mut left = queries;
            while !left.is_empty() {
                let more = self.resolve_some(left)?;
                left = left.get(more.len()..).unwrap_or_default();
                answers.extend(more);
                self.check_time(begun)?;
            }
        }
        Ok(answers)
    }

    /// What is at the first of some offsets: as many as the child comes to.
    fn resolve_some(&self, queries: &[Query]) -> Result<Vec<Answer>, WorkerError> {
        let request = Request::Resolve {
            object: self.subject.number,
            queries: queries.to_vec(),
        };
        let Reply::Answers { answers, failures } = self.ask(&request)? else {
            return Err(self.distrust());
        };
        let answers = answers.into_iter().map(|one| self.answer(one));
        let answers: Option<Vec<Answer>> = answers.collect();
        let is_some = |answers: &Vec<Answer>| (1..=queries.len()).contains(&answers.len());
        let Some(answers) = answers.filter(is_some) else {
            return Err(self.distrust());
        };
        if let Some(failures) = failures {
            self.failures.replace(failures);
        }
        Ok(answers)
    }

    /// Fails when a batch takes too long although each of its places is answered in time.
    fn check_time(&self, begun: Instant) -> Result<(), WorkerError> {
        let mut inner = self.worker.inner();
        let limit = inner.options().limits.load;
        match begun.elapsed() > limit {
            true => Err(inner.quarantine(&self.subject, Death::Hung(limit))),
            false => Ok(()),
        }
    }

    /// What the child reports; none when it names a file that it was not given.
    fn answer(&self, reported: Reported) -> Option<Answer> {
        Some(Answer {
            found: match reported.found {
                Ok(told) => Ok(self.resolution(told)?),
                Err(why) => Err(why),
            },
            is_after_call: reported.is_after_call,
            function_start: reported.function_start,
        })
    }

    fn resolution(&self, told: SourceFrames) -> Option<Resolution> {
        Some(Resolution {
            frames: told.frames,
            source: told.source,
            from: self.names_from(told.holder)?,
            note: told.note,
        })
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    pub(crate) fn ask(&self, request: &Request) -> Result<Reply, WorkerError> {
        self.worker.inner().ask(&self.subject, request)
    }

    /// Forgets what debug files were the reason of.
    pub(crate) fn forget_failures(&self) {
        self.failures.take();
    }

    /// Asks about the file no more: what was answered cannot be.
    pub(crate) fn distrust(&self) -> WorkerError {
        self.worker.inner().distrust(&self.subject)
    }
}

impl Drop for SandboxedBinary {
    fn drop(&mut self) {
        self.worker.inner().close(self.subject.number);
    }
}
