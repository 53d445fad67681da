// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sessions of all processes, as `/proc/PID/fdinfo` tells of them.
//!
//! The module prints one key a line after the kernel's own lines: `session` (a
//! number), `rings`, `ring-bytes`, `hold-ms` and `held` (programs that wait at their
//! start: how long at most, and how many have), `filter-processes` (how many),
//! `filter-pidns` (its inode number), `probes` (how many), and a `probe` line of
//! name-value pairs for each probe. Keys that this version does not know are skipped.

use crate::counters::Counters;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

/// A session and the processes that hold it open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStatus {
    /// Its number; 0 when the module does not number its sessions.
    pub session: u64,
    /// Processes that hold it open.
    pub pids: Vec<u32>,
    /// Name of the first of them.
    pub comm: String,
    /// Rings; 0 before they are made.
    pub rings: u64,
    /// Bytes of each.
    pub ring_bytes: u64,
    /// How long programs that start wait for their probes at most, in milliseconds; `None` where none
    /// ever waited.
    pub hold_ms: Option<u64>,
    /// Programs that have waited, or do.
    pub held: u64,
    /// Processes that alone are traced; 0 for no such condition.
    pub filter_processes: u64,
    /// Pid namespace that alone is traced; 0 for no such condition.
    pub filter_pidns: u64,
    /// Its probes.
    pub probes: Vec<ProbeStatus>,
}

/// A probe of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeStatus {
    /// Its number in the session.
    pub id: u32,
    /// Device of the probed file.
    pub dev: u64,
    /// Inode number of the probed file.
    pub ino: u64,
    /// File offset of the breakpoint.
    pub offset: u64,
    /// Its hits by outcome.
    pub counters: Counters,
}

/// Distinguishes sessions: by their number, or by a process and its descriptor.
type SessionKey = (u64, (u32, OsString));

/// All sessions that the caller may look at, but not the caller's own.
pub fn sessions() -> Result<Vec<SessionStatus>> {
    let proc = Path::new("/proc");
    let failed = |source| Error::Proc {
        path: proc.display().to_string(),
        source,
    };
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(proc).map_err(failed)?.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.filter(|&pid| pid != std::process::id()) {
            // A process that ends meanwhile has no sessions any more.
            let _ = sessions_of(pid, &entry.path(), &mut found);
        }
    }
    Ok(found.into_values().collect())
}

fn sessions_of(
    pid: u32,
    process: &Path,
    found: &mut BTreeMap<SessionKey, SessionStatus>,
) -> io::Result<()> {
    for fd in fs::read_dir(process.join("fd"))?.flatten() {
        let is_device = fs::read_link(fd.path()).is_ok_and(|link| link.ends_with("nsprobe"));
        if !is_device {
            continue;
        }
        let text = fs::read_to_string(process.join("fdinfo").join(fd.file_name()));
        let Some(session) = text.ok().as_deref().and_then(parse) else {
            continue;
        };
        // Without a number, each descriptor counts as a session.
        let descriptor = match session.session {
            0 => (pid, fd.file_name()),
            _ => Default::default(),
        };
        let known = found
            .entry((session.session, descriptor))
            .or_insert(session);
        if known.pids.is_empty() {
            let comm = fs::read_to_string(process.join("comm")).unwrap_or_default();
            known.comm = comm.trim_end_matches('\n').to_owned();
        }
        if !known.pids.contains(&pid) {
            known.pids.push(pid);
        }
    }
    Ok(())
}

/// A session from the lines of its fdinfo; `None` for any other kind of file.
fn parse(text: &str) -> Option<SessionStatus> {
    let mut session = SessionStatus::default();
    let mut is_session = false;
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match key {
            "session" => session.session = number(value),
            "probes" => is_session = true,
            "rings" => session.rings = number(value),
            "ring-bytes" => session.ring_bytes = number(value),
            "hold-ms" => session.hold_ms = Some(number(value)),
            "held" => session.held = number(value),
            "filter-processes" => session.filter_processes = number(value),
            "filter-pidns" => session.filter_pidns = number(value),
            "probe" => session.probes.extend(probe(value)),
            _ => {}
        }
    }
    is_session.then_some(session)
}

/// `<id> dev <dev> ino <ino> offset 0x… hits N recorded N filtered N …`.
fn probe(text: &str) -> Option<ProbeStatus> {
    let mut words = text.split_whitespace();
    let mut probe = ProbeStatus {
        id: words.next()?.parse().ok()?,
        ..ProbeStatus::default()
    };
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        let value = number(value);
        match name {
            "dev" => probe.dev = value,
            "ino" => probe.ino = value,
            "offset" => probe.offset = value,
            name => probe.counters.set(name, value),
        }
    }
    Some(probe)
}

/// A decimal number, a hexadecimal one, or `major:minor` as `stat(2)` has it.
fn number(text: &str) -> u64 {
    if let Some((major, minor)) = text.split_once(':') {
        return nix::sys::stat::makedev(number(major), number(minor));
    }
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap_or_default(),
        None => text.parse().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t29\nino:\t17\n\
        session:\t12\nrings:\t2\nring-bytes:\t262144\nfilter-processes:\t0\n\
        filter-pidns:\t4026532111\nprobes:\t2\n\
        later:\tkey\n\
        probe:\t1 dev 0x801 ino 99 offset 0x1a40 hits 7 recorded 4 filtered 2 lost_full 1 stacks_cut 3 new 5\n\
        probe:\t2 dev 8:1 ino 99 offset 0x1b00 hits 0 recorded 0 filtered 0 lost_full 0\n";

    #[test]
    fn the_module_s_lines_make_a_session() {
        let session = parse(TEXT).unwrap();
        assert_eq!(session.session, 12);
        assert_eq!((session.rings, session.ring_bytes), (2, 262144));
        assert_eq!(session.filter_pidns, 4026532111);
        assert_eq!(session.probes.len(), 2);
        let first = &session.probes[0];
        assert_eq!((first.dev, first.ino, first.offset), (0x801, 99, 0x1a40));
        assert_eq!(first.counters.hits, 7);
        assert!(first.counters.balance());
        assert_eq!(session.probes[1].dev, 0x801);
    }

    #[test]
    fn other_files_and_nonsense_are_no_sessions() {
        assert_eq!(parse("pos:\t0\nflags:\t02\n"), None);
        assert_eq!(parse("session:\tx\n"), None);
        let odd = parse("probes:\t1\nprobe:\tx\nprobe:\t3 dev\n").unwrap();
        assert_eq!(odd.probes.len(), 1);
    }
}
