// SPDX-License-Identifier: GPL-2.0-only
//! Dumps the living tasks as records, in the order of their numbers.
//!
//! Each task is read in an RCU section of its own, so that other tasks run meanwhile; a task that
//! begins or ends between two sections has an event. Records are built in kernel memory first, and
//! copied from there to the reader's memory, which may fault.

use crate::{
    common::{
        abi::{DUMP_ARGS, DUMP_MAPPINGS},
        frame::Unmapped,
        record::{CodeMapping, Header, KIND_MAPPINGS, KIND_TASK},
        task::{
            MappingsRecord,
            TASK_ALIVE,
            TASK_ARGS_ABSENT,
            TASK_ARGS_CUT,
            TASK_ARGS_MAX,
            TASK_BYTES_MAX, //
        }, //
    },
    context::Context,
    object::Identified,
    sys::{
        self,
        any_task::{AnyTask, Look},
        cond_resched,
        memory::{self, GFP_REQUEST},
        remote_mm::{RemoteMm, Seen},
        task::is_killed,
        task_walk::next_task, //
    },
    tasks::{
        events::TaskEvents,
        record::{Described, Levels}, //
    }, //
};
use kernel::{
    prelude::*,
    uaccess::UserSliceWriter, //
};
use zerocopy::{transmute, transmute_ref, IntoBytes};

/// Words that are gathered before they are copied to the reader.
const GATHERED: usize = 8 << 10;
const TASK_WORDS_MAX: usize = TASK_BYTES_MAX / 8;
const MAPPINGS_WORDS: usize = size_of::<MappingsRecord>() / 8;
const MAPPING_WORDS: usize = size_of::<CodeMapping>() / 8;

/// The result of a dump.
pub(crate) struct Dumped {
    /// The task number to continue from, or 0.
    pub(crate) next: u32,
    /// Records written.
    pub(crate) count: u32,
    /// Bytes written.
    pub(crate) written: u32,
}

/// A dump in progress.
pub(crate) struct TaskDump<'a> {
    context: &'a Context,
    events: Option<&'a TaskEvents>,
    flags: u32,
    words: KVVec<u64>,
    /// The levels of the task that was read last.
    levels: Levels,
    out: UserSliceWriter,
    count: u32,
    written: u32,
}

/// What was read of a task.
struct Found {
    described: Described,
    memory: Option<RemoteMm>,
}

impl<'a> TaskDump<'a> {
    /// A dump for this reader; `flags` are `DUMP_*`.
    pub(crate) fn new(
        context: &'a Context,
        events: Option<&'a TaskEvents>,
        flags: u32,
        out: UserSliceWriter,
    ) -> Result<Self> {
        Ok(TaskDump {
            context,
            events,
            flags,
            words: memory::room(GATHERED)?,
            levels: Levels::new(),
            out,
            count: 0,
            written: 0,
        })
    }

    /// Writes the tasks from number `from` on, as many as fit. `EINTR` if the caller was killed.
    pub(crate) fn run(mut self, from: u32) -> Result<Dumped> {
        let context = self.context;
        let mut next = from.max(1);
        loop {
            // One record, and the head of one with mappings, must always fit.
            if self.room() < TASK_WORDS_MAX.wrapping_add(MAPPINGS_WORDS) {
                break;
            }
            let found = next_task(context.session_owner.namespace(), next, |task| {
                self.look(task)
            });
            let Some((number, found)) = found else {
                next = 0;
                break;
            };
            if let Some(found) = found {
                if !self.put(found)? {
                    next = number;
                    break;
                }
            }
            next = number.wrapping_add(1);
            if self.words.len() >= GATHERED / 2 {
                self.flush()?;
            }
            if is_killed() {
                return Err(EINTR);
            }
            cond_resched();
        }
        self.flush()?;
        Ok(Dumped {
            next,
            count: self.count,
            written: self.written,
        })
    }

    /// Words that still fit into the reader's buffer.
    fn room(&self) -> usize {
        (self.out.len() / 8).saturating_sub(self.words.len())
    }

    fn flush(&mut self) -> Result {
        let bytes = self.words.as_bytes();
        self.out.write_slice(bytes)?;
        self.written = self.written.wrapping_add(bytes.len() as u32);
        self.words.clear();
        Ok(())
    }

    /// Reads a task; `None` if it is filtered. Under RCU.
    fn look(&mut self, task: &AnyTask<'_>) -> Option<Found> {
        // Read the time first, so that no older event of the task seems to be newer.
        let now_ns = sys::now_ns();
        let counts = match self.events {
            Some(events) => events.counts_now(task),
            None => self
                .context
                .filter
                .with(|filter| self.context.session_owner.admits(filter, task)),
        };
        if !counts {
            return None;
        }
        self.levels.clear();
        let (session_owner, levels) = (&self.context.session_owner, &mut self.levels);
        let mut described = Described::new(session_owner, task, Look::Wait, now_ns, levels)?;
        described.record.what = TASK_ALIVE;
        described.record.state = task.state();
        let wants_memory = self.flags != 0 && task.is_leader() && !task.is_ending();
        let memory = if wants_memory {
            RemoteMm::of(task)
        } else {
            None
        };
        Some(Found { described, memory })
    }

