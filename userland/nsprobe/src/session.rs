// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session: filter, probes, counters and objects of one open file.

use crate::error::{Error, Result};
use crate::probe::{Probe, ProgramId};
use crate::reader::Reader;
use crate::sys;
use crate::table::{Rows, Table, TableSpec};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nsprobe_common::abi::{
    self, ObjectIdentity, Refusal, ATTACH_MAX, CPU_ALL, FILTER_CGROUP, FILTER_CHILDREN,
    FILTER_COMM, FILTER_PIDNS, FILTER_PIDNS_LIST, FILTER_PIDNS_MAX, FILTER_PIDS, FILTER_PIDS_MAX,
    FILTER_SELF, FILTER_TIDS, FILTER_UID, FREEZE_NOW, OBJECT_FD, OBJECT_ROOT,
};
use nsprobe_common::program::Step;
use serde::{Deserialize, Serialize};
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

/// Who is traced; conditions are joined by "and".
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub(crate) pids: Vec<u32>,
    pub(crate) tids: Vec<u32>,
    pub(crate) pid_namespaces: Vec<abi::PidNamespace>,
    cgroup_id: Option<u64>,
    uid: Option<u32>,
    comm: Option<[u8; 16]>,
    children: bool,
    own_process: bool,
}

impl Filter {
    /// Only these processes, as the caller's pid namespace numbers them.
    pub fn pids(pids: impl IntoIterator<Item = u32>) -> Filter {
        Filter {
            pids: pids.into_iter().collect(),
            ..Filter::default()
        }
    }

    /// Only the pid namespace of this id, found through its member `pid`, and those
    /// below it.
    pub fn pid_namespace(pid: u32, id: u64) -> Filter {
        Filter::any_pid_namespace([(pid, id)])
    }

    /// The same for several: each is a member's pid, and the id.
    pub fn any_pid_namespace(all: impl IntoIterator<Item = (u32, u64)>) -> Filter {
        let named = |(pid, id)| abi::PidNamespace {
            pid,
            id,
            ..abi::PidNamespace::default()
        };
        Filter {
            pid_namespaces: all.into_iter().map(named).collect(),
            ..Filter::default()
        }
    }

    /// Only these threads, as the caller's pid namespace numbers them; instead of
    /// processes.
    pub fn with_threads(mut self, tids: impl IntoIterator<Item = u32>) -> Filter {
        self.pids = Vec::new();
        self.tids = tids.into_iter().collect();
        self
    }

    /// What listed processes and threads fork from now on counts, too.
    pub fn with_children(mut self) -> Filter {
        self.children = true;
        self
    }

    /// Only tasks of this effective user, as the initial user namespace numbers it.
    pub fn with_uid(mut self, uid: u32) -> Filter {
        self.uid = Some(uid);
        self
    }

    /// Only threads of this name; `None` when no thread can have it: it has 15 bytes at
    /// most, and no NUL.
    pub fn with_comm(mut self, name: &[u8]) -> Option<Filter> {
        let mut comm = [0; 16];
        let fits = (1..=15).contains(&name.len()) && !name.contains(&0);
        comm.get_mut(..name.len())?.copy_from_slice(name);
        self.comm = Some(comm);
        fits.then_some(self)
    }

    /// Only tasks in the control group (cgroup v2) whose directory has this inode
    /// number, and in those below it.
    pub fn with_cgroup(mut self, id: u64) -> Filter {
        self.cgroup_id = Some(id);
        self
    }

    /// The id of the control group that it asks for, if it does.
    pub fn cgroup(&self) -> Option<u64> {
        self.cgroup_id
    }

    /// The opener's own process counts too.
    pub fn with_own_process(mut self) -> Filter {
        self.own_process = true;
        self
    }

