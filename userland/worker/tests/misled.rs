// SPDX-License-Identifier: MIT OR Apache-2.0
//! ELF-08: whatever a file brings a parser to, it costs that file only.

use crate::support::{file, options, Folder, CHILD};
use nsprobe_symbolize::{Binary, Lookup};
use nsprobe_unwind::{Cache, UnwindTable};
use nsprobe_worker::{Query, SandboxedBinary, Worker, WorkerError};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

/// The name of the code at a file's entry.
fn first_name(object: &SandboxedBinary) -> String {
    let segment = object.segments().iter().find(|s| s.executable).unwrap();
    // Not each byte: who answers a few at a time is asked for all others each time.
    let places = (0..4096).step_by(16);
    let offsets = places.map(|at| nsprobe_symbolize::FileOffset(segment.file_offset.0 + at));
    let queries: Vec<Query> = offsets
        .map(|offset| Query {
            offset,
            lookup: Lookup::Instruction,
        })
        .collect();
    let answers = object.resolve_all(&queries).unwrap();
    assert_eq!(answers.len(), queries.len());
    let found = answers.into_iter().find_map(|answer| answer.found.ok());
    found.unwrap().frames[0].function.clone()
}

/// A parser that does as the name of the file says; what is said of the file. Before and
/// after it another file has its names.
fn misled(how: &str) -> WorkerError {
    let folder = Folder::new(how);
    let worker = Worker::start(options()).unwrap();
    let sound = SandboxedBinary::open(&worker, file(CHILD.as_ref()), CHILD.as_ref()).unwrap();
    let name = first_name(&sound);
    let path = folder.file(how, b"whatever");
    let error = SandboxedBinary::open(&worker, file(&path), &path).unwrap_err();
    assert_eq!(first_name(&sound), name);
    // It is asked about no more: no child is lost by it.
    let pid = worker.pid();
    let again = SandboxedBinary::open(&worker, file(&path), Path::new("harmless")).unwrap_err();
    assert_eq!(again.to_string(), error.to_string());
    assert_eq!((worker.pid(), first_name(&sound)), (pid, name));
    // Another file at the same path is another file.
    fs::remove_file(&path).unwrap();
    fs::copy(CHILD, &path).unwrap();
    SandboxedBinary::open(&worker, file(&path), Path::new("harmless")).unwrap();
    error
}

/// The child says which rows are kept of a file: under the name of others it gets these, and
/// changes none.
#[test]
fn rows_under_another_name_are_not_kept_for_others() {
    let folder = Folder::new("kept");
    let cache = Cache::open(&folder.0.join("cache")).unwrap();
    let other = std::env::current_exe().unwrap();
    let table =
        |path: &Path| UnwindTable::of(&Binary::open_sections(file(path), path).unwrap()).unwrap();
    let (ours, others) = (table(CHILD.as_ref()), table(&other));
    assert_ne!(ours, others);
    let rows = |worker: &Worker, from: &Path, name: &str| {
        let path = folder.0.join(name);
        fs::copy(from, &path).unwrap();
        let object = SandboxedBinary::open_sections(worker, file(&path), &path).unwrap();
        object.rows(Some(&cache), false).unwrap().unwrap()
    };
    let worker = Worker::start(options()).unwrap();
    let child = CHILD.as_ref();
    for was_kept in [false, true] {
        assert_eq!(rows(&worker, child, "sound"), (ours.clone(), was_kept));
    }
    assert_eq!(rows(&worker, child, "names-no-rows"), (ours.clone(), true));
    let misled = rows(&worker, &other, "names-rows-of-another");
    assert_eq!(misled, (ours.clone(), true));
    let worker = Worker::start(options()).unwrap();
    assert_eq!(rows(&worker, &other, "its-own"), (others, false));
    assert_eq!(rows(&worker, child, "sound"), (ours, true));
}

/// Who has looked up places for long says what he has so far.
#[test]
fn answers_come_a_few_at_a_time() {
    let folder = Folder::new("few");
    let worker = Worker::start(options()).unwrap();
    let open = |name: &str| {
        let path = folder.0.join(name);
        fs::copy(CHILD, &path).unwrap();
        SandboxedBinary::open(&worker, file(&path), &path).unwrap()
    };
    let name = first_name(&open("sound"));
    assert_eq!(first_name(&open("answers-a-few")), name);
    let query = Query {
        offset: nsprobe_symbolize::FileOffset(0),
        lookup: Lookup::Instruction,
    };
    let error = open("answers-none").resolve(query).unwrap_err().to_string();
    assert!(error.contains("makes no sense"), "{error}");
}

#[test]
fn a_panic() {
    assert_eq!(
        misled("panics").to_string(),
        "the parser panicked on this file"
    );
}

#[test]
fn an_abort() {
    let error = misled("aborts").to_string();
    assert_eq!(error, "the parser died of SIGABRT on this file");
}

#[test]
fn a_stack_overflow() {
    let error = misled("overflows").to_string();
    assert_eq!(error, "the parser died of SIGABRT on this file");
}

