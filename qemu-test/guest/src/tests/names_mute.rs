// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: whatever lies at the place of a debug file, the trace goes on; and it says
//! which program does not answer.

use crate::command;
use crate::container::{Container, Root};
use crate::debug_files::{build_id, by_build_id, debug_of, strip, text, tool, trace};
use crate::fuse::{Fuse, Served};
use crate::module::Module;
use crate::runtimes::Bundle;
use crate::victim;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PROGRAM: &str = "/usr/local/bin/named";
/// A trace of three calls takes some seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A container with a stripped program, and the path of its debug file in there.
fn stripped() -> (PathBuf, Root, PathBuf) {
    let whole = victim::path("named");
    let root = Root::with("named", PROGRAM);
    let program = root.folder.join(&PROGRAM[1..]);
    fs::remove_file(&program).expect("it is there");
    strip(&whole, &program);
    let debug = by_build_id(Path::new("/"), &build_id(&whole));
    debug_of(
        &whole,
        &root.folder.join(debug.strip_prefix("/").expect("absolute")),
    );
    (whole, root, debug)
}

test! { full, a_fifo_in_place_of_a_debug_file_does_not_hang_the_trace, seconds = 120 }
fn a_fifo_in_place_of_a_debug_file_does_not_hang_the_trace() {
    let _module = Module::load();
    let (whole, root, debug) = stripped();
    let inside = root.folder.join(debug.strip_prefix("/").expect("absolute"));
    fs::remove_file(&inside).expect("it is there");
    tool("mkfifo", &[text(&inside)]);
    let _container = Container::over("named", &root.folder, &[PROGRAM]);
    let begun = Instant::now();
    let traced = trace("named", PROGRAM, &whole, &[]);
    traced.is_nameless(&["is a named pipe, not a regular file"]);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

/// Traces with FUSE in place of the debug file. The server takes requests and does not answer
/// them: not even a signal ends who waits for that.
fn with_fuse(answers: bool) {
    let _module = Module::load();
    let (whole, root, debug) = stripped();
    let container = Container::over("named", &root.folder, &[PROGRAM]);
    let fuse = Fuse::over(container.pid(), &debug, Served::default());
    if answers {
        fuse.answer();
    }
    let begun = Instant::now();
    let traced = trace("named", PROGRAM, &whole, &[]);
    let elapsed = begun.elapsed();
    println!("{elapsed:?} {:#?}", traced.sources);
    traced.is_nameless(&["that need not answer (fuse)", "on the host"]);
    assert!(elapsed < PATIENCE, "{elapsed:?}");
    drop(fuse);
}

test! { core, a_file_that_is_opened_and_never_read_does_not_hang_the_trace, seconds = 120 }
fn a_file_that_is_opened_and_never_read_does_not_hang_the_trace() {
    with_fuse(true);
}

test! { full, a_program_in_a_file_system_that_does_not_answer_is_refused, seconds = 120 }
/// The probed file itself: it cannot be done without, and has to be given up.
fn a_program_in_a_file_system_that_does_not_answer_is_refused() {
    let _module = Module::load();
    let root = Root::with("named", PROGRAM);
    fs::write(root.folder.join("mute"), "").expect("ours");
    let container = Bundle::run("crun", "named", &root.folder, PROGRAM);
    let _fuse = Fuse::over(container.pid(), Path::new("/mute"), Served::default());
    for verb in ["trace", "verify"] {
        let begun = Instant::now();
        let got = command::run(&[verb, "-c", "named", "/mute:charge"]);
        got.refused(&["/mute", "did not open within 5s"]);
        assert!(begun.elapsed() < PATIENCE, "{verb}: {:?}", begun.elapsed());
    }
    // Others are traced meanwhile.
    let spec = format!("{PROGRAM}:charge");
    let words = ["trace", "-c", "named", "-n", "3", "-t", "30", &spec];
    let got = command::run(&words).succeeded();
    assert_eq!(got.lines().count(), 3, "{got:#?}");
}
