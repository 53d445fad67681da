// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test may change in the guest and must change back: mounts, swap, kernel parameters,
//! tracefs, processes and their text, control groups, containers, the module. Two looks are
//! compared, and a test that was ended in its midst is undone by what differs.

use crate::oracle::within;
use crate::{container, leftovers, module, podman, sys, victim};
use nix::mount::{umount2, MntFlags};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const TRACING: &str = "/sys/kernel/tracing";
const CPUS: &str = "/sys/devices/system/cpu";
const DEBUGFS: &str = "/sys/kernel/debug";
const GROUPS: &str = "/sys/fs/cgroup";

/// Files of tracefs that list probes.
const PROBES: [&str; 2] = ["uprobe_events", "kprobe_events"];

/// Parameters that tests change, or that would change what others see. Not those that the
/// kernel adapts by itself.
const PARAMETERS: [&str; 21] = [
    "kernel/core_pattern",
    "kernel/hung_task_timeout_secs",
    "kernel/hung_task_warnings",
    "kernel/kptr_restrict",
    "kernel/panic_on_oops",
    "kernel/panic_on_warn",
    "kernel/perf_event_paranoid",
    "kernel/pid_max",
    "kernel/printk",
    "kernel/randomize_va_space",
    "kernel/threads-max",
    "kernel/unprivileged_bpf_disabled",
    "vm/compact_unevictable_allowed",
    "vm/max_map_count",
    "vm/min_free_kbytes",
    "vm/nr_hugepages",
    "vm/overcommit_memory",
    "vm/page-cluster",
    "vm/swappiness",
    "vm/unprivileged_userfaultfd",
    "user/max_user_namespaces",
];

/// How the kernel merges pages.
const MERGING: [&str; 3] = ["run", "sleep_millisecs", "pages_to_scan"];

/// Events whose triggers tests use.
const TRIGGERS: [&str; 3] = ["sched", "task", "signal"];

/// Mount points that stay once something was there: podman's storage, and what the kernel
/// itself mounts there for tools that look for tracefs at its old place.
const STAYING_MOUNTS: [&str; 2] = [
    "/var/lib/containers/storage/overlay",
    "/sys/kernel/debug/tracing",
];

/// Control groups that stay once something was there, and what is below them: podman's, where
/// it also moves what it finds in the root group, and those of systemd-nspawn, lxc and the
/// `test` namespace of containerd. What runs in them is a process, and containers are seen as
/// such.
const STAYING_GROUPS: [&str; 6] = [
    "init",
    "libpod_parent",
    "payload",
    "supervisor",
    "lxc.pivot",
    "test",
];

/// What tests may do to the kernel: load a module that is out of tree (O) and
/// not signed (E).
const ALLOWED_TAINT: u64 = 1 << 12 | 1 << 13;

/// What there is at one moment, a set for each kind.
pub(crate) struct State {
    kinds: BTreeMap<Kind, BTreeSet<String>>,
}

/// In the order in which they are undone: what holds others comes before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Process,
    Trigger,
    Event,
    TraceInstance,
    Probe,
    Container,
    Module,
    Swap,
    Mount,
    Group,
    Parameter,
    Tracer,
    Taint,
    Breakpoint,
}

/// One thing that differs.
enum Change {
    New(String),
    Gone(String),
}

impl Kind {
    const ALL: [Kind; 14] = [
        Kind::Process,
        Kind::Trigger,
        Kind::Event,
        Kind::TraceInstance,
        Kind::Probe,
        Kind::Container,
        Kind::Module,
        Kind::Swap,
        Kind::Mount,
        Kind::Group,
        Kind::Parameter,
        Kind::Tracer,
        Kind::Taint,
        Kind::Breakpoint,
    ];

    /// All that there is of it.
    fn now(self) -> BTreeSet<String> {
        match self {
            Kind::Process => processes(),
            Kind::Trigger => triggers(),
            Kind::Event => lines(&format!("{TRACING}/set_event"), 0),
            Kind::TraceInstance => names(&format!("{TRACING}/instances")),
            Kind::Probe => probes(),
            Kind::Container => container::left().into_iter().collect(),
            Kind::Module => Some(module::line())
                .into_iter()
                .filter(|line| !line.is_empty())
                .collect(),
            Kind::Swap => lines("/proc/swaps", 1),
            Kind::Mount => mounts(),
            Kind::Group => groups(),
            Kind::Parameter => parameters(),
            Kind::Tracer => tracer(),
            Kind::Taint => taint(),
            Kind::Breakpoint => breakpoints(),
        }
    }

    /// Whether there is none of it before the tests: whatever there is then is wrong.
    fn begins_empty(self) -> bool {
        use Kind::{Breakpoint, Container, Module, Taint};
        matches!(self, Breakpoint | Container | Module | Taint)
    }

