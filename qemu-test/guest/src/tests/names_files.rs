// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: frames are named by the debug file of the very program, wherever it lies, and by
//! no other one.

use super::attach::in_memory;
use super::capsule::Folder;
use crate::command::{self, output, Running};
use crate::container::{Container, Root};
use crate::debug_files::{
    build_id, by_build_id, debug_of, forge_build_id, functions, strip, text, tool, trace, traces,
    OnHost, Traced,
};
use crate::module::Module;
use crate::tasks::Kept;
use crate::victim::{self, Victim};
use nix::sys::memfd::MFdFlags;
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PROGRAM: &str = "/usr/local/bin/named";

/// A container's root with the stripped program.
fn root() -> Root {
    let root = Root::with("named", PROGRAM);
    let program = root.folder.join(&PROGRAM[1..]);
    fs::remove_file(&program).expect("it is there");
    strip(&victim::path("named"), &program);
    root
}

test! { full, a_name_in_any_frame_is_noticed }
/// That the tests below can fail: a made-up trace with a name in one frame, or a decoy's name
/// anywhere, is not one without names.
fn a_name_in_any_frame_is_noticed() {
    let frame = |name: &str| match name {
        "" => json!({"how": "unwind-row", "functions": []}),
        name => json!({"how": "unwind-row", "functions": [{"name": name, "inlined": false}]}),
    };
    let is_accepted = |names: [&str; 4], stderr: &str| {
        let hit = json!({"type": "hit", "stack": names.map(frame)});
        let output = command::Output {
            code: 0,
            stdout: format!(
                "{hit}\n{}\n",
                json!({"type": "summary", "names": ["refused"]})
            ),
            stderr: stderr.to_owned(),
        };
        std::panic::catch_unwind(|| Traced::new(output).is_nameless(&["refused"])).is_ok()
    };
    assert!(is_accepted(["", "", "", ""], ""));
    for named in 0..4 {
        let mut names = [""; 4];
        names[named] = "main";
        assert!(!is_accepted(names, ""), "frame {named}");
    }
    assert!(!is_accepted(["", "", "", ""], "decoy_charge"));
}

test! { full, frames_are_named_by_a_debug_file_that_only_the_container_has, seconds = 120 }
/// On the host lies a file of another build, under the name of this one.
fn frames_are_named_by_a_debug_file_that_only_the_container_has() {
    let _module = Module::load();
    let whole = victim::path("named");
    let root = root();
    let id = build_id(&whole);
    debug_of(&whole, &by_build_id(&root.folder, &id));
    let decoy = OnHost(by_build_id(Path::new("/"), &id));
    debug_of(&victim::path("named_decoy"), &decoy.0);
    let _container = Container::over("named", &root.folder, &[PROGRAM]);
    let traced = trace("named", PROGRAM, &whole, &[]);
    let path = by_build_id(Path::new("/"), &id);
    traced.agrees(&whole, "container", text(&path));
    // The same for people.
    let words = [
        "trace",
        "-v",
        "-c",
        "named",
        "--stack",
        "--count",
        "1",
        "--timeout",
        "60",
    ];
    let spec = format!(
        "{PROGRAM}:{:#x}",
        crate::binary::function(&whole, "charge").offset
    );
    let words: Vec<&str> = words.into_iter().chain([spec.as_str()]).collect();
    let got = command::run(&words).succeeded();
    println!("{}{}", got.stdout, got.stderr);
    assert!(got.stdout.contains("named.c:"), "no line: {got:#?}");
    let told = format!("DWARF of {} in the container", path.display());
    assert!(got.stderr.contains(&told), "{got:#?}");
}

test! { full, a_debug_file_of_the_host_is_the_next_best, seconds = 120 }
/// In the container lies one of another build.
fn a_debug_file_of_the_host_is_the_next_best() {
    let _module = Module::load();
    let whole = victim::path("named");
    let root = root();
    let id = build_id(&whole);
    debug_of(
        &victim::path("named_decoy"),
        &by_build_id(&root.folder, &id),
    );
    let on_host = OnHost(by_build_id(Path::new("/"), &id));
    debug_of(&whole, &on_host.0);
    let container = Container::over("named", &root.folder, &[PROGRAM]);
    let traced = trace("named", PROGRAM, &whole, &[]);
    traced.agrees(&whole, "host", text(&on_host.0));
    traced.tells(&["in the container is refused: its build-id is"]);
    // Without it there are none, and it is told what was looked for and where.
    let path = on_host.0.clone();
    drop(on_host);
    let traced = trace("named", PROGRAM, &whole, &[]);
    let told = format!("looked for {}", path.display());
    traced.is_nameless(&[
        "no debug information",
        &told,
        "in the container and on the host",
    ]);
    drop(container);
}

