// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug files through a child: the same names as without one, the files checked by it, and
//! a file among them that no parser survives.

use crate::support::{file, options, Folder};
use nsprobe_symbolize::{
    Binary, DebugSet, FileOffset, FoundIn, FrameSource, Lookup, NamesFrom, OpenFile, OpenFiles,
};
use nsprobe_worker::{Query, SandboxedBinary, Worker, WorkerError};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const SOURCE: &str = "static inline __attribute__((always_inline)) int add(int a) {\n    \
    return a * 3;\n}\n__attribute__((noinline)) int work(int a) {\n    \
    return add(a) + add(a + 1);\n}\nint main(int argc, char **argv) {\n    \
    (void)argv;\n    return work(argc);\n}\n";

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// A stripped program, and the file with what was stripped.
fn apart(folder: &Folder, name: &str, flags: &[&str]) -> Option<(PathBuf, PathBuf)> {
    let flags = [&["-O0", "-g", "-Wl,--build-id"][..], flags].concat();
    let whole = folder.program(name, SOURCE, &flags)?;
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let debug = folder.0.join(format!("{name}.debug"));
    let program = folder.0.join(format!("{name}.stripped"));
    run(
        "objcopy",
        &["--only-keep-debug", &text(&whole), &text(&debug)],
    );
    run("objcopy", &["--strip-all", &text(&whole), &text(&program)]);
    Some((program, debug))
}

fn found(path: &Path, found_in: FoundIn) -> OpenFile {
    OpenFile {
        file: file(path),
        path: Arc::new(path.to_owned()),
        found_in,
    }
}

fn separate(path: &Path) -> OpenFiles {
    OpenFiles {
        separate: Some(found(path, FoundIn::Host)),
        ..OpenFiles::default()
    }
}

/// All places of the program's code.
fn places(object: &SandboxedBinary) -> Vec<Query> {
    let segment = object.segments().iter().find(|s| s.executable).unwrap();
    let offsets = (0..segment.file_bytes).map(|at| FileOffset(segment.file_offset.0 + at));
    let lookup = Lookup::Instruction;
    offsets.map(|offset| Query { offset, lookup }).collect()
}

/// Each place has, through the child, what it has by the same parser here; how many had it
/// from a debug file.
fn agrees(object: &SandboxedBinary, program: &Path, files: OpenFiles) -> usize {
    let (binary, debug) = (
        Binary::open(file(program), program).unwrap(),
        DebugSet::new(files),
    );
    let queries = places(object);
    let answers = object.resolve_all(&queries).unwrap();
    let mut from_files = 0;
    for (query, answer) in queries.iter().zip(answers) {
        let own = binary.resolve_with(&debug, query.offset, query.lookup);
        assert_eq!(answer.found, own, "{query:?}");
        let from = own.map(|resolution| (resolution.source, resolution.from));
        let is_file = |from| matches!(from, (FrameSource::Dwarf, NamesFrom::File(..)));
        from_files += usize::from(from.is_ok_and(is_file));
    }
    assert_eq!(object.failures(), debug.failures(&binary));
    from_files
}

#[test]
fn split_units_are_told_and_read_and_many_files_are_sent() {
    let folder = Folder::new("split");
    let flags = ["-O0", "-g", "-gsplit-dwarf", "-Wl,--build-id"];
    let Some(program) = folder.program("app", SOURCE, &flags) else {
        return;
    };
    let worker = Worker::start(options()).unwrap();
    let object = SandboxedBinary::open(&worker, file(&program), &program).unwrap();
    let binary = Binary::open(file(&program), &program).unwrap();
    let units = object.split_units().unwrap();
    assert_eq!(units, binary.split_units().unwrap());
    let [unit] = &units[..] else {
        panic!("{units:?}");
    };
    let dwo = unit.folder.join(&unit.name);
    // GCC calls it after the program, and leaves it where it was run.
    let kept = folder.0.join("app.dwo");
    fs::rename(&dwo, &kept).unwrap();
    let files = || {
        let other = folder.file("other", b"no ELF");
        let others = (0..600).map(|id| (id, found(&other, FoundIn::Container)));
        let own = (unit.id, found(&kept, FoundIn::Container));
        OpenFiles {
            split: others.chain([own]).collect(),
            ..OpenFiles::default()
        }
    };
    object.attach(files()).unwrap();
    assert!(agrees(&object, &program, files()) > 20);
    // As many again do not fit beside them, and are read in turn.
    let again = SandboxedBinary::open(&worker, file(&program), &program).unwrap();
    again.attach(files()).unwrap();
    let third = SandboxedBinary::open(&worker, file(&program), &program).unwrap();
    third.attach(files()).unwrap();
    for object in [&again, &third, &object] {
        assert!(agrees(object, &program, files()) > 20);
    }
    let held = fs::read_dir(format!("/proc/{}/fd", worker.pid().unwrap())).unwrap();
    assert!(held.count() <= 3 + 1536);
    drop((object, again, third));
    let held = fs::read_dir(format!("/proc/{}/fd", worker.pid().unwrap())).unwrap();
    assert_eq!(held.count(), 3);
}

