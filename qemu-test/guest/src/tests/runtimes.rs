// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a container has the name that its runtime gave it, whichever that is, and what is
//! said of it goes for its processes and for nobody else's.

use super::containers::process_elsewhere;
use crate::command::{self, Running};
use crate::container::{pid_namespace, Container, Root};
use crate::group::Group;
use crate::module::Module;
use crate::oracle::within;
use crate::processes::Killed;
use crate::runtimes::{tool, Bundle, Containerd, Lxc, Machine, Rootless, HOME, RUN, USER};
use crate::tasks::processes_called;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = "/usr/local/bin/served";

fn served() -> Root {
    Root::with("served", PROGRAM)
}

/// The objects that `nsprobe containers --json` prints.
fn listed(words: &[&str]) -> Vec<Value> {
    let words = [&["containers", "--json"], words].concat();
    let output = command::run(&words).succeeded();
    let lines = output.lines().map(serde_json::from_str);
    lines.map(|line| line.expect("a line of JSON")).collect()
}

fn called<'a>(all: &'a [Value], runtime: &str, name: &str) -> &'a Value {
    let is_it = |one: &&Value| one["runtime"] == runtime && one["name"] == name;
    let found: Vec<&Value> = all.iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{runtime}:{name} in {all:#?}");
    found[0]
}

fn pids(container: &Value) -> BTreeSet<u32> {
    let pids = container["processes"].as_array().expect("a list");
    pids.iter()
        .map(|pid| pid.as_u64().expect("a number") as u32)
        .collect()
}

/// The processes that `/proc` has in a pid namespace.
fn members(inum: u32) -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let space = format!("pid:[{inum}]");
    let is_in = |pid: &u32| {
        let link = fs::read_link(format!("/proc/{pid}/ns/pid"));
        link.is_ok_and(|link| link.to_string_lossy() == space)
    };
    pids.filter(is_in).collect()
}

/// Traces some calls of a container's program, and gives the pids that made them.
fn traced(spec: &str) -> BTreeSet<u32> {
    traced_in(spec, PROGRAM)
}

fn traced_in(spec: &str, program: &str) -> BTreeSet<u32> {
    let probe = format!("{program}:real_function");
    let words = [
        "trace",
        "-c",
        spec,
        "--json",
        "--count",
        "8",
        "--timeout",
        "40",
        &probe,
    ];
    let output = command::run(&words).succeeded();
    let hits: BTreeSet<u32> = output
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|line| line["type"] == "hit")
        .map(|line| line["pid"].as_u64().expect("a number") as u32)
        .collect();
    assert!(!hits.is_empty(), "{spec}: {output:#?}");
    hits
}