test! { core, a_debug_file_with_a_forged_build_id_is_refused, seconds = 120 }
/// A build-id is a claim: anybody can write it. Nor is a server asked unless somebody says so.
fn a_debug_file_with_a_forged_build_id_is_refused() {
    let _module = Module::load();
    let whole = victim::path("named");
    let root = root();
    let id = build_id(&whole);
    let (inside, outside) = (
        by_build_id(&root.folder, &id),
        by_build_id(Path::new("/"), &id),
    );
    let _outside = OnHost(outside.clone());
    for decoy in [&inside, &outside] {
        debug_of(&victim::path("named_decoy"), decoy);
        forge_build_id(decoy, &whole);
        assert_eq!(build_id(decoy), id);
    }
    let _container = Container::over("named", &root.folder, &[PROGRAM]);
    let server = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    server.set_nonblocking(true).expect("it is a socket");
    let url = format!("http://{}", server.local_addr().expect("it has one"));
    let mut command = traces("named", PROGRAM, &whole, &[]);
    let got = output(command.env("DEBUGINFOD_URLS", url)).succeeded();
    Traced::new(got).is_nameless(&[
        "in the container is refused: its",
        "on the host is refused: its",
    ]);
    let asked = server.accept();
    assert!(asked.is_err(), "a server was asked: {asked:?}");
}

test! { full, a_debug_link_is_followed_by_its_checksum, seconds = 120 }
fn a_debug_link_is_followed_by_its_checksum() {
    const PROGRAM: &str = "/opt/shop/named";
    let _module = Module::load();
    let whole = victim::path("named_without_id");
    let root = Root::with("named_without_id", PROGRAM);
    let folder = root.folder.join("opt/shop");
    let (program, debug) = (folder.join("named"), folder.join(".debug/named.debug"));
    fs::remove_file(&program).expect("it is there");
    debug_of(&whole, &debug);
    strip(&whole, &program);
    let link = format!("--add-gnu-debuglink={}", text(&debug));
    tool("objcopy", &[&link, text(&program)]);
    // Nearer by, and changed by one byte.
    let mut bytes = fs::read(&debug).expect("it is there");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(folder.join("named.debug"), bytes).expect("writable");
    let _container = Container::over("named", &root.folder, &[PROGRAM]);
    let traced = trace("named", PROGRAM, &whole, &[]);
    traced.agrees(&whole, "container", "/opt/shop/.debug/named.debug");
    traced.tells(&["/opt/shop/named.debug in the container is refused: its checksum"]);
}

test! { full, what_dwz_moved_is_found_in_the_container, seconds = 120 }
fn what_dwz_moved_is_found_in_the_container() {
    let _module = Module::load();
    let whole = victim::path("named");
    let root = root();
    let id = build_id(&whole);
    let debug = by_build_id(&root.folder, &id);
    debug_of(&whole, &debug);
    // dwz shares what two files have in common; Debian's packages lie as this does.
    let other = root.folder.join("other.debug");
    debug_of(&whole, &other);
    let shared = root
        .folder
        .join("usr/lib/debug/.dwz/x86_64-linux-gnu/named.debug");
    fs::create_dir_all(shared.parent().expect("a folder")).expect("writable");
    let link = "../../.dwz/x86_64-linux-gnu/named.debug";
    let words = ["-m", text(&shared), "-M", link, text(&debug), text(&other)];
    tool("dwz", &words);
    assert!(shared.exists(), "dwz shares nothing");
    let container = Container::over("named", &root.folder, &[PROGRAM]);
    let traced = trace("named", PROGRAM, &whole, &[]);
    traced.agrees(&whole, "container", text(&by_build_id(Path::new("/"), &id)));
    drop(container);
    // Without the shared file it is told.
    fs::remove_file(&shared).expect("it is there");
    let _container = Container::over("named", &root.folder, &[PROGRAM]);
    let traced = trace("named", PROGRAM, &whole, &[]);
    traced.tells(&["named.debug, which the debug information shares with others, was not found"]);
}

