// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what cannot be done is refused with a message that names the thing
//! and the next step, an exit code, and nothing left behind.

use crate::command::{self, nsprobe, output, Output};
use crate::container::Root;
use crate::module::{self, Module};
use crate::oracle::within;
use crate::runtimes::Bundle;
use crate::session::Session;
use crate::victim::{self, Victim};
use nix::sys::stat::{makedev, mknod, Mode, SFlag};
use nsprobe_common::abi;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

const EXIT_FAILURE: i32 = 1;

/// Runs `trace` where it must fail: fast, with a message, without a trace.
fn refused(arguments: &[&str], parts: &[&str]) {
    let started = std::time::Instant::now();
    let got = output(nsprobe(&["trace", "--timeout", "100"]).args(arguments)).refused(parts);
    println!("{}", got.stderr.trim_end());
    assert_eq!(got.code, EXIT_FAILURE, "{got:#?}");
    assert_eq!(got.stdout, "", "{got:#?}");
    assert!(
        started.elapsed().as_secs() < 60,
        "it has waited for the timeout"
    );
    if module::is_loaded() {
        let info = Session::open().info();
        assert_eq!((info.sessions, info.probes), (1, 0), "left behind");
    }
}

fn path(name: &str) -> String {
    victim::path(name)
        .to_str()
        .expect("a plain name")
        .to_string()
}

test! { full, what_a_refusal_prints_elsewhere_is_noticed }
/// That the tests below can fail.
fn what_a_refusal_prints_elsewhere_is_noticed() {
    let is_accepted = |code, stdout: &str, stderr: &str| {
        let output = Output {
            code,
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        };
        std::panic::catch_unwind(|| output.refused(&["no such"])).is_ok()
    };
    let told = "nsprobe: no such thing";
    assert!(is_accepted(EXIT_FAILURE, "", told));
    assert!(!is_accepted(EXIT_FAILURE, "{", told));
    assert!(!is_accepted(0, "", told) && !is_accepted(128 + 11, "", told));
    assert!(!is_accepted(EXIT_FAILURE, "", "nsprobe: something else"));
}

/// A file in the device's place; gone with the value.
struct Squatter;

impl Squatter {
    /// A regular file, or the node of another device.
    fn new(kind: SFlag, device: u64) -> Squatter {
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        mknod(abi::DEVICE, kind, mode, device).expect("nothing is there");
        Squatter
    }
}

impl Drop for Squatter {
    fn drop(&mut self) {
        let _ = fs::remove_file(abi::DEVICE);
    }
}

test! { full, something_else_in_the_devices_place_is_reported }
/// The kernel leaves what is there when the module comes, and when it goes.
fn something_else_in_the_devices_place_is_reported() {
    let spec = path("exit_soon") + ":short_work";
    for (kind, device) in [(SFlag::S_IFREG, 0), (SFlag::S_IFCHR, makedev(1, 5))] {
        let squatter = Squatter::new(kind, device);
        let before = fs::metadata(abi::DEVICE).expect("just made").ino();
        let module = Module::load();
        let got = command::run(&["trace", &spec]);
        println!("{}", got.stderr.trim_end());
        got.refused(&["/dev/nsprobe is not the device of the nsprobe module"]);
        drop(module);
        let after = fs::metadata(abi::DEVICE).expect("it is still there");
        assert_eq!(after.ino(), before);
        drop(squatter);
        let _module = Module::load();
        assert_eq!(Session::open().info().sessions, 1);
    }
}

test! { core, a_missing_container_is_named_with_the_nearest, seconds = 120 }
fn a_missing_container_is_named_with_the_nearest() {
    const PROGRAM: &str = "/usr/local/bin/served";
    let _module = Module::load();
    let absent = ["-c", "web-sever", "/bin/sh:main"];
    let told = "no container `web-sever`";
    refused(&absent, &[told, "(no container is known here)"]);
    let root = Root::with("served", PROGRAM);
    let _other = Bundle::run("crun", "database", &root.folder, PROGRAM);
    refused(&absent, &[told, "(did you mean database?)"]);
    let _nearest = Bundle::run("crun", "web-server", &root.folder, PROGRAM);
    refused(&absent, &[told, "(did you mean web-server?)"]);
    refused(&["-c", "4026532999", "/bin/sh:main"], &["4026532999"]);
    refused(&["-c", "", "/bin/sh:main"], &["container"]);
    refused(&["-c", "../../etc", "/bin/sh:main"], &["../../etc"]);
}

