// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Records as lines of text, for a reader that uses only `read()`.
//!
//! Names come from traced programs: every byte that is not printable ASCII is written as `\xNN`, so
//! that it cannot break a line or change the state of a terminal.

use super::abi::ObjectIdentity;
use super::record::{
    Frame, Frames, Record, StackEnd, WriteRecord, HIT_RETURN, WRITE_MEMORY, WRITE_REGISTER,
    WRITE_RETURN,
};
use super::task::{
    TaskDetails, TaskRecord, TASK_ALIVE, TASK_CGROUP, TASK_EXEC, TASK_EXIT, TASK_FORK, TASK_NAME,
    TASK_NAMESPACES, WAKE_BEGUN, WAKE_NEW,
};
use core::fmt::{Result, Write};

/// Longest line that [`write_line`] writes for one record, in bytes: a hit of
/// [`FRAMES_MAX`](super::abi::FRAMES_MAX) frames of at most 32 characters, and the
/// words of its fields.
pub const LINE_BYTES_MAX: usize = 320
    + 32 * super::abi::FRAMES_MAX as usize
    + 20 * super::record::KERNEL_WORDS_MAX
    + 18 * super::program::OUTPUT_WORDS_MAX;

/// Writes one record as one line, newline included.
pub fn write_line(out: &mut impl Write, record: &Record<'_>) -> Result {
    match record {
        Record::Hit(hit, details) => {
            write_time(out, hit.time_ns)?;
            let kind = if hit.flags & HIT_RETURN == 0 {
                "hit"
            } else {
                "return"
            };
            write!(
                out,
                " cpu {} {kind} probe {} seq {} ",
                hit.cpu, hit.probe, hit.sequence
            )?;
            write_escaped(out, &hit.comm)?;
            write!(
                out,
                " pid {} tid {} ns {} nspid {} nstid {}",
                hit.pid, hit.tid, hit.pidns_inum, hit.ns_pid, hit.ns_tid
            )?;
            if let Some(ns) = details.elapsed_ns {
                write!(out, " elapsed {ns}")?;
            }
            details
                .fields
                .iter()
                .try_for_each(|word| write!(out, " #{word:x}"))?;
            write_stack(out, hit.stack, details.frames, hit.stack_end)?;
            details
                .kernel
                .iter()
                .try_for_each(|address| write!(out, " k0x{address:x}"))?;
        }
        Record::Object(object) => {
            write_time(out, object.time_ns)?;
            write!(out, " object {}", object.id)?;
            write_identity(out, &object.identity)?;
        }
        Record::Lost(lost) => {
            write_time(out, lost.time_ns)?;
            write!(out, " lost {} since ", lost.count)?;
            write_time(out, lost.first_ns)?;
        }
        Record::Write(write) => write_change(out, write)?,
        Record::Off(off) => {
            write_time(out, off.time_ns)?;
            write!(out, " off probe {} limit {}", off.probe, off.limit)?;
        }
        Record::StackCopy(copy, mappings, words) => write!(
            out,
            "stack copy of thread {}: {} words, {} mappings",
            copy.tid,
            words.len(),
            mappings.len()
        )?,
        Record::LateStack(late, frames) => {
            write_time(out, late.time_ns)?;
            write!(out, " stack of probe {} tid {} at ", late.probe, late.tid)?;
            write_time(out, late.hit_ns)?;
            write_stack(out, late.stack, *frames, late.stack_end)?;
        }
        Record::Task(task, details) => write_task(out, task, details)?,
        Record::Switch(switch) => {
            write_time(out, switch.time_ns)?;
            write!(
                out,
                " cpu {} switch {} prio {} state 0x{:x} to {} prio {}",
                switch.cpu,
                switch.prev_tid,
                switch.prev_priority,
                switch.prev_state,
                switch.next_tid,
                switch.next_priority
            )?;
        }
        Record::Wake(wake) => {
            write_time(out, wake.time_ns)?;
            let what = match wake.what {
                WAKE_BEGUN => "waking",
                WAKE_NEW => "wake-new",
                _ => "wake",
            };
            write!(
                out,
                " cpu {} {what} {} prio {} by {} on {}",
                wake.cpu, wake.tid, wake.priority, wake.by_tid, wake.target_cpu
            )?;
        }
        Record::Mappings(record, mappings) => {
            write_time(out, record.time_ns)?;
            write!(out, " mappings of {}: {}", record.pid, mappings.len())?;
        }
        Record::Unknown(kind, _) => write!(out, "unknown record kind {kind}")?,
    }
    out.write_str("\n")
}