/// The functions of the hits in lines of JSON, from the innermost one to `main`, by process.
fn names_by_process<'a>(
    lines: impl Iterator<Item = &'a str>,
) -> BTreeMap<u64, BTreeSet<Vec<String>>> {
    let mut all: BTreeMap<u64, BTreeSet<Vec<String>>> = BTreeMap::new();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    for hit in lines.filter(|line| line["type"] == "hit") {
        let frames = hit["stack"].as_array().expect("a stack");
        let mut names: Vec<String> = frames
            .iter()
            .flat_map(functions)
            .map(|(name, _)| name)
            .collect();
        let end = names.iter().position(|name| name == "main");
        names.truncate(end.map_or(names.len(), |end| end + 1));
        let pid = hit["pid"].as_u64().expect("a number");
        all.entry(pid).or_default().insert(names);
    }
    all
}

test! { full, programs_of_one_build_id_keep_their_own_names }
/// What one container ships under the build-id of another one's program names nothing of
/// that, whichever was seen first: neither in a trace nor in a capsule.
fn programs_of_one_build_id_keep_their_own_names() {
    let _module = Module::load();
    let folder = Folder::new("one-build-id");
    let [forger, honest] = ["named_decoy", "named"].map(|name| {
        let copy = folder.path(name);
        fs::copy(victim::path(name), &copy).expect("there is room");
        copy
    });
    forge_build_id(Path::new(&forger), Path::new(&honest));
    let specs = [format!("{forger}:decoy_charge"), format!("{honest}:charge")];
    let capsule = folder.path("both.nsprobe");
    let words = ["trace", "--json", "--stack", &specs[0], &specs[1]];
    let mut trace = Running::start(&words);
    trace.attached(2);
    let limit = Duration::from_secs(60);
    let first = Kept::start(&forger, &[]);
    let hit_of_first = trace.wait_for(&of_process(&first), limit);
    let second = Kept::start(&honest, &[]);
    let hit_of_second = trace.wait_for(&of_process(&second), limit);
    let (code, mut traced, errors) = trace.finish();
    assert_eq!(code, Some(0), "{errors}");
    traced.extend([hit_of_first, hit_of_second]);
    let words = ["record", "-o", &capsule, "--stack", "--count", "60"];
    let words = [&words[..], &["--timeout", "60", &specs[0], &specs[1]]].concat();
    command::run(&words).succeeded();
    let script = command::run(&["script", "--json", &capsule]).succeeded();
    let stack = |names: &[&str]| BTreeSet::from([names.iter().map(|&n| n.to_owned()).collect()]);
    let wanted = BTreeMap::from([
        (first.pid().into(), stack(&["decoy_charge", "main"])),
        (
            second.pid().into(),
            stack(&["charge", "with_tax", "checkout", "main"]),
        ),
    ]);
    assert_eq!(names_by_process(traced.iter().map(String::as_str)), wanted);
    assert_eq!(names_by_process(script.lines()), wanted);
}

/// What a hit of a process has in JSON, and no other line.
fn of_process(process: &Kept) -> String {
    format!("\"pid\":{},", process.pid())
}

test! { full, a_program_in_memory_alone_is_named }
/// It was executed from a file that has no path.
fn a_program_in_memory_alone_is_named() {
    const FUNCTION: &str = "begins_with_push";
    let _module = Module::load();
    let file = victim::path("call_in_loop");
    let memory = in_memory(&file, MFdFlags::empty());
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    let mut command = Command::new(path);
    let victim = Victim::start_command(command.args([FUNCTION, "0", "1000"]), &file);
    drop(memory);
    let pid = victim.pid().to_string();
    let probed = format!("memfd\\:program:{FUNCTION}");
    let caller = format!("call_{FUNCTION}");
    for (spec, wanted) in [
        ("libc.so.6:usleep", &["usleep", "work", "main"][..]),
        (&probed, &[FUNCTION, &caller, "work", "main"]),
    ] {
        let words = ["trace", "--json", "--stack", "--count", "3", "-t", "30"];
        let words = [&words[..], &["-p", &pid, spec]].concat();
        let got = command::run(&words).succeeded();
        let names = names_by_process(got.lines());
        let wanted = wanted.iter().map(|&name| name.to_owned()).collect();
        let wanted = BTreeMap::from([(victim.pid().into(), BTreeSet::from([wanted]))]);
        assert_eq!(names, wanted, "{spec}: {got:#?}");
        assert!(got.stdout.contains("/memfd:program"), "{got:#?}");
    }
}
