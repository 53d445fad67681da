// SPDX-License-Identifier: GPL-2.0-only
//! The probe of a session whose hits are samples.

use super::{
    new_probe::Allowed,
    ProbeEntry,
    Probes,
    Sampling,
    State, //
};
use crate::{
    common::abi::{
        Probe as ProbeRequest,
        Refusal, //
    },
    context::Context,
    probe::{
        request::{refused_by_kernel, validate, validate_sampler, Refused},
        samples::Samples, //
    },
    sys::{
        memory::{self, GFP_REQUEST},
        sampler::Sampler,
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
    /// Checks a request for samples and starts sampling. Out of line, as `attach` uses enough stack
    /// already.
    #[inline(never)]
    pub(super) fn start_sampling(
        &mut self,
        context: &Arc<Context>,
        request: &mut ProbeRequest,
    ) -> Result<(), Refused> {
        let kind = validate(request)?;
        validate_sampler(request)?;
        if self.sampling.is_some() {
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
        let samples = Arc::new(Samples::new(probe), GFP_REQUEST);
        let sampling = samples.map_err(Error::from).and_then(|samples| {
            Ok(Sampling {
                id,
                sampler: Sampler::start(request.offset, samples.clone())?,
                samples,
            })
        });
        let state = match &sampling {
            Ok(_) => State::Attached,
            Err(_) => State::Detached,
        };
        if let Some(known) = self.known.last_mut() {
            known.state = state;
        }
        self.sampling = Some(sampling.map_err(refused_by_kernel)?);
        PROBES.fetch_add(1, Relaxed);
        request.id = id;
        Ok(())
    }
}
