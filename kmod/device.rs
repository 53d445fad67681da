// SPDX-License-Identifier: GPL-2.0-only
//! Requests of user space, turned into calls of the session.
//!
//! Every field is looked at here, once; behind this file a value is what its type
//! says. Opening needs CAP_PERFMON and CAP_SYS_PTRACE, or CAP_SYS_ADMIN, in the
//! initial user namespace; requests that add to what a session sees need them of
//! the caller too, so that a file that was handed on gives nobody more rights.

mod filter;
mod tasks;
pub(crate) mod user_struct;

use crate::{
    common::{
        abi::{self, Counters, Detach, Info, Object, Setup, Version},
        program::{Step, DATA_MAX, STEPS_MAX}, //
    },
    device::user_struct::{Array, Request},
    object::{
        unwind_rows::{self, Rows},
        Objects, //
    },
    probe::{
        program::Program,
        request::Refused, //
    },
    session::{
        probes::RefusedAt,
        Session, //
    },
    sys::{
        cond_resched,
        estale,
        fops::Driver,
        held::Opened,
        inode::PinnedInode,
        memory::{self, GFP_REQUEST},
        task::{
            is_capable,
            is_locked_down,
            module_allows_modify,
            Lockdown,
            CAP_PERFMON,
            CAP_SYS_ADMIN,
            CAP_SYS_PTRACE, //
        },
        vma::FileKey, //
    },
    table::Table,
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
    uaccess::{UserPtr, UserSlice, UserSliceWriter}, //
};
use zerocopy::IntoBytes;

/// One open file of the device.
pub(crate) struct Device {
    session: Pin<KBox<Session>>,
}

/// `EPERM` unless the current task may trace the whole machine.
fn require_capabilities() -> Result {
    let may = is_capable(CAP_SYS_ADMIN) || is_capable(CAP_PERFMON) && is_capable(CAP_SYS_PTRACE);
    if may && !is_locked_down(Lockdown::Tracing) {
        Ok(())
    } else {
        Err(EPERM)
    }
}

/// `EPERM` unless the current task may modify traced programs, `EACCES` when nobody
/// may.
fn require_modify() -> Result {
    if !module_allows_modify() || is_locked_down(Lockdown::Writing) {
        Err(EACCES)
    } else if !is_capable(CAP_SYS_ADMIN) {
        Err(EPERM)
    } else {
        Ok(())
    }
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
            abi::NR_ATTACH => attach(&self.session, arg),
            abi::NR_DETACH => detach(&self.session, arg),
            abi::NR_COUNTERS => counters(&self.session, arg),
            abi::NR_OBJECT => object(&self.session, arg),
            abi::NR_PROGRAM => program(&self.session, arg),
            abi::NR_TABLE => table(&self.session, arg),
            abi::NR_ROWS => rows(&self.session, arg),
            abi::NR_FREEZE => freeze(&self.session, arg),
            abi::NR_FILE => file(arg),
            abi::NR_UNWIND => unwind(&self.session, arg),
            abi::NR_STACK => stack(&self.session, arg),
            abi::NR_TASKS => tasks::set(&self.session, arg),
            abi::NR_TASK_DUMP => tasks::dump(&self.session, arg),
            abi::NR_CPU_TIMES => tasks::cpu_times(&self.session, arg),
            abi::NR_TASK_COUNTERS => tasks::counters(&self.session, arg),
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

/// The module's release, as records of it are zero-padded.
const RELEASE: &str = "0.1.0";

fn info(arg: UserPtr) -> Result {
    let mut request = Request::<Info>::read(arg)?;
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
            | abi::FEATURE_TEXT
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
            | abi::FEATURE_SAMPLES,
        sessions: SESSIONS.load(Relaxed),
        probes: PROBES.load(Relaxed),
        rings: nr_cpu_ids(),
        page_size: PAGE_SIZE as u32,
        release,
    };
    request.write_back()
}

fn set_up(session: &Session, arg: UserPtr) -> Result {
    let mut request = Request::<Setup>::read(arg)?;
    let setup = &mut request.value;
    let known = abi::SETUP_TEXT | abi::SETUP_MODIFY | abi::SETUP_OVERWRITE;
    if setup.flags & !known != 0 || setup.reserved != 0 {
        return Err(EINVAL);
    }
    let as_text = setup.flags & abi::SETUP_TEXT != 0;
    let may_modify = setup.flags & abi::SETUP_MODIFY != 0;
    if may_modify {
        require_modify()?;
    }
    let rings = session.make_rings(
        setup.ring_bytes,
        setup.watermark_bytes,
        setup.flags & abi::SETUP_OVERWRITE != 0,
    )?;
    setup.rings = nr_cpu_ids();
    setup.mmap_stride = rings.stride();
    // Before they are the session's: rings of which the caller does not know could not be
    // used, and there would be no others.
    request.write_back()?;
    session.keep_rings(rings, as_text, may_modify)
}