#[test]
fn more_memory_than_there_is() {
    for how in ["takes-a-terabyte", "takes-all-slowly"] {
        let error = misled(how).to_string();
        assert_eq!(error, "the parser died of SIGABRT on this file");
    }
}

#[test]
fn a_call_that_the_filter_refuses() {
    let error = misled("opens").to_string();
    let says = "the parser was killed by its seccomp filter (SIGSYS) on this file";
    assert_eq!(error, says);
}

#[test]
fn an_end_or_another_answer() {
    let error = misled("ends").to_string();
    assert_eq!(error, "the parser ended with status 7 on this file");
    for how in ["another-answer", "floods"] {
        let error = misled(how).to_string();
        let says = "the parser gave an answer that makes no sense on this file";
        assert_eq!(error, says);
    }
}

#[test]
fn a_loop_ends_with_the_patience() {
    let folder = Folder::new("loops");
    let mut options = options();
    options.limits.load = Duration::from_secs(1);
    let worker = Worker::start(options).unwrap();
    let path = folder.file("loops", b"whatever");
    let error = SandboxedBinary::open(&worker, file(&path), &path).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the parser gave no answer within 1 s on this file"
    );
    let sound = Path::new("/bin/true");
    SandboxedBinary::open(&worker, file(sound), sound).unwrap();
}

#[test]
fn a_child_that_is_killed_or_stopped_from_outside_costs_no_names() {
    let mut options = options();
    options.limits.query = Duration::from_secs(3);
    options.limits.load = Duration::from_secs(5);
    let worker = Worker::start(options).unwrap();
    let files: Vec<SandboxedBinary> = ["/proc/self/exe", CHILD]
        .iter()
        .map(|path| {
            SandboxedBinary::open(&worker, File::open(path).unwrap(), path.as_ref()).unwrap()
        })
        .collect();
    let names: Vec<String> = files.iter().map(first_name).collect();
    let signal = |signal| {
        let pid = nix::unistd::Pid::from_raw(worker.pid().unwrap() as i32);
        nix::sys::signal::kill(pid, signal).unwrap();
    };
    for _ in 0..3 {
        signal(nix::sys::signal::SIGKILL);
        assert_eq!(files.iter().map(first_name).collect::<Vec<_>>(), names);
    }
    // One that gives no answer costs the file that it is asked about.
    assert_eq!(first_name(&files[0]), names[0]);
    signal(nix::sys::signal::SIGSTOP);
    let pid = worker.pid().unwrap();
    crate::support::soon(|| crate::support::state(pid) == Some('T'));
    let query = Query {
        offset: nsprobe_symbolize::FileOffset(0),
        lookup: Lookup::Instruction,
    };
    let error = files[0].resolve(query).unwrap_err().to_string();
    assert!(error.contains("no answer within 3 s"), "{error}");
    assert_eq!(first_name(&files[1]), names[1]);
    assert!(files[0].resolve(query).is_err());
}

#[test]
fn files_that_kill_one_child_after_the_other_are_stopped() {
    let folder = Folder::new("many");
    let worker = Worker::start(options()).unwrap();
    let mut last = String::new();
    for number in 0..40 {
        let path = folder.file(&format!("{number}-aborts"), b"whatever");
        last = SandboxedBinary::open(&worker, file(&path), &path)
            .unwrap_err()
            .to_string();
    }
    assert!(last.contains("no more is started for now"), "{last}");
}

#[test]
fn more_files_than_a_child_may_have_open_are_read_in_turn() {
    let worker = Worker::start(options()).unwrap();
    let path = Path::new("/bin/true");
    let open = || SandboxedBinary::open(&worker, file(path), path).unwrap();
    let files: Vec<SandboxedBinary> = (0..200).map(|_| open()).collect();
    let name = first_name(&files[0]);
    assert!(files
        .iter()
        .step_by(31)
        .all(|file| first_name(file) == name));
    let open = fs::read_dir(format!("/proc/{}/fd", worker.pid().unwrap())).unwrap();
    assert!(open.count() <= 3 + 64);
}

#[test]
fn files_beyond_the_memory_are_read_again() {
    let mut options = options();
    options.memory_bytes = 0;
    let worker = Worker::start(options).unwrap();
    let files: Vec<SandboxedBinary> = ["/proc/self/exe", CHILD]
        .iter()
        .map(|path| {
            SandboxedBinary::open(&worker, File::open(path).unwrap(), path.as_ref()).unwrap()
        })
        .collect();
    let names: Vec<String> = files.iter().map(first_name).collect();
    assert_ne!(names[0], "");
    for _ in 0..3 {
        for (file, name) in files.iter().zip(&names) {
            assert_eq!(first_name(file), *name);
            let open = fs::read_dir(format!("/proc/{}/fd", worker.pid().unwrap())).unwrap();
            // The one that was asked about.
            assert_eq!(open.count(), 3 + 1);
        }
    }
}
