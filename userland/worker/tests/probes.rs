// SPDX-License-Identifier: MIT OR Apache-2.0
//! What specs need of a file: a child finds what our own parser would, and a file that no
//! parser survives is refused as such, in bounded time, with nothing lost for others.

use crate::support::dwarf::{self, named, referring, unit, FIRST};
use crate::support::elf::{compressed, program, section, symbols, zstd, TEXT};
use crate::support::trial::{with, PATIENCE};
use crate::support::{file, options, Folder, CHILD};
use nsprobe_probes::{DebugFiles, OwnedSink, ProbeQuery, Probes, Refused};
use nsprobe_spec::Spec;
use nsprobe_symbolize::{Binary, DebugSet, FoundIn, OpenFile, OpenFiles};
use nsprobe_worker::{ChildLimits, SandboxedBinary, Worker, WorkerError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const SOURCE: &str = "
    struct point { int x; long y; struct { char name[8]; } inner; };
    static inline __attribute__((always_inline)) int twice(int of) { return of * 2; }
    __attribute__((noinline)) int moved(struct point *at, int by) {
        int sum = at->x + twice(by);
        return sum;
    }
    __attribute__((noinline)) int moved_again(struct point *at) { return moved(at, 3); }
    int main(int argc, char **argv) {
        struct point at = { argc, 2, { \"here\" } };
        return moved_again(&at) + moved(&at, argc);
    }
";

pub(crate) fn probe_query(text: &str) -> ProbeQuery {
    ProbeQuery {
        spec: Spec::parse(text).unwrap(),
        typed: text.to_owned(),
        path: "/app".to_owned(),
        sink: OwnedSink::Record,
        at_return: false,
        max_probes: 1000,
        inlined: false,
        exact: false,
        fast_nops: false,
        changes: Vec::new(),
        return_probes: false,
        force: false,
    }
}

/// The query, as a file with another name of a place brings it to misbehave.
fn typed(text: &str, typed: &str) -> ProbeQuery {
    ProbeQuery {
        typed: typed.to_owned(),
        ..probe_query(text)
    }
}

pub(crate) fn open(worker: &Worker, path: &Path) -> SandboxedBinary {
    SandboxedBinary::open(worker, file(path), path).unwrap()
}

pub(crate) fn here(path: &Path, probe_query: &ProbeQuery) -> Result<Probes, Refused> {
    with_debug_files(path, &DebugSet::default(), probe_query)
}

pub(crate) fn with_debug_files(
    path: &Path,
    set: &DebugSet,
    probe_query: &ProbeQuery,
) -> Result<Probes, Refused> {
    let binary = Binary::open(file(path), path).unwrap();
    let files = DebugFiles {
        set,
        notes: &["a note".to_owned()],
    };
    nsprobe_probes::plan(&binary, Some(files), probe_query)
}

#[test]
fn a_child_finds_what_we_would() {
    let folder = Folder::new("probes-agree");
    let worker = Worker::new(options());
    let app = folder.program("app", SOURCE, &["-g", "-O1"]);
    let stripped = folder.program("stripped", SOURCE, &["-s", "-O1"]);
    let files: Vec<PathBuf> = [app, stripped].into_iter().flatten().collect();
    assert!(!files.is_empty(), "there is no compiler");
    let mut found_some = 0;
    for path in &files {
        let object = open(&worker, path);
        for text in [
            "moved",
            "moved*",
            "*",
            "mved",
            "moved+1000",
            "moved(at->x, by, at->inner.name)",
            "moved($params, $vars)",
            "moved(nothing)",
            "moved_again%return(at->inner, $retval, $elapsed) if at->y > 1",
            "app.c:6(sum)",
            "app.c:99999",
            "0x0",
            "provider:name",
            "moved(arg1, arg2:hex, $comm)",
            "main($stack1:symbol, %rdi:symbol)",
        ] {
            let plain = probe_query(text);
            let inlined = ProbeQuery {
                inlined: true,
                spec: Spec::parse(&text.replace("moved", "twice")).unwrap(),
                ..plain.clone()
            };
            let at_exits = ProbeQuery {
                at_return: true,
                ..plain.clone()
            };
            for probe_query in [plain, inlined, at_exits] {
                let told = object
                    .probes(&probe_query, Some(&["a note".to_owned()]))
                    .unwrap();
                assert_eq!(
                    told,
                    here(path, &probe_query),
                    "{text} of {}",
                    path.display()
                );
                found_some += usize::from(told.is_ok());
            }
        }
    }
    assert!(found_some > 15, "{found_some}");
}

#[test]
fn a_stripped_file_has_bounds_by_its_frames_alone() {
    const SOURCE: &str = "
        __asm__(\".text\\n.globl sizeless\\n.type sizeless, @function\\n\"
            \"sizeless: .cfi_startproc; test %edi, %edi; je 1f; ret\\n1: jmp inner; .cfi_endproc\\n\"
            \".type bare, @function\\nbare: mov %rdi, %rax; ret\\n\"
            \".type shifted, @function\\n.set shifted, inner + 1\\n\");
        __attribute__((noipa, used)) static int inner(int *at) __asm__(\"inner\");
        static int inner(int *at) { return *at * 3; }
    ";
    let folder = Folder::new("probes-stripped");
    let flags = ["-O1", "-shared", "-fPIC", "-Wl,--build-id"];
    let Some(named) = folder.program("named", SOURCE, &flags) else {
        return;
    };
    let stripped = folder.0.join("stripped");
    let mut objcopy = Command::new("objcopy");
    objcopy.arg("--strip-all").args([&named, &stripped]);
    assert!(objcopy.status().unwrap().success());
    let symbols = Binary::open(file(&named), &named).unwrap();
    let at = |name: &str| symbols.find_functions(name)[0].file_offset.0;
    let probes = |text: &str, force| {
        let probe_query = ProbeQuery {
            force,
            ..probe_query(text)
        };
        here(&stripped, &probe_query)
    };
    let exits = |found: Probes| found.probes[0].exits.clone().expect("exits");
    let found = exits(probes("sizeless%return", false).unwrap());
    assert_eq!(found.returns[0].0, at("sizeless") + 4);
    assert!(found.returns[1].0 > at("inner") && found.left.is_empty());
    // `.eh_frame` covers this one, and nothing covers the other.
    let inside = |name: &str, force| probes(&format!("{:#x}", at(name) + 1), force);
    assert!(probes(&format!("{:#x}", at("inner")), false).is_ok());
    for (name, part) in [("inner", "in the middle of"), ("bare", "no symbol")] {
        let Err(Refused::Because(why)) = inside(name, false) else {
            panic!("{name}: not refused");
        };
        assert!(why[0].contains(part), "{why:?}");
        assert!(inside(name, true).is_ok());
    }
    // A debug file gives names, and the file itself has to show that an instruction begins there.
    let set = DebugSet::new(OpenFiles {
        separate: Some(OpenFile {
            file: file(&named),
            path: Arc::new(named.clone()),
            found_in: FoundIn::Container,
        }),
        ..OpenFiles::default()
    });
    let probes = |name: &str, force| {
        let probe_query = ProbeQuery {
            force,
            ..probe_query(name)
        };
        with_debug_files(&stripped, &set, &probe_query)
    };
    assert!(probes("inner", false).is_ok());
    for (name, part) in [
        ("shifted", "in the middle of"),
        ("bare", "no symbol"),
        ("bare+3", "no symbol"),
    ] {
        let Err(Refused::Because(why)) = probes(name, false) else {
            panic!("{name}: not refused");
        };
        assert!(why[0].contains(part), "{why:?}");
        assert!(probes(name, true).is_ok());
    }
}

#[test]
fn debug_files_are_asked_for_where_they_are_needed() {
    let folder = Folder::new("probes-need");
    let worker = Worker::new(options());
    let path = folder.program("app", SOURCE, &["-O1"]).unwrap();
    let object = open(&worker, &path);
    let needs = |text: &str| {
        let told = object.probes(&probe_query(text), None).unwrap();
        told == Err(Refused::NeedsDebugFiles)
    };
    assert!(needs("moved(by)") && needs("app.c:6") && needs("elsewhere"));
    assert!(needs("moved(arg1)") && needs("moved($retval)"));
    assert!(!needs("moved(%rdi)") && !needs("moved*"));
    let told = object.probes(
        &probe_query("moved(by)"),
        Some(&["looked in vain".to_owned()]),
    );
    let Err(Refused::Spec(error)) = told.unwrap() else {
        panic!("there is debug information");
    };
    assert!(error.message.contains("looked in vain"), "{error}");
    assert_eq!(error.span, 6..8);
}

#[test]
fn functions_are_listed_in_parts() {
    let worker = Worker::new(options());
    let path = Path::new(CHILD);
    let object = open(&worker, path);
    let binary = Binary::open(file(path), path).unwrap();
    let set = DebugSet::default();
    for pattern in [None, Some("main"), Some("core*fmt*"), Some("no such")] {
        let mut from = Some(0);
        let mut all = Vec::new();
        while let Some(first) = from {
            let told = object.list(true, "/app", pattern, first).unwrap();
            let own = nsprobe_probes::list(&binary, Some(&set), "/app", pattern, first);
            assert_eq!(told, own);
            from = told.as_ref().ok().and_then(|listing| listing.next);
            all.extend(told.map_or(Vec::new(), |listing| listing.functions));
        }
        assert_eq!(all.len() > 1000, pattern.is_none());
    }
    let first = binary.functions().iter().find(|function| function.size > 4);
    let at = first.unwrap().address.0 + 4;
    let told = object.function_at(at).unwrap();
    assert!(told.as_deref().is_some_and(|name| name.ends_with("+0x4")));
    assert_eq!(told, nsprobe_probes::function_at(&binary, at));
    assert_eq!(object.function_at(u64::MAX).unwrap(), None);
}

/// What is said of a file whose parser does this when it is asked for probes.
fn misled(how: &str) -> String {
    let folder = Folder::new(&format!("probes-{how}"));
    let mut options = options();
    options.limits.probes = Duration::from_secs(2);
    let worker = Worker::new(options.clone());
    let path = folder.program("app", SOURCE, &["-g"]).unwrap();
    let object = open(&worker, &path);
    let error = object.probes(&typed("moved", how), Some(&[])).unwrap_err();
    assert!(matches!(error, WorkerError::Fatal(_)), "{error}");
    // What is known of the file is known to who reads others.
    let other = worker.another(options.limits);
    let again = SandboxedBinary::open(&other, file(&path), &path).unwrap_err();
    assert_eq!(again.to_string(), error.to_string());
    assert_eq!(other.pid(), None);
    let sound = folder.program("sound", SOURCE, &["-g"]).unwrap();
    let found = open(&other, &sound).probes(&probe_query("moved(by)"), Some(&[]));
    assert_eq!(found.unwrap().unwrap().probes.len(), 1);
    error.to_string()
}

#[test]
fn a_parser_that_comes_to_an_end_costs_its_file() {
    let died = "the parser died of SIGABRT on this file";
    assert_eq!(misled("aborts"), died);
    assert_eq!(misled("overflows"), died);
    assert_eq!(misled("takes-a-terabyte"), died);
    assert_eq!(misled("panics"), "the parser panicked on this file");
    let says = "the parser was killed by its seccomp filter (SIGSYS) on this file";
    assert_eq!(misled("opens"), says);
    let says = "the parser gave no answer within 2 s on this file";
    assert_eq!(misled("loops"), says);
}

#[test]
fn answers_that_no_wish_brings_are_not_believed() {
    let nonsense = "the parser gave an answer that makes no sense on this file";
    assert_eq!(misled("names-no-program"), nonsense);
    assert_eq!(misled("wants-more-and-more"), nonsense);
    let folder = Folder::new("probes-endless");
    let worker = Worker::new(options());
    let path = folder.program("lists-without-end", SOURCE, &[]).unwrap();
    let error = open(&worker, &path)
        .list(true, "/app", None, 0)
        .unwrap_err();
    assert_eq!(error.to_string(), nonsense);
}

#[test]
fn each_file_has_a_child_of_its_own() {
    let folder = Folder::new("probes-own");
    let worker = Worker::new(options());
    assert_eq!(worker.pid(), None);
    let path = folder.program("app", SOURCE, &[]).unwrap();
    let workers = [1, 2].map(|_| worker.another(ChildLimits::default()));
    let objects = [0, 1].map(|at: usize| open(&workers[at], &path));
    let pids = [0, 1].map(|at: usize| workers[at].pid().unwrap());
    assert_ne!(pids[0], pids[1]);
    assert_eq!(worker.pid(), None);
    for object in objects {
        assert!(object.probes(&probe_query("moved"), None).unwrap().is_ok());
    }
    drop(workers);
    assert!(pids.iter().all(|pid| crate::support::is_dead(*pid)));
}

/// Asks about a hostile file whatever specs may ask; how often it was fatal.
fn hostile(folder: &Folder, bytes: &[u8]) -> usize {
    let mut options = options();
    options.limits = ChildLimits {
        load: PATIENCE,
        query: PATIENCE,
        probes: PATIENCE,
    };
    let path = folder.0.join("hostile");
    let mut fatal = 0;
    for text in [
        "*",
        "code(x)",
        "code($vars)",
        "a:1",
        "code%return($retval, $params)",
        "gone",
        "a:b",
    ] {
        // Written anew, with a parser that has not heard of it.
        let _ = std::fs::remove_file(&path);
        let path = folder.file("hostile", bytes);
        let worker = Worker::new(options.clone());
        let asked = SandboxedBinary::open(&worker, file(&path), &path).and_then(|object| {
            let probe_query = ProbeQuery {
                inlined: true,
                at_return: true,
                ..probe_query(text)
            };
            object.probes(&probe_query, Some(&[]))?.ok();
            object.list(true, "/app", None, 0)?.ok();
            object.function_at(TEXT + 1)
        });
        if let Err(error) = asked {
            assert!(
                matches!(error, WorkerError::Fatal(_) | WorkerError::Refused(_)),
                "{error}"
            );
            fatal += usize::from(matches!(error, WorkerError::Fatal(_)));
        }
    }
    fatal
}

fn entries(entries: &[u8]) -> Vec<u8> {
    with(dwarf::sections(unit(TEXT, 4096, entries)))
}

#[test]
fn hostile_debug_information_is_survived() {
    let folder = Folder::new("probes-hostile");
    let mut circle = referring(2, TEXT, 4096, FIRST);
    circle.extend([0, 0]);
    hostile(&folder, &entries(&circle));
    let mut inside = named("code", TEXT, 4096);
    inside.extend(referring(3, TEXT, 64, FIRST));
    inside.extend([0, 0, 0]);
    hostile(&folder, &entries(&inside));
    hostile(&folder, &entries(&vec![5; 1_000_000]));
    let notes = section(".note.stapsdt", vec![0xff; 1 << 16]);
    hostile(&folder, &with(vec![notes]));
}

#[test]
#[ignore = "full run: half a gigabyte of lines"]
fn more_lines_than_memory_end_the_parser_or_are_refused() {
    let folder = Folder::new("probes-lines");
    let count = 500 << 20;
    let header = dwarf::line_header(count);
    let lines = zstd(&header, 11, count);
    let mut sections = dwarf::sections(unit(TEXT, 4096, &[0]));
    sections[2] = compressed(".debug_line", 2, header.len() as u64 + count, &lines);
    hostile(&folder, &with(sections));
}

#[test]
fn symbols_without_number_end_the_parser_or_are_refused() {
    let folder = Folder::new("probes-symbols");
    let names: Vec<Vec<u8>> = (0..100_000)
        .map(|number| format!("code{number}").into_bytes())
        .collect();
    let all: Vec<(&[u8], u64, u64)> = names
        .iter()
        .map(|name| (name.as_slice(), TEXT, 4096))
        .collect();
    assert_eq!(hostile(&folder, &program(&symbols(2, &all))), 0);
}

/// Where only results matter, a call ends at a jump to a function that has a probe of its own or that
/// returns its first argument; a function that is nothing but such a jump needs no probe.
#[test]
fn calls_of_allocators_end_where_others_go_on() {
    const ALLOCATORS: &str = "
        #include <stdlib.h>
        #include <string.h>
        #define NOT_INLINED __attribute__((noipa))
        static char room[4096];
        NOT_INLINED void take(void *block) { room[0] = block == room; }
        NOT_INLINED void take_sized(void *block) { take(block); }
        NOT_INLINED void *give(size_t bytes) { return bytes < 4096 ? room : 0; }
        NOT_INLINED void *give_cleared(size_t bytes) { return memset(give(bytes), 0, bytes); }
        int main(void) { take_sized(give_cleared(7)); return 0; }
    ";
    let folder = Folder::new("probes-allocators");
    let flags = ["-O2", "-fcf-protection=none", "-fno-builtin"];
    let path = folder.program("allocators", ALLOCATORS, &flags);
    let path = path.expect("there is a compiler");
    let found = |text: &str| {
        let query = ProbeQuery {
            sink: OwnedSink::Spans {
                sample: 0,
                probed: vec!["take".to_owned()],
            },
            ..probe_query(text)
        };
        here(&path, &query).unwrap().probes
    };
    assert_eq!(found("take_sized%return(freed=entry(%rdi))"), []);
    let [cleared] = &found("give_cleared%return(block=%rax, bytes=entry(%rdi))")[..] else {
        panic!("one function");
    };
    let exits = cleared.exits.as_ref().expect("exits");
    assert_eq!(
        (exits.by_argument.len(), exits.left.len()),
        (1, 0),
        "{exits:?}"
    );
    // A time would lack what the other function does.
    let timed = ProbeQuery {
        at_return: true,
        ..probe_query("give_cleared")
    };
    let why = here(&path, &timed).unwrap_err();
    assert!(
        format!("{why:?}").contains("left by jumps alone"),
        "{why:?}"
    );
}

#[test]
fn hidden_functions_of_a_stripped_library_are_followed() {
    const LIBRARY: &str = "
        #include <stddef.h>
        #define HIDDEN __attribute__((noipa, visibility(\"hidden\")))
        static char room[4096];
        volatile size_t used;
        HIDDEN void refuse(void) { used = 0; }
        HIDDEN void *give_hidden(size_t bytes)
        {
            if (used + bytes > sizeof(room)) { refuse(); return NULL; }
            used += bytes;
            return room + used;
        }
        void *give(size_t bytes) { return give_hidden(bytes); }
    ";
    let folder = Folder::new("probes-hidden");
    let flags = [
        "-O2",
        "-s",
        "-shared",
        "-fPIC",
        "-nostdlib",
        "-fcf-protection=none",
        "-fno-asynchronous-unwind-tables",
    ];
    let path = folder.program("hidden", LIBRARY, &flags);
    let path = path.expect("there is a compiler");
    let [give] = &here(&path, &probe_query("give($retval)")).unwrap().probes[..] else {
        panic!("one function");
    };
    let exits = give.exits.as_ref().expect("exits");
    assert_eq!((exits.returns.len(), exits.left.len()), (2, 0), "{exits:?}");
}