test! { full, containers_of_six_runtimes_are_listed_as_their_runtimes_do, seconds = 300 }
/// Those that the guest has. What others leave on the disk is read by tests on the host
/// (`userland/containers/tests`).
fn containers_of_six_runtimes_are_listed_as_their_runtimes_do() {
    let root = served();
    let folder = root.folder.as_path();
    let web = Container::over("web", folder, &[PROGRAM]);
    let crun = Bundle::run("crun", "box", folder, PROGRAM);
    let runc = Bundle::run("runc", "crate", folder, PROGRAM);
    let containerd = Containerd::run("test", "cbox", folder, PROGRAM);
    let own = Root::called("nest", "served", PROGRAM);
    let lxc = Lxc::start("nest", &own.folder, PROGRAM);
    let others = BTreeSet::from([
        web.pid(),
        crun.pid(),
        runc.pid(),
        containerd.pid(),
        lxc.pid(),
    ]);
    let machine = Root::called("mach", "served_on_host", PROGRAM);
    let _nspawn = Machine::start(&machine.folder, "deb13", PROGRAM);
    let mut found = None;
    let comm = "served";
    let runs = within(Duration::from_secs(20), || {
        let last = processes_called(comm)
            .into_iter()
            .find(|pid| !others.contains(pid));
        found = last.filter(|pid| pid_namespace(*pid) != pid_namespace(std::process::id()));
        found.is_some()
    });
    assert!(runs, "the machine does not start");
    let in_machine = found.expect("just found");
    let witnessed = [
        ("podman", "web", web.pid()),
        ("crun", "box", crun.pid()),
        ("runc", "crate", runc.pid()),
        ("containerd", "cbox", containerd.pid()),
        ("lxc", "nest", lxc.pid()),
    ];
    let all = listed(&[]);
    let (end, all) = all.split_last().expect("a summary");
    assert_eq!(
        (&end["type"], &end["containers"]),
        (&"summary".into(), &6.into()),
        "{all:#?}"
    );
    assert_eq!(end["problems"], Value::Array(Vec::new()));
    for (runtime, name, pid) in witnessed {
        let one = called(all, runtime, name);
        println!("{one}");
        assert_eq!(one["pid"], pid, "{runtime} says {pid}: {one:#}");
        let space = pid_namespace(pid);
        assert_eq!(one["pid_namespace"], space);
        assert_eq!(
            (pids(one), &one["state"]),
            (members(space), &"running".into())
        );
        assert_eq!(one["problems"], Value::Array(Vec::new()));
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it lives");
        let path = one["cgroup"].as_str().expect("each has one");
        assert_eq!(cgroup.trim_end(), format!("0::{path}"));
    }
    let machine = called(all, "nspawn", "deb13");
    let space = pid_namespace(in_machine);
    assert_eq!(machine["pid_namespace"], space);
    // A helper of nspawn's is in the machine's control group, too.
    assert!(members(space).is_subset(&pids(machine)), "{machine:#}");
    // As podman and lxc list them.
    let format = "{{.Names}} {{.ID}} {{.Image}}";
    let podman = tool(&["podman", "ps", "--no-trunc", "--format", format]);
    let id = called(all, "podman", "web")["id"]
        .as_str()
        .expect("it has one")
        .to_owned();
    assert!(podman.starts_with(&format!("web {id}")), "{podman}");
    assert_eq!(tool(&["lxc-ls", "-1", "--running"]), "nest");
    // Each is traced by its name, and nobody else with it.
    let _module = Module::load();
    for (runtime, name, pid) in witnessed {
        assert_eq!(traced(name), BTreeSet::from([pid]), "{runtime}:{name}");
    }
    assert_eq!(
        traced("containerd:cbox"),
        BTreeSet::from([containerd.pid()])
    );
    assert_eq!(traced(&id[..8]), BTreeSet::from([web.pid()]));
    // What has ended is known by name as long as its runtime does.
    tool(&["podman", "pause", "web"]);
    let is_paused = || called(&listed(&[]), "podman", "web")["state"] == "paused";
    assert!(within(Duration::from_secs(20), is_paused));
    tool(&["podman", "unpause", "web"]);
    web.stop();
    let all = listed(&["--all"]);
    assert_eq!(called(&all, "podman", "web")["state"], "stopped");
    assert!(!listed(&[]).iter().any(|one| one["name"] == "web"));
    drop(lxc);
    command::run(&["trace", "-c", "nest", "/x:y"]).refused(&["no container `nest`"]);
}

/// A pod of podman's; removed with the value.
struct Shop;

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = Command::new("podman")
            .args(["pod", "rm", "-f", "shop"])
            .output();
    }
}

