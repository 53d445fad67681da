// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans the probes: each file once, and each place once.

use super::allocators::{self, Family};
use super::parsed::Parsed;
use super::planned::{Planned, PlannedProbe};
use super::refusal::{refusal, with_target};
use crate::attach::mapped::Mapped;
use crate::attach::target::Target;
use crate::attach::tracer::ProbeInputs;
use crate::names::probed_file::{FileId, ProbedFile};
use crate::names::search::Reach;
use crate::spec::{BinaryName, CountedTexts, ProbeSpec};
use anyhow::{bail, Context};
use libnsprobe::Device;
use nsprobe_containers::OpenedFile;
use nsprobe_probes::{Probe, Probes};
use nsprobe_spec::decode::FieldFormat;
use nsprobe_spec::StepProgram;
use nsprobe_symbolize::FileOffset;
use nsprobe_text::counted;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

impl Planned {
    /// Finds what the probes and triggers mean in `target`. The device knows which files are one. Without it
    /// nothing is probed, but an error in a spec is reported first.
    pub(in crate::attach) fn new(
        target: &Target,
        device: Option<&Device>,
        inputs: &ProbeInputs<'_>,
    ) -> anyhow::Result<Planned> {
        let mut planner = Planner::new(target, target.reach(), *inputs);
        let probes = inputs.options.probes.iter().map(|spec| (spec, false));
        let triggers = inputs.options.triggers.iter().map(|spec| (spec, true));
        for (spec, is_trigger) in probes.chain(triggers) {
            if is_trigger {
                // A place may be probed for its hits, and as a trigger.
                planner.places.clear();
            }
            let before = planner.planned.probes.len();
            let files = planner.open(device, &spec.binary)?;
            planner.add_to_some(&files, spec)?;
            let new = planner.planned.probes.iter_mut().skip(before);
            new.for_each(|probe| probe.is_trigger = is_trigger);
        }
        Ok(planner.finish())
    }

    /// Finds the allocators of `target`: the functions that hand out memory and take it back.
    pub(in crate::attach) fn allocators(
        target: &Target,
        device: Option<&Device>,
        inputs: &ProbeInputs<'_>,
    ) -> anyhow::Result<Planned> {
        let mut planner = Planner::new(target, target.reach(), *inputs);
        let opened = target.allocator_files(&planner.mapped(device)?)?;
        planner.planned.notes.extend(opened.notes);
        let families = allocators::families()?;
        let (mut found, mut looked_at) = (Vec::new(), Vec::new());
        for file in opened.files {
            let id = file_id(device, &file)?;
            let path = file.path.display().to_string();
            let index = match planner.add_file(file, id) {
                Ok(index) => index,
                // A script, or a text for the linker.
                Err(error) => {
                    let note = format!("no allocator is looked for in {path}: {error:#}");
                    planner.planned.notes.push(note);
                    continue;
                }
            };
            for family in &families {
                let name = planner.name_of(index);
                if planner.add_allocator(index, family)? && !found.contains(&name) {
                    found.push(name);
                }
            }
            looked_at.push(path);
        }
        if found.is_empty() {
            allocators::none_found(&looked_at)?;
        }
        let note = format!("allocator: {}", found.join(", "));
        planner.planned.notes.push(note);
        Ok(planner.finish())
    }

    /// Finds what specs mean in files that are open, beside others that are traced; `target` has
    /// the debug information.
    pub(in crate::attach) fn in_files(
        target: &Target,
        files: Vec<(&ProbeSpec, OpenedFile, FileId)>,
        inputs: &ProbeInputs<'_>,
    ) -> anyhow::Result<Planned> {
        let mut planner = Planner::new(target, Reach::Several, *inputs);
        for (spec, file, id) in files {
            let index = planner.add_file(file, id)?;
            planner.planned.opened.push((spec.binary.clone(), index));
            planner.add(index, spec)?;
        }
        Ok(planner.finish())
    }
}

/// Plans the probes.
struct Planner<'a> {
    target: &'a Target,
    reach: Reach,
    inputs: ProbeInputs<'a>,
    /// The mappings of the target's processes, once they were needed.
    mapped: Option<Mapped>,
    planned: Planned,
    /// The files with their parsers.
    parsed: Vec<Parsed>,
    places: HashMap<(usize, FileOffset, bool), Vec<usize>>,
    /// Programs are shared: those of most functions are alike.
    programs: HashSet<Rc<StepProgram>>,
}

