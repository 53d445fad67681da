// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files and places to probe.

use crate::attach::tracer::Wants;
use crate::names::probed_file::ProbedFile;
use crate::placeless::Placeless;
use crate::spec::BinaryName;
use nsprobe_probes::ExitProbes;
use nsprobe_spec::decode::FieldFormat;
use nsprobe_spec::{Compiled, Sink, SpecError, StepProgram};
use nsprobe_symbolize::FileOffset;
use std::rc::Rc;

/// A place to be probed.
#[derive(Debug)]
pub struct PlannedProbe {
    /// Index of its file; none of samples and waits.
    pub file: Option<usize>,
    /// Offset in the file, or the number of samples or waits.
    pub offset: FileOffset,
    /// Offset of the breakpoint: the same, or a cheaper equivalent instruction after it.
    pub breakpoint: FileOffset,
    /// The semaphore of a static probe.
    pub(crate) semaphore: Option<FileOffset>,
    /// Whether that is the beginning of a function.
    pub(crate) at_function: bool,
    /// Whether it is hit when the function returns.
    pub at_return: bool,
    /// Program that runs at the entry.
    pub(crate) entry: Option<Rc<StepProgram>>,
    /// Program that runs at the return.
    pub(crate) ret: Option<Rc<StepProgram>>,
    /// Its hits freeze the record.
    pub(crate) is_trigger: bool,
    /// Probes on its exits, in place of one on its return.
    pub exits: Option<ExitProbes<Rc<StepProgram>>>,
    /// The fields of its records.
    pub(crate) fields: Rc<[FieldFormat]>,
    /// The function's readable name, without parameters.
    pub function: String,
    /// Its name in output: `redis-server:setCommand`.
    pub label: String,
}

impl PlannedProbe {
    /// The program whose hits go to the sink.
    pub(crate) fn delivers(&self) -> Option<&StepProgram> {
        match self.at_return {
            true => self.ret.as_deref(),
            false => self.entry.as_deref(),
        }
    }

    /// What its hits are, if they have no place in a file.
    pub(crate) fn placeless(&self) -> Option<Placeless> {
        match self.file {
            None => Placeless::of("", &self.function, self.offset.0),
            Some(_) => None,
        }
    }

    /// Whether it ends spans and begins none.
    pub fn only_frees(&self) -> bool {
        let code = self.delivers();
        code.is_some_and(|code| code.ends_spans() && !code.begins_spans())
    }

    /// Whether both run the same programs.
    pub(super) fn runs_as(&self, other: &PlannedProbe) -> bool {
        (&self.entry, &self.ret, &self.exits) == (&other.entry, &other.ret, &other.exits)
    }
}

/// All probes that a run plans.
#[derive(Debug, Default)]
pub struct Planned {
    /// The files that hold their places.
    pub files: Vec<ProbedFile>,
    /// The probes, in the order of the specs.
    pub probes: Vec<PlannedProbe>,
    /// Notes for the user.
    pub(crate) notes: Vec<String>,
    /// The parts of the keys that hits are counted by.
    pub keys: Vec<FieldFormat>,
    /// Index of each binary's file.
    pub(crate) opened: Vec<(BinaryName, usize)>,
}

impl Planned {
    /// The files that have a probe.
    pub fn probed(&self) -> impl Iterator<Item = &ProbedFile> {
        let files = self.files.iter().enumerate();
        let has_one = |index| self.probes.iter().any(|probe| probe.file == Some(index));
        files
            .filter(move |(index, _)| has_one(*index))
            .map(|(_, file)| file)
    }

    /// Adds samples or waits, and what ends these.
    pub(crate) fn add_placeless(
        &mut self,
        placeless: Placeless,
        wants: &Wants<'_>,
    ) -> Result<(), SpecError> {
        let keys = match wants.sink {
            Sink::Table { keys, .. } => keys,
            Sink::Record | Sink::Count | Sink::Spans { .. } => &[],
        };
        let are_waits = placeless.samples_hz().is_none();
        let compiled = match placeless {
            Placeless::Waits { min_ns } if !wants.facts_of_waits.is_empty() => {
                self.add(Placeless::Wakes { min_ns }, Compiled::default());
                Compiled::recorded_waits(wants.facts_of_waits, keys)?
            }
            _ => Compiled::placeless(keys, are_waits)?,
        };
        self.keys.clone_from(&compiled.keys);
        self.add(placeless, compiled);
        Ok(())
    }

    fn add(&mut self, placeless: Placeless, compiled: Compiled) {
        self.probes.push(PlannedProbe {
            file: None,
            offset: FileOffset(placeless.number()),
            breakpoint: FileOffset(0),
            semaphore: None,
            at_function: false,
            at_return: false,
            entry: compiled.entry.map(Rc::new),
            ret: None,
            is_trigger: false,
            exits: None,
            fields: Rc::from([]),
            function: placeless.name().to_owned(),
            label: placeless.name().to_owned(),
        });
    }
}
