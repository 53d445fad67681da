// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session: filter, probes, counters and objects of one open file.

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::probe::{Probe, ProgramId};
use crate::reader::Reader;
use crate::sys;
use crate::table::{Rows, Table, TableSpec};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nsprobe_common::abi::{
    self, ObjectIdentity, Refusal, SpanOwner, ATTACH_MAX, ATTACH_PARTIAL, CPU_ALL, FREEZE_NOW,
    OBJECT_FD, OBJECT_ROOT, SPAN_OWNERS_MAX,
};
use nsprobe_common::program::Step;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A session with rings.
#[derive(Debug)]
pub struct Session {
    file: File,
}

/// The number of a probe in its session, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeId(pub u32);

pub(crate) fn failed(request: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Request { request, errno }
}

impl Session {
    pub(crate) fn new(file: File) -> Session {
        Session { file }
    }

    /// Sets the traced tasks: once, before the first [`attach`](Self::attach).
    pub fn filter(&mut self, filter: &Filter) -> Result<()> {
        let request = filter.request()?;
        sys::filter(self.file.as_fd(), request, filter).map_err(|errno| match errno {
            Errno::ENOENT => Error::NoCgroup,
            Errno::ESRCH => Error::NoProcess,
            Errno::ESTALE => Error::StaleNamespace(request.pidns_pid),
            errno => failed("FILTER")(errno),
        })
    }