    /// Whether some of it may go without a fault.
    fn may_go(self) -> bool {
        self.begins_empty() || matches!(self, Kind::Process | Kind::Group)
    }

    fn changes(self, before: &BTreeSet<String>, after: &BTreeSet<String>) -> Vec<Change> {
        let new = after.difference(before).cloned().map(Change::New);
        let gone = before.difference(after).cloned().map(Change::Gone);
        new.chain(gone.filter(|_| !self.may_go())).collect()
    }

    /// Undoes a change, as far as that can be done from outside.
    fn undo(self, change: &Change) {
        match (self, change) {
            (Kind::Process, Change::New(process)) => end_process(process),
            (Kind::Trigger, Change::New(trigger)) => remove_trigger(trigger),
            (Kind::Event, Change::New(event)) => append("set_event", &format!("!{event}")),
            (Kind::Event, Change::Gone(event)) => append("set_event", event),
            (Kind::TraceInstance, Change::New(name)) => remove_instance(name),
            (Kind::Probe, Change::New(probe)) => remove_probe(probe),
            (Kind::Container, Change::New(_)) => container::remove_all(),
            (Kind::Module, Change::New(_)) => module::unload_if_possible(),
            (Kind::Swap, Change::New(swap)) => end_swap(swap),
            (Kind::Mount, Change::New(mount)) => unmount(mount),
            (Kind::Group, Change::New(group)) => remove_group(group),
            (Kind::Parameter | Kind::Tracer, Change::Gone(value)) => set_back(value),
            _ => {}
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::New(what) => write!(f, "that was not there: {what}"),
            Change::Gone(what) => write!(f, "that is gone: {what}"),
        }
    }
}

impl State {
    /// As it is now.
    pub(crate) fn now() -> State {
        let kinds = Kind::ALL.into_iter().map(|kind| (kind, kind.now()));
        State {
            kinds: kinds.collect(),
        }
    }

    /// As it is now and should be before the tests.
    pub(crate) fn at_begin() -> State {
        let mut state = State::now();
        for (kind, things) in &mut state.kinds {
            if kind.begins_empty() {
                things.clear();
            }
        }
        state
    }

    /// What is there now and was not, and the other way round, in words.
    pub(crate) fn differences(&self) -> Vec<String> {
        let of = |(kind, before): (&Kind, &BTreeSet<String>)| {
            let kind = *kind;
            let changes = kind.changes(before, &kind.now()).into_iter();
            changes.map(move |change| format!("{kind:?} {change}"))
        };
        self.kinds.iter().flat_map(of).collect()
    }

    /// Undoes what differs, as far as that can be done from outside. Each kind may take its
    /// time: what holds it may have been ended just now.
    pub(crate) fn restore(&self, limit: Duration) {
        for (kind, before) in &self.kinds {
            within(limit, || {
                let changes = kind.changes(before, &kind.now());
                // The last mount is the first to go, and a group below another one.
                changes.iter().rev().for_each(|change| kind.undo(change));
                changes.is_empty()
            });
        }
    }
}

fn end_process(process: &str) {
    let pid = process.split(' ').next().and_then(|pid| pid.parse().ok());
    if let Some(pid) = pid {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

fn remove_trigger(trigger: &str) {
    if let Some((file, trigger)) = trigger.split_once(' ') {
        let trigger = trigger.trim_end_matches(" [active]");
        let _ = fs::write(file, format!("!{trigger}"));
    }
}

fn remove_instance(name: &str) {
    let folder = format!("{TRACING}/instances/{name}");
    let _ = fs::write(format!("{folder}/events/enable"), "0");
    let _ = fs::remove_dir(folder);
}

/// Written as `FILE KIND:GROUP/NAME …`.
fn remove_probe(probe: &str) {
    let mut words = probe.split(' ');
    let (file, name) = (
        words.next(),
        words.next().and_then(|word| word.split_once(':')),
    );
    if let (Some(file), Some((_, name))) = (file, name) {
        let _ = fs::write(format!("{TRACING}/events/{name}/enable"), "0");
        append(file, &format!("-:{name}"));
    }
}

fn end_swap(swap: &str) {
    let file = swap.split_whitespace().next().unwrap_or_default();
    let _ = Command::new("swapoff").arg(file).status();
}

fn unmount(mount: &str) {
    let place = mount.split(' ').nth(1).unwrap_or_default();
    let _ = umount2(place, MntFlags::MNT_DETACH);
}

fn remove_group(group: &str) {
    let folder = Path::new(GROUPS).join(group);
    // Not the tests' own: podman moves what is in the root group.
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if own.trim().starts_with(&format!("0::/{group}")) {
        return;
    }
    let _ = fs::write(folder.join("cgroup.kill"), "1");
    let _ = fs::remove_dir(folder);
}

/// Written as `FILE = VALUE`.
fn set_back(parameter: &str) {
    if let Some((file, value)) = parameter.split_once(" = ") {
        let _ = fs::write(file, value);
    }
}

/// Appends to a file of tracefs. It may refuse: what is tried is looked at afterwards.
fn append(file: &str, text: &str) {
    let file = File::options()
        .append(true)
        .open(format!("{TRACING}/{file}"));
    let _ = file.and_then(|mut file| file.write_all(text.as_bytes()));
}

fn lines(file: &str, skip: usize) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.skip(skip).map(str::to_owned).collect()
}

fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}