    fn request(&self) -> Result<abi::Filter> {
        let listed = self.pids.len().max(self.tids.len());
        if listed > FILTER_PIDS_MAX as usize {
            return Err(Error::FilterSize(listed));
        }
        if self.pid_namespaces.len() > FILTER_PIDNS_MAX as usize {
            return Err(Error::FilterNamespaces(self.pid_namespaces.len()));
        }
        let (one, is_list) = match self.pid_namespaces.as_slice() {
            [one] => (*one, false),
            all => (abi::PidNamespace::default(), !all.is_empty()),
        };
        let flag = |set, flag| if set { flag } else { 0 };
        Ok(abi::Filter {
            flags: flag(!self.pids.is_empty(), FILTER_PIDS)
                | flag(one.id != 0, FILTER_PIDNS)
                | flag(is_list, FILTER_PIDNS_LIST)
                | flag(!self.tids.is_empty(), FILTER_TIDS)
                | flag(self.children, FILTER_CHILDREN)
                | flag(self.cgroup_id.is_some(), FILTER_CGROUP)
                | flag(self.uid.is_some(), FILTER_UID)
                | flag(self.comm.is_some(), FILTER_COMM)
                | flag(self.own_process, FILTER_SELF),
            pidns_pid: one.pid,
            pidns_id: one.id,
            cgroup_id: self.cgroup_id.unwrap_or_default(),
            uid: self.uid.unwrap_or_default(),
            comm: self.comm.unwrap_or_default(),
            ..abi::Filter::default()
        })
    }
}

/// A probe's hits by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Times the breakpoint was hit.
    pub hits: u64,
    /// Hits with a record in a ring.
    pub recorded: u64,
    /// Hits that were counted or went into a table.
    pub aggregated: u64,
    /// Hits of tasks that the filter leaves out.
    pub filtered: u64,
    /// Hits that the probe's program did not require.
    pub rejected: u64,
    /// Of the rejected hits, those where a value was missing that would decide.
    pub undecided: u64,
    /// Hits lost because the ring was full.
    pub lost_full: u64,
    /// Hits for which the table had no row left.
    pub turned_away: u64,
    /// Recorded hits whose stack ended early.
    pub stacks_cut: u64,
    /// Changes that were made.
    pub written: u64,
    /// Changes that could not be made.
    pub write_failed: u64,
    /// Changes that the limit forbade.
    pub write_withheld: u64,
    /// Hits that `every` skipped.
    pub skipped: u64,
    /// Hits beyond the rate.
    pub limited: u64,
    /// Hits after the probe was turned off.
    pub off: u64,
    /// Calls whose returns the kernel does not follow.
    pub too_deep: u64,
    /// Hits while the rings were frozen.
    pub frozen: u64,
    /// Samples of tasks of which nothing can be read.
    pub missed: u64,
    /// Samples that were taken in the kernel, of the hits.
    pub in_kernel: u64,
    /// Samples of idle CPUs, which are no hits.
    pub idle: u64,
    /// Samples of kernel threads, which are no hits.
    pub kernel_threads: u64,
    /// Of all samples, those by the CPU clock.
    pub by_clock: u64,
}

impl Counters {
    /// Whether they are of samples, of which there are some.
    pub fn has_samples(&self) -> bool {
        self.by_clock + self.idle + self.kernel_threads + self.in_kernel + self.missed > 0
    }

    /// Whether every hit is accounted for: the conservation law.
    pub fn balance(&self) -> bool {
        let parts = [
            self.recorded,
            self.aggregated,
            self.filtered,
            self.rejected,
            self.lost_full,
            self.turned_away,
            self.skipped,
            self.limited,
            self.off,
            self.frozen,
            self.missed,
        ];
        let sum: u128 = parts.iter().map(|&part| u128::from(part)).sum();
        u128::from(self.hits) == sum
    }
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.hits += other.hits;
        self.recorded += other.recorded;
        self.aggregated += other.aggregated;
        self.filtered += other.filtered;
        self.rejected += other.rejected;
        self.undecided += other.undecided;
        self.lost_full += other.lost_full;
        self.turned_away += other.turned_away;
        self.stacks_cut += other.stacks_cut;
        self.written += other.written;
        self.write_failed += other.write_failed;
        self.write_withheld += other.write_withheld;
        self.skipped += other.skipped;
        self.limited += other.limited;
        self.off += other.off;
        self.too_deep += other.too_deep;
        self.frozen += other.frozen;
        self.missed += other.missed;
        self.in_kernel += other.in_kernel;
        self.idle += other.idle;
        self.kernel_threads += other.kernel_threads;
        self.by_clock += other.by_clock;
    }
}

pub(crate) fn failed(request: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Request { request, errno }
}

impl Session {
    pub(crate) fn new(file: File) -> Session {
        Session { file }
    }

    /// Says who is traced: once, before the first [`attach`](Self::attach).
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
        sys::attach(self.file.as_fd(), &mut requests).map_err(|(errno, answer)| Error::Attach {
            index: answer.failed as usize,
            reason: Refusal::from_u32(answer.reason).unwrap_or(Refusal::None),
            errno,
        })?;
        Ok(requests.iter().map(|probe| ProbeId(probe.id)).collect())
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

