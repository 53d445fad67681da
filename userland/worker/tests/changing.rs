// SPDX-License-Identifier: MIT OR Apache-2.0
//! NS-10: a file that is cut short or written to while it is read costs its own names, and no
//! child; what is not told from what was read before is not told at all.

use crate::support::{file, options, Folder};
use nsprobe_symbolize::{FileOffset, Lookup};
use nsprobe_worker::{Query, SandboxedBinary, Worker};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FUNCTIONS: usize = 300;

/// A program whose functions have names of different lengths: what is read with another
/// program's table of names has a part of one.
fn program(folder: &Folder, prefix: &str, step: usize) -> Option<PathBuf> {
    let name = |index: usize| format!("{prefix}_{}{index}", "x".repeat(index * step % 11));
    let functions =
        (0..FUNCTIONS).map(|index| format!("int {}(void) {{ return 0; }}\n", name(index)));
    let source: String = functions
        .chain(["int main(void) { return 0; }\n".into()])
        .collect();
    folder.program(prefix, &source, &["-O0", "-g", "-Wl,--build-id"])
}

/// Two programs whose names differ; none without a compiler.
fn two_programs(folder: &Folder) -> Option<[Vec<u8>; 2]> {
    let programs = [program(folder, "one", 3)?, program(folder, "another", 7)?];
    Some(programs.map(|path| fs::read(path).unwrap()))
}

/// All places of the program's code.
fn places(object: &SandboxedBinary) -> Vec<Query> {
    let segment = object.segments().iter().find(|s| s.executable).unwrap();
    let offsets = (0..segment.file_bytes).map(|at| FileOffset(segment.file_offset.0 + at));
    let lookup = Lookup::Instruction;
    offsets.map(|offset| Query { offset, lookup }).collect()
}

/// The name of each place; none where there is none, or when the file is not read.
fn names(object: &SandboxedBinary, queries: &[Query]) -> Vec<Option<String>> {
    let Ok(answers) = object.resolve_all(queries) else {
        return vec![None; queries.len()];
    };
    let name = |answer: nsprobe_worker::Answer| answer.found.ok()?.frames.pop();
    let frames = answers.into_iter().map(name);
    frames
        .map(|frame| frame.map(|frame| frame.function))
        .collect()
}

/// A file, of which the headers and symbols are read before it is changed.
struct Changing<'a> {
    worker: &'a Worker,
    path: PathBuf,
    bytes: Vec<u8>,
    queries: Vec<Query>,
    /// What it has at these places while it is whole.
    wanted: Vec<Option<String>>,
}

impl<'a> Changing<'a> {
    fn new(worker: &'a Worker, folder: &Folder, bytes: Vec<u8>) -> Changing<'a> {
        // Another file: what is read of it is not there already.
        let whole = folder.file("whole", &bytes);
        let whole = SandboxedBinary::open(worker, file(&whole), &whole).unwrap();
        let queries = places(&whole);
        let wanted = names(&whole, &queries);
        let found = wanted.iter().flatten().count();
        assert!(found > FUNCTIONS, "{found}");
        Changing {
            worker,
            path: folder.0.join("changing"),
            bytes,
            queries,
            wanted,
        }
    }

    /// Each name is what it was, or is not there; how many are.
    fn by(&self, change: impl FnOnce(&fs::File)) -> usize {
        let path = &self.path;
        let _ = fs::remove_file(path);
        fs::write(path, &self.bytes).unwrap();
        // The clock of files stands still for some milliseconds.
        std::thread::sleep(Duration::from_millis(20));
        let object = SandboxedBinary::open(self.worker, file(path), path).unwrap();
        change(&fs::File::options().write(true).open(path).unwrap());
        let names = names(&object, &self.queries);
        for (name, wanted) in names.iter().zip(&self.wanted) {
            assert!(
                name.is_none() || name == wanted,
                "{name:?} in place of {wanted:?}"
            );
        }
        names.iter().flatten().count()
    }
}

#[test]
fn what_changes_behind_the_symbols_has_the_names_of_before_or_none() {
    let folder = Folder::new("changed");
    let Some([one, other]) = two_programs(&folder) else {
        return;
    };
    let worker = Worker::start(options()).unwrap();
    let pid = worker.pid();
    let length = one.len();
    let changed = Changing::new(&worker, &folder, one);
    let cut = |to: usize| changed.by(|file| file.set_len(to as u64).unwrap());
    let written = |bytes: &[u8]| changed.by(|file| file.write_all_at(bytes, 0).unwrap());
    let all = changed.by(|_| ());
    assert_eq!(all, changed.wanted.iter().flatten().count(), "unchanged");
    let counts = [
        cut(0),
        cut(100),
        cut(length / 2),
        cut(length - 1),
        written(&other),
        written(&vec![0xff; length]),
    ];
    println!("{counts:?} of {all} names are left");
    assert!(
        counts.iter().any(|&count| count > 0),
        "nothing was compared"
    );
    assert_eq!(worker.pid(), pid, "a child was lost");
}

#[test]
fn a_file_that_changes_all_the_time_costs_no_child() {
    let folder = Folder::new("changes");
    let Some([one, other]) = two_programs(&folder) else {
        return;
    };
    let path = folder.file("changing", &one);
    let sound = folder.file("sound", &one);
    let worker = Worker::start(options()).unwrap();
    let sound = SandboxedBinary::open(&worker, file(&sound), &sound).unwrap();
    let queries = places(&sound);
    let (wanted, pid) = (names(&sound, &queries), worker.pid());
    let is_over = AtomicBool::new(false);
    let (mut opened, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = fs::File::options().write(true).open(&path).unwrap();
            for bytes in [&one, &other].into_iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                file.write_all_at(&bytes[..bytes.len() / 3], 0).unwrap();
                file.set_len(bytes.len() as u64 / 2).unwrap();
                file.write_all_at(bytes, 0).unwrap();
            }
        });
        let begun = Instant::now();
        while (opened < 20 || refused < 20) && begun.elapsed() < Duration::from_secs(100) {
            match SandboxedBinary::open(&worker, file(&path), &path) {
                Ok(object) => {
                    let _ = names(&object, &queries);
                    opened += 1;
                }
                Err(_) => refused += 1,
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{opened} were opened, {refused} refused");
    assert!(opened > 0 && refused > 0, "it is no race");
    assert_eq!(worker.pid(), pid, "a child was lost");
    assert_eq!(names(&sound, &queries), wanted);
}
