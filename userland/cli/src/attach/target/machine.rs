// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a binary stands for when all processes are traced: the file that we see, and for a bare
//! name each file of that name that any process has mapped.

use super::view::{path_of, Opened};
use crate::attach::mapped::{Mapped, FILES_MAX};
use anyhow::bail;
use nsprobe_containers::{
    all_processes, open_here, open_in, Containers, Mapping, OpenedFile, Process,
};
use nsprobe_symbolize::counted;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Most files that a name stands for; of each container at most [`FILES_MAX`].
const ALL_FILES_MAX: usize = 1024;
/// Most containers that are searched for a program at a path.
const SEARCHED_MAX: usize = 64;
/// Containers that a note names.
const NAMED_MAX: usize = 3;

/// The files that a bare name stands for; `ours` is what it means before anything is mapped.
pub(super) fn by_name(
    name: &str,
    ours: anyhow::Result<PathBuf>,
    mapped: &Mapped,
) -> anyhow::Result<Opened> {
    let ours = ours.and_then(|path| Ok(open_here(&path)?));
    // Without the module nothing is probed, and one file tells what a spec means.
    if let (Ok(_), false) = (&ours, mapped.is_by_module()) {
        return ours.map(Opened::from);
    }
    let mut all = Opened::default();
    let mut ids = HashSet::new();
    if let Ok(ours) = &ours {
        ids.insert(mapped.id_of(ours)?);
    }
    let has_name = |mapping: &Mapping| mapping.path.file_name() == Some(OsStr::new(name));
    let (mut containers, mut is_cut) = (0, false);
    for (container, pids) in processes()? {
        let files = mapped.files(&pids, has_name);
        is_cut |= files.len() == FILES_MAX;
        containers += usize::from(container.is_some() && !files.is_empty());
        for file in files.into_iter().filter(|file| ids.insert(file.id)) {
            match mapped.open(&file, &file.mapping.path) {
                _ if all.files.len() >= ALL_FILES_MAX => is_cut = true,
                Ok(opened) => all.files.push(opened),
                Err(error) => all.notes.push(format!("{name}: {error:#}")),
            }
        }
    }
    if all.files.is_empty() {
        return ours
            .map(Opened::from)
            .map_err(|error| error.context(format!("no process has a file {name} mapped")));
    }
    all.files.splice(0..0, ours.ok());
    if all.files.len() > 1 {
        all.notes
            .push(stands_for(name, all.files.len(), containers));
    }
    if is_cut {
        all.notes.push(format!(
            "{name} stands for at most {FILES_MAX} files of a container, and {ALL_FILES_MAX} in \
             all: others are not probed"
        ));
    }
    Ok(all)
}

fn stands_for(name: &str, files: usize, containers: usize) -> String {
    let containers = match containers {
        0 => String::new(),
        count => format!(" and {}", counted(count, "container")),
    };
    let files = counted(files, "file");
    format!("{name} stands for {files}, of this machine{containers}: all are probed")
}

/// The file that we see at a path; a note when containers run another that they see there.
pub(super) fn by_path(path: &Path, mapped: &Mapped) -> anyhow::Result<Opened> {
    let ours = open_here(path);
    let users = match mapped.is_by_module() {
        true => users(path, ours.as_ref().ok(), mapped).unwrap_or_default(),
        false => Vec::new(),
    };
    let Some(first) = users.first() else {
        return Ok(Opened::from(ours?));
    };
    let mut names = users.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    if let more @ 1.. = users.len().saturating_sub(NAMED_MAX) {
        names.push(format!("{more} more"));
    }
    let users = match users.len() {
        1 => format!("container {first} runs a file of its own"),
        _ => format!("containers {} run files of their own", names.join(", ")),
    };
    let mut opened = match ours {
        Ok(ours) => Opened::from(ours),
        Err(error) => bail!("{error}; {users} there: -c {first} traces it"),
    };
    let path = path.display();
    let note = format!("{users} at {path}: -c {first} traces that one");
    opened.notes.push(note);
    Ok(opened)
}

/// Names of the containers that have code mapped from another file than `ours`, which is at that
/// path as they see it.
fn users(path: &Path, ours: Option<&OpenedFile>, mapped: &Mapped) -> anyhow::Result<Vec<String>> {
    let ours = ours.map(|ours| mapped.id_of(ours)).transpose()?;
    let containers = Containers::take()?;
    let running = containers.iter().filter(|one| one.is_running());
    let mut names = BTreeSet::new();
    for container in running.take(SEARCHED_MAX) {
        let first = container.processes.first().map(|pid| Process::open(*pid));
        let Some(Ok(process)) = first else { continue };
        let Ok(theirs) = open_in(&process, path) else {
            continue;
        };
        let id = mapped.id_of(&theirs)?;
        let real = path_of(&theirs.file);
        let has_name = |mapping: &Mapping| {
            real.as_ref()
                .is_some_and(|real| mapping.path.file_name() == real.file_name())
        };
        let is_run = || {
            mapped
                .files(&container.processes, has_name)
                .iter()
                .any(|file| file.id == id)
        };
        if Some(id) != ours && is_run() {
            names.insert(container.name.clone());
        }
    }
    Ok(names.into_iter().collect())
}

/// All processes but this one, by the container that they are in.
fn processes() -> anyhow::Result<Vec<(Option<String>, Vec<u32>)>> {
    let containers = Containers::take()?;
    let running = containers.iter().filter(|one| one.is_running());
    let mut all: Vec<_> = running
        .map(|one| (Some(one.name.clone()), one.processes.clone()))
        .collect();
    let inside: HashSet<u32> = all.iter().flat_map(|(_, pids)| pids).copied().collect();
    let own = std::process::id();
    let others = all_processes()?.into_iter();
    let others = others.filter(|pid| *pid != own && !inside.contains(pid));
    all.insert(0, (None, others.collect()));
    Ok(all)
}