test! { full, a_binary_without_symbols_is_told }
fn a_binary_without_symbols_is_told() {
    let _module = Module::load();
    let spec = path("stripped") + ":nameless";
    refused(&[&spec], &["stripped", "no symbols"]);
}

test! { full, data_is_not_probed }
fn data_is_not_probed() {
    let _module = Module::load();
    let file = victim::path("chain");
    // A variable, which the symbol table has and `list` has not.
    let spec = path("chain") + ":sum";
    refused(&[&spec], &["sum"]);
    let listed = command::run(&["list", &path("chain")]).succeeded();
    assert!(listed.lines().any(|line| line.contains("level_01")));
    assert!(!listed
        .lines()
        .any(|line| line.split_whitespace().any(|word| word == "sum")));
    assert!(Path::new(&file).exists());
}

test! { full, a_target_that_ends_first_is_told }
fn a_target_that_ends_first_is_told() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let pid = victim.pid().to_string();
    let spec = path("call_in_loop") + ":begins_with_push";
    victim.end();
    refused(&["-p", &pid, &spec], &[&pid]);
    // While it is traced: that is no failure, but the end.
    let victim = Victim::caller("begins_with_push");
    let pid = victim.pid().to_string();
    let running = std::thread::spawn(move || {
        let watcher = Session::open();
        let is_traced = within(Duration::from_secs(20), || watcher.info().probes == 1);
        drop(victim);
        (is_traced, Instant::now())
    });
    let got = command::run(&["trace", "-p", &pid, &spec, "--timeout", "40"]);
    let (is_traced, ended) = running.join().expect("the victim is ended");
    println!("{got:?}");
    assert!(is_traced);
    assert_eq!(got.code, 0, "{got:#?}");
    assert!(
        ended.elapsed().as_secs() < 15,
        "it waits for a dead process"
    );
}

test! { core, a_user_is_told_what_is_missing }
fn a_user_is_told_what_is_missing() {
    let _module = Module::load();
    let program = format!("/tmp/nsprobe-{}", std::process::id());
    fs::copy(command::FILE, &program).expect("/tmp is writable");
    fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("ours");
    let mut as_user = std::process::Command::new(&program);
    // All else is right.
    as_user.args(["trace", &(path("exit_soon") + ":short_work")]);
    crate::sys::as_user(&mut as_user, 65534);
    let got = output(&mut as_user);
    for words in [
        &["trace", "-c", "web", "libc.so.6:open"][..],
        &["leak", "-p", "1"],
    ] {
        let mut as_user = std::process::Command::new(&program);
        crate::sys::as_user(as_user.args(words), 65534);
        let got = output(&mut as_user);
        let told = "this process lacks CAP_PERFMON and CAP_SYS_PTRACE";
        got.refused(&[told, "`nsprobe doctor`"]);
    }
    let _ = fs::remove_file(&program);
    let got = got.refused(&[
        "/dev/nsprobe cannot be opened (EACCES",
        "CAP_PERFMON and CAP_SYS_PTRACE (or CAP_SYS_ADMIN)",
        "run nsprobe as root",
    ]);
    assert_eq!(got.code, EXIT_FAILURE, "{got:#?}");
    let healthy = command::run(&["doctor"]).succeeded();
    assert!(
        healthy.stdout.contains("nsprobe can trace here"),
        "{healthy:#?}"
    );
    let of_kernel = command::run(&["trace", "-p", "2", "libc.so.6:open"]);
    of_kernel.refused(&["process 2 runs no code of a program"]);
    command::run(&["profile", "-p", "2"]).refused(&["process 2 runs no code of a program"]);
    let own = std::process::id().to_string();
    let got = command::run(&["count", "-p", &own, "libc.so.6:open", "-t", "0.1s"]);
    assert!(got.stderr.contains("libc.so.6 mapped now"), "{got:#?}");
    let words = "count libc.so.6:exit -- true";
    let full = format!("{} {words} >/dev/full", command::FILE);
    let got = output(std::process::Command::new("sh").args(["-c", &full]));
    let got = got.refused(&["  FUNC", "cannot write to standard output: No space left"]);
    assert_eq!(got.code, EXIT_FAILURE, "{got:#?}");
    // perf's limit is ours.
    const MOST: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
    let usual = fs::read_to_string(MOST).expect("the kernel has it");
    fs::write(MOST, "50").expect("tests run as root");
    let got = command::run(&["profile", "-F", "51", "-t", "1"]);
    fs::write(MOST, usual).expect("tests run as root");
    got.refused(&["50 samples a second at most", MOST]);
}