/// `ID PLACE TYPE` of each mount of this namespace. The last of its place has a number that is
/// never used again, the others only one that may be.
fn mounts() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let mounts = text.lines().filter_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let kind = words.iter().position(|word| *word == "-")?;
        let (id, place, kind) = (words.first()?, words.get(4)?, words.get(kind + 1)?);
        let unique = sys::mount_id(Path::new(place)).unwrap_or(0);
        let stays = STAYING_MOUNTS.contains(place);
        (!stays).then(|| format!("{unique:016}.{id} {place} {kind}"))
    });
    mounts.collect()
}

/// Kernel parameters, how pages are merged, which CPUs are on, what each leaves to others where
/// a real-time task runs, and whether faults are injected, where the kernel can.
fn parameters() -> BTreeSet<String> {
    let files = PARAMETERS.iter().map(|name| format!("/proc/sys/{name}"));
    let merging = MERGING.map(|name| format!("/sys/kernel/mm/ksm/{name}"));
    let servers = format!("{DEBUGFS}/sched/fair_server");
    let servers = names(&servers)
        .into_iter()
        .map(|cpu| format!("{servers}/{cpu}/runtime"));
    let cpus = names(CPUS)
        .into_iter()
        .map(|name| format!("{CPUS}/{name}/online"));
    let faults = names(DEBUGFS).into_iter();
    let faults = faults.filter(|name| name.starts_with("fail"));
    values(
        files
            .chain(merging)
            .chain(servers)
            .chain(cpus)
            .chain(faults.map(|name| format!("{DEBUGFS}/{name}/probability"))),
    )
}

fn tracer() -> BTreeSet<String> {
    let files = ["current_tracer", "tracing_on"];
    values(files.iter().map(|name| format!("{TRACING}/{name}")))
}

/// `FILE = VALUE` of each that there is.
fn values(files: impl Iterator<Item = String>) -> BTreeSet<String> {
    let values = files.filter_map(|file| {
        let value = fs::read_to_string(&file).ok()?;
        Some(format!("{file} = {}", value.trim()))
    });
    values.collect()
}

/// `FILE KIND:GROUP/NAME …` of each probe that tracefs has.
fn probes() -> BTreeSet<String> {
    let of = |file: &'static str| {
        let probes = lines(&format!("{TRACING}/{file}"), 0).into_iter();
        probes.map(move |probe| format!("{file} {probe}"))
    };
    PROBES.into_iter().flat_map(of).collect()
}

/// All control groups, by their paths.
fn groups() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![String::new()];
    while let Some(group) = left.pop() {
        let entries = fs::read_dir(Path::new(GROUPS).join(&group));
        for entry in entries.into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                left.push(format!(
                    "{group}{}{name}",
                    if group.is_empty() { "" } else { "/" }
                ));
            }
        }
        let first = group.split('/').next().unwrap_or_default();
        if !group.is_empty() && !STAYING_GROUPS.contains(&first) {
            found.insert(group);
        }
    }
    found
}

fn taint() -> BTreeSet<String> {
    let taint = fs::read_to_string("/proc/sys/kernel/tainted").unwrap_or_default();
    let taint: u64 = taint.trim().parse().unwrap_or(u64::MAX);
    let bad = taint & !ALLOWED_TAINT;
    (bad != 0)
        .then(|| format!("{bad:#x}"))
        .into_iter()
        .collect()
}

/// In the text of processes that run, and of those that would be started.
fn breakpoints() -> BTreeSet<String> {
    let running = leftovers::breakpoints().into_iter();
    let new = leftovers::breakpoints_in_new(victim::used());
    running.chain(new).collect()
}

fn triggers() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for system in TRIGGERS {
        let folder = format!("{TRACING}/events/{system}");
        for event in names(&folder) {
            let file = format!("{folder}/{event}/trigger");
            found.extend(
                lines(&file, 0)
                    .into_iter()
                    .map(|line| format!("{file} {line}")),
            );
        }
    }
    found
}

/// `PID COMM` of all processes that run a program, but for podman's service, which stays.
fn processes() -> BTreeSet<String> {
    let running = names("/proc").into_iter().filter_map(|pid| {
        if podman::is_service(pid.parse().ok()?) {
            return None;
        }
        // Kernel threads have none, and what is dead has none any more.
        fs::read_link(Path::new("/proc").join(&pid).join("exe")).ok()?;
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(format!("{pid} {}", comm.trim()))
    });
    running.collect()
}
