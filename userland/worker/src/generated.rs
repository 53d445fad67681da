// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process tells of the code that it generates, read by a child of its own.
//!
//! Such files grow, and a child keeps what it has read of them. Each process gets another
//! child, so that one which takes its child over spoils the names of its own code alone. A
//! child that dies is not replaced: what it knew would have to be read again, and would kill
//! the next one.

use crate::error::{Death, WorkerError};
use crate::process::Process;
use crate::protocol::{Failure, GeneratedFile, GeneratedName, Reply, Request};
use crate::Worker;
use std::fs::File;
use std::os::fd::AsFd;

/// A child for the generated code of one process.
#[derive(Debug)]
pub struct Generated {
    worker: Worker,
    process: Process,
}

/// How far a file was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadUpTo {
    /// Up to where, in bytes.
    pub to: u64,
    /// Whether that is all there was.
    pub is_all: bool,
    /// Pieces of code that there was no room for, in all.
    pub left_out: u64,
}

impl Generated {
    /// Starts one like those of `worker`, whose deaths count together.
    pub fn start(worker: &Worker) -> Result<Generated, WorkerError> {
        let mut inner = worker.inner();
        inner.check_deaths()?;
        let process = Process::start(inner.options()).map_err(WorkerError::NoSandbox)?;
        drop(inner);
        Ok(Generated {
            worker: worker.clone(),
            process,
        })
    }

    /// Reads on in a file from `from`, where it was read up to last time, to `to`, where it
    /// ends now; or as much as is read at a time. From 0 on what was known of it is forgotten.
    pub fn read(
        &mut self,
        kind: GeneratedFile,
        file: &File,
        from: u64,
        to: u64,
    ) -> Result<ReadUpTo, WorkerError> {
        let request = Request::ReadGenerated { kind, from, to };
        match self.ask(&request, Some(file))? {
            Reply::ReadGenerated {
                to: until,
                is_all,
                left_out,
            } if (from..=to).contains(&until) => Ok(ReadUpTo {
                to: until,
                is_all,
                left_out,
            }),
            _ => Err(self.distrust()),
        }
    }

    /// What was at an address at a time (CLOCK_MONOTONIC, in nanoseconds).
    pub fn at(&mut self, address: u64, time_ns: u64) -> Result<GeneratedName, WorkerError> {
        match self.ask(&Request::Generated { address, time_ns }, None)? {
            Reply::Generated(name) if name.holds_at(time_ns) => Ok(name),
            _ => Err(self.distrust()),
        }
    }

    /// Memory that the child takes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.process.memory_bytes().unwrap_or(0)
    }

    /// The child's pid.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn ask(&mut self, request: &Request, file: Option<&File>) -> Result<Reply, WorkerError> {
        let files: Vec<_> = file.map(AsFd::as_fd).into_iter().collect();
        let mut inner = self.worker.inner();
        let limit = inner.patience(inner.options().limits.query);
        let death = match self.process.ask(request, &files, limit) {
            Ok(Reply::Failed(Failure::Panicked)) => Death::Panicked,
            Ok(reply) => return Ok(reply),
            Err(death) => death,
        };
        inner.note_death(death);
        Err(WorkerError::Fatal(death))
    }

    fn distrust(&mut self) -> WorkerError {
        self.worker.inner().note_death(Death::Nonsense);
        WorkerError::Fatal(Death::Nonsense)
    }
}
