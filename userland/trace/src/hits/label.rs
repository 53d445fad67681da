// SPDX-License-Identifier: MIT OR Apache-2.0
//! Labels of the probes of a trace.

use crate::names::address_names::AddressNames;
use crate::names::probed_file::FileId;
use crate::placeless::Placeless;
use libnsprobe::ProbeId;
use nsprobe_spec::decode::FieldFormat;
use nsprobe_symbolize::FileOffset;
use std::rc::Rc;

/// The names of a probe in output.
#[derive(Clone, Debug)]
pub struct ProbeLabel {
    /// The probe.
    pub id: ProbeId,
    /// `binary:function`, escaped.
    pub label: String,
    /// The path of its file, as the target sees it.
    pub binary: String,
    /// The probed file, while it is there.
    pub file: Option<FileId>,
    /// Its function, or what else was probed.
    pub function: String,
    /// Its place in the file.
    pub offset: FileOffset,
    /// The fields of its records.
    pub fields: Rc<[FieldFormat]>,
    /// The functions of the probed file, when fields are named by them.
    pub symbols: Option<Rc<dyn AddressNames>>,
    /// The number of its planned probe.
    pub planned: usize,
    /// What its hits mean for the planned probe.
    pub role: ProbeRole,
}

impl ProbeLabel {
    /// What its hits are, if they have no place in a file.
    pub fn placeless(&self) -> Option<Placeless> {
        Placeless::of(&self.binary, &self.function, self.offset.0)
    }
}

/// Role of one of the kernel's probes for the user's probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeRole {
    /// The whole probe.
    Whole,
    /// It begins the calls that exits end.
    Begin,
    /// One of the function's exits.
    Exit,
    /// A jump by which calls go where their returns are not seen.
    Leave,
    /// A jump by which calls go on in a function with a probe of its own.
    HandOn,
}

impl ProbeRole {
    /// Whether its hits count as those of the user's probe: entries of calls, and calls that
    /// leave for a place whose return is not seen, do not.
    pub fn counts(self) -> bool {
        matches!(self, ProbeRole::Whole | ProbeRole::Exit)
    }
}

/// The id in a key that names a probe.
pub fn probe_id(word: u64) -> ProbeId {
    ProbeId(word as u32)
}
