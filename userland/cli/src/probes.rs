// SPDX-License-Identifier: MIT OR Apache-2.0
//! From specs to places: the files that are probed, and where.

use crate::spec::{BinaryName, ProbeSpec};
use crate::target::Target;
use anyhow::{anyhow, bail, Context};
use nsprobe_symbolize::demangle::demangle_without_parameters;
use nsprobe_symbolize::{Binary, FileOffset, Function, FunctionKind, Place};
use nsprobe_target::OpenedFile;
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Most functions that one spec may stand for.
const FUNCTIONS_MAX: usize = 1000;
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

/// A place to be probed: the entry of a function.
#[derive(Debug)]
pub(crate) struct PlannedProbe {
    /// Index of its file.
    pub(crate) file: usize,
    /// Where in the file.
    pub(crate) offset: FileOffset,
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
    places: HashSet<(usize, FileOffset)>,
}

impl Planned {
    /// Finds what `specs` mean in `target`.
    pub(crate) fn new(target: &Target, specs: &[ProbeSpec]) -> anyhow::Result<Planned> {
        let mut planned = Planned::default();
        let mut opened: Vec<(&BinaryName, Vec<usize>)> = Vec::new();
        for spec in specs {
            let known = opened.iter().find(|(name, _)| *name == &spec.binary);
            let files = match known {
                Some((_, files)) => files.clone(),
                None => {
                    let files = planned.open(target, &spec.binary)?;
                    opened.push((&spec.binary, files.clone()));
                    files
                }
            };
            for file in files {
                planned.add(file, &spec.function)?;
            }
        }
        Ok(planned)
    }

    /// Opens the files of a binary, and gives their indices.
    fn open(&mut self, target: &Target, name: &BinaryName) -> anyhow::Result<Vec<usize>> {
        let files = target.open(name)?;
        if files.len() > 1 {
            self.notes.push(format!(
                "{} has {} files called {name}: all are probed",
                target.describe(),
                files.len()
            ));
        }
        files.into_iter().map(|file| self.add_file(file)).collect()
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

    /// Adds the functions of that name in a file.
    fn add(&mut self, index: usize, name: &str) -> anyhow::Result<()> {
        let Some(file) = self.files.get(index) else {
            return Ok(());
        };
        let (binary, path) = (Rc::clone(&file.binary), file.path.clone());
        let (functions, resolvers) = find(&binary, &path, name)?;
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
        for function in functions {
            check(&binary, &path, function)?;
            if self.places.insert((index, function.file_offset)) {
                self.probes.push(probe(index, &path, function));
            }
        }
        Ok(())
    }
}

/// A second handle for the kernel, and the functions.
pub(crate) fn read(file: File, path: &Path) -> anyhow::Result<(File, Binary)> {
    let own = file
        .try_clone()
        .with_context(|| format!("cannot keep {} open", path.display()))?;
    Ok((own, Binary::open(file, path)?))
}

fn probe(file: usize, path: &Path, function: &Function) -> PlannedProbe {
    let function_name = demangle_without_parameters(&function.name);
    let file_name = path.file_name().unwrap_or(path.as_os_str());
    PlannedProbe {
        file,
        offset: function.file_offset,
        label: format!("{}:{function_name}", file_name.to_string_lossy()),
        function: function_name,
    }
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
    if found.len() > FUNCTIONS_MAX {
        bail!(
            "{name} fits {} functions of {}, more than {FUNCTIONS_MAX}: narrow it down",
            found.len(),
            path.display()
        );
    }
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

/// A symbol may lie about where code is; a breakpoint in data corrupts it.
fn check(binary: &Binary, path: &Path, function: &Function) -> anyhow::Result<()> {
    let why = match binary.code_at(function.file_offset) {
        Place::Code | Place::Function(_) => return Ok(()),
        Place::OutsideFile => "lies behind the end of the file",
        Place::NotLoaded => "is in no part of the file that is loaded",
        Place::Data => "is in data, not in code",
    };
    bail!(
        "{} in {} cannot be probed: its offset {} {why}",
        function.name,
        path.display(),
        function.file_offset
    )
}
