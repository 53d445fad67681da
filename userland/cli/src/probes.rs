// SPDX-License-Identifier: MIT OR Apache-2.0
//! From specs to places: the files that are probed, and where.

pub(crate) mod exits;
mod place;

use crate::args::Returns;
use crate::debug::DebugFiles;
use crate::search::Search;
use crate::spec::{BinaryName, ProbeSpec};
use crate::target::Target;
use anyhow::{anyhow, bail, Context};
use exits::Exits;
use nsprobe_plan::decode::FieldFormat;
use nsprobe_plan::syntax::{Assignment, Expression, Kind, Place as Wanted, Spec};
use nsprobe_plan::{Code, Compiled, Request, Sink, Time};
use nsprobe_symbolize::{Binary, FileOffset, Function, FunctionKind};
use nsprobe_target::OpenedFile;
use place::{check, spot_at, Searched, Spot};
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Names that a message suggests.
const SUGGESTIONS: usize = 3;

/// A file that is probed.
///
/// An open file of a container keeps its file system mounted; `podman rm` works
/// nevertheless, since that unmounts lazily.
#[derive(Debug)]
pub(crate) struct ProbedFile {
    /// The file itself, for the kernel.
    pub(crate) file: File,
    /// Its functions.
    pub(crate) binary: Rc<Binary>,
    /// Its path, as the target sees it.
    pub(crate) path: PathBuf,
    key: (u64, u64),
}

impl ProbedFile {
    /// Whether it is the file of these numbers.
    pub(crate) fn is_at(&self, dev: u64, ino: u64) -> bool {
        self.key == (dev, ino)
    }

    /// Whether its inode has this number.
    pub(crate) fn has_inode(&self, ino: u64) -> bool {
        self.key.1 == ino
    }
}

/// A place to be probed.
#[derive(Debug)]
pub(crate) struct PlannedProbe {
    /// Index of its file.
    pub(crate) file: usize,
    /// Where in the file.
    pub(crate) offset: FileOffset,
    /// Where the breakpoint is put: there, or at a cheaper instruction behind it that
    /// means the same.
    pub(crate) breakpoint: FileOffset,
    /// The semaphore of a static probe.
    pub(crate) semaphore: Option<FileOffset>,
    /// Whether that is the beginning of a function.
    pub(crate) at_function: bool,
    /// Whether it is hit when the function returns.
    pub(crate) at_return: bool,
    /// What runs at the entry.
    pub(crate) entry: Option<Rc<Code>>,
    /// What runs at the return.
    pub(crate) ret: Option<Rc<Code>>,
    /// Its hits freeze the record.
    pub(crate) is_trigger: bool,
    /// Probes on its exits, in place of one on its return.
    pub(crate) exits: Option<Exits>,
    /// The fields of its records.
    pub(crate) fields: Rc<[FieldFormat]>,
    /// The function's readable name, without parameters.
    pub(crate) function: String,
    /// How output calls it: `redis-server:setCommand`.
    pub(crate) label: String,
}

/// Everything that is to be probed.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// The files.
    pub(crate) files: Vec<ProbedFile>,
    /// The probes, in the order of the specs.
    pub(crate) probes: Vec<PlannedProbe>,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
    /// The parts of the keys that hits are counted by.
    pub(crate) keys: Vec<FieldFormat>,
    /// Which file each binary is.
    pub(crate) opened: Vec<(BinaryName, usize)>,
    places: HashSet<(usize, FileOffset, bool)>,
    /// Programs are shared: those of most functions are alike.
    programs: HashSet<Rc<Code>>,
}

/// How places are probed.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    /// Where debug information is looked for.
    pub(crate) search: &'a Search,
    /// What becomes of hits.
    pub(crate) sink: Sink<'a>,
    /// Whether calls are timed: probes are hit at returns.
    pub(crate) at_return: bool,
    /// Most places that one spec may stand for.
    pub(crate) max_probes: usize,
    /// Functions are probed where they were inlined, too.
    pub(crate) inlined: bool,
    /// Breakpoints go to the very beginning of functions.
    pub(crate) exact: bool,
    /// What is changed at each hit.
    pub(crate) changes: &'a [Assignment],
    /// How returns are seen.
    pub(crate) returns: Returns,
}