    /// Attaches all of `probes` or none. Ids are in the order of `probes`.
    pub fn attach(&mut self, probes: &[Probe<'_>]) -> Result<Vec<ProbeId>> {
        let answers = self.request_probes(0, probes)?;
        Ok(answers.iter().map(|probe| ProbeId(probe.id)).collect())
    }

    /// Attaches those of `probes` whose place the kernel takes, of the probes of one call all or
    /// none. Ids and errors are in the order of `probes`.
    pub fn attach_possible(&mut self, probes: &[Probe<'_>]) -> Result<Vec<Result<ProbeId>>> {
        let answers = self.request_probes(ATTACH_PARTIAL, probes)?;
        let answer = |(index, probe): (usize, &abi::Probe)| match probe.id {
            0 => Err(Error::Attach {
                index,
                reason: Refusal::from_u32(probe.refused).unwrap_or(Refusal::None),
                errno: Errno::from_raw(probe.error as i32),
            }),
            id => Ok(ProbeId(id)),
        };
        Ok(answers.iter().enumerate().map(answer).collect())
    }

    fn request_probes(&mut self, flags: u32, probes: &[Probe<'_>]) -> Result<Vec<abi::Probe>> {
        if probes.is_empty() {
            return Ok(Vec::new());
        }
        if probes.len() > ATTACH_MAX as usize {
            return Err(Error::Attach {
                index: ATTACH_MAX as usize,
                reason: Refusal::TooMany,
                errno: Errno::ENOSPC,
            });
        }
        let mut requests: Vec<abi::Probe> = probes.iter().map(Probe::request).collect();
        let attached = sys::attach(self.file.as_fd(), flags, &mut requests);
        attached.map_err(|(errno, answer)| Error::Attach {
            index: answer.failed as usize,
            reason: Refusal::from_u32(answer.reason).unwrap_or(Refusal::None),
            errno,
        })?;
        Ok(requests)
    }

    /// Keeps a program, for probes to name.
    pub fn program(&mut self, steps: &[Step], data: &[u8]) -> Result<ProgramId> {
        let id = sys::program(self.file.as_fd(), steps, data);
        id.map(ProgramId).map_err(|(errno, answer)| {
            match (answer.flaw, answer.flaw_step as usize) {
                (0, _) => failed("PROGRAM")(errno),
                (flaw, step) => Error::Program { step, flaw },
            }
        })
    }

    /// Makes a table, for probes to count into.
    pub fn table(&mut self, table: &TableSpec) -> Result<Table> {
        table.make(self.file.as_fd())
    }

    /// All rows of a table, those of one key added up; in no order.
    pub fn rows(&self, table: &Table) -> Result<Rows> {
        table.read(self.file.as_fd())
    }

    /// Takes the rows out of a table that has a key, those of one key added up: what comes later begins
    /// anew. Waits for the hits under way.
    pub fn take_rows(&self, table: &Table) -> Result<Rows> {
        table.take(self.file.as_fd())
    }

    /// Drops the spans of a table whose key begins with one of these words, and that began by its
    /// time (CLOCK_MONOTONIC in nanoseconds); returns how many.
    pub fn drop_spans(&self, table: &Table, owners: &BTreeMap<u64, u64>) -> Result<u64> {
        let owners = owners.iter().map(|(word, latest_ns)| SpanOwner {
            word: *word,
            latest_ns: *latest_ns,
        });
        let owners: Vec<SpanOwner> = owners.collect();
        let mut dropped = 0;
        for some in owners.chunks(SPAN_OWNERS_MAX as usize) {
            let count = sys::drop_spans(self.file.as_fd(), table.id().0, some);
            dropped += count.map_err(failed("DROP_SPANS"))?;
        }
        Ok(dropped)
    }

    /// Whether rings that overwrite are frozen: only a probe can have done it.
    pub fn is_frozen(&self) -> Result<bool> {
        sys::freeze(self.file.as_fd(), 0).map_err(failed("FREEZE"))
    }

    /// Freezes rings that overwrite, permanently: `reader` has the newest records.
    pub fn freeze(&self, reader: &mut Reader) -> Result<()> {
        sys::freeze(self.file.as_fd(), FREEZE_NOW).map_err(failed("FREEZE"))?;
        reader.settle();
        Ok(())
    }

    /// Detaches all of `ids` or none, and waits until their handlers are done.
    pub fn detach(&mut self, ids: &[ProbeId]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
        sys::detach(self.file.as_fd(), &ids).map_err(failed("DETACH"))
    }

    /// For another thread that has to end what this session does.
    pub fn detacher(&self) -> Result<Detacher> {
        let fd = self.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|error| Error::Request {
            request: "DETACH",
            errno: Errno::from_raw(error.raw_os_error().unwrap_or_default()),
        })?;
        Ok(Detacher(fd))
    }

    /// The counters of one probe, over all CPUs.
    pub fn counters(&self, probe: ProbeId) -> Result<Counters> {
        self.counters_of(probe, CPU_ALL)
    }

    /// The counters of one probe on one CPU.
    pub fn counters_on(&self, probe: ProbeId, cpu: u16) -> Result<Counters> {
        self.counters_of(probe, u32::from(cpu))
    }

    fn counters_of(&self, probe: ProbeId, cpu: u32) -> Result<Counters> {
        let answer =
            sys::counters(self.file.as_fd(), probe.0, cpu).map_err(|errno| match errno {
                Errno::ENOENT => Error::NoProbe(probe.0),
                errno => failed("COUNTERS")(errno),
            })?;
        Ok(answer.into())
    }

    /// Which file an object is; `None` when the session has no such object.
    pub fn object(&self, id: u32) -> Result<Option<ObjectIdentity>> {
        match sys::object(self.file.as_fd(), id) {
            Ok(identity) => Ok(Some(identity)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(failed("OBJECT")(errno)),
        }
    }

    /// The frames' words of a stack that records name by its id; `None` for no such stack.
    pub fn stack(&self, id: u32) -> Result<Option<Vec<u64>>> {
        match sys::stack(self.file.as_fd(), id) {
            Ok((words, _)) => Ok(Some(words)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(failed("STACK")(errno)),
        }
    }

    /// The pid namespace, below ours, of the first stack that found no room among those that have
    /// ids.
    pub fn stacks_full_of(&self) -> Result<Option<u64>> {
        match sys::stack(self.file.as_fd(), 0) {
            Ok((_, full)) => Ok(Some(full).filter(|id| *id != 0)),
            // No probe gives stacks ids.
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(failed("STACK")(errno)),
        }
    }

    /// Which file a probe by this descriptor goes into: on overlayfs the one beneath.
    pub fn identify(&self, file: &File) -> Result<ObjectIdentity> {
        let file = sys::file(self.file.as_fd(), file.as_fd());
        Ok(file.map_err(failed("FILE"))?.identity)
    }

    /// Whether a server answers for the file system of a file, which is mapped or open elsewhere.
    /// An `O_PATH` descriptor will do: then no server was asked yet.
    pub fn is_remote(&self, file: &impl AsFd) -> Result<bool> {
        let file = sys::file(self.file.as_fd(), file.as_fd());
        Ok(file.map_err(failed("FILE"))?.remote != 0)
    }

    /// The very file that was mapped, opened from the kernel's own reference,
    /// which is dropped by this: a second claim gives `None`. [`Error::NeedsAnswer`] of a file
    /// whose file system a server answers for.
    pub fn claim(&self, id: u32) -> Result<Option<File>> {
        Ok(self.claim_by(id, OBJECT_FD)?.map(File::from))
    }

    /// The root directory (`O_PATH`) of the process that was first seen with the file, from
    /// the kernel's own reference, which is dropped by this. The process may have ended.
    pub fn claim_root(&self, id: u32) -> Result<Option<OwnedFd>> {
        self.claim_by(id, OBJECT_ROOT)
    }

    /// Releases the kernel's references to an object that the caller does not need: its file and
    /// the root directory, which keep their mounts.
    pub fn let_go(&self, id: u32) -> Result<()> {
        match sys::drop_object(self.file.as_fd(), id) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(failed("OBJECT")(errno)),
        }
    }

    fn claim_by(&self, id: u32, flag: u32) -> Result<Option<OwnedFd>> {
        match sys::claim(self.file.as_fd(), id, flag) {
            Ok(claimed) => Ok(Some(claimed)),
            Err(Errno::ENOENT | Errno::ESTALE) => Ok(None),
            Err(Errno::EREMOTE) => {
                // The kernel shall not keep a container's file open.
                let _ = sys::drop_object(self.file.as_fd(), id);
                Err(Error::NeedsAnswer)
            }
            Err(errno) => Err(failed("OBJECT")(errno)),
        }
    }

    /// Sleeps until a ring has reached its watermark or the time is over; a
    /// signal ends the sleep too. Records below the watermark do not wake, so
    /// look at the rings whatever the answer.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(failed("poll")(errno)),
        }
    }
}

/// Detaches all probes of a session, from any thread. It holds the session open.
#[derive(Debug)]
pub struct Detacher(OwnedFd);

impl Detacher {
    /// Detaches all, and waits until their handlers are done.
    pub fn detach_all(&self) -> Result<()> {
        sys::detach_all(self.0.as_fd()).map_err(failed("DETACH"))
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_sentences() {
        let attach = |reason, errno| {
            Error::Attach {
                index: 0,
                reason,
                errno,
            }
            .to_string()
        };
        assert!(attach(Refusal::OutsideFile, Errno::ENOEXEC).contains("behind the end"));
        assert!(attach(Refusal::Kernel, Errno::EIO).contains("file system"));
        assert!(attach(Refusal::Kernel, Errno::ENOEXEC).contains("instruction"));
    }
}
