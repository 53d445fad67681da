// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that did not run at all: their waits have not ended, or had begun before, so that they have
//! no hit. What they wait for is read from /proc.

use crate::output::json;
use nsprobe_containers::thread_state;
use nsprobe_text::escaped;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Write};
use std::time::Duration;
use syscalls::x86_64::Sysno;

/// Most threads of one line that are listed.
const LISTED: usize = 8;
/// futex.
const FUTEX: usize = 202;

/// How often threads have left their CPU, by process and thread.
pub(super) struct Standing {
    before: HashMap<(u32, u32), Moment>,
}

/// A thread at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Moment {
    /// When it was started, in ticks.
    start: u64,
    switches: u64,
}

/// A thread that did not run.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct StandingThread {
    r#type: &'static str,
    pid: u32,
    tid: u32,
    comm: String,
    /// The name of its system call; none in a page fault, and in a 32-bit call.
    #[serde(skip_serializing_if = "Option::is_none")]
    syscall: Option<String>,
    /// The lock, or the file, socket or pipe, that this has.
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<String>,
}

impl StandingThread {
    /// Whether it waits in `futex(2)`.
    pub(super) fn is_at_lock(&self) -> bool {
        self.syscall.as_deref() == Some("futex")
    }
}

impl Standing {
    /// As the threads of these processes are now.
    pub(super) fn begin(pids: &[u32]) -> Standing {
        let threads = pids.iter().flat_map(|pid| threads(*pid));
        let before = threads.filter_map(|(pid, tid)| Some(((pid, tid), moment(pid, tid)?.0)));
        Standing {
            before: before.collect(),
        }
    }

    /// Those of them that have not run since. `lock` names what a process has at an address.
    pub(super) fn threads(&self, mut lock: impl FnMut(u32, u64) -> String) -> Vec<StandingThread> {
        let mut found = Vec::new();
        for ((pid, tid), before) in &self.before {
            let Some((now, state)) = moment(*pid, *tid) else {
                continue;
            };
            if now != *before || !matches!(state, 'S' | 'D' | 'T' | 't') {
                continue;
            }
            let folder = format!("/proc/{pid}/task/{tid}");
            let read = |name: &str| fs::read(format!("{folder}/{name}")).unwrap_or_default();
            let call = String::from_utf8_lossy(&read("syscall")).into_owned();
            // It may run again meanwhile.
            if moment(*pid, *tid).map(|(moment, _)| moment).as_ref() != Some(before) {
                continue;
            }
            let (syscall, of) = match is_64bit(*pid) {
                true => call_of(*pid, &call, &mut lock),
                false => (None, None),
            };
            found.push(StandingThread {
                r#type: "standing",
                pid: *pid,
                tid: *tid,
                comm: String::from_utf8_lossy(&read("comm")).trim_end().to_owned(),
                syscall,
                of,
            });
        }
        found.sort_by_key(|thread| (thread.pid, thread.tid));
        found
    }
}

/// Writes a line for each of them as JSON.
pub(super) fn write_json(out: &mut impl Write, threads: &[StandingThread]) -> io::Result<()> {
    threads
        .iter()
        .try_for_each(|thread| json::line(out, thread))
}

/// Writes them for people, those with the same call in one line; at most `top` lines.
pub(super) fn write(
    out: &mut impl Write,
    threads: &[StandingThread],
    elapsed: Duration,
    top: usize,
) -> io::Result<()> {
    if threads.is_empty() {
        return Ok(());
    }
    let mut lines: BTreeMap<(u32, &str, String), Vec<u32>> = BTreeMap::new();
    for thread in threads {
        let what = match (&thread.syscall, &thread.of) {
            (Some(syscall), Some(of)) => format!("{syscall} of {of}"),
            (Some(syscall), None) => syscall.clone(),
            (None, _) => "no known system call".to_owned(),
        };
        let line = lines.entry((thread.pid, &thread.comm, what)).or_default();
        line.push(thread.tid);
    }
    let elapsed = elapsed.as_secs_f64();
    writeln!(
        out,
        "threads that did not run for all of the {elapsed:.1} s:"
    )?;
    for ((pid, comm, what), tids) in lines.iter().take(top) {
        let listed: Vec<String> = tids.iter().take(LISTED).map(u32::to_string).collect();
        let listed = listed.join(", ");
        let more = match tids.len().checked_sub(LISTED) {
            None | Some(0) => String::new(),
            Some(more) => format!(" and {more} more"),
        };
        let (comm, what) = (escaped(*comm), escaped(what));
        writeln!(out, "  {comm} {listed}{more} of process {pid}: {what}")?;
    }
    match lines.len().checked_sub(top) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(out, "  ... and {more} more lines"),
    }
}

