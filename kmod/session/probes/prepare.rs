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
        Refusal,
        PROBE_SAMPLE, //
    },
    context::Context,
    probe::{
        request::{validate, validate_instruction, validate_offsets, Refused},
        Role, //
    },
    sys::{
        cond_resched,
        inode::{PinnedInode, ReadableFile},
        memory::{self, GFP_REQUEST},
        uprobe::Place, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The file of the previous probe: most probes of a request are in one file.
#[derive(Default)]
struct LastFile(Option<(i32, ReadableFile, Arc<PinnedInode>)>);

impl LastFile {
    fn get(&mut self, fd: i32) -> Result<(&ReadableFile, Arc<PinnedInode>), Refused> {
        let known = match self.0.take() {
            Some(known) if known.0 == fd => known,
            _ => {
                let file = ReadableFile::from_fd(fd)?;
                let inode = Arc::new(file.inode()?, GFP_REQUEST)?;
                (fd, file, inode)
            }
        };
        let (_, file, inode) = self.0.insert(known);
        Ok((file, inode.clone()))
    }
}

impl Probes {
    /// Checks `requests` and makes their probes, without breakpoints yet. On failure some may be
    /// prepared.
    pub(super) fn prepare_all(
        &mut self,
        context: &Arc<Context>,
        requests: &mut [ProbeRequest],
    ) -> Result<(), RefusedAt> {
        let mut last = LastFile::default();
        let mut allowed = Allowed::default();
        for (index, request) in requests.iter_mut().enumerate() {
            let prepared = self.prepare(context, request, &mut last, &mut allowed);
            prepared.map_err(|refused| RefusedAt {
                index: index as u32,
                refused,
            })?;
            cond_resched();
        }
        self.check_repeated(requests.len())
    }

    /// Checks that none of the `new` prepared probes repeats another of the session.
    fn check_repeated(&self, new: usize) -> Result<(), RefusedAt> {
        let before = self.batch.len();
        let all = before.saturating_add(new);
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
                .wrapping_add(probe.call.into())
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
                    return Err(RefusedAt {
                        index: number.saturating_sub(before) as u32,
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
        let kind = validate(request)?;
        if request.kind == PROBE_SAMPLE {
            // Samples are attached by another request.
            return Err(Refused(EINVAL, Refusal::UnknownValue));
        }
        let (file, inode) = last.get(request.fd)?;
        validate_offsets(request, inode.size())?;
        let returns = validate_instruction(file, request.offset)?;
        let id = self.next_id()?;
        let mut probe = self.probe(context, request, id, kind, inode.key(), allowed)?;
        // At a function's first instruction, another tracer's return probe would interfere: one
        // that has just left may still write to the slot of the return address.
        if probe.role == Role::End && probe.breakpoint_delta != 0 {
            probe.returns = returns;
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
