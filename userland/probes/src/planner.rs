// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probes of a spec in a file: finds the places, compiles each, and chooses how returns
//! are seen.

use crate::answer::{ExitProbes, Probe, Probes, Refused, NOTES_MAX};
use crate::exits::CallEnds;
use crate::find::{find, is_unnamed, knows, several};
use crate::place::Searched;
use crate::probe_query::{OwnedSink, ProbeQuery};
use crate::spot::{check, spot_at, Spot};
use anyhow::bail;
use nsprobe_spec::decode::FieldFormat;
use nsprobe_spec::dwarf::DebugInfo;
use nsprobe_spec::syntax::ProbePoint;
use nsprobe_spec::{Compiled, Request, SpecError, StepProgram};
use nsprobe_symbolize::{Binary, DebugSet, GoCode};
use nsprobe_text::counted;
use std::collections::HashMap;
use std::path::Path;

/// Debug files of a file, as a search has found them.
#[derive(Clone, Copy, Debug)]
pub struct DebugFiles<'a> {
    /// The files.
    pub set: &'a DebugSet,
    /// What there is to say where debug information is missed.
    pub notes: &'a [String],
}

impl<'a> DebugFiles<'a> {
    /// The debug information of the binary; an error says why there is none.
    fn read(&self, binary: &'a Binary) -> Result<DebugInfo<'a>, String> {
        let (separate, shared) = (self.set.separate(binary), self.set.supplementary());
        let split = Some(self.set.split());
        DebugInfo::with_split(binary, separate, shared, split).map_err(|error| {
            let mut why = vec![error.to_string()];
            why.extend(self.set.failures(binary));
            why.extend(self.notes.iter().cloned());
            why.join("; ")
        })
    }
}

/// Finds what a query means in a file. Without `files` it answers that they are needed.
///
/// # Errors
/// Why there is nothing to be probed; names in it come from the file.
pub fn plan(
    binary: &Binary,
    files: Option<DebugFiles<'_>>,
    probe_query: &ProbeQuery,
) -> Result<Probes, Refused> {
    let unnamed = is_unnamed(binary, &probe_query.spec.place);
    let wanted = unnamed || probe_query.asks_debug_info();
    if wanted && files.is_none() {
        return Err(Refused::NeedsDebugFiles);
    }
    let files = files.filter(|_| wanted);
    let debug = match &files {
        Some(files) => files.read(binary),
        None => Err("no debug information was read".to_owned()),
    };
    let separate = files.and_then(|files| files.set.separate(binary));
    let named = separate.filter(|file| unnamed && knows(file, &probe_query.spec.place));
    let path = Path::new(&probe_query.path);
    let mut place = Searched::new(binary, path, debug.as_ref().map_err(String::as_str));
    place.named = named.unwrap_or(binary);
    let mut planner = Planner {
        probe_query,
        place: &place,
        found: Probes::default(),
        programs: HashMap::new(),
    };
    match planner.run() {
        Ok(()) => Ok(planner.found),
        Err(error) => Err(refused(error)),
    }
}

fn refused(error: anyhow::Error) -> Refused {
    match error.downcast::<SpecError>() {
        Ok(error) => Refused::Spec(error),
        Err(error) => Refused::Because(error.chain().map(ToString::to_string).collect()),
    }
}

struct Planner<'a> {
    probe_query: &'a ProbeQuery,
    place: &'a Searched<'a>,
    found: Probes,
    /// Programs are shared: those of most functions are alike.
    programs: HashMap<StepProgram, u32>,
}

