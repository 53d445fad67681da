// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: static probes (USDT) are found by their names, with their arguments.

use crate::command::{self, Running};
use crate::module::Module;
use crate::oracle::within;
use crate::session::Session;
use crate::victim::Victim;
use serde_json::Value;
use std::time::Duration;

test! { core, a_static_probe_is_found_with_its_argument_and_semaphore }
fn a_static_probe_is_found_with_its_argument_and_semaphore() {
    let _module = Module::load();
    let mut victim = Victim::start("with_semaphore", &[]);
    let file = victim.file().display().to_string();
    let listed = command::run(&["list", &format!("{file}:demo")]).succeeded();
    assert_eq!(listed.stdout, "demo:step (1 argument)\n");
    assert_eq!(victim.call(3), 0, "its semaphore");
    let pid = victim.pid().to_string();
    let spec = format!("{file}:demo:step(arg1, twice=arg1*2) if arg1 != 1");
    let mut running = Running::start(&["trace", "--json", "-p", &pid, &spec]);
    let attached = within(Duration::from_secs(20), || {
        Session::open().info().probes == 1
    });
    assert!(attached);
    assert_eq!(victim.call(4), 1, "its semaphore");
    for number in [0, 2, 3] {
        let line = running.wait_for("\"hit\"", Duration::from_secs(20));
        let hit: Value = serde_json::from_str(&line).expect("an object");
        assert_eq!(hit["fields"]["arg1"], number, "{line}");
        assert_eq!(hit["fields"]["twice"], 2 * number);
        assert_eq!(hit["function"], "demo:step");
    }
    running.interrupt();
    assert_eq!(victim.call(3), 0, "its semaphore");
    let wrong = |rest: &str, part: &str, code: i32| {
        let spec = format!("{file}:{rest}");
        let got = command::run(&["trace", &spec, "--", "/bin/true"]).refused(&[part]);
        assert_eq!(got.code, code, "{got:#?}");
    };
    wrong("demo:stop", "did you mean demo:step", 1);
    wrong("demo:step(arg2)", "1 arguments", 2);
    wrong("demo:step($retval)", "does not return", 2);
}

test! { full, exceptions_are_seen_by_the_static_probes_of_libstdcxx, seconds = 240 }
fn exceptions_are_seen_by_the_static_probes_of_libstdcxx() {
    let _module = Module::load();
    let listed = command::run(&["list", "libstdc++.so.6:libstdcxx:*"]).succeeded();
    for probe in [
        "libstdcxx:catch (2",
        "libstdcxx:rethrow (",
        "libstdcxx:throw (2",
    ] {
        assert!(listed.stdout.contains(probe), "{}", listed.stdout);
    }
    // gdb answers what it does not know by an exception.
    let gdb = |expression: &str| {
        let print = format!("print {expression}");
        let specs = [
            "libstdc++.so.6:libstdcxx:throw",
            "libstdc++.so.6:libstdcxx:catch",
        ];
        let command = ["--", "gdb", "-nx", "-batch", "-ex", &print];
        let words = [&["trace", "--json"], &specs[..], &command].concat();
        let got = command::run(&words);
        let hits = got.lines().filter(|line| line.contains("\"hit\""));
        let (thrown, caught): (Vec<&str>, Vec<&str>) =
            hits.partition(|line| line.contains("libstdcxx:throw"));
        (thrown.len(), caught.len())
    };
    let (known, unknown) = (gdb("1+1"), gdb("nothing_of_that_name"));
    println!("{known:?} {unknown:?}");
    assert!(unknown.0 > known.0 && unknown.1 > known.1);
    assert!(unknown.1 >= unknown.0, "thrown, and caught by nobody?");
}
