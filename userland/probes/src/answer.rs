// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes of a query: data that a process without privileges sends.

use crate::ProbeQuery;
use nsprobe_spec::decode::FieldFormat;
use nsprobe_spec::{SpecError, StepProgram};
use nsprobe_symbolize::FileOffset;
use serde::{Deserialize, Serialize};

/// Most fields of a record and parts of a key: each takes a word, and a program has fewer.
const FIELDS_MAX: usize = 96;
/// Most places at which a function is left.
const EXITS_MAX: usize = 1 << 16;
/// Most things that the user should know of one file; each is said once, and compared with
/// all others.
pub(crate) const NOTES_MAX: usize = 1 << 12;

/// The probes of a spec in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probes {
    /// The probes.
    pub probes: Vec<Probe>,
    /// Their programs, each once.
    pub programs: Vec<StepProgram>,
    /// What their records may hold. As JSON, whose reader does not follow types that are
    /// nested without end.
    #[serde(with = "as_json")]
    pub formats: Vec<Vec<FieldFormat>>,
    /// The parts of the keys that hits are counted by.
    #[serde(with = "as_json")]
    pub keys: Vec<FieldFormat>,
    /// What the user should know. Names in it come from the file.
    pub notes: Vec<String>,
}

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Where in the file.
    pub offset: FileOffset,
    /// Where the breakpoint is put: there, or at a cheaper instruction after it that means
    /// the same.
    pub breakpoint: FileOffset,
    /// The semaphore of a static probe.
    pub semaphore: Option<FileOffset>,
    /// Whether that is the beginning of a function.
    pub at_function: bool,
    /// Whether it is hit when the function returns.
    pub at_return: bool,
    /// Which program runs at the entry.
    pub entry: Option<u32>,
    /// Which program runs at the return.
    pub ret: Option<u32>,
    /// Probes on its exits, in place of one on its return.
    pub exits: Option<ExitProbes>,
    /// Which format its records have.
    pub format: u32,
    /// The function's readable name, without parameters.
    pub function: String,
}

/// Probes on the exits of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitProbes<P = u32> {
    /// Whether the function is one of Go's, whose calls are known by their goroutine.
    pub is_go: bool,
    /// Where it returns, or what it leaves to by a jump does.
    pub returns: Vec<FileOffset>,
    /// Jumps by which it goes where its return is not seen, and the program that lets those
    /// through that do, when not all do.
    pub left: Vec<(FileOffset, Option<P>)>,
    /// Jumps to functions that return their first argument, and the program for what the function
    /// at hand returns so.
    pub by_argument: Vec<(FileOffset, P)>,
    /// Jumps to functions whose calls are seen by probes of their own.
    pub handed_on: Vec<FileOffset>,
}

impl<P> ExitProbes<P> {
    /// Where breakpoints are, besides the entry.
    pub fn places(&self) -> impl Iterator<Item = FileOffset> + '_ {
        let left = self.left.iter().map(|(place, _)| place);
        let by_argument = self.by_argument.iter().map(|(place, _)| place);
        let others = left.chain(by_argument).chain(&self.handed_on);
        self.returns.iter().chain(others).copied()
    }

    /// This answer with other programs; `None` if there is no program for one.
    pub fn with_programs<Q>(
        self,
        mut program: impl FnMut(P) -> Option<Q>,
    ) -> Option<ExitProbes<Q>> {
        let mut left = Vec::new();
        for (place, decides) in self.left {
            let decides = match decides {
                Some(decides) => Some(program(decides)?),
                None => None,
            };
            left.push((place, decides));
        }
        let by_argument = self.by_argument.into_iter();
        let by_argument = by_argument.map(|(place, code)| Some((place, program(code)?)));
        Some(ExitProbes {
            is_go: self.is_go,
            by_argument: by_argument.collect::<Option<_>>()?,
            left,
            returns: self.returns,
            handed_on: self.handed_on,
        })
    }
}

/// Why there are no probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refused {
    /// Debug files were not looked for, and are needed.
    NeedsDebugFiles,
    /// The spec does not fit what the file has.
    Spec(SpecError),
    /// For a reason, the causes of which follow.
    Because(Vec<String>),
}

impl Probes {
    /// Whether all is within what comes of a query: the numbers name something, and no more
    /// is done than was asked for.
    pub fn is_sound(&self, probe_query: &ProbeQuery) -> bool {
        let is_bounded = |fields: &[FieldFormat]| {
            fields.len() <= FIELDS_MAX && fields.iter().all(FieldFormat::is_bounded)
        };
        self.probes.len() <= probe_query.max_probes
            && self.probes.iter().all(|probe| self.is_sound_probe(probe))
            && self.formats.len() <= self.probes.len()
            && self.formats.iter().all(|fields| is_bounded(fields))
            && is_bounded(&self.keys)
            && self.notes.len() <= NOTES_MAX
            && (!probe_query.changes.is_empty() || !self.programs.iter().any(StepProgram::changes))
    }

    fn is_sound_probe(&self, probe: &Probe) -> bool {
        let is_program = |number: &u32| self.program(*number).is_some();
        let left = probe.exits.iter().flat_map(|exits| &exits.left);
        let numbers = left.filter_map(|(_, program)| program.as_ref());
        let by_argument = probe.exits.iter().flat_map(|exits| &exits.by_argument);
        let numbers = numbers.chain(by_argument.map(|(_, program)| program));
        let mut numbers = numbers.chain(&probe.entry).chain(&probe.ret);
        let mut exits = probe.exits.iter();
        numbers.all(is_program)
            && exits.all(|exits| exits.places().count() <= EXITS_MAX)
            && self.format(probe.format).is_some()
    }

    /// The program of that number.
    pub fn program(&self, number: u32) -> Option<&StepProgram> {
        self.programs.get(usize::try_from(number).ok()?)
    }

    /// The format of that number.
    pub fn format(&self, number: u32) -> Option<&[FieldFormat]> {
        let format = self.formats.get(usize::try_from(number).ok()?)?;
        Some(format)
    }
}

/// What nests, as a text of JSON.
mod as_json {
    use serde::de::{DeserializeOwned, Deserializer, Error as _};
    use serde::ser::{Error as _, Serializer};
    use serde::{Deserialize, Serialize};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(value).map_err(S::Error::custom)?;
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