impl How<'_> {
    /// Whether a spec, or what hits are counted by, names what only debug information
    /// knows.
    fn needs_debug_info(&self, spec: &Spec) -> bool {
        let named =
            |kind: &Kind| matches!(kind, Kind::Name(_) | Kind::All { .. } | Kind::Member { .. });
        let names = |expression: &Expression| expression.any(&named);
        let in_sink = match self.sink {
            Sink::Table { keys, value } => {
                keys.iter().any(|key| names(&key.value)) || value.is_some_and(names)
            }
            Sink::Record | Sink::Count => false,
        };
        let changed = self.changes.iter().flat_map(Assignment::expressions);
        in_sink
            || changed.into_iter().any(names)
            || self.inlined
            || matches!(spec.place, Wanted::Line { .. })
            || spec.fields.iter().any(|field| names(&field.value))
            || spec.condition.as_ref().is_some_and(names)
    }
}

impl Planned {
    /// Finds what `specs` mean in `target`.
    pub(crate) fn new(
        target: &Target,
        specs: &[ProbeSpec],
        triggers: &[ProbeSpec],
        how: &How<'_>,
    ) -> anyhow::Result<Planned> {
        let mut planned = Planned::default();
        let all = specs.iter().map(|spec| (spec, false));
        for (spec, is_trigger) in all.chain(triggers.iter().map(|spec| (spec, true))) {
            if is_trigger {
                // A place may be probed for its hits, and as a trigger.
                planned.places.clear();
            }
            for file in planned.open(target, &spec.binary)? {
                let before = planned.probes.len();
                planned.add(target, file, spec, how)?;
                let new = planned.probes.iter_mut().skip(before);
                new.for_each(|probe| probe.is_trigger = is_trigger);
            }
        }
        Ok(planned)
    }

    /// Finds what specs mean in files that are open; `target` has the debug information.
    pub(crate) fn in_files(
        target: &Target,
        files: Vec<(&ProbeSpec, OpenedFile)>,
        how: &How<'_>,
    ) -> anyhow::Result<Planned> {
        let mut planned = Planned::default();
        for (spec, file) in files {
            let index = planned.add_file(file)?;
            planned.opened.push((spec.binary.clone(), index));
            planned.add(target, index, spec, how)?;
        }
        Ok(planned)
    }

    /// Opens the files of a binary, unless they are open, and gives their indices.
    fn open(&mut self, target: &Target, name: &BinaryName) -> anyhow::Result<Vec<usize>> {
        let known = self.opened.iter().filter(|(known, _)| known == name);
        let known: Vec<usize> = known.map(|(_, index)| *index).collect();
        if !known.is_empty() {
            return Ok(known);
        }
        let files = target.open(name)?;
        if files.len() > 1 {
            self.notes.push(format!(
                "{} has {} files called {name}: all are probed",
                target.describe(),
                files.len()
            ));
        }
        let mut indices = Vec::new();
        for file in files {
            let index = self.add_file(file)?;
            if !indices.contains(&index) {
                indices.push(index);
                self.opened.push((name.clone(), index));
            }
        }
        Ok(indices)
    }

    fn add_file(&mut self, opened: OpenedFile) -> anyhow::Result<usize> {
        let key = (opened.dev, opened.ino);
        if let Some(known) = self.files.iter().position(|file| file.key == key) {
            return Ok(known);
        }
        let (file, binary) = read(opened.file, &opened.path)?;
        self.files.push(ProbedFile {
            file,
            binary: Rc::new(binary),
            path: opened.path,
            key,
        });
        Ok(self.files.len() - 1)
    }

    /// Adds the places in a file that a spec means.
    fn add(
        &mut self,
        target: &Target,
        index: usize,
        spec: &ProbeSpec,
        how: &How<'_>,
    ) -> anyhow::Result<()> {
        let Some(file) = self.files.get(index) else {
            return Ok(());
        };
        let (binary, path) = (Rc::clone(&file.binary), file.path.clone());
        let files;
        let debug = match how.needs_debug_info(&spec.spec) {
            true => {
                files = DebugFiles::find(how.search, &binary, &path, &target.viewers());
                files.read(&binary)
            }
            false => Err("no debug information was read".to_owned()),
        };
        let place = Searched::new(&binary, &path, debug.as_ref().map_err(String::as_str));
        let spots = self.spots(&place, spec, how)?;
        if spots.len() > how.max_probes {
            bail!(
                "{} fits {} places of {}, more than {}: narrow it down, or allow more with \
                 --max-probes {}",
                spec.place(),
                spots.len(),
                path.display(),
                how.max_probes,
                spots.len()
            );
        }
        let several = spots.len() > 1;
        let mut left_out: Vec<(String, String)> = Vec::new();
        let before = self.probes.len();
        for spot in spots {
            // Where a static probe is, the assembler has put an instruction.
            if !spot.at_function && !matches!(spec.spec.place, Wanted::Usdt { .. }) {
                place.check_boundary(&spot)?;
            }
            let function = spot.function.clone();
            let probe = match self.compile(index, &place, spot, spec, how)? {
                Ok(probe) => probe,
                Err(why) => {
                    left_out.push((function, why));
                    continue;
                }
            };
            if self.places.insert((index, probe.offset, probe.at_return)) {
                self.probes.push(probe);
            }
        }
        if let Some((function, why)) = left_out.first() {
            if !several || self.probes.len() == before {
                bail!(
                    "{function} in {} cannot be probed at its exits: {why} (a return probe, by \
                     --return uretprobe, is no danger where nothing unwinds through it)",
                    path.display()
                );
            }
            self.notes.push(format!(
                "{} functions of {} are left out, since they cannot be probed at their exits, \
                 such as {function}: {why}",
                left_out.len(),
                path.display()
            ));
        }
        Ok(())
    }

