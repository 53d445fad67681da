// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: static probes of a package are found in a container as on the host, and are
//! those of that container.

use super::tests;
use crate::command::Running;
use crate::container::Container;
use crate::module::Module;
use crate::victim;
use serde_json::Value;
use std::time::Duration;

tests![a_package_in_a_container_throws: 120];

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";

/// Has a container throw so often; the address of the type's description.
fn throw(container: &Container, times: u32) -> String {
    let told = container
        .exec(&["/throws", &times.to_string()])
        .expect("it runs");
    let address = told.strip_prefix(&format!("thrown {times} typeinfo "));
    address.unwrap_or_else(|| panic!("{told}")).to_string()
}

fn a_package_in_a_container_throws() {
    let _module = Module::load();
    let idle = ["sleep", "1000"];
    let ours = Container::run("throws-ours", &idle);
    let other = Container::run("throws-other", &idle);
    for container in [&ours, &other] {
        container.copy(&victim::path("throws"), "/throws");
    }
    let spec =
        format!("{LIBRARY}:libstdcxx:throw(object=arg1, type=arg2:x64, number=*(int *)arg1)");
    let words = [
        "trace",
        "--json",
        "-c",
        &ours.name,
        "--timeout",
        "60",
        &spec,
    ];
    let mut running = Running::start(&words);
    // It has begun when a throw is seen.
    let begun = std::thread::scope(|scope| {
        let line = scope.spawn(|| running.wait_for("\"type\":\"hit\"", Duration::from_secs(40)));
        while !line.is_finished() {
            throw(&ours, 1);
        }
        line.join().expect("a hit")
    });
    println!("{begun}");
    let _ = throw(&other, 3);
    let address = throw(&ours, 5);
    let mut last = Vec::new();
    while last.len() < 5 {
        let line = running.wait_for("\"type\":\"hit\"", Duration::from_secs(20));
        let hit: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(hit["fields"]["number"], 42, "{hit}");
        // The first ones were of another process, at another address.
        if hit["fields"]["type"] == address.as_str() {
            last.push(hit);
        }
    }
    assert!(last.iter().all(|hit| hit["comm"] == "throws"));
    assert!(last
        .iter()
        .all(|hit| hit["container"].is_null() || hit["pid"] != hit["ns_pid"]));
    let (code, errors) = running.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    // What the other container threw is not ours.
    let hits = errors
        .split(" hits = ")
        .next()
        .and_then(|head| head.rsplit(' ').next());
    println!("{errors}, {hits:?}");
    assert!(errors.contains("libstdcxx:throw"), "{errors}");
}
