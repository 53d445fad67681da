// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: nsprobe works in a container itself; what it cannot see from there it says.

use crate::container::{pid_namespace, Container, IMAGE};
use crate::module::Module;
use serde_json::Value;
use std::process::{Command, Output};

/// Runs nsprobe in a privileged container of its own.
fn nsprobe(options: &[&str], words: &[&str]) -> Output {
    let mut podman = Command::new("podman");
    podman.args(["run", "--rm", "--network", "none", "--privileged"]);
    podman
        .args(options)
        .args(["-v", "/payload:/payload", IMAGE]);
    let ran = podman.arg("/payload/nsprobe").args(words).output();
    ran.expect("podman is in the guest")
}

test! { full, nsprobe_in_a_container_sees_what_its_pid_namespace_has, seconds = 120 }
fn nsprobe_in_a_container_sees_what_its_pid_namespace_has() {
    const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    let _module = Module::load();
    let script = "while :; do cat /proc/loadavg > /dev/null; sleep 0.5; done";
    let web = Container::run("web", &["sh", "-c", script]);
    let space = pid_namespace(web.pid());
    let (number, spec) = (space.to_string(), format!("{LIBC}:read"));
    let words = [
        "trace", "--json", "--stack", "--count", "3", "-t", "30", "-c",
    ];
    let words = [&words[..], &[&number, &spec]].concat();
    // In the pid namespace of the host: all is as outside.
    let got = nsprobe(&["--pid=host"], &words);
    assert!(got.status.success(), "{got:?}");
    let text = String::from_utf8_lossy(&got.stdout);
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let lines: Vec<Value> = lines.map(|line| line.expect("JSON")).collect();
    let hits: Vec<&Value> = lines.iter().filter(|line| line["type"] == "hit").collect();
    assert_eq!(hits.len(), 3, "{text}");
    for hit in hits {
        assert_eq!(hit["pid_namespace"], space);
        assert_eq!(hit["stack_end"], "outermost", "{hit}");
        assert_eq!(hit["stack"][0]["functions"][0]["name"], "read");
    }
    // In one of its own it has no processes but its own, and says so.
    let got = nsprobe(&[], &words);
    let errors = String::from_utf8_lossy(&got.stderr).into_owned();
    assert_eq!(got.status.code(), Some(1), "{got:?}");
    let told = format!("no process is in the pid namespace {space}");
    assert!(errors.contains(&told), "{errors}");
    // Nor when it asks for all there are, while another container reads all the time: with the
    // host's namespace the same file is hit there.
    let words = ["trace", "--json", "--count", "20", "-t", "60", &spec];
    let got = nsprobe(&["--pid=host"], &words);
    let text = String::from_utf8_lossy(&got.stdout);
    let of_web = format!("\"pid_namespace\":{space}");
    assert!(text.lines().any(|line| line.contains(&of_web)), "{text}");
    let got = nsprobe(&[], &["trace", "--json", "-t", "3", &spec]);
    let text = String::from_utf8_lossy(&got.stdout);
    assert!(got.status.success(), "{got:?}");
    assert!(text.contains("\"type\":\"summary\""), "{text}");
    assert!(!text.contains("\"type\":\"hit\""), "{text}");
    let own = ["trace", "--json", &spec, "--", "cat", "/proc/loadavg"];
    let got = nsprobe(&[], &own);
    let text = String::from_utf8_lossy(&got.stdout);
    assert!(
        got.status.success() && text.contains("\"type\":\"hit\""),
        "{got:?}"
    );
}