    /// How the returns of the function at a spot are seen: by its exits, or by a return
    /// probe; or why it can be by neither.
    fn ends(
        &mut self,
        place: &Searched<'_>,
        spot: &Spot,
        compiled: &Compiled,
        how: &How<'_>,
    ) -> anyhow::Result<Result<Option<Exits>, String>> {
        let runtime = place.runtime();
        let wanted = exits::wanted(how.returns, runtime);
        let shown = place.path.display();
        if !compiled.at_return || !wanted.map_err(|why| anyhow!("{shown}: {why}"))? {
            return Ok(Ok(None));
        }
        if !how.changes.is_empty() {
            // --max-writes counts for each probe.
            return Ok(Err(
                "changes are limited for one probe, and its exits are several".into(),
            ));
        }
        let time = match how.sink {
            Sink::Record => Time::Field,
            Sink::Table { value: None, .. } if how.at_return => Time::Value,
            Sink::Table { .. } | Sink::Count => Time::Nothing,
        };
        let (places, at, jumps) = match place.exits(spot, compiled, time) {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        let note = format!(
            "returns of functions of {shown} are seen at their exits: {}",
            exits::reason(runtime)
        );
        if how.returns == Returns::Auto && !self.notes.contains(&note) {
            self.notes.push(note);
        }
        let is_told = |note: &String| note.contains("leaves by a jump");
        if jumps > 0 && !self.notes.iter().any(is_told) {
            self.notes.push(format!(
                "{} leaves by a jump to another function at {jumps} of {} exits: there a call ends \
                 before that function runs",
                spot.function,
                places.len()
            ));
        }
        Ok(Ok(Some(Exits {
            places,
            begin: at.begin.map(|code| self.share(code)),
            exit: at.exit.map(|code| self.share(code)),
        })))
    }

    /// Where in a file a spec means.
    fn spots(
        &mut self,
        place: &Searched<'_>,
        spec: &ProbeSpec,
        how: &How<'_>,
    ) -> anyhow::Result<Vec<Spot>> {
        let (binary, path) = (place.binary, place.path);
        match &spec.spec.place {
            Wanted::Functions { name, offset } => {
                if how.inlined && *offset == 0 {
                    let mut spots = place.inlined(name)?;
                    if !binary.find_functions(name).is_empty() {
                        spots.extend(self.functions(binary, path, name, 0)?);
                    }
                    if !spots.is_empty() {
                        return Ok(spots);
                    }
                }
                self.functions(binary, path, name, *offset)
            }
            Wanted::FileOffset(offset) => spot_at(binary, path, *offset).map(|spot| vec![spot]),
            Wanted::Line { file, line } => {
                let (found, spots) = place.line(file, *line)?;
                if found != *line {
                    self.notes.push(format!(
                        "{file}:{line} has no code of its own: line {found} is probed"
                    ));
                }
                Ok(spots)
            }
            Wanted::Usdt { provider, name } => place.usdt(provider, name),
        }
    }

    fn functions(
        &mut self,
        binary: &Binary,
        path: &Path,
        name: &str,
        distance: u64,
    ) -> anyhow::Result<Vec<Spot>> {
        let (functions, resolvers) = find(binary, path, name)?;
        if resolvers > 0 {
            self.notes.push(format!(
                "{name} in {} is an indirect function as well: calls of the implementation that it \
                 chose are not seen",
                path.display()
            ));
        }
        if functions.len() > 1 {
            self.notes.push(format!(
                "{} functions of {} are called {name}: all are probed",
                functions.len(),
                path.display()
            ));
        }
        let spots = functions.into_iter().map(|function| {
            if function.size != 0 && distance >= function.size {
                bail!(
                    "{name} in {} is {:#x} bytes long: +{distance:#x} lies behind its end",
                    path.display(),
                    function.size
                );
            }
            let spot = Spot::of(function, distance);
            check(binary, path, &spot)?;
            Ok(spot)
        });
        spots.collect()
    }

    /// The probe of a place, with its programs.
    fn compile(
        &mut self,
        file: usize,
        place: &Searched<'_>,
        spot: Spot,
        spec: &ProbeSpec,
        how: &How<'_>,
    ) -> anyhow::Result<Result<PlannedProbe, String>> {
        let path = place.path;
        let compiled = Compiled::new(&Request {
            spec: &spec.spec,
            scope: place.scope(&spot).as_ref(),
            sink: how.sink,
            at_return: how.at_return,
            changes: how.changes,
            ret: place.ret(&spot),
        });
        let compiled = compiled.map_err(|error| spec.error(&error))?;
        let at_return = compiled.at_return;
        if at_return && !spot.at_function {
            bail!(
                "{} is inside of a function: only a whole function returns",
                spot.function
            );
        }
        for note in &compiled.notes {
            let note = format!("{}: {note}", spot.function);
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        let breakpoint = match spot.at_function && !how.exact && how.changes.is_empty() {
            true => place.breakpoint(&spot, &compiled),
            false => spot.offset,
        };
        let exits = match self.ends(place, &spot, &compiled, how)? {
            Ok(exits) => exits,
            Err(why) => return Ok(Err(why)),
        };
        self.keys = compiled.keys;
        let file_name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Ok(PlannedProbe {
            file,
            offset: spot.offset,
            breakpoint,
            semaphore: spot.semaphore(),
            at_function: spot.at_function,
            at_return,
            entry: compiled.entry.map(|code| self.share(code)),
            ret: compiled.ret.map(|code| self.share(code)),
            exits,
            is_trigger: false,
            fields: compiled.fields.into(),
            label: format!("{}:{}", file_name.to_string_lossy(), spot.function),
            function: spot.function,
        }))
    }

    fn share(&mut self, code: Code) -> Rc<Code> {
        match self.programs.get(&code) {
            Some(known) => Rc::clone(known),
            None => {
                let code = Rc::new(code);
                self.programs.insert(Rc::clone(&code));
                code
            }
        }
    }
}

/// A second handle for the kernel, and the functions.
pub(crate) fn read(file: File, path: &Path) -> anyhow::Result<(File, Binary)> {
    let own = file
        .try_clone()
        .with_context(|| format!("cannot keep {} open", path.display()))?;
    Ok((own, Binary::open(file, path)?))
}

/// The functions of that name, each place once, and how many resolvers of
/// indirect functions were left out.
fn find<'a>(
    binary: &'a Binary,
    path: &Path,
    name: &str,
) -> anyhow::Result<(Vec<&'a Function>, usize)> {
    let mut found = binary.find_functions(name);
    if found.is_empty() {
        return Err(not_found(binary, path, name));
    }
    let all = found.len();
    found.retain(|function| function.kind == FunctionKind::Function);
    let resolvers = all - found.len();
    if found.is_empty() {
        bail!(
            "{name} in {} is an indirect function: its code at that name runs once and only \
             chooses an implementation; probe that instead{}",
            path.display(),
            suggest(" (similar names: ", &binary.nearest(name, SUGGESTIONS), ")")
        );
    }
    found.sort_by_key(|function| function.file_offset);
    found.dedup_by_key(|function| function.file_offset);
    Ok((found, resolvers))
}

fn not_found(binary: &Binary, path: &Path, name: &str) -> anyhow::Error {
    let path = path.display();
    if !binary.has_symbols() {
        return anyhow!(
            "{path} has no symbols (it is stripped): none of its functions can be found by name; \
             use a build that keeps its symbol table"
        );
    }
    anyhow!(
        "no function {name} in {path}{}; `nsprobe list {path}` shows all",
        suggest(" (did you mean ", &binary.nearest(name, SUGGESTIONS), "?)")
    )
}

fn suggest(before: &str, names: &[String], after: &str) -> String {
    if names.is_empty() {
        String::new()
    } else {
        format!("{before}{}{after}", names.join(", "))
    }
}