test! { full, containers_of_one_pid_namespace_are_told_apart, seconds = 180 }
/// With `--pid=host` and in pods, a filter by the pid namespace would let in others.
fn containers_of_one_pid_namespace_are_told_apart() {
    let _module = Module::load();
    let root = served();
    let folder = root.folder.as_path();
    tool(&["podman", "pod", "create", "--infra=false", "--name", "shop"]);
    let _shop = Shop;
    let cart = Container::with("cart", &["--pod", "shop"], folder, &[PROGRAM]);
    let join = ["--pod", "shop", "--pid", "container:cart"];
    let basket = Container::with("basket", &join, folder, &[PROGRAM]);
    let host = Container::with("host", &["--pid", "host"], folder, &[PROGRAM]);
    let program = folder.join(PROGRAM.trim_start_matches('/'));
    let outside = Killed(Command::new(&program).spawn().expect("it runs"));
    assert_eq!(pid_namespace(cart.pid()), pid_namespace(basket.pid()));
    let all = listed(&[]);
    let pod = tool(&["podman", "pod", "inspect", "shop", "--format", "{{.ID}}"]);
    for (name, pid) in [
        ("cart", cart.pid()),
        ("basket", basket.pid()),
        ("host", host.pid()),
    ] {
        let one = called(&all, "podman", name);
        assert_eq!(pids(one), BTreeSet::from([pid]), "{one:#}");
        assert_eq!(one["owns_pid_namespace"], false);
        assert_eq!(
            one["pod"]["name"] == pod.as_str(),
            name != "host",
            "{one:#}"
        );
        assert_eq!(traced(name), BTreeSet::from([pid]), "{name}");
    }
    assert_eq!(
        traced(&format!("{}/basket", &pod[..12])),
        BTreeSet::from([basket.pid()])
    );
    // What the container starts later counts, too.
    let probe = format!("{PROGRAM}:real_function");
    let words = ["trace", "-c", "host", "--json", "--timeout", "60", &probe];
    let mut running = Running::start(&words);
    running.wait_for("\"hit\"", Duration::from_secs(20));
    let exec = Command::new("podman")
        .args(["exec", "host", PROGRAM])
        .spawn();
    let _exec = Killed(exec.expect("podman"));
    let mut seen = BTreeSet::new();
    let both = within(Duration::from_secs(30), || {
        let line = running.wait_for("\"hit\"", Duration::from_secs(20));
        let line: Value = serde_json::from_str(&line).expect("JSON");
        seen.insert(line["pid"].as_u64().expect("a number") as u32);
        seen.len() > 1
    });
    assert!(both && !seen.contains(&outside.0.id()), "{seen:?}");
    assert!(seen.contains(&host.pid()));
    running.interrupt();
}

/// podman's list of a user's containers, which is put back with the value.
struct List {
    file: String,
    honest: String,
}

impl List {
    fn new() -> List {
        let file =
            format!("{HOME}/.local/share/containers/storage/overlay-containers/containers.json");
        let honest = fs::read_to_string(&file).expect("podman wrote it");
        List { file, honest }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
        let _ = fs::write(&self.file, &self.honest);
        let _ = Command::new("chown").args(["me", &self.file]).status();
    }
}

