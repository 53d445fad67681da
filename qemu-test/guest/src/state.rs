// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test may change in the guest and must change back: mounts, swap, kernel parameters,
//! tracefs, processes, control groups. Two looks are compared, and a test that was ended in
//! its midst is undone by what differs.

use crate::podman;
use nix::mount::{umount2, MntFlags};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

const TRACING: &str = "/sys/kernel/tracing";

/// Parameters that tests change, or that would change what others see. Not those that the
/// kernel adapts by itself.
const PARAMETERS: [&str; 14] = [
    "kernel/core_pattern",
    "kernel/hung_task_timeout_secs",
    "kernel/kptr_restrict",
    "kernel/panic_on_warn",
    "kernel/perf_event_paranoid",
    "kernel/pid_max",
    "kernel/randomize_va_space",
    "kernel/threads-max",
    "kernel/unprivileged_bpf_disabled",
    "vm/max_map_count",
    "vm/overcommit_memory",
    "vm/swappiness",
    "vm/unprivileged_userfaultfd",
    "user/max_user_namespaces",
];

/// Events whose triggers tests use.
const TRIGGERS: [&str; 3] = ["sched", "task", "signal"];

/// Mount points that stay once something was there: podman's storage, and what the kernel
/// itself mounts there for tools that look for tracefs at its old place.
const STAYING_MOUNTS: [&str; 2] = [
    "/var/lib/containers/storage/overlay",
    "/sys/kernel/debug/tracing",
];

/// What there is at one moment, a set for each kind.
#[derive(Clone, Default)]
pub(crate) struct State {
    kinds: BTreeMap<Kind, BTreeSet<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Mount,
    Swap,
    Parameter,
    Event,
    Trigger,
    TraceInstance,
    Tracer,
    Process,
}

impl State {
    /// As it is now.
    pub(crate) fn now() -> State {
        State {
            kinds: BTreeMap::from([
                (Kind::Mount, mounts()),
                (Kind::Swap, lines("/proc/swaps", 1)),
                (Kind::Parameter, parameters()),
                (Kind::Event, events()),
                (Kind::Trigger, triggers()),
                (Kind::TraceInstance, names(&format!("{TRACING}/instances"))),
                (Kind::Tracer, tracer()),
                (Kind::Process, processes()),
            ]),
        }
    }

    /// What is there now and was not, and the other way round, in words.
    pub(crate) fn differences(&self, now: &State) -> Vec<String> {
        let mut told = Vec::new();
        for (kind, before) in &self.kinds {
            let after = &now.kinds[kind];
            for new in after.difference(before) {
                told.push(format!("{kind:?} that was not there: {new}"));
            }
            // Processes may end.
            if *kind != Kind::Process {
                for gone in before.difference(after) {
                    told.push(format!("{kind:?} that is gone: {gone}"));
                }
            }
        }
        told
    }

    /// Undoes what differs, as far as that can be done from outside.
    pub(crate) fn restore(&self) {
        let now = State::now();
        let new = |kind: Kind| {
            let new = now.kinds[&kind].difference(&self.kinds[&kind]);
            new.cloned().collect::<Vec<String>>()
        };
        for process in new(Kind::Process) {
            let pid = process.split(' ').next().and_then(|pid| pid.parse().ok());
            if let Some(pid) = pid {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        for swap in new(Kind::Swap) {
            let file = swap.split_whitespace().next().unwrap_or_default();
            let _ = Command::new("swapoff").arg(file).status();
        }
        for trigger in new(Kind::Trigger) {
            if let Some((file, trigger)) = trigger.split_once(' ') {
                let _ = fs::write(file, format!("!{trigger}"));
            }
        }
        for event in new(Kind::Event) {
            let _ = append(&format!("{TRACING}/set_event"), &format!("!{event}"));
        }
        for instance in new(Kind::TraceInstance) {
            let _ = fs::remove_dir(format!("{TRACING}/instances/{instance}"));
        }
        // The last one mounted is the first to go.
        let mut mounts = new(Kind::Mount);
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount_id(mount)));
        for mount in mounts {
            let place = mount.split(' ').nth(1).unwrap_or_default();
            let _ = umount2(place, MntFlags::MNT_DETACH);
        }
        for parameter in &self.kinds[&Kind::Parameter] {
            if let Some((name, value)) = parameter.split_once(" = ") {
                let _ = fs::write(format!("/proc/sys/{name}"), value);
            }
        }
        let _ = fs::write(format!("{TRACING}/current_tracer"), "nop");
        let _ = fs::write(format!("{TRACING}/tracing_on"), "1");
    }
}

fn append(file: &str, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = fs::OpenOptions::new().append(true).open(file)?;
    file.write_all(text.as_bytes())
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

/// `ID PLACE TYPE` of each mount of this namespace.
fn mounts() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let mounts = text.lines().filter_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let kind = words.iter().position(|word| *word == "-")?;
        let (id, place, kind) = (words.first()?, words.get(4)?, words.get(kind + 1)?);
        let stays = STAYING_MOUNTS.contains(place);
        (!stays).then(|| format!("{id} {place} {kind}"))
    });
    mounts.collect()
}

fn mount_id(mount: &str) -> u64 {
    let id = mount.split(' ').next().unwrap_or_default();
    id.parse().unwrap_or(0)
}

fn parameters() -> BTreeSet<String> {
    let values = PARAMETERS.iter().filter_map(|name| {
        let value = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
        Some(format!("{name} = {}", value.trim()))
    });
    values.collect()
}

fn events() -> BTreeSet<String> {
    lines(&format!("{TRACING}/set_event"), 0)
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

fn tracer() -> BTreeSet<String> {
    let files = ["current_tracer", "tracing_on"];
    let values = files.iter().map(|name| {
        let value = fs::read_to_string(format!("{TRACING}/{name}")).unwrap_or_default();
        format!("{name} = {}", value.trim())
    });
    values.collect()
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
