// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the return of a function is seen: by the kernel's return probes, or by probes
//! on the instructions that leave the function.

use crate::place::{Searched, Spot};
use crate::wish::Returns;
use nsprobe_common::program::Operation;
use nsprobe_placement::{exits, Exit, Way};
use nsprobe_plan::{AtExits, Compiled, Time};
use nsprobe_symbolize::{FileOffset, Runtime};

/// Why exits are probed although the user did not say so.
pub(crate) fn reason(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Go => "it is a Go program, whose stacks move",
        Runtime::Unwinding => "exceptions or panics may pass through its functions",
        Runtime::Plain => "that was asked for",
    }
}

/// Whether the returns of a file's functions are seen at their exits.
pub(crate) fn wanted(returns: Returns, runtime: Runtime) -> Result<bool, String> {
    match (returns, runtime) {
        (Returns::Uretprobe, Runtime::Go) => Err(
            "a return probe would break it: Go moves stacks while functions run, and with them \
             the address that the probe puts there; --return ret probes the functions' exits"
                .to_owned(),
        ),
        (Returns::Uretprobe, _) | (Returns::Auto, Runtime::Plain) => Ok(false),
        (Returns::Ret, _) | (Returns::Auto, _) => Ok(true),
    }
}

impl Searched<'_> {
    /// The exits of the function at a spot, and the programs for there; or why that
    /// cannot be.
    pub(crate) fn exits(
        &self,
        spot: &Spot,
        compiled: &Compiled,
        time: Time,
    ) -> Result<(Vec<FileOffset>, AtExits, usize), String> {
        let found = self.with_code(spot, exits)?;
        let found = found.map_err(|unclear| unclear.to_string())?;
        let at = AtExits::new(compiled.entry.as_ref(), compiled.ret.as_ref(), time)
            .map_err(|why| why.to_string())?;
        let jump = |exit: &&Exit| exit.way == Way::Jump;
        if let Some(jump) = found.iter().find(jump).filter(|_| at.needs_result) {
            return Err(format!(
                "it leaves by a jump to another function at {:#x}, where its result is not known",
                jump.address
            ));
        }
        let jumps = found.iter().filter(jump).count();
        let offset = |exit: &Exit| {
            let address = nsprobe_symbolize::Address(exit.address);
            let offset = self.binary.offset_of(address);
            offset.ok_or_else(|| format!("its exit at {:#x} is not in the file", exit.address))
        };
        let places: Vec<FileOffset> = found.iter().map(offset).collect::<Result<_, _>>()?;
        let names_globals = at.exit.iter().any(|code| {
            let from_probe = Operation::FromProbe as u8;
            code.steps.iter().any(|step| step.operation == from_probe)
        });
        if names_globals && places.iter().any(|place| *place < spot.offset) {
            return Err("a part of it lies in front of its entry".to_owned());
        }
        Ok((places, at, jumps))
    }
}