test! { full, what_a_user_runs_is_known_and_what_he_says_is_not_believed, seconds = 180 }
fn what_a_user_runs_is_known_and_what_he_says_is_not_believed() {
    let _module = Module::load();
    let root = served();
    let mine = Rootless::run("mine", &root.folder, PROGRAM);
    let own = mine.pid();
    let web = Container::over("web", &root.folder, &[PROGRAM]);
    let all = listed(&[]);
    let one = called(&all, "podman", "mine");
    println!("{one}");
    assert_eq!((&one["pid"], &one["user"]), (&own.into(), &USER.into()));
    assert_eq!(traced("mine"), BTreeSet::from([own]));
    let id = called(&all, "podman", "web")["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let list = List::new();
    // He says that root's container is his, and that its process is another's, too.
    let stolen = "deadbeef".repeat(8);
    let more = format!(
        "{},{{\"id\":\"{id}\",\"names\":[\"taken\"]}},{{\"id\":\"{stolen}\",\"names\":[\"stolen\"]}}]",
        list.honest.trim_end().trim_end_matches(']')
    );
    fs::write(&list.file, more).expect("root may");
    let pid_file = format!("{RUN}/containers/overlay-containers/{stolen}/userdata/pidfile");
    fs::create_dir_all(Path::new(&pid_file).parent().expect("a folder")).expect("ours");
    fs::write(&pid_file, web.pid().to_string()).expect("ours");
    let all = listed(&["--all"]);
    assert_eq!(called(&all, "podman", "web")["pid"], web.pid());
    assert_eq!(called(&all, "podman", "taken")["state"], "stopped");
    assert_eq!(called(&all, "podman", "stolen")["state"], "stopped");
    let spec = format!("{PROGRAM}:real_function");
    let got = command::run(&["trace", "-c", "stolen", &spec]);
    got.refused(&["stolen", "another process"]);
    for (why, trap) in [
        ("leads out", &["ln", "-s", "/etc/shadow"][..]),
        ("not a regular file", &["mkfifo"]),
        ("malformed", &["cp", "/etc/hostname"]),
    ] {
        fs::remove_file(&list.file).expect("it was there");
        tool(&[trap, &[&list.file]].concat());
        let all = listed(&[]);
        let problems = all.last().expect("a summary")["problems"].to_string();
        assert!(
            problems.contains(why) && problems.contains(&list.file),
            "{problems}"
        );
        assert_eq!(called(&all, "podman", "web")["pid"], web.pid());
        // It still runs, crun tells its process, and why it has no name is told.
        let nameless = all.iter().find(|one| one["pid"] == own);
        let nameless = nameless.unwrap_or_else(|| panic!("{all:#?}"));
        assert!(
            nameless["problems"].to_string().contains(&list.file),
            "{nameless}"
        );
        assert_eq!(traced("web"), BTreeSet::from([web.pid()]));
        let got = command::run(&["trace", "-c", "nobody", &spec]);
        got.refused(&["no container `nobody`", &list.file]);
    }
}

test! { full, a_container_in_a_container_has_an_id_and_says_where_it_is, seconds = 180 }
/// The podman within keeps its state within.
fn a_container_in_a_container_has_an_id_and_says_where_it_is() {
    let _module = Module::load();
    let root = served();
    let busybox = root.folder.join("bin/busybox");
    fs::create_dir_all(root.folder.join("bin")).expect("ours");
    fs::copy("/bin/busybox", &busybox).expect("there is one");
    let options = ["--privileged", "-v", "/:/host"];
    let outer = Container::with(
        "outer",
        &options,
        &root.folder,
        &["/bin/busybox", "sleep", "600"],
    );
    let script = format!(
        "mount -t proc proc /host/proc && mount -t tmpfs t /host/run && \
         mount -t tmpfs t /host/var/lib/containers && chroot /host podman run -d --name inner \
         --network none --log-driver none --rootfs {}:O {PROGRAM}",
        root.folder.display()
    );
    let id = outer
        .exec(&["/bin/busybox", "sh", "-c", &script])
        .expect("podman in podman");
    let id = id.lines().last().expect("an id").to_owned();
    let all = listed(&[]);
    let name = format!("outer/{}", &id[..12]);
    let inner = called(&all, "podman", &name);
    println!("{inner}");
    assert_eq!(inner["aliases"], json!([format!("outer/{id}")]));
    assert_eq!(inner["inside"], "outer");
    let why = inner["problems"][0].as_str().expect("why it has no name");
    assert!(why.contains("within container outer"), "{why}");
    // Until it is executed it has its runtime's name.
    let mut pid = None;
    let runs = || {
        pid = process_elsewhere("served");
        pid.is_some()
    };
    assert!(within(Duration::from_secs(20), runs));
    let pid = pid.expect("it runs");
    assert_eq!(pids(inner), BTreeSet::from([pid]));
    assert_eq!(traced(&name), BTreeSet::from([pid]));
    // What runs in the outer one runs in it, too, unless it has its own.
    assert!(!pids(called(&all, "podman", "outer")).contains(&pid));
}

test! { full, services_and_control_groups_are_traced_by_their_names, seconds = 120 }
fn services_and_control_groups_are_traced_by_their_names() {
    let _module = Module::load();
    let root = served();
    let program = root.folder.join(PROGRAM.trim_start_matches('/'));
    let path = program.to_str().expect("a plain name");
    let group = Group::new("made.slice/made.service");
    let start = || {
        let mut command = group.command(&program);
        Killed(command.stdin(Stdio::null()).spawn().expect("a shell"))
    };
    let inside = start();
    let outside = Killed(Command::new(&program).spawn().expect("it runs"));
    let became = |child: &Killed| {
        let link = fs::read_link(format!("/proc/{}/exe", child.0.id()));
        link.is_ok_and(|link| link == program)
    };
    assert!(within(Duration::from_secs(10), || became(&inside)));
    let probe = format!("{path}:real_function");
    let named = [
        "made.service",
        "service:made.service",
        "/made.slice",
        "made.slice/made.service",
    ];
    for spec in named
        .into_iter()
        .chain(["/sys/fs/cgroup/made.slice/made.service"])
    {
        assert_eq!(
            traced_in(spec, path),
            BTreeSet::from([inside.0.id()]),
            "{spec}"
        );
    }
    // What starts in it later counts, and the trace does not end with the first.
    let mut running = Running::start(&["trace", "-c", "/made.slice", "--json", "-t", "60", &probe]);
    running.wait_for("\"hit\"", Duration::from_secs(20));
    let later = start();
    drop(inside);
    let wanted = format!("\"pid\":{},", later.0.id());
    running.wait_for(&wanted, Duration::from_secs(30));
    let (code, errors) = running.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    drop(later);
    let got = command::run(&["trace", "-c", "/made.slice", &probe]);
    got.refused(&["/made.slice", "no process is in its control group"]);
    command::run(&["trace", "-c", "made.service", &probe])
        .refused(&["no container `made.service`"]);
    command::run(&["trace", "-c", "/no/such", &probe]).refused(&["no container `/no/such`"]);
    drop(outside);
}

test! { full, several_of_one_name_are_listed_and_unread_state_is_told, seconds = 180 }
fn several_of_one_name_are_listed_and_unread_state_is_told() {
    let _module = Module::load();
    let root = served();
    let podman = Container::over("web", &root.folder, &[PROGRAM]);
    let crun = Bundle::run("crun", "web", &root.folder, PROGRAM);
    let spec = format!("{PROGRAM}:real_function");
    let got = command::run(&["trace", "-c", "web", &spec]);
    assert_eq!(got.code, 1);
    let (first, second) = (
        format!("pid {}", podman.pid()),
        format!("pid {}", crun.pid()),
    );
    got.refused(&[
        "container `web` is ambiguous",
        "podman:web",
        "crun:web",
        &first,
        &second,
    ]);
    assert_eq!(traced("podman:web"), BTreeSet::from([podman.pid()]));
    assert_eq!(traced("crun:web"), BTreeSet::from([crun.pid()]));
    // docker's state, which nobody can read.
    let folder = "/var/lib/docker/containers/".to_owned() + &"0123456789abcdef".repeat(4);
    fs::create_dir_all(&folder).expect("the root is writable");
    let file = folder + "/config.v2.json";
    fs::write(&file, "{\"Name\":7}").expect("ours");
    let text = command::run(&["containers"]).succeeded();
    let _ = fs::remove_dir_all("/var/lib/docker");
    println!("{}{}", text.stdout, text.stderr);
    assert!(
        text.stderr.contains(&file) && text.stderr.contains("malformed"),
        "{text:#?}"
    );
    let rows = text.lines().filter(|line| line.starts_with("web "));
    assert_eq!(rows.count(), 2);
    let header = text.lines().next().expect("a header");
    for column in [
        "NAME",
        "RUNTIME",
        "ID",
        "PID",
        "PIDNS",
        "PROCESSES",
        "STATE",
        "AGE",
    ] {
        assert!(
            header.split_whitespace().any(|word| word == column),
            "{header}"
        );
    }
}
