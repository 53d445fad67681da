// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: `ps`, `tree`, `top` and capsules say of tasks what /proc says of them, in
//! whatever namespaces they are, and also of those that /proc had for a moment only.

use super::capsule::{hits, info, lines, number, path, Folder};
use super::task_dump::all_in_proc;
use super::tests;
use crate::command::{self, nsprobe, Running, FILE};
use crate::container::{pid_namespace, Container, Root};
use crate::module::Module;
use crate::oracle::within;
use crate::runtimes::Machine;
use crate::session::Session;
use crate::tasks::{
    processes_called, ran_by_kernel, ran_ns, InProc, Kept, TaskSession, NAMESPACE_FILES,
};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

tests![
    the_tree_is_as_proc_has_it: 240,
    ps_counts_what_the_scheduler_counts: 120,
    tasks_that_lived_between_two_looks_are_in_the_capsule: 240,
    a_container_that_is_gone_is_named_by_the_capsule: 240,
    top_adds_up_to_what_the_kernel_has: 120,
    top_gives_the_terminal_back: 120,
    top_keeps_no_file_system_busy: 120,
    without_the_module_the_views_say_so: 60,
];

/// Where a container has `served`.
pub(super) const PROGRAM: &str = "/usr/local/bin/served";
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// A shell in three pid namespaces, one inside the other.
pub(super) const THREE_DEEP: &str = "exec unshare -fp unshare -fp unshare -fp sh -c";

/// A shell line, killed with the value; its first line of output is awaited.
pub(super) struct Shell(Kept);

impl Shell {
    pub(super) fn start(line: &str) -> Shell {
        let mut shell = Kept::start("sh", &["-c", line]);
        let out = shell.0.stdout.take().expect("piped");
        let mut first = String::new();
        let mut out = BufReader::new(out);
        out.read_line(&mut first).expect("it says something");
        shell.0.stdout = Some(out.into_inner());
        Shell(shell)
    }
}

/// All tasks of `tree --json --threads`, by their numbers.
fn tasks_of(namespaces: &[Value]) -> HashMap<(u64, u64), &Value> {
    let mut all = HashMap::new();
    for namespace in namespaces {
        for task in namespace["tasks"].as_array().expect("--threads") {
            let own = task["levels"].as_array().expect("levels").last().cloned();
            let own = own.expect("at least one");
            assert_eq!(own["pid_namespace"], namespace["pid_namespace"], "{task}");
            let key = (number(&task["pid"]), number(&task["tid"]));
            assert!(all.insert(key, task).is_none(), "twice: {task}");
        }
    }
    all
}

/// Compares a task with what /proc says of it.
fn check_task(task: &Value, proc: &InProc) {
    let level = |key: &str| -> Vec<u64> {
        let levels = task["levels"].as_array().expect("levels");
        levels.iter().map(|level| number(&level[key])).collect()
    };
    let wide = |all: &[u32]| all.iter().map(|one| u64::from(*one)).collect::<Vec<u64>>();
    assert_eq!(level("tid"), wide(&proc.tids), "{task}");
    assert_eq!(level("pid"), wide(&proc.pids), "{task}");
    assert_eq!(
        level("pid_namespace").last(),
        Some(&proc.pidns.into()),
        "{task}"
    );
    assert_eq!(task["ppid"], proc.ppid, "{task}");
    assert_eq!(task["uid"], proc.uid, "{task}");
    assert_eq!(
        number(&task["start_ns"]) / 10_000_000,
        proc.start_ticks,
        "{task}"
    );
    assert_eq!(task["cgroup"], proc.cgroup, "{task}");
    // Who has ended has none.
    if task["state"] == "Z" {
        return;
    }
    for (name, inum) in NAMESPACE_FILES.iter().zip(proc.namespaces) {
        assert_eq!(task["namespaces"][name], inum, "{name} of {task}");
    }
}

