// SPDX-License-Identifier: GPL-2.0-only
//! The program that the current task has just started: its file and its arguments.
//!
//! When `sched_process_exec` is passed, the address space is new and the task's alone, so that no
//! other task changes which file it is of.

use super::{
    file_ref::HeldFile,
    helpers,
    user_mem,
    vma::FileKey, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    page::PAGE_SIZE, //
};
use zerocopy::IntoBytes;

/// A program's file: on overlayfs the key is that of the real one below.
pub(crate) struct Program {
    pub(crate) key: FileKey,
    pub(crate) file: HeldFile,
}

impl Program {
    /// That of the current task, which starts it.
    pub(crate) fn of_current() -> Option<Self> {
        let current = kernel::current!();
        let mm = current.mm()?.as_raw();
        // SAFETY: The current task keeps its address space, and that its file, which nobody
        // else changes now. A file's inode stays as long as the file.
        unsafe {
            let file = NonNull::new((*mm).__bindgen_anon_1.exe_file)?;
            let inode = NonNull::new(helpers::nsprobe_real_inode(file.as_ptr()))?;
            Some(Program {
                key: FileKey::of(inode),
                file: HeldFile::take(file),
            })
        }
    }
}

/// Arguments that were read.
pub(crate) struct Args {
    /// How many bytes.
    pub(crate) found: usize,
    /// Whether there are more.
    pub(crate) is_cut: bool,
}

/// Reads up to `most` bytes of the current task's arguments to the beginning of `room`, and
/// zeroes the rest of the last word. Never faults: what is after a page that is not there is
/// skipped.
pub(crate) fn read_args(room: &mut [u64], most: usize) -> Args {
    let (start, end) = arguments();
    let bytes = end.saturating_sub(start);
    let most = most.min(bytes);
    let words = most.div_ceil(8);
    let mut found = 0usize;
    if let Some(room) = room.get_mut(..words) {
        room.fill(0);
        if let Some(out) = room.as_mut_bytes().get_mut(..most) {
            found = read_pages(start as u64, out);
        }
    }
    Args {
        found,
        is_cut: found < bytes,
    }
}

/// Fills `out` from user address `start`, up to the first page that is not there; how many
/// bytes. What is after them is as it was.
fn read_pages(start: u64, out: &mut [u8]) -> usize {
    let mut found = 0usize;
    while found < out.len() {
        let at = start.wrapping_add(found as u64);
        let in_page = PAGE_SIZE.wrapping_sub(at as usize % PAGE_SIZE);
        let end = found.saturating_add(in_page).min(out.len());
        let Some(part) = out.get_mut(found..end) else {
            break;
        };
        if user_mem::read(at, part).is_err() {
            // It may have been written in part.
            part.fill(0);
            break;
        }
        found = end;
    }
    found
}

/// Where the current task's arguments are.
fn arguments() -> (usize, usize) {
    let current = kernel::current!();
    let Some(mm) = current.mm() else {
        return (0, 0);
    };
    let mm: *mut bindings::mm_struct = mm.as_raw();
    // SAFETY: The current task keeps its address space; these are plain numbers, that a
    // `prctl(2)` may change.
    unsafe {
        let fields = &raw const (*mm).__bindgen_anon_1;
        (
            (&raw const (*fields).arg_start).read_volatile(),
            (&raw const (*fields).arg_end).read_volatile(),
        )
    }
}
