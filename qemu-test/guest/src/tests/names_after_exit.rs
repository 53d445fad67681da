// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: frames of a program that has ended, and is gone with its container, or that was
//! removed or replaced while it ran, are named all the same, and by its own names.

use crate::command::Running;
use crate::debug_files::{
    addr2line, build_id, by_build_id, debug_of, forge_build_id, functions, strip,
};
use crate::figures;
use crate::fresh::Fresh;
use crate::module::Module;
use crate::oracle::within;
use crate::threads::Stop;
use crate::victim;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Containers of each test.
fn containers() -> usize {
    200 / figures::parts(25)
}

/// How often the victim calls what is probed.
const CALLS: usize = 6;
/// The functions of the victim on its stacks, innermost first.
const FUNCTIONS: [&str; 4] = ["ask", "ask_twice", "live", "main"];

/// The victim with all that it was built with, without that, and that alone.
struct Files {
    folder: PathBuf,
    whole: PathBuf,
    stripped: PathBuf,
    debug: PathBuf,
    /// Where the debug information is looked for.
    debug_path: PathBuf,
}

impl Files {
    fn new() -> Files {
        let folder = PathBuf::from(format!("/var/tmp/after-exit-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("/var/tmp is writable");
        let whole = victim::path("short_lived");
        let (stripped, debug) = (folder.join("stripped"), folder.join("debug"));
        strip(&whole, &stripped);
        debug_of(&whole, &debug);
        let debug_path = by_build_id(Path::new("/"), &build_id(&whole));
        assert!(!debug_path.exists(), "the guest has it itself");
        Files {
            folder,
            whole,
            stripped,
            debug,
            debug_path,
        }
    }

    /// Containers that have the program without names, and the debug file for it.
    fn apart(&self) -> Fresh {
        let debug_path = self.debug_path.to_str().expect("a plain name");
        Fresh::of(&self.stripped).with(&self.debug, debug_path)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A trace of what runs as `fresh`, begun for certain; how many containers that took.
fn start(fresh: &Fresh) -> (Running, usize) {
    let words = ["trace", "--json", "--verbose", "--stack", "--comm", "fresh"];
    let mut trace = Running::start(&[&words[..], &["libc.so.6:getppid"]].concat());
    for begun in 1..100 {
        fresh.run(&[]);
        if trace.next_line(Duration::from_millis(100)).is_some() {
            return (trace, begun);
        }
    }
    panic!("nothing is traced");
}

/// What a trace has printed, checked frame by frame.
struct Named<'a> {
    whole: &'a Path,
    build_id: String,
    told: HashMap<String, Vec<(String, String)>>,
    hits: usize,
    pids: HashSet<u32>,
    from: HashMap<String, usize>,
}

impl Named<'_> {
    /// Asserts that all stacks that a trace has printed are whole, and that each frame of the
    /// victim has the functions and lines that addr2line gives it in `whole`.
    fn all_of(trace: Running, whole: &Path) -> Named<'_> {
        let (code, lines, errors) = trace.finish();
        println!("{errors}");
        assert_eq!(code, Some(0));
        for text in lines.iter().chain([&errors]) {
            assert!(!text.contains("decoy_"), "a decoy was believed: {text}");
        }
        let mut named = Named {
            whole,
            build_id: build_id(whole),
            told: HashMap::new(),
            hits: 0,
            pids: HashSet::new(),
            from: HashMap::new(),
        };
        let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line));
        let lines = lines.map(|line| line.expect("JSON"));
        for hit in lines.filter(|line| line["type"] == "hit") {
            named.hit(&hit);
        }
        println!("{} hits; names from {:?}", named.hits, named.from);
        named
    }

    fn hit(&mut self, hit: &Value) {
        self.hits += 1;
        let pid = hit["pid"].as_u64().expect("a number");
        self.pids.insert(pid as u32);
        assert_eq!(hit["stack_end"], "outermost", "{hit}");
        let frames = hit["stack"].as_array().expect("a stack");
        let last = frames.last().expect("not empty");
        assert_eq!(last["functions"][0]["name"], "_start", "{hit}");
        let mut names = Vec::new();
        for frame in frames.iter().filter(|f| f["build_id"] == *self.build_id) {
            let ours = functions(frame);
            names.extend(ours.iter().map(|(name, _)| name.clone()));
            // The C library's own code, which has no lines.
            if ours[0].0 == "_start" {
                continue;
            }
            let offset = frame["file_offset"].to_string();
            let theirs = self.told.entry(offset);
            let theirs = theirs.or_insert_with(|| addr2line(self.whole, frame, true));
            assert_eq!(ours, *theirs, "{frame}");
            assert_eq!(frame["names_from"], "dwarf", "{frame}");
            let from = frame["source"]["in"].to_string();
            *self.from.entry(from).or_default() += 1;
        }
        assert_eq!(names[..FUNCTIONS.len()], FUNCTIONS, "{hit}");
    }

    /// Asserts that this number of containers was seen; of those that began the trace maybe some.
    fn are_of(&self, containers: usize, begun: usize) {
        let seen = self.hits / CALLS;
        assert!((containers..=containers + begun).contains(&seen), "{seen}");
    }
}

