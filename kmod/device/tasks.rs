// SPDX-License-Identifier: GPL-2.0-only
//! The requests about tasks.

use super::rights::require_capabilities;
use crate::{
    common::{
        abi::{
            self,
            CpuTime,
            DUMP_ARGS,
            DUMP_BYTES_MIN,
            DUMP_MAPPINGS,
            TASKS_CPU,
            TASKS_LIFE,
            TASKS_MOVES,
            TASKS_NAMES,
            TASKS_SWITCHES,
            TASKS_UNFILTERED,
            TASKS_WAKEUPS, //
        },
        task::TASK_ARGS_MAX, //
    },
    device::user_struct::UserStruct,
    session::Session,
    sys::{
        self,
        cond_resched,
        memory::GFP_REQUEST, //
    },
    tasks::{
        cpu_times::CpuTable,
        dump::TaskDump,
        subscription::{Failed, Wanted}, //
    }, //
};
use kernel::{
    prelude::*,
    uaccess::{UserPtr, UserSlice, UserSliceWriter}, //
};
use zerocopy::IntoBytes;

const KNOWN: u32 = TASKS_LIFE
    | TASKS_NAMES
    | TASKS_MOVES
    | TASKS_SWITCHES
    | TASKS_WAKEUPS
    | TASKS_CPU
    | TASKS_UNFILTERED;
/// Rows of CPU times that are copied at a time, with interrupts off.
const ROWS_AT_ONCE: usize = 64;

/// `TASKS`.
pub(super) fn set(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = UserStruct::<abi::Tasks>::read(arg)?;
    let tasks = &request.value;
    let has = |flag| tasks.flags & flag != 0;
    let has_rows = (1..=abi::CPU_ROWS_MAX).contains(&tasks.cpu_rows);
    let fits = match has(TASKS_CPU) {
        true => has_rows,
        false => tasks.cpu_rows == 0,
    };
    let has_args =
        tasks.args_bytes as usize <= TASK_ARGS_MAX && (tasks.args_bytes == 0 || has(TASKS_LIFE));
    if tasks.flags & !KNOWN != 0 || tasks.reserved != 0 || !fits || !has_args {
        return Err(EINVAL);
    }
    let wanted = Wanted {
        flags: tasks.flags,
        args_bytes: tasks.args_bytes,
        cpu_rows: tasks.cpu_rows,
    };
    request.value.missing = 0;
    match session.set_tasks(&wanted) {
        Ok(()) => request.write_back(),
        Err(Failed::Error(error)) => Err(error),
        Err(Failed::Missing(missing)) => {
            request.value.missing = missing;
            request.write_back()?;
            Err(sys::eopnotsupp())
        }
    }
}

/// A writer to the reader's buffer.
fn buffer(at: u64, bytes: u32) -> Result<UserSliceWriter> {
    let at = UserPtr::from_addr(usize::try_from(at)?);
    Ok(UserSlice::new(at, bytes as usize).writer())
}

/// `TASK_DUMP`.
pub(super) fn dump(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = UserStruct::<abi::TaskDump>::read(arg)?;
    let dump = &mut request.value;
    let is_known = dump.flags & !(DUMP_MAPPINGS | DUMP_ARGS) == 0;
    if !is_known || (dump.buffer_bytes as usize) < DUMP_BYTES_MIN {
        return Err(EINVAL);
    }
    let out = buffer(dump.buffer, dump.buffer_bytes)?;
    let events = session.task_events();
    let done = TaskDump::new(session.context(), events.as_deref(), dump.flags, out)?;
    let done = done.run(dump.next)?;
    dump.next = done.next;
    dump.count = done.count;
    dump.written = done.written;
    request.write_back()
}

/// `CPU_TIMES`.
pub(super) fn cpu_times(session: &Session, arg: UserPtr) -> Result {
    // It interrupts all CPUs.
    require_capabilities()?;
    let mut request = UserStruct::<abi::CpuTimes>::read(arg)?;
    let times = &mut request.value;
    let row_bytes = size_of::<CpuTime>();
    if times.flags != 0 || times.reserved != 0 || (times.buffer_bytes as usize) < row_bytes {
        return Err(EINVAL);
    }
    let events = session.task_events().ok_or(ENXIO)?;
    let table = events.cpu_times.as_ref().ok_or(ENXIO)?;
    let places = table.places();
    if times.next as usize >= places {
        return Err(EINVAL);
    }
    let mut out = buffer(times.buffer, times.buffer_bytes)?;
    if times.next == 0 {
        table.settle();
    }
    times.time_ns = sys::now_ns();
    let (next, count) = copy_rows(table, times.next as usize, &mut out)?;
    times.next = if next < places { next as u32 } else { 0 };
    times.count = count;
    times.turned_away_ns = table.turned_away_ns();
    request.write_back()
}

/// Copies the rows from place `from` on, as many as fit; returns where to continue, and their
/// number.
fn copy_rows(table: &CpuTable, from: usize, out: &mut UserSliceWriter) -> Result<(usize, u32)> {
    let mut rows = KVec::with_capacity(ROWS_AT_ONCE, GFP_REQUEST)?;
    let (mut at, mut count) = (from, 0u32);
    while at < table.places() {
        let fit = (out.len() / size_of::<CpuTime>()).min(ROWS_AT_ONCE);
        if fit == 0 {
            break;
        }
        at = table.read(at, fit, |row| {
            // There is room for that many.
            let _ = rows.push_within_capacity(row);
        });
        out.write_slice(rows.as_bytes())?;
        count = count.wrapping_add(rows.len() as u32);
        rows.clear();
        cond_resched();
    }
    Ok((at, count))
}

/// `TASK_COUNTERS`.
pub(super) fn counters(session: &Session, arg: UserPtr) -> Result {
    let mut request = UserStruct::<abi::TaskCounters>::read(arg)?;
    let counters = &mut request.value;
    if counters.flags != 0 || counters.reserved != 0 {
        return Err(EINVAL);
    }
    let cpu = (counters.cpu != abi::CPU_ALL).then_some(counters.cpu);
    let events = session.task_events().ok_or(ENXIO)?;
    counters.kinds = events.counts().load(cpu).ok_or(ENOENT)?;
    request.write_back()
}

/// `HOLD`.
pub(super) fn hold(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = UserStruct::<abi::Hold>::read(arg)?;
    let hold = &mut request.value;
    let sets = hold.flags & abi::HOLD_SET != 0;
    let fits = match sets {
        true => hold.limit_ms <= abi::HOLD_MS_MAX,
        false => hold.limit_ms == 0,
    };
    if hold.flags & !abi::HOLD_SET != 0 || hold.reserved != 0 || !fits {
        return Err(EINVAL);
    }
    if sets {
        session.set_hold(hold.limit_ms)?;
    }
    *hold = abi::Hold {
        size: hold.size,
        ..session.start_gate()?.report()
    };
    request.write_back()
}

/// `HELD`.
pub(super) fn held(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = UserStruct::<abi::Held>::read(arg)?;
    let held = &mut request.value;
    if held.flags != 0 || held.reserved != 0 {
        return Err(EINVAL);
    }
    let gate = session.start_gate()?;
    (held.id, held.pid) = match held.release {
        0 => gate.next().unwrap_or_default(),
        id => {
            gate.release(id);
            (0, 0)
        }
    };
    request.write_back()
}