fn attach(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = Request::<abi::Attach>::read(arg)?;
    let attach = &request.value;
    if attach.flags != 0 {
        return Err(EINVAL);
    }
    let at = Array::new(
        attach.probes,
        attach.probe_size,
        attach.count,
        abi::ATTACH_MAX,
    )?;
    let mut probes = at.read_all::<abi::Probe>()?;
    let mut ids = memory::room(probes.len())?;
    if let Err(RefusedAt { index, refused }) = session.attach(&mut probes) {
        let Refused(error, reason) = refused;
        request.value.failed = index;
        request.value.reason = reason as u32;
        // The error matters more than a reason that cannot be written.
        let _ = request.write_back();
        return Err(error);
    }
    for probe in probes.iter() {
        // There is room for all.
        let _ = ids.push_within_capacity(probe.id);
    }
    let told = tell(&at, &probes);
    if told.is_err() {
        session.detach(&ids)?;
    }
    told
}

/// Writes probes back to where they came from.
fn tell(at: &Array, probes: &[abi::Probe]) -> Result {
    for index in 0..at.count() {
        if let Some(probe) = probes.get(index as usize) {
            at.write(index, probe)?;
        }
    }
    Ok(())
}

fn detach(session: &Session, arg: UserPtr) -> Result {
    let detach = Request::<Detach>::read(arg)?.value;
    if detach.flags != 0 || detach.reserved != 0 {
        return Err(EINVAL);
    }
    let wanted = Array::new(detach.ids, 4, detach.count, abi::ATTACH_MAX)?;
    session.detach(&wanted.read_all::<u32>()?)
}

fn counters(session: &Session, arg: UserPtr) -> Result {
    let mut request = Request::<Counters>::read(arg)?;
    let counters = &mut request.value;
    if counters.flags != 0 {
        return Err(EINVAL);
    }
    let cpu = (counters.cpu != abi::CPU_ALL).then_some(counters.cpu);
    let counts = session.counts(counters.probe, cpu)?;
    counters.hits = counts.hits;
    counters.recorded = counts.recorded;
    counters.filtered = counts.filtered;
    counters.lost_full = counts.lost_full;
    counters.rejected = counts.rejected;
    counters.undecided = counts.undecided;
    counters.stacks_cut = counts.stacks_cut;
    counters.aggregated = counts.aggregated;
    counters.turned_away = counts.turned_away;
    counters.written = counts.written;
    counters.write_failed = counts.write_failed;
    counters.write_withheld = counts.write_withheld;
    counters.skipped = counts.skipped;
    counters.limited = counts.limited;
    counters.off = counts.off;
    counters.too_deep = counts.too_deep;
    counters.frozen = counts.frozen;
    counters.missed = counts.missed;
    counters.in_kernel = counts.in_kernel;
    counters.idle = counts.idle;
    counters.kernel_threads = counts.kernel_threads;
    counters.by_clock = counts.by_clock;
    request.write_back()
}

fn program(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = Request::<abi::Program>::read(arg)?;
    let wanted = request.value;
    if wanted.flags != 0 || wanted.reserved != 0 {
        return Err(EINVAL);
    }
    let step_bytes = size_of::<Step>() as u32;
    let steps = Array::new(
        wanted.steps,
        step_bytes,
        wanted.step_count,
        STEPS_MAX as u32,
    )?;
    let data = match wanted.data_bytes {
        0 => KVVec::new(),
        bytes => Array::new(wanted.data, 1, bytes, DATA_MAX as u32)?.read_all()?,
    };
    let answer = &mut request.value;
    let kept = match Program::new(steps.read_all()?, data) {
        Ok(program) => session.keep_program(program),
        Err((step, flaw)) => {
            answer.flaw = flaw as u32;
            answer.flaw_step = step as u32;
            Err(EINVAL)
        }
    };
    answer.id = kept.unwrap_or(answer.id);
    let told = request.write_back();
    if let (Ok(id), Err(_)) = (&kept, &told) {
        session.forget_program(*id);
    }
    told.and(kept.map(drop))
}

fn table(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = Request::<abi::Table>::read(arg)?;
    let table = &mut request.value;
    if table.flags != 0 {
        return Err(EINVAL);
    }
    let shape = Table::shape_of(table).ok_or(EINVAL)?;
    table.id = session.make_table(shape)?;
    table.row_bytes = (shape.row_words() as u32).wrapping_mul(8);
    table.capacity = shape.rows as u32;
    let id = table.id;
    let told = request.write_back();
    if told.is_err() {
        session.forget_table(id, &shape);
    }
    told
}