impl Planner<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        let (probe_query, path) = (self.probe_query, self.place.path.display());
        let spots = self.spots()?;
        if spots.len() > probe_query.max_probes {
            bail!(
                "{} fits {} of {path}, more than {}: narrow it down, or allow more with \
                 --max-probes {}",
                probe_query.typed,
                counted(spots.len(), "place"),
                probe_query.max_probes,
                spots.len()
            );
        }
        let several = spots.len() > 1;
        let spots = self.without_writable(spots)?;
        let mut left_out: Vec<(String, String)> = Vec::new();
        let mut copies = Vec::new();
        for spot in spots {
            // Where a static probe is, the assembler has put an instruction.
            let is_put = matches!(probe_query.spec.place, ProbePoint::Usdt { .. });
            if !is_put && !probe_query.force {
                self.place.check_boundary(&spot)?;
            }
            let function = spot.function.clone();
            let is_copy = several && spot.at_function && self.place.changes_arguments(&spot);
            match self.compile(spot) {
                Ok(Ok(probe)) => self.found.probes.extend(probe),
                Ok(Err(why)) => left_out.push((function, why)),
                Err(why) if is_copy => copies.push((function, why)),
                Err(why) => return Err(why),
            }
        }
        self.without_copies(copies)?;
        if let Some((function, why)) = left_out.first() {
            if !several || self.found.probes.is_empty() {
                bail!("the returns of {function} in {path} cannot be seen: {why}");
            }
            self.found.notes.push(format!(
                "{} of {path} without a probe, as their returns cannot be seen, such as {function}: \
                 {why}",
                counted(left_out.len(), "function"),
            ));
        }
        Ok(())
    }

    /// Drops spots that the kernel cannot probe.
    fn without_writable(&mut self, spots: Vec<Spot>) -> anyhow::Result<Vec<Spot>> {
        if self.probe_query.force {
            return Ok(spots);
        }
        let is_writable = |spot: &Spot| self.place.is_writable(spot);
        let (writable, spots): (Vec<Spot>, Vec<Spot>) = spots.into_iter().partition(is_writable);
        let Some(first) = writable.first() else {
            return Ok(spots);
        };
        let why = format!(
            "{} in {} is in a part of the file that is mapped writable, where the kernel puts no \
             breakpoints",
            first.function,
            self.place.path.display()
        );
        if spots.is_empty() {
            bail!("{why}");
        }
        let count = counted(writable.len(), "place");
        self.note(format!("{count} without a probe: {why}"));
        Ok(spots)
    }

    /// Notes copies that the compiler made of a function and that lack what is requested: calls of
    /// them are missing then.
    fn without_copies(&mut self, copies: Vec<(String, anyhow::Error)>) -> anyhow::Result<()> {
        for (function, why) in copies {
            if self.found.probes.is_empty() {
                return Err(why);
            }
            self.note(format!(
                "{function}: a copy of it that the compiler made is not probed, so calls of that \
                 are missing: {why}"
            ));
        }
        Ok(())
    }

    /// Where in the file the spec means.
    fn spots(&mut self) -> anyhow::Result<Vec<Spot>> {
        let place = self.place;
        match &self.probe_query.spec.place {
            ProbePoint::Functions { name, offset } => {
                if self.probe_query.inlined && *offset == 0 {
                    let mut spots = place.inlined(name)?;
                    if !is_unnamed(place.named, &self.probe_query.spec.place) {
                        spots.extend(self.functions(name, 0)?);
                    }
                    if !spots.is_empty() {
                        return Ok(spots);
                    }
                }
                self.functions(name, *offset)
            }
            ProbePoint::FileOffset(offset) => {
                spot_at(place.binary, place.path, *offset).map(|spot| vec![spot])
            }
            ProbePoint::Line { file, line } => {
                let found = place.line(file, *line)?;
                let number = found.number;
                if number != *line {
                    self.found.notes.push(format!(
                        "{file}:{line} has no code of its own: line {number} is probed"
                    ));
                }
                if found.is_mixed {
                    self.found.notes.push(format!(
                        "{file}:{number}: the compiler mixed its code with that of other lines: \
                         where it moved it, or unrolled a loop, there may be fewer hits"
                    ));
                }
                Ok(found.spots)
            }
            ProbePoint::Usdt { provider, name } => place.usdt(provider, name),
        }
    }

    fn functions(&mut self, name: &str, distance: u64) -> anyhow::Result<Vec<Spot>> {
        let (place, path) = (self.place, self.place.path);
        let (functions, resolvers) = match find(place.named, path, name) {
            Ok(found) => found,
            Err(error) => {
                let spots = match distance {
                    0 => place.by_debug_name(name)?,
                    _ => Vec::new(),
                };
                return match spots.is_empty() {
                    false => Ok(spots),
                    true => Err(place.only_inlined(name).unwrap_or(error)),
                };
            }
        };
        if resolvers > 0 {
            self.found.notes.push(format!(
                "{name} in {} is an indirect function as well: calls of the implementation that it \
                 chose are not seen",
                path.display()
            ));
        }
        if functions.len() > 1 {
            self.found.notes.push(format!(
                "{name} stands for {} of {}: all are probed",
                counted(functions.len(), "function"),
                path.display()
            ));
        }
        let versioned = several(&functions);
        let spots = functions.into_iter().map(|function| {
            if function.size != 0 && distance >= function.size {
                bail!(
                    "{name} in {} is {:#x} bytes long: +{distance:#x} lies behind its end",
                    path.display(),
                    function.size
                );
            }
            let mut spot = Spot::of(place.named, function, distance);
            if let (true, Some(version)) = (versioned.contains(&*function.name), &function.version)
            {
                spot.function.push_str(version);
            }
            check(place.binary, path, &spot)?;
            Ok(spot)
        });
        spots.collect()
    }

    /// The probe of a place, with its programs, if it needs one; or why it cannot be.
    fn compile(&mut self, spot: Spot) -> anyhow::Result<Result<Option<Probe>, String>> {
        let (probe_query, place) = (self.probe_query, self.place);
        let scope = place.scope(&spot);
        if !scope.has_types() && probe_query.names_typed() {
            // Of whatever file it is, so that it is said once.
            self.note(
                "without debug information, argN and $retval are words of 64 bits; (s32)$retval \
                 takes a part"
                    .to_owned(),
            );
        }
        let compiled = Compiled::new(&Request {
            spec: &probe_query.spec,
            scope: scope.as_ref(),
            sink: probe_query.sink.borrowed(),
            at_return: probe_query.at_return,
            changes: &probe_query.changes,
            ret: place.ret(&spot),
        })?;
        let at_return = compiled.at_return;
        if at_return && !spot.at_function {
            bail!(
                "{} is inside of a function: only a whole function returns",
                spot.function
            );
        }
        for note in &compiled.notes {
            self.note(format!("{}: {note}", spot.function));
        }
        let exits = match self.exits(&spot, &compiled)? {
            Ok(exits) => exits,
            Err(why) => return Ok(Err(why)),
        };
        let fast_nops = probe_query.fast_nops;
        let breakpoint = match (
            spot.at_function && !probe_query.exact,
            &probe_query.changes[..],
        ) {
            (true, []) => place.breakpoint(&spot, &compiled, fast_nops),
            (true, _) if !fast_nops => place.behind_nop(&spot),
            _ => spot.offset,
        };
        if exits
            .iter()
            .any(|exits| exits.handed_on.contains(&spot.offset))
        {
            // It is nothing but a jump to a function whose probe sees its calls.
            return Ok(Ok(None));
        }
        // At one instruction it is not known whether a call begins or ends first.
        let is_exit = |at| {
            exits
                .iter()
                .flat_map(ExitProbes::places)
                .any(|exit| exit == at)
        };
        let breakpoint = Some(breakpoint).filter(|at| !is_exit(*at));
        let breakpoint = breakpoint.unwrap_or(spot.offset);
        if is_exit(breakpoint) {
            return Ok(Err("it is left by its very first instruction".to_owned()));
        }
        if !fast_nops && !probe_query.force && place.is_fast_nop(&spot, breakpoint) {
            return Ok(Err(
                "the kernel makes a call of the ten-byte nop there, and a program that moves this \
                 code dies of it; --fast-nops probes it"
                    .to_owned(),
            ));
        }
        let semaphore = spot.semaphore();
        if semaphore.is_some_and(|at| place.is_mapped_before(at)) {
            self.note(format!(
                "{}: {} maps the page of its semaphore twice, as lld and mold write files: in a \
                 process that starts from now on the kernel raises the copy that the program does \
                 not read, so it gets no hits there; in one that runs already (-p) it gets them",
                spot.function,
                place.path.display()
            ));
        }
        self.found.keys = compiled.keys;
        Ok(Ok(Some(Probe {
            offset: spot.offset,
            breakpoint,
            semaphore,
            at_function: spot.at_function,
            at_return,
            entry: compiled.entry.map(|code| self.share(code)),
            ret: compiled.ret.map(|code| self.share(code)),
            exits,
            format: self.format(compiled.fields),
            function: spot.function,
        })))
    }

    /// The exits of the function at a spot, when its returns are seen there; or why they cannot
    /// be.
    fn exits(
        &mut self,
        spot: &Spot,
        compiled: &Compiled,
    ) -> anyhow::Result<Result<Option<ExitProbes>, String>> {
        let (probe_query, place) = (self.probe_query, self.place);
        if !compiled.at_return {
            return Ok(Ok(None));
        }
        if let Err(why) = self.check_go(spot)? {
            return Ok(Err(why));
        }
        if probe_query.return_probes {
            self.note(format!(
                "{}: its return address is replaced during a call: an exception, a cancelled thread \
                 or a stack switch there kills or hangs the program",
                spot.function
            ));
            return Ok(Ok(None));
        }
        let (mut by_argument, mut ends) = (None, CallEnds::default());
        // A time or a record would lack what the function jumped to does.
        if let OwnedSink::Spans { probed, .. } = &probe_query.sink {
            by_argument = compiled.ret.as_ref().and_then(StepProgram::by_argument);
            ends.probed = probed;
        }
        ends.by_argument = by_argument.as_ref();
        let found = match place.exits(spot, ends) {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        Ok(Ok(found.with_programs(|code| Some(self.share(code)))))
    }

    /// Whether it is no function of a Go program, or one whose returns can be seen; or why they
    /// cannot be.
    fn check_go(&self, spot: &Spot) -> anyhow::Result<Result<(), String>> {
        let (binary, path) = (self.place.binary, self.place.path.display());
        if binary.is_go() && !binary.has_go_names() {
            bail!(
                "{path} is a program of a Go before 1.18, or its table of functions cannot be \
                 read: its returns are not seen"
            );
        }
        Ok(match binary.go_code(spot.address) {
            Some(_) if self.probe_query.return_probes => bail!(
                "{path} is a Go program, whose stacks move: it dies of a replaced return address; \
                 without --return uretprobe its returns are seen"
            ),
            Some(GoCode::Assembly) if !self.place.keeps_goroutine(spot) => Err(
                "it is written in assembly language, and the register of the goroutine is not the \
                 same at its beginning and its end"
                    .to_owned(),
            ),
            _ => Ok(()),
        })
    }

    fn note(&mut self, note: String) {
        // What is said once of the whole file has room after what is said of functions.
        let has_room = self.found.notes.len() < NOTES_MAX / 2;
        if has_room && !self.found.notes.contains(&note) {
            self.found.notes.push(note);
        }
    }

    fn share(&mut self, code: StepProgram) -> u32 {
        let next = self.found.programs.len() as u32;
        *self.programs.entry(code).or_insert_with_key(|code| {
            self.found.programs.push(code.clone());
            next
        })
    }

    /// Neighbours mostly have the same.
    fn format(&mut self, fields: Vec<FieldFormat>) -> u32 {
        let formats = &mut self.found.formats;
        if formats.last() != Some(&fields) {
            formats.push(fields);
        }
        formats.len().saturating_sub(1) as u32
    }
}
