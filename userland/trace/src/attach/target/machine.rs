// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a binary stands for when all processes are traced: the file that we see, and for a bare
//! name each file of that name that any process has mapped.

use super::view::{open_somewhere, path_of, Opened};
use crate::attach::mapped::{Mapped, FILES_MAX};
use anyhow::bail;
use nsprobe_containers::{
    all_processes, open_here, open_in, Containers, Mapping, OpenedFile, Process,
};
use nsprobe_text::counted;
use std::collections::{BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
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
    let has_name = |mapping: &Mapping| is_called(&mapping.path, name);
    let (mut containers, mut is_cut) = (0, false);
    let mut found = Vec::new();
    let running = Containers::take()?;
    for (container, pids) in processes(&running)? {
        let files = mapped.files(&pids, has_name);
        is_cut |= files.len() == FILES_MAX;
        containers += usize::from(container.is_some() && !files.is_empty());
        let new = files.into_iter().filter(|file| ids.insert(file.id));
        found.extend(new.enumerate());
    }
    // Files that their parser does not survive keep a container's own further ones from being read,
    // and not those of others.
    found.sort_by_key(|(place, _)| *place);
    for (_, file) in found {
        match mapped.open(&file, &file.mapping.path) {
            _ if all.files.len() >= ALL_FILES_MAX => is_cut = true,
            Ok(opened) => all.files.push(opened),
            Err(error) => all.notes.push(format!("{name}: {error:#}")),
        }
    }
    if containers == 0 && mapped.is_by_module() {
        // A program may be mapped by the name that a link leads to.
        let theirs = |process: &Process| open_somewhere(process, name);
        if let Some((users, first)) = users(&running, theirs, ours.as_ref().ok(), mapped) {
            let hint = format!("{users} called {name}: -c {first} traces it");
            match &ours {
                Ok(_) => all.notes.push(hint),
                Err(error) => bail!("{error:#}; {hint}"),
            }
        }
    }
    if all.files.is_empty() && ours.is_err() {
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

/// Whether a file is called so, or as a version of that library: links lead to those.
fn is_called(path: &Path, name: &str) -> bool {
    let file_name = path.file_name().unwrap_or_default().as_bytes();
    match file_name.strip_prefix(name.as_bytes()) {
        Some(b"") => true,
        Some(version) => name.contains(".so") && version.starts_with(b"."),
        None => false,
    }
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
    let theirs = |process: &Process| open_in(process, path).ok();
    // Without the module nothing is probed, and one file tells what a spec means.
    let running = Containers::take().ok().filter(|_| mapped.is_by_module());
    let users = running.and_then(|running| users(&running, theirs, ours.as_ref().ok(), mapped));
    let Some((users, first)) = users else {
        return Ok(Opened::from(ours?));
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

/// What is said of containers that have code mapped from another file than `ours`, which is
/// `theirs` as they see it, and the name of the first; none if there is no such container.
fn users(
    containers: &Containers,
    theirs: impl Fn(&Process) -> Option<OpenedFile>,
    ours: Option<&OpenedFile>,
    mapped: &Mapped,
) -> Option<(String, String)> {
    let ours = ours.and_then(|ours| mapped.id_of(ours).ok());
    let running = containers.iter().filter(|one| one.is_running());
    let mut names = BTreeSet::new();
    for container in running.take(SEARCHED_MAX) {
        let first = container.processes.first().map(|pid| Process::open(*pid));
        let Some(Ok(process)) = first else { continue };
        let Some(theirs) = theirs(&process) else {
            continue;
        };
        let Ok(id) = mapped.id_of(&theirs) else {
            continue;
        };
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
    let first = names.first()?.clone();
    let mut shown: Vec<String> = names.iter().take(NAMED_MAX).cloned().collect();
    if let more @ 1.. = names.len().saturating_sub(NAMED_MAX) {
        shown.push(format!("{more} more"));
    }
    let text = match names.len() {
        1 => format!("container {first} runs a file of its own"),
        _ => format!("containers {} run files of their own", shown.join(", ")),
    };
    Some((text, first))
}

/// All processes but this one, by the container that they are in.
fn processes(containers: &Containers) -> anyhow::Result<Vec<(Option<String>, Vec<u32>)>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_has_the_names_that_its_links_have() {
        for (path, name, is) in [
            ("/usr/lib/libz.so.1.3.1", "libz.so.1", true),
            ("/usr/lib/libz.so.1", "libz.so.1", true),
            ("/usr/lib/libz.so.10", "libz.so.1", false),
            ("/usr/lib/libz.so.1", "libz.so", true),
            ("/usr/bin/app.old", "app", false),
            ("/usr/bin/app", "app", true),
        ] {
            assert_eq!(is_called(Path::new(path), name), is, "{path} {name}");
        }
    }
}
