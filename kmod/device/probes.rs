// SPDX-License-Identifier: GPL-2.0-only
//! The requests about probes and their programs.

use super::{
    rights::require_capabilities,
    user_struct::{Array, UserStruct}, //
};
use crate::{
    common::{
        abi::{self, Counters, Detach},
        program::{Step, DATA_MAX, STEPS_MAX}, //
    },
    probe::{
        program::Program,
        request::Refused, //
    },
    session::{
        probes::RefusedAt,
        Session, //
    },
    sys::memory, //
};
use kernel::{
    prelude::*,
    uaccess::UserPtr, //
};

/// `ATTACH`.
pub(super) fn attach(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = UserStruct::<abi::Attach>::read(arg)?;
    let attach = &request.value;
    if attach.flags & !abi::ATTACH_PARTIAL != 0 {
        return Err(EINVAL);
    }
    let is_partial = attach.flags & abi::ATTACH_PARTIAL != 0;
    let at = Array::new(
        attach.probes,
        attach.probe_size,
        attach.count,
        abi::ATTACH_MAX,
    )?;
    let mut probes = at.read_all::<abi::Probe>()?;
    let mut ids = memory::room(probes.len())?;
    if let Err(RefusedAt { index, refused }) = session.attach(&mut probes, is_partial) {
        let Refused(error, reason) = refused;
        request.value.failed = index;
        request.value.reason = reason as u32;
        // The error matters more than a reason that cannot be written back.
        let _ = request.write_back();
        return Err(error);
    }
    for probe in probes.iter().filter(|probe| probe.id != 0) {
        // There is room for all.
        let _ = ids.push_within_capacity(probe.id);
    }
    let told = tell(&at, &probes);
    if told.is_err() {
        session.detach(&ids)?;
    }
    told
}

/// Writes probes back to the array that they came from.
fn tell(at: &Array, probes: &[abi::Probe]) -> Result {
    for index in 0..at.count() {
        if let Some(probe) = probes.get(index as usize) {
            at.write(index, probe)?;
        }
    }
    Ok(())
}

/// `DETACH`.
pub(super) fn detach(session: &Session, arg: UserPtr) -> Result {
    let detach = UserStruct::<Detach>::read(arg)?.value;
    if detach.flags & !abi::DETACH_ALL != 0 || detach.reserved != 0 {
        return Err(EINVAL);
    }
    if detach.flags & abi::DETACH_ALL != 0 {
        return match (detach.ids, detach.count) {
            (0, 0) => session.detach_all(),
            _ => Err(EINVAL),
        };
    }
    let wanted = Array::new(detach.ids, 4, detach.count, abi::ATTACH_MAX)?;
    session.detach(&wanted.read_all::<u32>()?)
}

/// `COUNTERS`.
pub(super) fn counters(session: &Session, arg: UserPtr) -> Result {
    let mut request = UserStruct::<Counters>::read(arg)?;
    let counters = &mut request.value;
    if counters.flags != 0 {
        return Err(EINVAL);
    }
    let cpu = (counters.cpu != abi::CPU_ALL).then_some(counters.cpu);
    let of_probe = session.counters(counters.probe)?;
    *counters = Counters {
        size: counters.size,
        flags: 0,
        probe: counters.probe,
        cpu: counters.cpu,
        ..Counters::default()
    };
    match cpu {
        None => of_probe.add_all(counters),
        Some(cpu) if of_probe.add_of_cpu(cpu, counters) => {}
        Some(_) => return Err(ENOENT),
    }
    request.write_back()
}

/// `PROGRAM`.
pub(super) fn program(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = UserStruct::<abi::Program>::read(arg)?;
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