fn freeze(session: &Session, arg: UserPtr) -> Result {
    let mut request = Request::<abi::Freeze>::read(arg)?;
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

fn rows(session: &Session, arg: UserPtr) -> Result {
    let mut request = Request::<abi::Rows>::read(arg)?;
    let rows = &mut request.value;
    if rows.flags != 0 {
        return Err(EINVAL);
    }
    let table = session.table(rows.table)?;
    let row_bytes = table.shape().row_words().wrapping_mul(8);
    let count = table.shape().rows;
    if (rows.buffer_bytes as usize) < row_bytes || rows.next as usize >= count {
        return Err(EINVAL);
    }
    let buffer = UserPtr::from_addr(usize::try_from(rows.buffer)?);
    let mut writer = UserSlice::new(buffer, rows.buffer_bytes as usize).writer();
    let mut row = memory::room(table.shape().row_words())?;
    let mut index = rows.next as usize;
    rows.count = 0;
    while index < count && writer.len() >= row_bytes {
        if table.copy(index, &mut row)?.is_some() {
            writer.write_slice(row.as_bytes())?;
            rows.count = rows.count.wrapping_add(1);
        }
        index = index.wrapping_add(1);
        cond_resched();
    }
    rows.next = if index < count { index as u32 } else { 0 };
    (rows.turned_away, rows.replaced) = table.losses();
    request.write_back()
}

fn file(arg: UserPtr) -> Result {
    let mut request = Request::<abi::File>::read(arg)?;
    let file = &mut request.value;
    if file.flags != 0 || file.reserved != 0 {
        return Err(EINVAL);
    }
    let inode = PinnedInode::from_fd(file.fd).map_err(|unusable| Refused::from(unusable).0)?;
    file.identity = inode.key().identity();
    request.write_back()
}

fn unwind(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = Request::<abi::Unwind>::read(arg)?;
    let unwind = &mut request.value;
    if unwind.flags & abi::UNWIND_DROP != 0 {
        drop_rows(&session.shared().objects, unwind)?;
        return request.write_back();
    }
    let key = match unwind.flags {
        0 | abi::UNWIND_NONE => {
            let inode = PinnedInode::from_fd(unwind.fd);
            inode.map_err(|unusable| Refused::from(unusable).0)?.key()
        }
        abi::UNWIND_VDSO if unwind.fd == 0 => FileKey::of_own_vdso().ok_or(ENOENT)?,
        _ => return Err(EINVAL),
    };
    match Rows::read(unwind) {
        Ok(rows) => {
            let objects = &session.shared().objects;
            unwind.object = objects.give_rows(key, rows)?;
            unwind.bytes = objects.row_bytes();
            let id = unwind.object;
            let told = request.write_back();
            if told.is_err() {
                objects.take_back(id);
            }
            told
        }
        Err(unwind_rows::Refused::Request(error)) => Err(error),
        Err(unwind_rows::Refused::Defect(defect)) => {
            unwind.defect = defect as u32;
            request.write_back()?;
            Err(EINVAL)
        }
    }
}

fn drop_rows(objects: &Objects, unwind: &mut abi::Unwind) -> Result {
    let wanted = abi::Unwind {
        size: unwind.size,
        flags: abi::UNWIND_DROP,
        first: unwind.first,
        ..abi::Unwind::default()
    };
    if unwind.as_bytes() != wanted.as_bytes() {
        return Err(EINVAL);
    }
    unwind.bytes = objects.drop_unused(unwind.first);
    Ok(())
}

fn stack(session: &Session, arg: UserPtr) -> Result {
    let mut request = Request::<abi::Stack>::read(arg)?;
    let stack = &mut request.value;
    if stack.flags != 0 || stack.reserved != 0 {
        return Err(EINVAL);
    }
    let stacks = session.shared().stacks.as_ref().ok_or(ENOENT)?;
    let frames = stacks.frames(stack.id).ok_or(ENOENT)?;
    let room = core::mem::replace(&mut stack.words, frames.len() as u32);
    stack.used = stacks.used();
    if room < stack.words {
        request.write_back()?;
        return Err(EINVAL);
    }
    let at = UserPtr::from_addr(usize::try_from(stack.frames)?);
    let mut writer = UserSlice::new(at, frames.len().wrapping_mul(8)).writer();
    for frame in frames {
        writer.write_slice(&frame.to_ne_bytes())?;
    }
    request.write_back()
}

fn object(session: &Session, arg: UserPtr) -> Result {
    let mut request = Request::<Object>::read(arg)?;
    let object = &mut request.value;
    if !matches!(object.flags, 0 | abi::OBJECT_FD | abi::OBJECT_ROOT) {
        return Err(EINVAL);
    }
    let objects = &session.shared().objects;
    object.identity = objects.identity(object.id).ok_or(ENOENT)?;
    object.fd = -1;
    let (id, flags) = (object.id, object.flags);
    if flags == 0 {
        return request.write_back();
    }
    require_capabilities()?;
    // The descriptor is there once the caller knows of it; what fails is as it was before.
    let mut hand_out = |opened: Result<Opened>| {
        let opened = opened?;
        request.value.fd = opened.fd();
        request.write_back()?;
        opened.install();
        Ok(())
    };
    if flags == abi::OBJECT_FD {
        let file = objects.take_file(id).ok_or_else(estale)?;
        let done = hand_out(file.reopen());
        if done.is_err() {
            objects.put_file(id, file);
        }
        done
    } else {
        let root = objects.take_root(id).ok_or_else(estale)?;
        let done = hand_out(root.open());
        if done.is_err() {
            objects.put_root(id, root);
        }
        done
    }
}
