// SPDX-License-Identifier: GPL-2.0-only
//! Checks requests for probes and makes the probes, without breakpoints yet.

use super::{
    new_probe::Allowed,
    ProbeEntry,
    Probes,
    RefusedAt, //
};
use crate::{
    common::abi::{
        Probe as ProbeRequest,
        Refusal, //
    },
    context::Context,
    probe::{
        late_hit::LATE_HITS_MAX,
        request::{
            is_one_call,
            is_placeless,
            validate,
            validate_file_system,
            validate_instruction,
            validate_offsets,
            Refused, //
        },
        Role, //
    },
    sys::{
        cond_resched,
        inode::{PinnedInode, ReadableFile},
        memory::{self, GFP_REQUEST},
        task_work::Slots,
        uprobe::Place, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The file of the previous probe: most probes of a request are in one file.
#[derive(Default)]
struct LastFile(Option<(i32, ProbedFile)>);

struct ProbedFile {
    file: ReadableFile,
    inode: Arc<PinnedInode>,
    /// Whether it is a 32-bit program or library; not known before it is asked.
    is_32bit: Option<bool>,
}

impl LastFile {
    fn get(&mut self, fd: i32) -> Result<&mut ProbedFile, Refused> {
        let known = match self.0.take() {
            Some(known) if known.0 == fd => known,
            _ => {
                let file = ReadableFile::from_fd(fd)?;
                let inode = Arc::new(file.inode()?, GFP_REQUEST)?;
                let is_32bit = None;
                (
                    fd,
                    ProbedFile {
                        file,
                        inode,
                        is_32bit,
                    },
                )
            }
        };
        Ok(&mut self.0.insert(known).1)
    }
}

impl ProbedFile {
    fn is_32bit(&mut self) -> bool {
        let file = &self.file;
        *self.is_32bit.get_or_insert_with(|| is_32bit(file))
    }
}

impl Probes {
    /// Checks `requests` and makes their probes, without breakpoints yet; if `is_partial`, of those
    /// whose place is right. On failure some may be prepared.
    pub(super) fn prepare_all(
        &mut self,
        context: &Arc<Context>,
        requests: &mut [ProbeRequest],
        is_partial: bool,
    ) -> Result<(), RefusedAt> {
        let mut last = LastFile::default();
        let mut allowed = Allowed::default();
        let mut before = 0usize;
        for call in requests.chunk_by_mut(is_one_call) {
            let (known, prepared) = (self.known.len(), self.batch.prepared());
            let made = self.prepare_call(context, call, &mut last, &mut allowed);
            match made {
                Err((_, refused)) if is_partial && refused.is_of_place() => {
                    self.known.truncate(known);
                    self.batch.drop_prepared(prepared);
                    refused.tell(call);
                }
                made => made.map_err(|(index, refused)| RefusedAt {
                    index: before.saturating_add(index) as u32,
                    refused,
                })?,
            }
            before = before.saturating_add(call.len());
        }
        self.check_repeated(requests)
    }

    /// Prepares the probes of one call.
    fn prepare_call(
        &mut self,
        context: &Arc<Context>,
        call: &mut [ProbeRequest],
        last: &mut LastFile,
        allowed: &mut Allowed,
    ) -> Result<(), (usize, Refused)> {
        for (index, request) in call.iter_mut().enumerate() {
            let prepared = self.prepare(context, request, last, allowed);
            prepared.map_err(|refused| (index, refused))?;
            cond_resched();
        }
        Ok(())
    }

    /// Checks that none of the prepared probes repeats another of the session.
    fn check_repeated(&self, requests: &[ProbeRequest]) -> Result<(), RefusedAt> {
        let all = self.batch.prepared();
        // A hash table of probe numbers, from 1 on, at most half full.
        let numbers = memory::zeroed::<u32>(all.saturating_mul(2).next_power_of_two());
        let mut numbers = numbers.map_err(|error| RefusedAt {
            index: 0,
            refused: Refused(error, Refusal::NoMemory),
        })?;
        let mask = numbers.len().wrapping_sub(1);
        for number in 0..all {
            let Some(probe) = self.batch.hook(number) else {
                break;
            };
            let mixed = (probe.file.ino ^ probe.offset.rotate_left(32))
                .wrapping_add(probe.call.number.into())
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut at = (mixed >> 32) as usize;
            while let Some(taken) = numbers.get_mut(at & mask) {
                let Some(other) = (*taken as usize).checked_sub(1) else {
                    *taken = (number as u32).wrapping_add(1);
                    break;
                };
                if self
                    .batch
                    .hook(other)
                    .is_some_and(|other| probe.repeats(other))
                {
                    let index = requests.iter().position(|request| request.id == probe.id);
                    return Err(RefusedAt {
                        index: index.unwrap_or(0) as u32,
                        refused: Refused(EEXIST, Refusal::Twice),
                    });
                }
                at = at.wrapping_add(1);
            }
            cond_resched();
        }
        Ok(())
    }

    /// Checks a request and makes its probe, without a breakpoint yet.
    fn prepare(
        &mut self,
        context: &Arc<Context>,
        request: &mut ProbeRequest,
        last: &mut LastFile,
        allowed: &mut Allowed,
    ) -> Result<(), Refused> {
        (request.refused, request.error) = (0, 0);
        let kind = validate(request)?;
        if is_placeless(request.kind) {
            // They are attached one by one.
            return Err(Refused(EINVAL, Refusal::UnknownValue));
        }
        let last = last.get(request.fd)?;
        let inode = last.inode.clone();
        validate_offsets(request, inode.size())?;
        validate_file_system(request, &inode)?;
        let returns = validate_instruction(&last.file, request.offset)?;
        let id = self.next_id()?;
        let mut probe = self.probe(context, request, id, kind, inode.key(), allowed)?;
        probe.is_32bit_file = last.is_32bit();
        // At a function's first instruction, another tracer's return probe would interfere: one
        // that has just left may still write to the slot of the return address.
        if probe.role == Role::End && probe.breakpoint_delta != 0 {
            probe.returns = returns;
        }
        if probe.may_be_late() {
            if context.late_hits.as_ref().is_none() {
                context.late_hits.populate(Slots::new(LATE_HITS_MAX)?);
            }
            probe.late = Some(Arc::new(probe.clone(), GFP_REQUEST)?);
        }
        memory::push(&mut self.known, ProbeEntry::prepared(&probe))?;
        let place = Place {
            inode,
            offset: request.offset,
            semaphore: request.semaphore,
        };
        self.batch.prepare(place, kind.0, probe)?;
        request.id = id;
        Ok(())
    }
}

/// Whether a file is a 32-bit program or library.
fn is_32bit(file: &ReadableFile) -> bool {
    /// `ELFCLASS32`, after the file's magic number.
    const BEGIN: [u8; 5] = *b"\x7fELF\x01";
    let mut begin = [0; BEGIN.len()];
    file.read(0, &mut begin) == BEGIN.len() && begin == BEGIN
}