#[test]
fn files_are_checked_by_the_child() {
    let folder = Folder::new("checked");
    let Some((program, debug)) = apart(&folder, "app", &[]) else {
        return;
    };
    let Some((_, decoy)) = apart(&folder, "other", &["-DX", "-O1"]) else {
        return;
    };
    let worker = Worker::start(options()).unwrap();
    let object = SandboxedBinary::open(&worker, file(&program), &program).unwrap();
    let binary = Binary::open(file(&program), &program).unwrap();
    let path = Path::new("/opt/app/bin/app");
    assert_eq!(
        object.debug_file_names(path),
        binary.debug_file_names(path),
        "names"
    );
    for candidate in [&debug, &decoy] {
        let candidate_object =
            SandboxedBinary::open_sections(&worker, file(candidate), candidate).unwrap();
        let candidate = Binary::open_sections(file(candidate), candidate).unwrap();
        assert_eq!(
            object.check_debug_file(&candidate_object),
            binary.check_debug_file(&candidate)
        );
        assert!(candidate_object.has_debug_names());
        assert_eq!(candidate_object.supplementary(), candidate.supplementary());
    }
    let refused = object
        .check_debug_file(&SandboxedBinary::open_sections(&worker, file(&decoy), &decoy).unwrap());
    assert!(refused.unwrap_err().contains("build-id"));
}

#[test]
fn a_debug_file_that_no_parser_survives_costs_itself_alone() {
    let folder = Folder::new("bad-debug");
    let Some((program, debug)) = apart(&folder, "app", &[]) else {
        return;
    };
    let worker = Worker::start(options()).unwrap();
    let object = SandboxedBinary::open(&worker, file(&program), &program).unwrap();
    let before = object.resolve_all(&places(&object)).unwrap();
    // The tests' child aborts on it.
    let bad = folder.0.join("app-aborts");
    fs::copy(&debug, &bad).unwrap();
    object.attach(separate(&bad)).unwrap();
    let error = object.resolve_all(&places(&object)).unwrap_err();
    assert!(matches!(error, WorkerError::Fatal(_)), "{error}");
    let pid = worker.pid();
    object.resolve_all(&places(&object)).unwrap_err();
    assert_eq!(worker.pid(), pid, "it was asked once more");
    // Alone, or with a sound one, the program is asked about.
    object.attach(OpenFiles::default()).unwrap();
    assert_eq!(object.resolve_all(&places(&object)).unwrap(), before);
    object.attach(separate(&debug)).unwrap();
    assert!(agrees(&object, &program, separate(&debug)) > 20);
}

#[test]
fn a_child_that_names_a_file_it_was_not_given_is_not_believed() {
    let folder = Folder::new("lies");
    let Some((program, _)) = apart(&folder, "names-another", &[]) else {
        return;
    };
    let worker = Worker::start(options()).unwrap();
    let path = folder.0.join("names-another-file");
    fs::copy(&program, &path).unwrap();
    let object = SandboxedBinary::open(&worker, file(&path), &path).unwrap();
    let error = object.resolve_all(&places(&object)).unwrap_err();
    let says = "the parser gave an answer that makes no sense on this file";
    assert_eq!(error.to_string(), says);
}