/// The threads of a process.
fn threads(pid: u32) -> Vec<(u32, u32)> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let tids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    tids.map(|tid| (pid, tid)).collect()
}

/// A thread now, and its state.
fn moment(pid: u32, tid: u32) -> Option<(Moment, char)> {
    let (state, start) = thread_state(pid, tid)?;
    let folder = format!("/proc/{pid}/task/{tid}");
    let status = fs::read(format!("{folder}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let switches = status.lines().filter_map(|line| {
        let (name, number) = line.split_once(':')?;
        name.ends_with("voluntary_ctxt_switches")
            .then(|| number.trim().parse::<u64>().ok())?
    });
    let switches = switches.sum();
    Some((Moment { start, switches }, state))
}

/// Whether a process runs a 64-bit program.
fn is_64bit(pid: u32) -> bool {
    // Of the auxiliary vector a 64-bit one has entries of 16 bytes; AT_SYSINFO_EHDR (33) is the
    // first of those that the kernel writes for either (arch/x86/include/asm/elf.h).
    let auxv = fs::read(format!("/proc/{pid}/auxv")).unwrap_or_default();
    auxv.first_chunk::<8>()
        .is_some_and(|first| u64::from_le_bytes(*first) == 33)
}

/// The system call in the text of `/proc/PID/task/TID/syscall`, and what it has as its first
/// argument.
fn call_of(
    pid: u32,
    text: &str,
    lock: &mut impl FnMut(u32, u64) -> String,
) -> (Option<String>, Option<String>) {
    let mut words = text.split_whitespace();
    let number = words.next().and_then(|word| word.parse::<usize>().ok());
    let call = number.and_then(Sysno::new);
    let argument = words.next().and_then(|word| word.strip_prefix("0x"));
    let argument = argument.and_then(|word| u64::from_str_radix(word, 16).ok());
    let (Some(call), Some(argument)) = (call, argument) else {
        return (None, None);
    };
    let number = call.id() as u32;
    let of = match number as usize {
        FUTEX => Some(lock(pid, argument)),
        _ if libnsprobe::common::wait::takes_file(number) => {
            let link = fs::read_link(format!("/proc/{pid}/fd/{}", argument as u32));
            link.ok().map(|link| link.to_string_lossy().into_owned())
        }
        _ => None,
    };
    (Some(call.name().to_owned()), of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::thread;

    #[test]
    fn a_thread_that_does_not_run_is_listed_with_its_call() {
        let mut cat = Command::new("cat");
        let mut cat = cat.stdin(Stdio::piped()).spawn().unwrap();
        let sleeps = || {
            let call = fs::read_to_string(format!("/proc/{}/syscall", cat.id()));
            call.is_ok_and(|call| call.starts_with("0 "))
        };
        while !sleeps() {
            thread::yield_now();
        }
        let pids = [cat.id(), std::process::id()];
        let standing = Standing::begin(&pids);
        let threads = standing.threads(|_, address| format!("{address:#x}"));
        let of_cat = threads
            .iter()
            .find(|thread| thread.pid == cat.id())
            .unwrap();
        assert_eq!(
            (of_cat.comm.as_str(), of_cat.syscall.as_deref()),
            ("cat", Some("read"))
        );
        assert!(
            of_cat.of.as_ref().unwrap().starts_with("pipe:["),
            "{of_cat:?}"
        );
        // We run.
        let own = nix::unistd::gettid().as_raw() as u32;
        assert!(
            !threads.iter().any(|thread| thread.tid == own),
            "{threads:?}"
        );
        let mut text = Vec::new();
        write(&mut text, &threads, Duration::from_secs(2), 50).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = format!("  cat {0} of process {0}: read of pipe:[", cat.id());
        assert!(
            text.starts_with("threads that did not run for all of the 2.0 s:\n"),
            "{text}"
        );
        assert!(text.contains(&line), "{text}");
        drop(cat.stdin.take());
        cat.wait().unwrap();
        assert!(!standing
            .threads(|_, _| String::new())
            .iter()
            .any(|thread| thread.pid == cat.id()));
    }
}
