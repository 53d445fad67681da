// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the probes of a trace are called.

use crate::names::function_names::FunctionNames;
use libnsprobe::ProbeId;
use nsprobe_spec::decode::FieldFormat;
use nsprobe_symbolize::FileOffset;
use std::rc::Rc;

/// What samples are called where others have a function.
pub(crate) const SAMPLES: &str = "cpu-samples";

/// What output calls a probe.
#[derive(Clone, Debug)]
pub(crate) struct ProbeLabel {
    pub(crate) id: ProbeId,
    /// `binary:function`, escaped.
    pub(crate) label: String,
    pub(crate) binary: String,
    pub(crate) function: String,
    pub(crate) offset: FileOffset,
    /// The fields of its records.
    pub(crate) fields: Rc<[FieldFormat]>,
    /// The functions of the probed file, when fields are named by them.
    pub(crate) symbols: Option<Rc<dyn FunctionNames>>,
    /// Which of the planned probes it belongs to, and as what.
    pub(crate) planned: usize,
    pub(crate) role: Role,
}

impl ProbeLabel {
    /// Of samples: how many times a second.
    pub(crate) fn samples_hz(&self) -> Option<u32> {
        let is_samples = self.binary.is_empty() && self.function == SAMPLES;
        u32::try_from(self.offset.0).ok().filter(|_| is_samples)
    }
}

/// What a probe of the kernel's is to a probe of the user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// All of it.
    Whole,
    /// It begins the calls that exits end.
    Begin,
    /// One of the function's exits.
    Exit,
    /// A jump by which calls go where their returns are not seen.
    Leave,
}

impl Role {
    /// Whether its hits are those of the user's probe: calls that begin, or go where their
    /// return is not seen, are none.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Role::Whole | Role::Exit)
    }
}

/// The id in a key that names a probe.
pub(crate) fn probe_id(word: u64) -> ProbeId {
    ProbeId(word as u32)
}