    /// Appends a task; returns false if there is no room for all of it, but there would be in an
    /// empty buffer.
    fn put(&mut self, mut found: Found) -> Result<bool> {
        let is_first = self.count == 0;
        let begin = self.words.len();
        let room = self.room();
        self.put_task(&mut found)?;
        if let (true, Some(memory)) = (self.flags & DUMP_MAPPINGS != 0, &found.memory) {
            let room = room.saturating_sub(self.words.len().wrapping_sub(begin));
            if !self.put_mappings(&found.described, memory, room, is_first)? {
                self.words.truncate(begin);
                return Ok(false);
            }
            self.count = self.count.wrapping_add(1);
        }
        self.count = self.count.wrapping_add(1);
        Ok(true)
    }

    fn put_task(&mut self, found: &mut Found) -> Result {
        let mut args = KVVec::new();
        if let (true, Some(memory)) = (self.flags & DUMP_ARGS != 0, &found.memory) {
            args = memory::zeroed(TASK_ARGS_MAX / 8)?;
            let read = memory.read_args(&mut args);
            let record = &mut found.described.record;
            record.args_bytes = read.found as u32;
            record.flags |= match (read.found, read.is_cut) {
                (_, false) => 0,
                (0, true) => TASK_ARGS_ABSENT,
                (_, true) => TASK_ARGS_CUT,
            };
            args.truncate(read.found.div_ceil(8));
        }
        let levels = self.levels.as_slice();
        let words = Described::WORDS
            .wrapping_add(levels.len())
            .wrapping_add(args.len());
        let out = &mut self.words;
        out.push(header(KIND_TASK, words), GFP_REQUEST)?;
        found
            .described
            .with_words(|task| out.extend_from_slice(task, GFP_REQUEST))?;
        out.extend_from_slice(levels, GFP_REQUEST)?;
        out.extend_from_slice(&args, GFP_REQUEST)?;
        Ok(())
    }

    /// Appends the mappings; returns false if they do not all fit and `cuts` is not set.
    fn put_mappings(
        &mut self,
        described: &Described,
        memory: &RemoteMm,
        room: usize,
        cuts: bool,
    ) -> Result<bool> {
        let fit = room.saturating_sub(MAPPINGS_WORDS) / MAPPING_WORDS;
        let mut mappings: KVVec<CodeMapping> = KVVec::new();
        let mut left_out = 0u32;
        let time_ns = sys::now_ns();
        let seen = memory.each_code(|seen| {
            if mappings.len() >= fit {
                left_out = left_out.saturating_add(1);
                return Ok(());
            }
            mappings.push(self.mapping(seen, described.pid), GFP_REQUEST)?;
            Ok(())
        });
        match seen {
            // The address space stays locked for a long time.
            Err(error) if error == EAGAIN => left_out = u32::MAX,
            other => other?,
        }
        if left_out != 0 && left_out != u32::MAX && !cuts {
            return Ok(false);
        }
        let head = MappingsRecord {
            time_ns,
            start_ns: described.record.start_ns,
            pid: described.pid,
            mappings: mappings.len() as u32,
            left_out,
            ..MappingsRecord::default()
        };
        let words = MAPPINGS_WORDS.wrapping_add(mappings.len().wrapping_mul(MAPPING_WORDS));
        self.words.push(header(KIND_MAPPINGS, words), GFP_REQUEST)?;
        let head: &[u64; MAPPINGS_WORDS] = transmute_ref!(&head);
        self.words
            .extend_from_slice(crate::common::record::body_of(head), GFP_REQUEST)?;
        for mapping in &mappings {
            let mapping: &[u64; MAPPING_WORDS] = transmute_ref!(mapping);
            self.words.extend_from_slice(mapping, GFP_REQUEST)?;
        }
        Ok(true)
    }

    /// A mapping with its file as an object, which is announced if it is new.
    fn mapping(&self, seen: Seen, pid: u32) -> CodeMapping {
        let file = seen.file.ok_or(Unmapped::Anonymous);
        let found = file.and_then(|file| self.context.objects.identify_program(file, pid, false));
        let (object, unmapped) = match found {
            Ok(Identified { id, is_new }) => {
                if is_new {
                    let cpu = sys::task::Current::get().cpu_hint();
                    self.context.announce_quietly(cpu, id, sys::now_ns());
                }
                (id, 0)
            }
            Err(why) => (0, why as u32),
        };
        CodeMapping {
            start: seen.start,
            bytes: seen.end.saturating_sub(seen.start),
            delta: seen.file_offset.wrapping_sub(seen.start),
            object,
            unmapped,
        }
    }
}

/// The header of a record of `words` words.
fn header(kind: u16, words: usize) -> u64 {
    transmute!(Header {
        word: (words as u32).wrapping_mul(8),
        kind,
        reserved: 0,
    })
}