    /// Whether rings that overwrite are frozen: by a probe, as nobody else can.
    pub fn is_frozen(&self) -> Result<bool> {
        sys::freeze(self.file.as_fd(), 0).map_err(failed("FREEZE"))
    }

    /// Freezes rings that overwrite, for good: `reader` has what was recorded last.
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
        Ok(Counters {
            hits: answer.hits,
            recorded: answer.recorded,
            aggregated: answer.aggregated,
            filtered: answer.filtered,
            rejected: answer.rejected,
            undecided: answer.undecided,
            lost_full: answer.lost_full,
            turned_away: answer.turned_away,
            stacks_cut: answer.stacks_cut,
            written: answer.written,
            write_failed: answer.write_failed,
            write_withheld: answer.write_withheld,
            skipped: answer.skipped,
            limited: answer.limited,
            off: answer.off,
            too_deep: answer.too_deep,
            frozen: answer.frozen,
            missed: answer.missed,
            in_kernel: answer.in_kernel,
            idle: answer.idle,
            kernel_threads: answer.kernel_threads,
            by_clock: answer.by_clock,
        })
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
            Ok(words) => Ok(Some(words)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(failed("STACK")(errno)),
        }
    }

    /// Which file a probe by this descriptor goes into: on overlayfs the one beneath.
    pub fn identify(&self, file: &File) -> Result<ObjectIdentity> {
        sys::identify(self.file.as_fd(), file.as_fd()).map_err(failed("FILE"))
    }

    /// The very file that was mapped, opened from the kernel's own reference,
    /// which is dropped by this: a second claim gives `None`.
    pub fn claim(&self, id: u32) -> Result<Option<File>> {
        Ok(self.claim_by(id, OBJECT_FD)?.map(File::from))
    }

    /// The root directory (`O_PATH`) of the process that was first seen with the file, from
    /// the kernel's own reference, which is dropped by this. The process may have ended.
    pub fn claim_root(&self, id: u32) -> Result<Option<OwnedFd>> {
        self.claim_by(id, OBJECT_ROOT)
    }

    /// Lets go of what the kernel holds of an object, for who needs none of it: its file and
    /// the root directory, which keep their mounts.
    pub fn let_go(&self, id: u32) -> Result<()> {
        self.claim(id)?;
        self.claim_root(id)?;
        Ok(())
    }

    fn claim_by(&self, id: u32, flag: u32) -> Result<Option<OwnedFd>> {
        match sys::claim(self.file.as_fd(), id, flag) {
            Ok(claimed) => Ok(Some(claimed)),
            Err(Errno::ENOENT | Errno::ESTALE) => Ok(None),
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

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_says_only_what_was_asked() {
        assert_eq!(Filter::pids([7]).request().unwrap().flags, FILTER_PIDS);
        let request = Filter::pid_namespace(9, 4026532111).request().unwrap();
        assert_eq!(request.flags, FILTER_PIDNS);
        assert_eq!((request.pidns_pid, request.pidns_id), (9, 4026532111));
        assert!(Filter::pids(0..65).request().is_err());
        let several = |count| Filter::any_pid_namespace((1..=count).map(|pid| (pid, pid.into())));
        let request = several(2).request().unwrap();
        assert_eq!(request.flags, FILTER_PIDNS_LIST);
        assert_eq!((request.pidns_pid, request.pidns_id), (0, 0));
        assert!(several(257).request().is_err());
    }

    #[test]
    fn counters_balance_or_not() {
        let mut counters = Counters {
            hits: 10,
            recorded: 6,
            filtered: 1,
            aggregated: 1,
            lost_full: 2,
            stacks_cut: 5,
            ..Counters::default()
        };
        assert!(counters.balance());
        counters += counters;
        assert!(counters.balance());
        counters.hits += 1;
        assert!(!counters.balance());
        // A hit ends as what the interface says, and as nothing else.
        let fields = serde_json::to_value(Counters::default()).unwrap();
        let ends = abi::Counters::default().ends().map(|(name, _)| name);
        for name in fields
            .as_object()
            .unwrap()
            .keys()
            .filter(|name| *name != "hits")
        {
            let one = serde_json::json!({ "hits": 1, name: 1 });
            let one: Counters = serde_json::from_value(one).unwrap();
            assert_eq!(one.balance(), ends.contains(&name.as_str()), "{name}");
        }
    }

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
