// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: with --follow, containers that start while a trace runs are traced as those
//! that ran before, and no others.

use crate::binary;
use crate::command::{self, Notes, Running};
use crate::container::{pid_namespace, pid_space, Container, Root};
use crate::debug_files::{build_id, by_build_id, debug_of, strip, text, tool, OnHost};
use crate::module::Module;
use crate::oracle::within;
use crate::victim;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PROGRAM: &str = "/usr/local/bin/served";
const LIMIT: Duration = Duration::from_secs(90);

/// A copy of a victim at the path that is probed, on the host.
fn on_host() -> OnHost {
    fs::create_dir_all("/usr/local/bin").expect("the root is writable");
    fs::copy(victim::path("served"), PROGRAM).expect("the victim is there");
    OnHost(PROGRAM.into())
}

/// The text by which a hit in the container is known.
fn of(container: &Container) -> String {
    format!("\"pid_namespace\":{}", pid_namespace(container.pid()))
}

test! { full, files_of_later_containers_are_found_by_path_and_build_id, seconds = 170 }
fn files_of_later_containers_are_found_by_path_and_build_id() {
    let _module = Module::load();
    let _on_host = on_host();
    let spec = format!("{PROGRAM}:real_function");
    let mut trace = Running::start(&["trace", "--json", "--stack", "--follow", &spec]);
    // Nobody calls it on the host: what comes is of the containers.
    let elsewhere = "/opt/another/name";
    let root = Root::called("same", "served", PROGRAM);
    let other_path = Root::called("elsewhere", "served", elsewhere);
    let other_program = Root::called("other", "served_on_host", PROGRAM);
    let stripped = Root::called("stripped", "served", PROGRAM);
    let whole = victim::path("served");
    strip(&whole, &stripped.folder.join(&PROGRAM[1..]));
    debug_of(&whole, &by_build_id(&stripped.folder, &build_id(&whole)));
    let first = Container::over("first", &root.folder, &[PROGRAM]);
    let line = trace.wait_for(&of(&first), LIMIT);
    assert!(line.contains("real_caller"), "{line}");
    let second = Container::over("second", &other_path.folder, &[elsewhere]);
    trace.wait_for(&of(&second), LIMIT);
    let third = Container::over("third", &other_program.folder, &[PROGRAM]);
    let fourth = Container::over("fourth", &stripped.folder, &[PROGRAM]);
    let again = Container::over("again", &root.folder, &[PROGRAM]);
    trace.wait_for(&of(&again), LIMIT);
    let (code, errors) = trace.interrupt();
    println!("{errors}");
    assert_eq!(code, Some(0), "{errors}");
    for part in [
        "container first: 1 function is traced there, too",
        "container second: 1 function is",
        "container third is not probed: no function real_function",
        "container fourth is not probed",
        // Its debug file does not place probes beside others'.
        &format!("in the container of process {} is not used", fourth.pid()),
    ] {
        assert!(errors.contains(part), "no {part:?}: {errors}");
    }
    // Its image is probed already, in the file that it shares with the first.
    assert!(!errors.contains("container again"), "{errors}");
    drop((first, second, third, fourth, again));
}

test! { core, containers_of_one_image_are_kept_apart, seconds = 170 }
/// They run one file, which each may describe as it likes.
fn containers_of_one_image_are_kept_apart() {
    const CALLS: &str = "1000";
    let _module = Module::load();
    let whole = victim::path("served");
    let [root, copy] = ["served", "copy"].map(|name| Root::called(name, "served", PROGRAM));
    for root in [&root, &copy] {
        strip(&whole, &root.folder.join(&PROGRAM[1..]));
    }
    let debug = by_build_id(Path::new("/"), &build_id(&whole));
    let host = OnHost(debug.clone());
    debug_of(&whole, &debug);
    let first = Container::over("web-1", &root.folder, &[PROGRAM]);
    let second = Container::over("web-2", &root.folder, &[PROGRAM, "0"]);
    let all = ["-c", "web-?", "--follow"];
    let spec = format!("{PROGRAM}:real_function");
    let words = ["count", "--json", "-i", "0.3", "--by", "container,func"];
    let mut count = Running::start(&[&words[..], &all, &[&spec]].concat());
    count.wait_for("\"web-1\"", LIMIT);
    let printed = Running::start(&["count", "--by", "container", "-c", "web-2", &spec]);
    assert!(within(LIMIT, || !hits_of(&printed).is_empty()));
    // One of another name, and one with a file of its own.
    let other = Container::over("other", &root.folder, &[PROGRAM]);
    let third = Container::over("web-3", &copy.folder, &[PROGRAM]);
    count.wait_for("\"web-3\"", LIMIT);
    everywhere(&[&first, &other, &third]);
    second.exec(&[PROGRAM, CALLS]).expect("it makes its calls");
    let wanted = [&first, &second, &third].map(|one| (one.name.as_str(), pid_space(one.pid()).id));
    let objects = ended(count);
    let rows: Vec<&Value> = objects.iter().filter(|row| row["of"] == "total").collect();
    let mut named: Vec<(&str, u64)> = rows.iter().filter_map(|row| container_of(row)).collect();
    named.sort_unstable();
    assert_eq!(named, wanted, "not {}: {rows:?}", other.name);
    let row = rows.iter().find(|row| row["key"]["container"] == "web-2");
    assert_eq!(row.expect("it is there")["count"].to_string(), CALLS);
    let summary = objects.last().expect("the last line");
    assert_eq!(summary["balanced"], true, "{summary}");
    let (_, lines, _) = printed.finish();
    let row = lines.last().map(|line| line.split_whitespace().collect());
    assert_eq!(row, Some(vec![CALLS, "web-2"]), "{lines:?}");
    // They say that `forged` begins at the second byte of a function.
    let function = binary::function(&whole, "real_function");
    let into = function.offset - binary::section(&whole, ".text") + 1;
    let symbol = format!("forged=.text:{into:#x},function");
    for container in [&first, &second, &third] {
        let own = format!("/proc/{}/root{}", container.pid(), debug.display());
        fs::create_dir_all(Path::new(&own).parent().expect("a folder")).expect("root may");
        tool("objcopy", &["--add-symbol", &symbol, text(&debug), &own]);
    }
    drop(host);
    let forged = format!("{PROGRAM}:forged");
    let got = command::run(&["count", "-c", "web-?", "--follow", &forged]);
    got.refused(&[text(&debug), "is not used", "-c CONTAINER", "--debuginfod"]);
    let got = command::run(&["count", "-c", "web-1", &forged]);
    got.refused(&["in the middle of an instruction"]);
    drop((other, first, second, third));
}