fn write_time(out: &mut impl Write, ns: u64) -> Result {
    write!(out, "{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// The name of the event in a task's record; a general one if it is unknown.
const fn what_of(task: &TaskRecord) -> &'static str {
    match task.what {
        TASK_ALIVE => "alive",
        TASK_FORK => "fork",
        TASK_EXEC => "exec",
        TASK_EXIT => "exit",
        TASK_NAME => "name",
        TASK_NAMESPACES => "namespaces",
        TASK_CGROUP => "cgroup",
        _ => "task",
    }
}

fn write_task(out: &mut impl Write, task: &TaskRecord, details: &TaskDetails<'_>) -> Result {
    write_time(out, task.time_ns)?;
    write!(out, " cpu {} {} ", task.cpu, what_of(task))?;
    write_escaped(out, &task.comm)?;
    let outer = details.outer();
    write!(
        out,
        " pid {} tid {} ppid {} start {} ran {} cgroup {} value {} levels",
        outer.pid, outer.tid, outer.ppid, task.start_ns, task.cpu_ns, task.cgroup, task.value
    )?;
    for level in details.levels {
        write!(out, " {}:{}:{}", level.inum, level.pid, level.tid)?;
    }
    if let Some(maker) = details.parent.first() {
        write!(out, " by {}:{}", maker.pid, maker.tid)?;
    }
    Ok(())
}

fn write_change(out: &mut impl Write, write: &WriteRecord) -> Result {
    write_time(out, write.time_ns)?;
    write!(
        out,
        " cpu {} write probe {} seq {} pid {} tid {} ",
        write.cpu, write.probe, write.sequence, write.pid, write.tid
    )?;
    match write.what {
        WRITE_REGISTER => write!(out, "register {}", write.place)?,
        WRITE_MEMORY => write!(out, "memory 0x{:x} bytes {}", write.place, write.bytes)?,
        WRITE_RETURN => write!(out, "return by 0x{:x}", write.place)?,
        what => write!(out, "what {what} 0x{:x}", write.place)?,
    }
    let verdict = if write.done == 0 { " failed" } else { "" };
    write!(
        out,
        " before 0x{:x} after 0x{:x}{verdict}",
        write.before, write.after
    )
}

/// The bytes of a name up to its first NUL.
fn write_escaped(out: &mut impl Write, name: &[u8]) -> Result {
    for &byte in name.iter().take_while(|&&byte| byte != 0) {
        match byte {
            b'!'..=b'~' if byte != b'\\' => out.write_char(byte as char)?,
            _ => write!(out, "\\x{byte:02x}")?,
        }
    }
    Ok(())
}

fn write_stack(out: &mut impl Write, id: u32, frames: Frames<'_>, end: u8) -> Result {
    if id != 0 {
        write!(out, " stack {id}")?;
    }
    for frame in frames {
        match frame {
            Frame::Object { id, offset, .. } => write!(out, " {id}+0x{offset:x}")?,
            Frame::Address { address, .. } => write!(out, " 0x{address:x}")?,
        }
    }
    match StackEnd::from_u8(end) {
        Some(StackEnd::None | StackEnd::Outermost) => Ok(()),
        Some(StackEnd::Limit) => out.write_str(" (limit)"),
        Some(StackEnd::Fault) => out.write_str(" (cut: page not present)"),
        Some(StackEnd::BadFramePointer) => out.write_str(" (cut: no frame pointer)"),
        Some(StackEnd::Unsupported) => out.write_str(" (cut: no usable rule for the frame)"),
        Some(StackEnd::Copied) => out.write_str(" (copied from there on)"),
        Some(StackEnd::Late) => out.write_str(" (the stack follows)"),
        Some(StackEnd::NoRow) => out.write_str(" (cut: no unwind row)"),
        Some(StackEnd::RowsNotReady) => out.write_str(" (cut: unwind rows not ready)"),
        Some(StackEnd::BadRow) => out.write_str(" (cut: the unwind row is wrong)"),
        Some(StackEnd::CopyEnd) => out.write_str(" (cut: the copy ends)"),
        Some(StackEnd::NotCode) => out.write_str(" (cut: not a return address)"),
        None => write!(out, " (cut: reason {end})"),
    }
}

fn write_identity(out: &mut impl Write, identity: &ObjectIdentity) -> Result {
    write!(
        out,
        " dev 0x{:x} ino {} gen {} bytes {} build-id ",
        identity.dev, identity.ino, identity.generation, identity.file_bytes
    )?;
    match identity.build_id.get(..identity.build_id_len as usize) {
        None | Some([]) => out.write_str("none"),
        Some(bytes) => bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::OUTPUT_WORDS_MAX;
    use super::super::record::{Details, Hit, Lost, Method};
    use super::*;
    extern crate std;
    use std::string::String;

    fn details<'a>(frames: &'a [u64], fields: &'a [u64]) -> Details<'a> {
        Details {
            elapsed_ns: None,
            frames: Frames(frames),
            kernel: &[],
            fields,
        }
    }

    #[test]
    fn a_hit_is_one_line_whatever_its_comm() {
        let mut hit = Hit {
            time_ns: 1_000_000_002,
            probe: 3,
            sequence: 4,
            pid: 5,
            ..Hit::default()
        };
        hit.comm[..6].copy_from_slice(b"a\n\x1b[b\\");
        let (words, _) = Frame::Object {
            id: 1,
            offset: 16,
            method: Method::Registers as u8,
        }
        .encode();
        let mut line = String::new();
        write_line(&mut line, &Record::Hit(&hit, details(&words[..1], &[]))).unwrap();
        assert_eq!(
            line,
            "1.000000002 cpu 0 hit probe 3 seq 4 a\\x0a\\x1b[b\\x5c pid 5 tid 0 ns 0 nspid 0 nstid 0 1+0x10\n"
        );
    }

    #[test]
    fn the_longest_line_fits() {
        let hit = Hit {
            time_ns: u64::MAX,
            probe: u32::MAX,
            sequence: u32::MAX,
            cpu: u16::MAX,
            stack_end: StackEnd::NotCode as u8,
            pid: u32::MAX,
            tid: u32::MAX,
            ns_pid: u32::MAX,
            ns_tid: u32::MAX,
            pidns_inum: u32::MAX,
            comm: [0xff; 16],
            ..Hit::default()
        };
        let frame = Frame::Address {
            address: u64::MAX,
            why: 1,
            method: 2,
        }
        .encode()
        .0;
        let words: std::vec::Vec<u64> = frame
            .iter()
            .copied()
            .cycle()
            .take(super::super::record::WORDS_MAX)
            .collect();
        let mut line = String::new();
        write_line(
            &mut line,
            &Record::Hit(&hit, details(&words, &[u64::MAX; OUTPUT_WORDS_MAX])),
        )
        .unwrap();
        assert!(line.len() <= LINE_BYTES_MAX, "{}", line.len());
        let lost = Lost {
            count: u64::MAX,
            first_ns: u64::MAX,
            time_ns: u64::MAX,
            ..Lost::default()
        };
        line.clear();
        write_line(&mut line, &Record::Lost(&lost)).unwrap();
        assert!(line.len() <= LINE_BYTES_MAX);
    }
}
