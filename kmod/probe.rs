// SPDX-License-Identifier: GPL-2.0-only
//! A probe, as its handler uses it.
//!
//! At a hit `handler` runs first. It asks the filter, `apply_limits` and the program
//! (`run_program`) whether the hit counts, and passes it to `deliver`.

mod apply_limits;
pub(crate) mod counters;
pub(crate) mod deferred_stack;
mod deliver;
pub(crate) mod entry_values;
mod followed_calls;
mod goroutine;
mod handler;
pub(crate) mod hit;
pub(crate) mod late_hit;
pub(crate) mod limits;
mod lock_holder;
pub(crate) mod modify;
pub(crate) mod program;
pub(crate) mod record;
pub(crate) mod request;
mod run_program;
pub(crate) mod samples;
pub(crate) mod under_way;
mod wait_rows;
pub(crate) mod waits;
pub(crate) mod wakes;

use crate::{
    common::program::Register,
    context::Context,
    probe::{
        counters::Counters,
        limits::Limits,
        program::Program,
        under_way::Function, //
    },
    sys::{uprobe::Ends, vma::FileKey},
    table::Table, //
};
use core::sync::atomic::AtomicU32;
use kernel::sync::Arc;

/// Where a hit goes that passes filter, limits and program.
#[derive(Clone)]
pub(crate) enum Sink {
    /// A record in the ring.
    Record,
    /// The counters only.
    Count,
    /// A row of this table.
    Table(Arc<Table>),
    /// A span in this table.
    Span(Arc<Table>),
}

/// The role of a probe in a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Not part of a followed call, or a call that the kernel follows to its return.
    Whole,
    /// The call begins here.
    Begin,
    /// The call returns here.
    End,
    /// The call jumps to code whose return is not seen.
    Leave,
}

/// A probe, as its handler uses it.
#[derive(Clone)]
pub(crate) struct Probe {
    pub(crate) id: u32,
    pub(crate) flags: u32,
    pub(crate) role: Role,
    /// The function whose calls begin or end here.
    pub(crate) call: Function,
    /// If the instruction returns: the bytes that it takes off the stack.
    pub(crate) returns: Option<u64>,
    pub(crate) max_frames: u32,
    /// Bytes from the reported place to the breakpoint.
    pub(crate) breakpoint_delta: u64,
    /// The probed file, as it was when the probe was attached.
    pub(crate) file: FileKey,
    /// Whether the file is a 32-bit program or library.
    pub(crate) is_32bit_file: bool,
    /// File offset of the breakpoint.
    pub(crate) offset: u64,
    /// Which ends of the function's calls it is hit at.
    pub(crate) ends: Ends,
    pub(crate) at_entry: Option<Arc<Program>>,
    pub(crate) at_return: Option<Arc<Program>>,
    pub(crate) sink: Sink,
    /// Whether hits are only counted.
    pub(crate) counts_only: bool,
    /// Whether hits are recorded, without limits, and change nothing else.
    pub(crate) is_recorded: bool,
    /// The register whose span each hit ends, if that is all that its program does.
    pub(crate) frees: Option<Register>,
    /// Whether it has no limits, and its entries count as hits.
    pub(crate) is_plain: bool,
    /// The table whose spans its programs end.
    pub(crate) spans: Option<Arc<Table>>,
    /// Writes that its programs may still make.
    pub(crate) writes_left: Option<Arc<AtomicU32>>,
    pub(crate) limits: Option<Arc<Limits>>,
    /// Hits per second that turn it off, or zero.
    pub(crate) runaway: u32,
    pub(crate) counters: Arc<Counters>,
    /// The counters by which `every` counts: of several probes of a call, the first one's.
    pub(crate) eligible: Arc<Counters>,
    /// A copy that outlives the breakpoint, for hits that are handled later.
    pub(crate) late: Option<Arc<Probe>>,
    pub(crate) context: Arc<Context>,
}

impl Probe {
    /// Whether both probes do the same at one place, so that each hit would count twice.
    pub(crate) fn repeats(&self, other: &Probe) -> bool {
        fn address<T>(held: &Option<Arc<T>>) -> Option<*const T> {
            held.as_ref().map(Arc::as_ptr)
        }
        self.offset == other.offset
            && self.file.is_inode_of(&other.file)
            && (self.role, self.call, self.flags) == (other.role, other.call, other.flags)
            && (self.ends, self.max_frames) == (other.ends, other.max_frames)
            && address(&self.at_entry) == address(&other.at_entry)
            && address(&self.at_return) == address(&other.at_return)
            && self.sink == other.sink
            && address(&self.spans) == address(&other.spans)
    }
}

impl PartialEq for Sink {
    fn eq(&self, other: &Sink) -> bool {
        match (self, other) {
            (Sink::Record, Sink::Record) | (Sink::Count, Sink::Count) => true,
            (Sink::Table(one), Sink::Table(other)) | (Sink::Span(one), Sink::Span(other)) => {
                Arc::ptr_eq(one, other)
            }
            _ => false,
        }
    }
}