/// Somebody called `served` who is in another pid namespace than we, and not one of these.
fn another_served(others: &[u32]) -> u32 {
    let ours = pid_namespace(std::process::id());
    // Of one that ends meanwhile it is not told, or zero.
    let pidns = |pid: u32| InProc::of(pid, pid).map_or(0, |proc| proc.pidns);
    let is_elsewhere = |pid: u32| ![0, ours].contains(&pidns(pid));
    let mut found = None;
    let is_there = within(LIMIT, || {
        let mut all = processes_called("served").into_iter();
        found = all.find(|pid| !others.contains(pid) && is_elsewhere(*pid));
        found.is_some()
    });
    assert!(is_there, "nobody else is called so");
    found.expect("just found")
}

fn the_tree_is_as_proc_has_it() {
    let _module = Module::load();
    let root = Root::with("served", PROGRAM);
    let web = Container::over("web", &root.folder, &[PROGRAM]);
    let executed = Kept::start("podman", &["exec", "web", PROGRAM]);
    let in_web = another_served(&[web.pid()]);
    let machine = Root::called("mach", "served", PROGRAM);
    let _nspawn = Machine::start(&machine.folder, Some("deb13"), PROGRAM);
    let in_machine = another_served(&[web.pid(), in_web]);
    let deep = Shell::start(&format!("{THREE_DEEP} 'echo up; sleep 1000; true'"));
    // Somebody who comes into the container from outside, as `podman exec` does.
    let target = web.pid().to_string();
    let joined = Kept::start("nsenter", &["-t", &target, "-p", "sleep", "1000"]);
    let is_child = |pid| InProc::of(pid, pid).is_some_and(|proc| proc.ppid == joined.pid());
    let has_joined = || processes_called("sleep").into_iter().any(is_child);
    assert!(within(LIMIT, has_joined));
    let before = all_in_proc();
    let got = command::run(&["tree", "--json", "--threads"]).succeeded();
    let after = all_in_proc();
    let namespaces = lines(&got.stdout);
    let tasks = tasks_of(&namespaces);
    let mut checked = 0;
    for ((pid, tid), proc) in before {
        let Some(later) = after.get(&(pid, tid)) else {
            continue;
        };
        let task = tasks.get(&(pid.into(), tid.into()));
        let task = task.unwrap_or_else(|| panic!("{pid}/{tid} is not in the tree"));
        if proc == *later {
            check_task(task, &proc);
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
    check_namespaces(&namespaces, &web, &deep, &joined);
    let namespace_of = |pid: u32| {
        let inum = pid_namespace(pid);
        let mut all = namespaces.iter();
        all.find(|one| one["pid_namespace"] == inum)
            .expect("listed")
    };
    // Whom `podman exec` has brought is in the container, and none of its processes' child.
    assert_eq!(namespace_of(in_web)["container"], "web");
    let task = tasks[&(in_web.into(), in_web.into())];
    assert_eq!(task["levels"].as_array().map(Vec::len), Some(2), "{task}");
    let parent = tasks[&(number(&task["ppid"]), number(&task["ppid"]))];
    assert_eq!(
        parent["levels"].as_array().map(Vec::len),
        Some(1),
        "{parent}"
    );
    let machine = namespace_of(in_machine);
    assert_eq!(machine["container"], "deb13", "{machine}");
    assert_eq!(machine["runtime"], "nspawn", "{machine}");
    drop(executed);
    println!("{}", command::run(&["tree", "--tasks"]).succeeded().stdout);
}

/// Each namespace is in the one of its first process's parent, and the container has its
/// name.
fn check_namespaces(namespaces: &[Value], web: &Container, deep: &Shell, joined: &Kept) {
    let find = |inum: u64| {
        let mut all = namespaces.iter();
        all.find(|one| one["pid_namespace"] == inum)
            .unwrap_or_else(|| panic!("no namespace {inum}"))
    };
    let depth = |inum: u64| number(&find(inum)["depth"]);
    let named = find(pid_namespace(web.pid()).into());
    assert_eq!(named["container"], "web", "{named}");
    assert_eq!(named["runtime"], "podman", "{named}");
    assert_eq!(named["init"]["pid"], web.pid(), "{named}");
    // What has joined it is the child of one outside.
    let inside = named["tasks"].as_array().expect("--threads");
    let parents: Vec<u64> = inside.iter().map(|task| number(&task["ppid"])).collect();
    assert!(parents.contains(&joined.pid().into()), "{named}");
    let deepest = namespaces.iter().map(|one| number(&one["depth"])).max();
    assert!(deepest >= Some(3), "{deepest:?}");
    assert_eq!(depth(pid_namespace(deep.0.pid()).into()), 0);
    for namespace in namespaces {
        let Some(init) = namespace["init"]["pid"].as_u64() else {
            continue;
        };
        let Some(proc) = InProc::of(init as u32, init as u32) else {
            continue;
        };
        match proc.ppid {
            0 => assert_eq!(namespace["parent"], Value::Null),
            ppid => assert_eq!(namespace["parent"], pid_namespace(ppid), "{namespace}"),
        }
    }
}

fn ps_counts_what_the_scheduler_counts() {
    let _module = Module::load();
    let _hog = Kept::start("sh", &["-c", "while :; do :; done"]);
    let web = Container::run("web", &["sleep", "1000"]);
    // podman is back before it has executed that.
    let args = format!("/proc/{}/cmdline", web.pid());
    let sleeps = || fs::read(&args).is_ok_and(|args| args == b"sleep\x001000\0");
    assert!(within(LIMIT, sleeps));
    let all = InProc::all().into_iter();
    let before: HashMap<(u64, u64), u64> = all
        .filter_map(|(pid, tid)| {
            let key = (u64::from(pid), u64::from(tid));
            Some((key, ran_ns(key.0, key.1)?))
        })
        .collect();
    let got = command::run(&["ps", "--threads", "--json"]).succeeded();
    let mut checked = 0;
    for task in lines(&got.stdout) {
        let key = (number(&task["pid"]), number(&task["tid"]));
        if let (Some(before), Some(after)) = (before.get(&key), ran_ns(key.0, key.1)) {
            let ran = number(&task["cpu_ns"]);
            // A running thread's own clock is brought up to date at ticks.
            let least = before.saturating_sub(20_000_000);
            assert!(
                (least..=after).contains(&ran),
                "{before} {ran} {after}: {task}"
            );
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
    let got = command::run(&["ps", "-c", "web"]).succeeded();
    let rows: Vec<&str> = got.lines().collect();
    assert_eq!(rows.len(), 2, "{got:#?}");
    assert!(
        rows[1].starts_with("web ") && rows[1].contains("sleep 1000"),
        "{got:#?}"
    );
    command::run(&["ps", "-c", "nobody"]).refused(&["nobody"]);
}

/// Records a victim that nobody calls, and tasks beside it.
fn record_tasks(capsule: &str, seconds: &str) -> Running {
    let spec = path("chain") + ":bottom";
    let record = Running::start(&["record", "-o", capsule, "-t", seconds, &spec]);
    let watcher = Session::open();
    assert!(within(Duration::from_secs(20), || watcher.info().probes == 1));
    record
}

fn tasks_that_lived_between_two_looks_are_in_the_capsule() {
    let _module = Module::load();
    let folder = Folder::new("lived");
    let capsule = folder.path("x.nsprobe");
    let record = record_tasks(&capsule, "60");
    let inner = "for i in 1 2 3 4 5 6 7 8; do grep NSpid: /proc/self/status; done; exit 7";
    let mut told: Vec<Vec<u64>> = Vec::new();
    let mut started = Vec::new();
    for _ in 0..3 {
        let line = format!("{THREE_DEEP} '{inner}'");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).stdout(Stdio::piped());
        let child = shell.spawn().expect("sh is in the guest");
        started.push(u64::from(child.id()));
        let output = child.wait_with_output().expect("ours");
        assert_eq!(output.status.code(), Some(7));
        let text = String::from_utf8(output.stdout).expect("numbers");
        let numbers = |line: &str| {
            let words = line.split_whitespace().skip(1);
            words.map(|word| word.parse().expect("a number")).collect()
        };
        told.extend(text.lines().map(numbers));
    }
    assert_eq!(told.len(), 24);
    assert!(told.iter().all(|levels| levels.len() == 4), "{told:?}");
    let (code, errors) = record.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    let (info, code) = info(&capsule);
    assert_eq!(code, 0);
    let totals = &info["summary"]["tasks"];
    for kind in ["fork", "exec", "exit"] {
        let of = |key: &str| number(&totals[kind][key]);
        assert_eq!(
            of("seen"),
            of("recorded") + of("filtered") + of("lost"),
            "{totals}"
        );
        assert_eq!(of("lost"), 0, "{totals}");
    }
    let tree = info["tree"].as_array().expect("a tree");
    let tasks: Vec<&Value> = tree
        .iter()
        .flat_map(|namespace| namespace["tasks"].as_array().expect("tasks"))
        .collect();
    let tids = |task: &Value| -> Vec<u64> {
        let levels = task["levels"].as_array().expect("levels");
        levels.iter().map(|level| number(&level["tid"])).collect()
    };
    for levels in &told {
        let fits = tasks.iter().filter(|task| tids(task) == *levels);
        let fits: Vec<_> = fits.collect();
        assert_eq!(fits.len(), 1, "{levels:?}: {fits:?}");
        assert_eq!(fits[0]["comm"], "grep");
        assert_eq!(fits[0]["ended"]["how"], "exit", "{}", fits[0]);
        assert_eq!(fits[0]["ended"]["code"], 0, "{}", fits[0]);
    }
    for pid in started {
        let fits = tasks.iter().find(|task| task["pid"] == pid);
        let task = fits.unwrap_or_else(|| panic!("{pid} is not there"));
        assert_eq!(task["ended"]["code"], 7 << 8, "{task}");
    }
}

fn a_container_that_is_gone_is_named_by_the_capsule() {
    let module = Module::load();
    let root = Root::with("served", PROGRAM);
    let folder = Folder::new("gone");
    let (one, all) = (folder.path("one.nsprobe"), folder.path("all.nsprobe"));
    let first = Container::over("first", &root.folder, &[PROGRAM]);
    let spec = format!("{PROGRAM}:real_function");
    let record = [
        "record", "-o", &one, "-c", "first", "-n", "5", "-t", "30", &spec,
    ];
    command::run(&record).succeeded();
    // The whole machine: containers that come and go while it is recorded.
    let spec = format!("{}{PROGRAM}:real_function", root.folder.display());
    let record = Running::start(&["record", "-o", &all, "-t", "60", &spec]);
    let watcher = Session::open();
    assert!(within(Duration::from_secs(20), || watcher.info().probes == 1));
    drop(watcher);
    let later = Container::over("later", &root.folder, &[PROGRAM]);
    sleep(Duration::from_secs(3));
    let inums = [&first, &later].map(|one| pid_namespace(one.pid()));
    later.remove().expect("it is removable");
    first.remove().expect("it is removable");
    let (code, errors) = record.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    drop(module);

    let script = command::run(&["script", "--json", &one]).succeeded();
    let printed = lines(&script.stdout);
    let printed = hits(&printed);
    assert_eq!(printed.len(), 5);
    assert!(
        printed.iter().all(|hit| hit["container"] == "first"),
        "{printed:?}"
    );

    let script = command::run(&["script", "--json", &all]).succeeded();
    let printed = lines(&script.stdout);
    for hit in hits(&printed) {
        let name = if hit["pid_namespace"] == inums[0] {
            "first"
        } else {
            "later"
        };
        assert_eq!(hit["container"], name, "{hit}");
    }
    let report = command::run(&["report", "--by", "container", &all]).succeeded();
    for name in ["first", "later"] {
        assert!(
            report.lines().any(|line| line.ends_with(name)),
            "{report:#?}"
        );
    }
    let (info, _) = info(&all);
    let tree = info["tree"].as_array().expect("a tree");
    for (inum, name) in inums.iter().zip(["first", "later"]) {
        let found = tree.iter().find(|one| one["pid_namespace"] == *inum);
        let found = found.unwrap_or_else(|| panic!("no {inum}"));
        assert_eq!(found["container"], name, "{found}");
    }
}

/// An interval of `top --json --processes`, whose parts add up to the whole: how long, in
/// nanoseconds, the container `web` ran, and its process.
fn interval_of(line: &str, pid: u64) -> (u64, u64) {
    let interval: Value = serde_json::from_str(line).expect("JSON");
    let groups = interval["groups"].as_array().expect("groups");
    let sum: u64 = groups.iter().map(|group| number(&group["cpu_ns"])).sum();
    let all = number(&interval["cpu_ns"]);
    assert_eq!(sum + number(&interval["unaccounted_ns"]), all, "{interval}");
    let most = number(&interval["elapsed_ns"]) * number(&interval["cpus"]);
    assert!(all <= most + most / 50, "{interval}");
    let Some(web) = groups.iter().find(|group| group["container"] == "web") else {
        return (0, 0);
    };
    let ran = web["ran"].as_array().expect("--processes");
    let process = ran.iter().find(|process| process["pid"] == pid);
    let of_process = process.map_or(0, |process| number(&process["cpu_ns"]));
    (number(&web["cpu_ns"]), of_process)
}

/// The container runs from some moment after `top` has begun to some moment before it ends:
/// all of that time is in the sum of the intervals, neither more nor less.
fn top_adds_up_to_what_the_kernel_has() {
    let _module = Module::load();
    let web = Container::run("web", &["sh", "-c", "while :; do :; done"]);
    let pid = u64::from(web.pid());
    let process = Pid::from_raw(web.pid() as i32);
    let stat = format!("/proc/{pid}/stat");
    let is_stopped = || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "));
    let stop = || {
        kill(process, Signal::SIGSTOP).expect("it lives");
        assert!(within(LIMIT, is_stopped), "it does not stop");
    };
    stop();
    let mut top = Running::start(&["top", "--json", "--processes", "-n", "60", "-d", "0.7"]);
    let mut next = || top.next_line(LIMIT).expect("an interval");
    // It has looked twice now.
    let mut seen = interval_of(&next(), pid);
    let before = ran_by_kernel(pid);
    kill(process, Signal::SIGCONT).expect("it lives");
    while ran_by_kernel(pid).1 < before.1 + 2_000_000_000 {
        sleep(Duration::from_millis(20));
    }
    stop();
    let after = ran_by_kernel(pid);
    let wanted = (after.0 - before.0, after.1 - before.1);
    // Until it has run in none: the end of the last one is behind its own.
    loop {
        let (group, process) = interval_of(&next(), pid);
        seen = (seen.0 + group, seen.1 + process);
        if seen.0 > 0 && (group, process) == (0, 0) {
            break;
        }
    }
    drop(top);
    println!("top: {seen:?}; the kernel: {wanted:?} (group, process)");
    let fits = |seen: u64, wanted: u64| seen.abs_diff(wanted) * 100 < wanted;
    assert!(fits(seen.0, wanted.0), "group: {seen:?}, {wanted:?}");
    assert!(fits(seen.1, wanted.1), "process: {seen:?}, {wanted:?}");
    kill(process, Signal::SIGCONT).expect("it lives");
    let table = command::run(&["top", "--batch", "-n", "1", "-d", "0.5"]).succeeded();
    println!("{}", table.stdout);
    assert!(
        table.lines().any(|line| line.contains("web (podman)")),
        "{table:#?}"
    );
    let refused = command::run(&["top"]);
    refused.refused(&["--batch"]);
}

/// `top` on a terminal of script(1)'s making.
struct OnTerminal {
    child: Child,
    text: std::sync::mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl OnTerminal {
    fn start() -> OnTerminal {
        let line = format!("stty rows 24 cols 80; exec {FILE} top -d 0.3");
        let mut child = Command::new("script")
            .args(["-qefc", &line, "/dev/null"])
            .env("TERM", "linux")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script is in the guest");
        let mut out = child.stdout.take().expect("piped");
        let (sender, text) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        OnTerminal {
            child,
            text,
            seen: String::new(),
        }
    }

    fn wait_for(&mut self, part: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.seen.contains(part) {
            let left = until.saturating_duration_since(Instant::now());
            match self.text.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("no {part:?} in {:?}", self.seen),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.seen.clear();
        let input = self.child.stdin.as_mut().expect("piped");
        input.write_all(keys.as_bytes()).expect("it lives");
    }

    /// Waits until it has ended: its exit code.
    fn end(mut self) -> Option<i32> {
        // The alternate screen is left, and the cursor is shown.
        self.wait_for("\x1b[?1049l");
        self.wait_for("\x1b[?25h");
        self.child.wait().expect("ours").code()
    }
}

fn top_gives_the_terminal_back() {
    let _module = Module::load();
    let _web = Container::run("web", &["sleep", "1000"]);
    let mut top = OnTerminal::start();
    top.wait_for("\x1b[?1049h");
    // Blanks are not drawn where there are some.
    top.wait_for("(podman)");
    top.press("?");
    top.wait_for("unfold");
    top.press("x");
    top.press("/web\r");
    top.wait_for("only:");
    top.press("q");
    assert_eq!(top.end(), Some(0));

    // Told to end by somebody else.
    let mut top = OnTerminal::start();
    top.wait_for("(podman)");
    let pids = Command::new("pidof").arg("nsprobe").output();
    let pids = String::from_utf8(pids.expect("pidof is in the guest").stdout).expect("numbers");
    let killed = Command::new("kill").args(pids.split_whitespace()).status();
    assert!(killed.expect("kill is in the guest").success());
    assert_eq!(top.end(), Some(0));
}

/// A file system of its own, which programs have as their root; nothing of it may be left.
struct OwnRoot(&'static str);

impl OwnRoot {
    fn new(folder: &'static str) -> OwnRoot {
        fs::create_dir_all(folder).expect("/var/tmp is writable");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "none", folder])
            .status();
        assert!(mount.expect("mount is there").success());
        // It is static, and needs nothing else.
        let program = format!("{folder}/nsprobe");
        fs::copy("/payload/nsprobe", program).expect("there is room");
        OwnRoot(folder)
    }

    /// Starts a program in it, which ends at once.
    fn run(&self) {
        let words = [self.0, "/nsprobe", "--version"];
        let run = Command::new("chroot").args(words).output();
        assert!(run.expect("chroot is there").status.success());
    }

    fn is_free(&self) -> bool {
        let unmount = Command::new("umount").arg(self.0).output();
        unmount.expect("umount is there").status.success()
    }
}

/// Where programs are started while `top` runs, containers' file systems are let go of.
fn top_keeps_no_file_system_busy() {
    let _module = Module::load();
    // Who does not ask for what the kernel holds keeps it.
    let root = OwnRoot::new("/var/tmp/own-root");
    let holder = TaskSession::of_lives();
    root.run();
    assert!(!root.is_free());
    drop(holder);
    assert!(within(Duration::from_secs(10), || root.is_free()));

    let mut top = Running::start(&["top", "--batch", "-d", "1", "-n", "60"]);
    assert!(top.next_line(Duration::from_secs(30)).is_some());
    let root = OwnRoot::new("/var/tmp/own-root");
    root.run();
    assert!(within(Duration::from_secs(20), || root.is_free()));
    assert!(
        top.next_line(Duration::from_secs(20)).is_some(),
        "it has ended"
    );
    let (code, errors) = top.interrupt();
    assert_eq!(code, Some(0), "{errors}");
}

fn without_the_module_the_views_say_so() {
    for verb in [&["ps"][..], &["tree"], &["top", "--batch", "-n", "1"]] {
        command::run(verb).refused(&["modprobe nsprobe"]);
    }
    let unknown = nsprobe(&["ps", "--columns", "nothing"]);
    assert_eq!(command::output(&mut { unknown }).code, 2);
}
