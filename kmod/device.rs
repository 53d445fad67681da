// SPDX-License-Identifier: GPL-2.0-only
//! Turns requests of user space into calls of the session.
//!
//! The files below check the flags, reserved fields and sizes of requests; the session and
//! `probe::request` check what depends on files, programs and other requests. Opening needs
//! CAP_PERFMON and CAP_SYS_PTRACE, or CAP_SYS_ADMIN, in the initial user namespace. A request that
//! adds to what a session sees checks the capabilities of its caller again: a process that was
//! given the file gets no rights with it.

mod filter;
mod objects;
mod probes;
mod rights;
mod tables;
mod tasks;
pub(crate) mod user_struct;

use crate::{
    common::abi::{self, Info, Setup, Version},
    device::{
        rights::require_capabilities,
        user_struct::UserStruct, //
    },
    session::Session,
    sys::{
        fops::Driver,
        memory::GFP_REQUEST,
        task::may_modify, //
    },
    totals::{PROBES, SESSIONS}, //
};
use core::sync::atomic::Ordering::Relaxed;
use kernel::{
    cpu::nr_cpu_ids,
    fs::File,
    mm::virt::VmaNew,
    page::PAGE_SIZE,
    prelude::*,
    seq_file::SeqFile,
    sync::poll::PollTable,
    uaccess::{UserPtr, UserSliceWriter}, //
};

/// One open file of the device.
pub(crate) struct Device {
    session: Pin<KBox<Session>>,
}

impl Driver for Device {
    fn open() -> Result<Pin<KBox<Self>>> {
        require_capabilities()?;
        let session = Session::open()?;
        Ok(KBox::pin(Device { session }, GFP_REQUEST)?)
    }

    fn ioctl(self: Pin<&Self>, cmd: u32, arg: UserPtr) -> Result<isize> {
        if abi::ioctl_type(cmd) != abi::TYPE {
            return Err(ENOTTY);
        }
        match abi::ioctl_nr(cmd) {
            abi::NR_INFO => info(arg),
            abi::NR_SETUP => set_up(&self.session, arg),
            abi::NR_FILTER => filter::set(&self.session, arg),
            abi::NR_ATTACH => probes::attach(&self.session, arg),
            abi::NR_DETACH => probes::detach(&self.session, arg),
            abi::NR_COUNTERS => probes::counters(&self.session, arg),
            abi::NR_OBJECT => objects::object(&self.session, arg),
            abi::NR_PROGRAM => probes::program(&self.session, arg),
            abi::NR_TABLE => tables::table(&self.session, arg),
            abi::NR_ROWS => tables::rows(&self.session, arg),
            abi::NR_FREEZE => freeze(&self.session, arg),
            abi::NR_FILE => objects::file(arg),
            abi::NR_UNWIND => objects::unwind(&self.session, arg),
            abi::NR_STACK => objects::stack(&self.session, arg),
            abi::NR_TASKS => tasks::set(&self.session, arg),
            abi::NR_TASK_DUMP => tasks::dump(&self.session, arg),
            abi::NR_CPU_TIMES => tasks::cpu_times(&self.session, arg),
            abi::NR_TASK_COUNTERS => tasks::counters(&self.session, arg),
            abi::NR_HOLD => tasks::hold(&self.session, arg),
            abi::NR_HELD => tasks::held(&self.session, arg),
            abi::NR_DROP_SPANS => tables::drop_spans(&self.session, arg),
            _ => Err(ENOTTY),
        }
        .map(|()| 0)
    }

    fn read(self: Pin<&Self>, nonblocking: bool, out: UserSliceWriter) -> Result<usize> {
        self.session.read(nonblocking, out)
    }

    fn poll(self: Pin<&Self>, file: &File, table: PollTable<'_>) -> bool {
        self.session.poll(file, table)
    }

    fn mmap(self: Pin<&Self>, page_offset: usize, vma: &VmaNew) -> Result {
        self.session.map(page_offset, vma)
    }

    fn show(self: Pin<&Self>, out: &SeqFile) {
        self.session.show(out);
    }
}

/// The module's release, which `Info` carries zero-padded.
const RELEASE: &str = "0.1.0";

fn info(arg: UserPtr) -> Result {
    let mut request = UserStruct::<Info>::read(arg)?;
    if request.value.flags != 0 {
        return Err(EINVAL);
    }
    let mut release = [0; 32];
    for (to, from) in release.iter_mut().zip(RELEASE.as_bytes()) {
        *to = *from;
    }
    request.value = Info {
        size: request.value.size,
        flags: 0,
        version: Version::CURRENT as u32,
        version_min: Version::V6 as u32,
        features: abi::FEATURE_ENTRY
            | abi::FEATURE_STACK_FP
            | abi::FEATURE_FILTER_PID
            | abi::FEATURE_OBJECT_FD
            | abi::FEATURE_RETURN
            | abi::FEATURE_PROGRAM
            | abi::FEATURE_SINKS
            | abi::FEATURE_SEMAPHORE
            | abi::FEATURE_FILTERS
            | abi::FEATURE_MODIFY
            | abi::FEATURE_LIMITS
            | abi::FEATURE_FLIGHT
            | abi::FEATURE_FOLLOW
            | abi::FEATURE_UNWIND
            | abi::FEATURE_STACKS
            | abi::FEATURE_DROP
            | abi::FEATURE_TASKS
            | abi::FEATURE_EXITS
            | abi::FEATURE_SAMPLES
            | abi::FEATURE_SPANS
            | abi::FEATURE_PARTIAL
            | abi::FEATURE_REMOTE
            | abi::FEATURE_WAITS
            | abi::FEATURE_GO
            | abi::FEATURE_HOLD
            | abi::FEATURE_TAKE,
        sessions: SESSIONS.load(Relaxed),
        probes: PROBES.load(Relaxed),
        rings: nr_cpu_ids(),
        page_size: PAGE_SIZE as u32,
        release,
    };
    request.write_back()
}

fn set_up(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = UserStruct::<Setup>::read(arg)?;
    let setup = &mut request.value;
    let known = abi::SETUP_MODIFY | abi::SETUP_OVERWRITE;
    if setup.flags & !known != 0 || setup.reserved != 0 {
        return Err(EINVAL);
    }
    let modifies = setup.flags & abi::SETUP_MODIFY != 0;
    let overwrite = setup.flags & abi::SETUP_OVERWRITE != 0;
    if modifies {
        may_modify()?;
    }
    if modifies && overwrite {
        // The records of changes would be overwritten.
        return Err(EINVAL);
    }
    let rings = session.make_rings(setup.ring_bytes, setup.watermark_bytes, overwrite)?;
    setup.rings = nr_cpu_ids();
    setup.mmap_stride = rings.stride();
    // Write back before the session has the rings: if that fails, the caller does not know of them,
    // and could not make others.
    request.write_back()?;
    session.keep_rings(rings, modifies)
}

fn freeze(session: &Session, arg: UserPtr) -> Result {
    let mut request = UserStruct::<abi::Freeze>::read(arg)?;
    let freeze = &mut request.value;
    if freeze.reserved != 0 {
        return Err(EINVAL);
    }
    let wanted = match freeze.flags {
        0 => None,
        abi::FREEZE_NOW => Some(true),
        abi::FREEZE_END => Some(false),
        _ => return Err(EINVAL),
    };
    freeze.frozen = session.freeze(wanted)?.into();
    request.write_back()
}