test! { core, processes_that_are_gone_with_their_container_are_named, seconds = 480 }
/// Each lives some fifty milliseconds, in a container that has its debug file and is gone with
/// it: sooner than that of any engine, which still has to be removed.
fn processes_that_are_gone_with_their_container_are_named() {
    let _module = Module::load();
    let files = Files::new();
    let fresh = files.apart();
    let (trace, begun) = start(&fresh);
    (0..containers()).for_each(|_| fresh.run(&[]));
    std::thread::sleep(Duration::from_millis(500));
    let named = Named::all_of(trace, &files.whole);
    named.are_of(containers(), begun);
    let in_container = named.from.get("\"container\"").copied().unwrap_or(0);
    let frames: usize = named.from.values().sum();
    assert_eq!(in_container, frames, "{:?}", named.from);
}

test! { full, a_removed_or_replaced_program_is_named_by_its_own_names, seconds = 480 }
/// Another build comes to the path of the program while that runs, or nothing; the program's
/// names are in itself, or in the container's debug file.
fn a_removed_or_replaced_program_is_named_by_its_own_names() {
    const DECOY: &str = "/decoy";
    let _module = Module::load();
    let files = Files::new();
    let decoy = victim::path("short_lived_decoy");
    let whole = Fresh::of(&files.whole).with(&decoy, DECOY);
    let (trace, begun) = start(&whole);
    // A container may be gone when it is looked into, but not the layers of its image.
    let images = [whole, files.apart().with(&decoy, DECOY)];
    for fresh in &images {
        for _ in 0..containers() / 4 {
            fresh.run(&["remove", "/fresh"]);
            fresh.run(&["replace", "/fresh", DECOY]);
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    Named::all_of(trace, &files.whole).are_of(containers(), begun);
}

test! { full, a_number_that_another_process_has_by_now_leads_to_no_names, seconds = 200 }
/// The one that has it now lies in wait, with a debug file of the same build-id in its root.
fn a_number_that_another_process_has_by_now_leads_to_no_names() {
    const NUMBERS: [u32; 5] = [20_000, 20_100, 20_200, 20_300, 20_400];
    const LIMIT: Duration = Duration::from_secs(60);
    let _module = Module::load();
    let files = Files::new();
    let fresh = files.apart();
    let forged = files.folder.join("forged");
    debug_of(&victim::path("short_lived_decoy"), &forged);
    forge_build_id(&forged, &files.whole);
    let debug_path = files.debug_path.to_str().expect("a plain name");
    let trap = Fresh::of(Path::new("/usr/bin/sleep")).with(&forged, debug_path);
    let (mut trace, _) = start(&fresh);
    let reader = Pid::from_raw(trace.pid() as i32);
    kill(reader, Signal::SIGSTOP).expect("it is ours");
    // The kernel makes processes of its own, too.
    let number = NUMBERS
        .into_iter()
        .find(|&number| fresh.run_as(number, &[]) == number);
    let number = number.expect("it has one of the numbers");
    let process = PathBuf::from(format!("/proc/{number}"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = &is_over;
        scope.spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                trap.run_as(number, &["30"]);
            }
        });
        let stop = Stop(&is_over);
        let is_there = || fs::read_to_string(process.join("comm")).is_ok_and(|c| c == "fresh\n");
        assert!(within(2 * LIMIT, is_there));
        kill(reader, Signal::SIGCONT).expect("it is ours");
        trace.wait_for(&format!("\"pid\":{number},"), LIMIT);
        assert!(process.exists(), "it has ended too soon");
        drop(stop);
        kill(Pid::from_raw(number as i32), Signal::SIGKILL).expect("it lives");
        let named = Named::all_of(trace, &files.whole);
        // All but the one that was waited for.
        assert_eq!(
            (named.hits, named.pids),
            (CALLS - 1, HashSet::from([number]))
        );
    });
}
