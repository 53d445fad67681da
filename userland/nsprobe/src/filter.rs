// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which tasks a session traces.

use crate::error::{Error, Result};
use nsprobe_common::abi::{
    self, FILTER_CGROUP, FILTER_CHILDREN, FILTER_COMM, FILTER_NOT_PROGRAM, FILTER_PIDNS,
    FILTER_PIDNS_LIST, FILTER_PIDNS_MAX, FILTER_PIDS, FILTER_PIDS_MAX, FILTER_SELF, FILTER_TIDS,
    FILTER_UID,
};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The traced tasks; conditions are joined by "and".
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
    excluded_program: Option<Arc<File>>,
}

impl Filter {
    /// Only these processes, as the caller's pid namespace numbers them.
    pub fn pids(pids: impl IntoIterator<Item = u32>) -> Filter {
        Filter {
            pids: pids.into_iter().collect(),
            ..Filter::default()
        }
    }

    /// No task: only the opener's own process, which does not count.
    pub fn nothing() -> Filter {
        Filter::pids([std::process::id()])
    }

    /// Only the pid namespace of this id, found through its member `pid`, and those
    /// below it.
    pub fn pid_namespace(pid: u32, id: u64) -> Filter {
        Filter::any_pid_namespace([(pid, id)])
    }

    /// As above, for several namespaces: each is a member's pid, and the id.
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

    /// No samples of tasks that run this program.
    pub fn without_program(mut self, program: File) -> Filter {
        self.excluded_program = Some(Arc::new(program));
        self
    }

    pub(crate) fn request(&self) -> Result<abi::Filter> {
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
                | flag(self.own_process, FILTER_SELF)
                | flag(self.excluded_program.is_some(), FILTER_NOT_PROGRAM),
            program_fd: match &self.excluded_program {
                Some(program) => program.as_raw_fd(),
                None => 0,
            },
            pidns_pid: one.pid,
            pidns_id: one.id,
            cgroup_id: self.cgroup_id.unwrap_or_default(),
            uid: self.uid.unwrap_or_default(),
            comm: self.comm.unwrap_or_default(),
            ..abi::Filter::default()
        })
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
}
