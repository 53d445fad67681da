// SPDX-License-Identifier: GPL-2.0-only
//! The probes of a session that have no place: those whose hits are samples or waits.

use super::{
    new_probe::Allowed,
    ProbeEntry,
    Probes,
    Sampling,
    State,
    Waiting,
    Waking, //
};
use crate::{
    common::abi::{
        Probe as ProbeRequest,
        Refusal,
        PROBE_WAIT,
        PROBE_WAKE,
        TASKS_SWITCHES, //
    },
    context::Context,
    probe::{
        request::{refused_by_kernel, validate, validate_placeless, Refused},
        samples::Samples,
        waits::Waits,
        wakes::Wakes,
        Probe, //
    },
    sys::{
        memory::{self, GFP_REQUEST},
        sampler::Sampler,
        task_points::{Listening, WAKERS},
        vma::FileKey, //
    },
    totals::PROBES, //
};
use core::sync::atomic::Ordering::Relaxed;
use kernel::{
    prelude::*,
    sync::Arc, //
};

impl Probes {
    /// Checks a request for samples or waits, and starts taking them. Out of line, as `attach` uses
    /// enough stack already.
    #[inline(never)]
    pub(super) fn start_placeless(
        &mut self,
        context: &Arc<Context>,
        request: &mut ProbeRequest,
    ) -> Result<(), Refused> {
        let kind = validate(request)?;
        validate_placeless(request)?;
        let is_twice = match request.kind {
            PROBE_WAIT => self.waiting.is_some(),
            // Those that are followed do not know of it.
            PROBE_WAKE => self.waking.is_some() || self.waiting.is_some(),
            _ => self.sampling.is_some(),
        };
        if is_twice {
            return Err(Refused(EEXIST, Refusal::Twice));
        }
        let id = self.next_id()?;
        let probe = self.probe(
            context,
            request,
            id,
            kind,
            FileKey::NONE,
            &mut Allowed::default(),
        )?;
        memory::push(&mut self.known, ProbeEntry::prepared(&probe))?;
        let started = match request.kind {
            PROBE_WAIT => self.start_waiting(probe, request.offset),
            PROBE_WAKE => self.start_waking(probe, request.offset),
            _ => self.start_sampling(probe, request.offset),
        };
        if let Some(known) = self.known.last_mut() {
            known.state = match &started {
                Ok(()) => State::Attached,
                Err(_) => State::Detached,
            };
        }
        started.map_err(refused_by_kernel)?;
        PROBES.fetch_add(1, Relaxed);
        request.id = id;
        Ok(())
    }

    fn start_sampling(&mut self, probe: Probe, hz: u64) -> Result {
        let id = probe.id;
        let samples = Arc::new(Samples::new(probe), GFP_REQUEST)?;
        self.sampling = Some(Sampling {
            id,
            sampler: Sampler::start(hz, samples.clone())?,
            samples,
        });
        Ok(())
    }

    fn start_waiting(&mut self, probe: Probe, min_ns: u64) -> Result {
        let id = probe.id;
        let wakes = self.waking.as_ref().map(|waking| waking.wakes.clone());
        let waits = Arc::new(Waits::new(probe, min_ns, wakes)?, GFP_REQUEST)?;
        let mut listening = Listening::new(waits.clone())?;
        let points = match self.waking {
            Some(_) => TASKS_SWITCHES | WAKERS,
            None => TASKS_SWITCHES,
        };
        listening.want(points).map_err(|(error, _)| error)?;
        self.waiting = Some(Waiting {
            id,
            listening,
            waits,
        });
        Ok(())
    }

    fn start_waking(&mut self, probe: Probe, min_ns: u64) -> Result {
        let id = probe.id;
        let wakes = Arc::new(Wakes::new(probe, min_ns)?, GFP_REQUEST)?;
        self.waking = Some(Waking { id, wakes });
        Ok(())
    }
}