impl<'a> Planner<'a> {
    fn new(target: &'a Target, reach: Reach, inputs: ProbeInputs<'a>) -> Planner<'a> {
        Planner {
            target,
            reach,
            inputs,
            mapped: None,
            planned: Planned::default(),
            parsed: Vec::new(),
            places: HashMap::new(),
            programs: HashSet::new(),
        }
    }

    /// Opens the files of a binary, unless they are open, and gives their indices.
    fn open(&mut self, device: Option<&Device>, name: &BinaryName) -> anyhow::Result<Vec<usize>> {
        let known = self.planned.opened.iter();
        let known = known.filter(|(known, _)| known == name);
        let known: Vec<usize> = known.map(|(_, index)| *index).collect();
        if !known.is_empty() {
            return Ok(known);
        }
        let mapped = match self.mapped.take() {
            Some(mapped) => mapped,
            None => self.mapped(device)?,
        };
        let opened = self.target.open(name, &mapped)?;
        self.mapped = Some(mapped);
        let is_said = !opened.notes.is_empty();
        self.planned.notes.extend(opened.notes);
        let (mut indices, mut refused) = (Vec::new(), Vec::new());
        for file in opened.files {
            let added = file_id(device, &file).and_then(|id| self.add_file(file, id));
            match added {
                Err(error) => refused.push(error),
                Ok(index) if indices.contains(&index) => {}
                Ok(index) => {
                    indices.push(index);
                    self.planned.opened.push((name.clone(), index));
                }
            }
        }
        self.refuse(name, refused, indices.is_empty())?;
        if indices.len() > 1 && !self.inputs.wants.changes.is_empty() {
            if let Target::Host = self.target {
                bail!(
                    "{name} stands for {}: to change what programs do, choose some with -c or -p",
                    counted(indices.len(), "file")
                );
            }
        }
        if indices.len() > 1 && !is_said {
            self.planned.notes.push(format!(
                "{name} stands for {} of {}: all are probed",
                counted(indices.len(), "file"),
                self.target.describe()
            ));
        }
        Ok(indices)
    }

    /// The mappings of the target's processes.
    fn mapped(&self, device: Option<&Device>) -> anyhow::Result<Mapped> {
        match (device, self.target) {
            (None, _) | (_, Target::Command(_)) => Ok(Mapped::by_links()),
            (Some(_), target) => target.mapped(),
        }
    }

    fn add_file(&mut self, opened: OpenedFile, id: FileId) -> anyhow::Result<usize> {
        let files = &mut self.planned.files;
        if let Some(known) = files.iter().position(|file| file.id == id) {
            return Ok(known);
        }
        // A second handle, for the kernel.
        let file = opened.file.try_clone();
        let file = file.with_context(|| format!("cannot keep {} open", opened.path.display()))?;
        let parsed = Parsed::open(&self.inputs, opened.file, &opened.path)?;
        files.push(ProbedFile {
            file,
            build_id: parsed.build_id().map(<[u8]>::to_vec),
            functions: None,
            path: opened.path,
            stat: (opened.dev, opened.ino),
            id,
        });
        self.parsed.push(parsed);
        Ok(self.planned.files.len() - 1)
    }

    /// Adds the places that a spec means, in those of these files that have any.
    fn add_to_some(&mut self, files: &[usize], spec: &ProbeSpec) -> anyhow::Result<()> {
        let mut refused = Vec::new();
        for &file in files {
            refused.extend(self.add(file, spec).err());
        }
        let are_all = refused.len() == files.len();
        self.refuse(&spec.binary, refused, are_all)
    }

    /// Notes why some files of a binary are not probed; fails if none is.
    fn refuse(
        &mut self,
        name: &BinaryName,
        refused: Vec<anyhow::Error>,
        are_all: bool,
    ) -> anyhow::Result<()> {
        if are_all {
            return refused.into_iter().next().map_or(Ok(()), Err);
        }
        let mut notes: BTreeMap<String, usize> = BTreeMap::new();
        for error in refused {
            *notes.entry(format!("{error:#}")).or_default() += 1;
        }
        for (why, count) in notes {
            let are = match count {
                1 => "one of its files is".to_owned(),
                count => format!("{count} of its files are"),
            };
            self.planned
                .notes
                .push(format!("{name}: {are} not probed: {why}"));
        }
        Ok(())
    }

    /// Adds the places in a file that a spec means.
    fn add(&mut self, index: usize, spec: &ProbeSpec) -> anyhow::Result<()> {
        let Some((file, parsed)) = self
            .planned
            .files
            .get(index)
            .zip(self.parsed.get_mut(index))
        else {
            return Ok(());
        };
        let probe_query = self
            .inputs
            .probe_query(spec, file.path.display().to_string());
        let found = parsed.probes(&probe_query, self.inputs.search, self.target, self.reach)?;
        let words = self.target.words();
        let counted = self.inputs.wants.counted;
        let found = found
            .map_err(|why| refusal(spec, counted, with_target(why, &probe_query.path, &words)))?;
        let name = self.name_of(index);
        let condition = spec
            .condition()
            .filter(|_| self.inputs.options.probes.len() > 1);
        self.take(index, &name, condition, found);
        Ok(())
    }

    /// Adds a family of an allocator's functions, as far as a file names them itself; returns
    /// whether it does.
    fn add_allocator(&mut self, index: usize, family: &Family) -> anyhow::Result<bool> {
        let files = (self.planned.files.get(index), self.parsed.get(index));
        let (Some(file), Some(parsed)) = files else {
            return Ok(false);
        };
        let (path, name) = (file.path.display().to_string(), self.name_of(index));
        for mark in &family.marks {
            let query = self.inputs.probe_query(mark, path.clone());
            if parsed.named(&query)?.is_none() {
                return Ok(false);
            }
        }
        let mut all = Vec::new();
        for function in &family.functions {
            let query = self.inputs.probe_query(&function.spec, path.clone());
            match parsed.named(&query)? {
                None => {}
                Some(Ok(found)) => all.push(found),
                Some(Err(why)) if function.is_needed => {
                    let why = refusal(&function.spec, CountedTexts::default(), why);
                    return Err(why.context(format!("cannot see {} of {name}", function.name)));
                }
                Some(Err(why)) => self.planned.notes.push(format!(
                    "what {} of {name} allocates is not counted: {:#}",
                    function.name,
                    refusal(&function.spec, CountedTexts::default(), why)
                )),
            }
        }
        for found in all {
            self.take(index, &name, None, found);
        }
        Ok(true)
    }

    /// The file name of a file.
    fn name_of(&self, index: usize) -> String {
        let path = self
            .planned
            .files
            .get(index)
            .map(|file| file.path.as_path());
        let path = path.unwrap_or(Path::new(""));
        let name = path.file_name().unwrap_or(path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Takes what was found in a file of this name.
    fn take(&mut self, index: usize, name: &str, condition: Option<&str>, mut found: Probes) {
        for note in std::mem::take(&mut found.notes) {
            if !self.planned.notes.contains(&note) {
                self.planned.notes.push(note);
            }
        }
        if !found.probes.is_empty() {
            self.planned.keys = std::mem::take(&mut found.keys);
        }
        let programs = found.programs.iter();
        let programs: Vec<Rc<StepProgram>> = programs.map(|code| self.share(code)).collect();
        let formats = found.formats.iter();
        let formats: Vec<Rc<[FieldFormat]>> = formats.map(|one| one.as_slice().into()).collect();
        for probe in found.probes {
            let label = match condition {
                Some(condition) => format!("{name}:{} if {condition}", probe.function),
                None => format!("{name}:{}", probe.function),
            };
            if let Some(probe) = planned(probe, index, label, &programs, &formats) {
                self.add_probe(index, probe);
            }
        }
    }

    /// Adds a probe, unless one at its place does the same.
    fn add_probe(&mut self, file: usize, probe: PlannedProbe) {
        let place = (file, probe.offset, probe.at_return);
        let here = self.places.entry(place).or_default();
        let probes = &mut self.planned.probes;
        let mut known = here.iter().filter_map(|&index| probes.get(index));
        match known.find(|known| known.runs_as(&probe)) {
            Some(known) if known.label != probe.label => {
                let (one, other) = (&probe.label, &known.label);
                let note = format!("{one} is the same place as {other}: its hits are shown there");
                self.planned.notes.push(note);
            }
            Some(_) => {}
            None => {
                here.push(probes.len());
                probes.push(probe);
            }
        }
    }

    fn share(&mut self, code: &StepProgram) -> Rc<StepProgram> {
        match self.programs.get(code) {
            Some(known) => Rc::clone(known),
            None => {
                let code = Rc::new(code.clone());
                self.programs.insert(Rc::clone(&code));
                code
            }
        }
    }

    /// Ends the parsers, except those that name functions.
    fn finish(mut self) -> Planned {
        for (index, parsed) in self.parsed.into_iter().enumerate() {
            let probes = self.planned.probes.iter();
            let mut own = probes.filter(|probe| probe.file == Some(index));
            let names = |probe: &PlannedProbe| {
                let mut fields = probe.fields.iter();
                fields.any(|field| field.shape.has_addresses())
            };
            if own.any(names) {
                if let Some(file) = self.planned.files.get_mut(index) {
                    file.functions = Some(Rc::new(parsed.into_functions()));
                }
            }
        }
        self.planned
    }
}

/// The identity of a file. The device knows which files are one.
fn file_id(device: Option<&Device>, file: &OpenedFile) -> anyhow::Result<FileId> {
    Ok(match device {
        Some(device) => device.identify(&file.file)?.into(),
        None => FileId::of_stat(file.dev, file.ino),
    })
}

/// A probe that was found; none when its numbers name nothing.
fn planned(
    probe: Probe,
    file: usize,
    label: String,
    programs: &[Rc<StepProgram>],
    formats: &[Rc<[FieldFormat]>],
) -> Option<PlannedProbe> {
    let program = |number: Option<u32>| programs.get(number? as usize).map(Rc::clone);
    Some(PlannedProbe {
        file: Some(file),
        offset: probe.offset,
        breakpoint: probe.breakpoint,
        semaphore: probe.semaphore,
        at_function: probe.at_function,
        at_return: probe.at_return,
        entry: program(probe.entry),
        ret: program(probe.ret),
        is_trigger: false,
        exits: match probe.exits {
            Some(exits) => Some(exits.with_programs(|number| program(Some(number)))?),
            None => None,
        },
        fields: Rc::clone(formats.get(probe.format as usize)?),
        function: probe.function,
        label,
    })
}