/// Without `-c`, a name stands for each file of that name that the host or a container has mapped,
/// and a path for the host's file.
fn everywhere(containers: &[&Container]) {
    let on_host = OnHost("/usr/local/bin/of-host/served".into());
    fs::create_dir_all(on_host.0.parent().expect("a folder")).expect("the root is writable");
    fs::copy(victim::path("served"), &on_host.0).expect("the victim is there");
    let mut host = Command::new(&on_host.0).spawn().expect("it starts");
    let words = ["count", "--json", "--by", "container", "-i", "0.3"];
    let words = [&words[..], &["served:real_function"]].concat();
    let (mut all, notes) = Notes::of(&words);
    notes.wait_for(
        "served stands for 3 files, of this machine and 4 containers",
        LIMIT,
    );
    all.wait_for("\"(host)\"", LIMIT);
    for container in containers {
        all.wait_for(&format!("{:?}", container.name), LIMIT);
    }
    drop(ended(all));
    host.kill().expect("it runs");
    host.wait().expect("it ends");
    let got = command::run(&["count", &format!("{PROGRAM}:real_function")]);
    got.refused(&["run files of their own", "-c other"]);
    let got = command::run(&["set", "served:real_function", "return 0"]);
    got.refused(&["served stands for 2 files", "choose some with -c or -p"]);
}

/// The rest of its output, once it was interrupted.
fn ended(running: Running) -> Vec<Value> {
    let (code, lines, errors) = running.finish();
    assert_eq!(code, Some(0), "{errors}");
    let objects = lines.iter();
    objects
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// The container in a row's key: its name, and the id of its pid namespace.
fn container_of(row: &Value) -> Option<(&str, u64)> {
    let key = &row["key"];
    Some((
        key["container"].as_str()?,
        key["pid_namespace_id"].as_u64()?,
    ))
}

/// How often each probe of the program was hit so far.
fn hits_of(running: &Running) -> Vec<u64> {
    let sessions = libnsprobe::sessions().expect("/proc is mounted");
    let its = sessions
        .iter()
        .filter(|session| session.pids.contains(&running.pid()));
    its.flat_map(|session| &session.probes)
        .map(|probe| probe.counters.hits)
        .collect()
}

test! { full, calls_in_later_containers_are_timed, seconds = 170 }
fn calls_in_later_containers_are_timed() {
    let _module = Module::load();
    let copy = Root::called("copy", "served", PROGRAM);
    let root = Root::with("served", PROGRAM);
    let spec = format!("{PROGRAM}:real_caller");
    let words = ["hist", "--json", "-c", "timed-*", "--follow"];
    let (mut hist, notes) = Notes::of(&[&words[..], &["-i", "0.3", &spec]].concat());
    // It looks before there is one.
    notes.wait_for("no container timed-* runs: waiting", LIMIT);
    let first = Container::over("timed-1", &root.folder, &[PROGRAM]);
    hist.wait_for("\"row\"", LIMIT);
    let before = hits_of(&hist).len();
    let second = Container::over("timed-2", &copy.folder, &[PROGRAM]);
    // As many probes again in its file, and each is reached, a second long about.
    let are_reached = || {
        let hits = hits_of(&hist);
        hits.len() == 2 * before && hits.iter().all(|hits| *hits > 50)
    };
    assert!(within(LIMIT, are_reached), "{:?}", hits_of(&hist));
    let objects = ended(hist);
    notes.wait_for("container timed-2: 1 function is traced", LIMIT);
    // The function of both files is one row; its count is that of both probes.
    let rows: Vec<&Value> = objects.iter().filter(|row| row["of"] == "total").collect();
    assert_eq!(rows.len(), 1, "{rows:?}");
    let summary = objects.last().expect("the last line");
    let probes = summary["probes"].as_array().expect("an array");
    let is_hit = |probe: &Value| probe["hits"].as_u64() > Some(50);
    assert!(probes.len() == 2 && probes.iter().all(is_hit), "{summary}");
    assert_eq!(summary["balanced"], true, "{summary}");
    second.remove().expect("nothing holds it");
    drop(first);
}

test! { full, following_nobody_is_refused }
fn following_nobody_is_refused() {
    let _module = Module::load();
    let spec = format!("{PROGRAM}:real_function");
    let words = ["trace", "--follow", "-c", "nobody-*", "-t", "0.5", &spec];
    let got = command::run(&words);
    assert_eq!(got.code, 1, "{got:#?}");
    got.refused(&[
        "no container nobody-* runs: waiting",
        "no container nobody-* has started",
    ]);
    let got = command::run(&["trace", "--follow", "-p", "1", &spec]);
    assert_eq!(got.code, 2, "{got:#?}");
    let got = command::run(&["trace", "--follow", &spec, "--", "/bin/true"]);
    assert_eq!(got.code, 2, "{got:#?}");
}
