// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: when an image is updated while its containers are traced, the stacks of the old
//! and of the new containers are each those of their own program.

use crate::binary;
use crate::command::Running;
use crate::container::{pid_namespace, Container, Image, Root};
use crate::module::Module;
use crate::stack::Stack;
use crate::victim;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const PROGRAM: &str = "/usr/local/bin/served";
/// The image that is updated.
const IMAGE: &str = "localhost/served:latest";
/// The callers in the two versions of the program.
const OLD: &[&str] = &["real_caller", "main"];
const NEW: &[&str] = &["real_caller", "added_caller", "main"];
const LIMIT: Duration = Duration::from_secs(30);

/// A container, and what its stacks are like.
struct Served {
    container: Container,
    build_id: String,
    callers: &'static [&'static str],
    hits: usize,
}

/// Puts a victim into the image, and starts a container of that.
fn serve(name: &str, victim: &str, callers: &'static [&'static str]) -> (Image, Served) {
    let root = Root::called(name, victim, PROGRAM);
    let image = Image::of(IMAGE, &root.folder);
    let served = Served {
        container: Container::of_image(name, IMAGE, &[PROGRAM]),
        build_id: binary::build_id(&victim::path(victim)),
        callers,
        hits: 0,
    };
    (image, served)
}

/// Asserts that the stack of a hit is that of the program of its container, and counts it.
fn check(line: &str, served: &mut BTreeMap<u64, Served>) {
    if !line.starts_with('{') {
        return;
    }
    let line: Value = serde_json::from_str(line).expect("an object");
    if line["type"] != "hit" {
        return;
    }
    let space = line["pid_namespace"].as_u64().expect("a number");
    let of = served.get_mut(&space).expect("one of the three");
    let Stack { frames, end } = Stack::of(&line);
    let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
    assert_eq!(end, "outermost", "{names:?}");
    assert_eq!(names[0], "real_function");
    assert_eq!(&names[1..=of.callers.len()], of.callers, "{names:?}");
    assert_eq!(names.last(), Some(&"_start"));
    assert_eq!(line["stack"][0]["build_id"], of.build_id.as_str());
    of.hits += 1;
}

test! { full, stacks_of_an_updated_image_are_its_own, seconds = 240 }
fn stacks_of_an_updated_image_are_its_own() {
    let _module = Module::load();
    let spec = format!("{PROGRAM}:real_function");
    let words = ["trace", "--json", "--stack", "-c", "app-*", "--follow"];
    let mut trace = Running::start(&[&words[..], &[&spec]].concat());
    let mut served = BTreeMap::new();
    let mut start = |name: &str, victim: &str, callers: &'static [&'static str]| {
        let (image, one) = serve(name, victim, callers);
        let space = pid_namespace(one.container.pid());
        trace.wait_for(&format!("\"pid_namespace\":{space}"), LIMIT);
        served.insert(u64::from(space), one);
        image
    };
    let first = start("app-1", "served", OLD);
    // The image of that name is another one from now on; the first container runs on.
    let second = start("app-2", "served_update", NEW);
    // And back again, with the other one still there.
    let third = start("app-3", "served", OLD);
    let until = Instant::now() + Duration::from_secs(60);
    while served.values().any(|one| one.hits < 60) && Instant::now() < until {
        if let Some(line) = trace.next_line(Duration::from_secs(1)) {
            check(&line, &mut served);
        }
    }
    let (code, lines, errors) = trace.finish();
    println!("{errors}");
    assert_eq!(code, Some(0), "{errors}");
    lines.iter().for_each(|line| check(line, &mut served));
    for one in served.values() {
        println!("{}: {} hits", one.container.name, one.hits);
        assert!(one.hits > 50, "{} hits in {}", one.hits, one.container.name);
    }
    drop(served);
    drop((first, second, third));
}
