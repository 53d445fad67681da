// SPDX-License-Identifier: GPL-2.0-only
//! The request that sets which tasks are traced.

use super::rights::require_capabilities;
use crate::{
    common::abi,
    device::user_struct::{Array, UserStruct},
    filter::{FastFilter, Filter, Followed, Tasks},
    session::Session,
    sys::{
        cgroup::Cgroup,
        estale,
        file_ref::HeldFile,
        memory::GFP_REQUEST,
        namespace_set::NamespaceSet,
        task::{Namespace, Process},
        thread::Thread, //
    }, //
};
use kernel::{
    prelude::*,
    uaccess::UserPtr, //
};

const KNOWN: u32 = abi::FILTER_PIDS
    | abi::FILTER_PIDNS
    | abi::FILTER_PIDNS_LIST
    | abi::FILTER_SELF
    | abi::FILTER_TIDS
    | abi::FILTER_UID
    | abi::FILTER_COMM
    | abi::FILTER_CGROUP
    | abi::FILTER_CHILDREN
    | abi::FILTER_NOT_PROGRAM;

/// `FILTER`.
pub(super) fn set(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let wanted = UserStruct::<abi::Filter>::read(arg)?.value;
    if wanted.flags & !KNOWN != 0 || wanted.reserved2 != 0 {
        return Err(EINVAL);
    }
    let filter = Filter {
        tasks: tasks(&wanted)?,
        followed: followed(&wanted)?,
        namespaces: namespaces(&wanted)?,
        cgroup: cgroup(&wanted)?,
        uid: uid(&wanted)?,
        comm: comm(&wanted)?,
        excluded_program: excluded_program(&wanted)?,
        include_self: wanted.flags & abi::FILTER_SELF != 0,
        fast: FastFilter::NeedsLookup,
    };
    let session_owner = &session.context().session_owner;
    session.set_filter(filter.ready(session_owner))
}

/// `Some` if `flag` is set; otherwise the fields of that flag must be zero.
fn with(wanted: &abi::Filter, flag: u32, is_zero: bool) -> Result<Option<()>> {
    match (wanted.flags & flag != 0, is_zero) {
        (true, _) => Ok(Some(())),
        (false, true) => Ok(None),
        (false, false) => Err(EINVAL),
    }
}

fn excluded_program(wanted: &abi::Filter) -> Result<Option<HeldFile>> {
    let fd = wanted.program_fd;
    match with(wanted, abi::FILTER_NOT_PROGRAM, fd == 0)? {
        None => Ok(None),
        Some(()) => HeldFile::of_fd(u32::try_from(fd).map_err(|_| EBADF)?).map(Some),
    }
}

fn tasks(wanted: &abi::Filter) -> Result<Tasks> {
    let no_pids = wanted.pids == 0 && wanted.pid_count == 0;
    let no_tids = wanted.tids == 0 && wanted.tid_count == 0;
    let pids = with(wanted, abi::FILTER_PIDS, no_pids)?;
    let tids = with(wanted, abi::FILTER_TIDS, no_tids)?;
    let find = |at: u64, count: u32| Array::new(at, 4, count, abi::FILTER_PIDS_MAX);
    match (pids, tids) {
        (None, None) => Ok(Tasks::All),
        (Some(()), None) => {
            let mut all = KVec::new();
            for number in find(wanted.pids, wanted.pid_count)?.read_all::<u32>()? {
                all.push(Process::find(number)?, GFP_REQUEST)?;
            }
            Ok(Tasks::Processes(all))
        }
        (None, Some(())) => {
            let mut all = KVec::new();
            for number in find(wanted.tids, wanted.tid_count)?.read_all::<u32>()? {
                all.push(Thread::find(number)?, GFP_REQUEST)?;
            }
            Ok(Tasks::Threads(all))
        }
        (Some(()), Some(())) => Err(EINVAL),
    }
}

fn followed(wanted: &abi::Filter) -> Result<Option<Followed>> {
    if wanted.flags & abi::FILTER_CHILDREN == 0 {
        return Ok(None);
    }
    // Following children needs a list of tasks: without one every task is traced.
    if wanted.flags & (abi::FILTER_PIDS | abi::FILTER_TIDS) == 0 {
        return Err(EINVAL);
    }
    Followed::new().map(Some)
}

fn namespaces(wanted: &abi::Filter) -> Result<NamespaceSet> {
    let no_one = wanted.pidns_pid == 0 && wanted.pidns_id == 0;
    let no_list = wanted.pidns_list == 0 && wanted.pidns_count == 0;
    let one = with(wanted, abi::FILTER_PIDNS, no_one)?;
    let list = with(wanted, abi::FILTER_PIDNS_LIST, no_list)?;
    let mut all = KVec::new();
    match (one, list) {
        (None, None) => (),
        (Some(()), None) => {
            let one = namespace(wanted.pidns_pid, wanted.pidns_id)?;
            all.push(one, GFP_REQUEST)?;
        }
        (None, Some(())) => {
            let (bytes, max) = (size_of::<abi::PidNamespace>(), abi::FILTER_PIDNS_MAX);
            let at = Array::new(wanted.pidns_list, bytes as u32, wanted.pidns_count, max)?;
            for one in at.read_all::<abi::PidNamespace>()? {
                if one.reserved != 0 {
                    return Err(EINVAL);
                }
                all.push(namespace(one.pid, one.id)?, GFP_REQUEST)?;
            }
        }
        (Some(()), Some(())) => return Err(EINVAL),
    }
    NamespaceSet::new(all)
}

/// The pid namespace of process `pid`, if its id is `id`.
fn namespace(pid: u32, id: u64) -> Result<Namespace> {
    let namespace = Process::find(pid)?.namespace().ok_or(ESRCH)?;
    match namespace.id() == id {
        true => Ok(namespace),
        false => Err(estale()),
    }
}

fn cgroup(wanted: &abi::Filter) -> Result<Option<Cgroup>> {
    let is_zero = wanted.cgroup_id == 0 && wanted.cgroup_fd == 0;
    if with(wanted, abi::FILTER_CGROUP, is_zero)?.is_none() {
        return Ok(None);
    }
    match (wanted.cgroup_id, wanted.cgroup_fd) {
        (0, fd) => Cgroup::from_fd(fd).map(Some),
        (id, 0) => Cgroup::from_id(id).map(Some),
        _ => Err(EINVAL),
    }
}

fn uid(wanted: &abi::Filter) -> Result<Option<u32>> {
    let given = with(wanted, abi::FILTER_UID, wanted.uid == 0)?;
    // No user has this number: the kernel uses it for "none".
    match given.map(|()| wanted.uid) {
        Some(u32::MAX) => Err(EINVAL),
        uid => Ok(uid),
    }
}

fn comm(wanted: &abi::Filter) -> Result<Option<[u8; 16]>> {
    let comm = wanted.comm;
    let is_zero = comm.iter().all(|&byte| byte == 0);
    if with(wanted, abi::FILTER_COMM, is_zero)?.is_none() {
        return Ok(None);
    }
    let mut behind = comm.iter().skip_while(|&&byte| byte != 0);
    let is_padded = comm.last() == Some(&0) && behind.all(|&byte| byte == 0);
    match is_padded {
        true => Ok(Some(comm)),
        false => Err(EINVAL),
    }
}
