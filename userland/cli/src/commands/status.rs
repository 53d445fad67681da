// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe status`: the module, its sessions, their probes and counters.

use crate::args::StatusPlan;
use crate::output::json::{self, CountersLine};
use crate::output::summary::sentence;
use libnsprobe::{Device, Info, ProbeStatus, SessionStatus};
use nix::sys::stat::{major, minor};
use nsprobe_text::{counted, escaped};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

#[derive(Serialize)]
struct StatusLine {
    r#type: &'static str,
    release: String,
    version: u32,
    version_min: u32,
    features: Vec<&'static str>,
    probes: u32,
    sessions: Vec<SessionLine>,
}

#[derive(Serialize)]
struct SessionLine {
    session: u64,
    pids: Vec<u32>,
    comm: String,
    rings: u64,
    ring_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter_processes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter_pid_namespace: Option<u64>,
    probes: Vec<ProbeLine>,
}

#[derive(Serialize)]
struct ProbeLine {
    probe: u32,
    device: String,
    inode: u64,
    file_offset: String,
    #[serde(flatten)]
    counters: CountersLine,
}

pub(crate) fn run(plan: &StatusPlan) -> anyhow::Result<ExitCode> {
    let device = Device::open_any_version()?;
    let sessions = libnsprobe::sessions()?;
    let mut out = BufWriter::new(io::stdout().lock());
    if plan.json {
        json::line(&mut out, &status_line(device.info(), sessions))?;
    } else {
        write_text(&mut out, device.info(), &sessions)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn write_text(out: &mut impl Write, info: &Info, sessions: &[SessionStatus]) -> io::Result<()> {
    writeln!(
        out,
        "module {}, interface {} to {}, features: {}",
        escaped(&info.release),
        info.version_min,
        info.version,
        info.features.names().join(" ")
    )?;
    writeln!(
        out,
        "{}, {}",
        counted(sessions.len(), "session"),
        counted(info.probes, "probe")
    )?;
    for session in sessions {
        let pids: Vec<String> = session.pids.iter().map(u32::to_string).collect();
        writeln!(
            out,
            "session of {} ({}): {}",
            escaped(&session.comm),
            pids.join(", "),
            what_it_does(session)
        )?;
        for probe in &session.probes {
            write_probe(out, probe)?;
        }
    }
    // This command's own open file is one of them.
    let others = info.sessions.saturating_sub(1) as usize;
    if others > sessions.len() {
        let hidden = others - sessions.len();
        writeln!(out, "{hidden} more that this /proc does not show")?;
    }
    Ok(())
}

fn what_it_does(session: &SessionStatus) -> String {
    let held = match (session.hold_ms, session.held) {
        (None, _) => None,
        (Some(0), held) => Some(format!("{} held, and no more", counted(held, "program"))),
        (Some(limit_ms), held) => Some(format!(
            "programs of new containers wait for up to {limit_ms} ms, {held} have"
        )),
    };
    let traced = format!(
        "{} of {} bytes, {} traced",
        counted(session.rings, "ring"),
        session.ring_bytes,
        filter(session)
    );
    match held {
        Some(held) if session.rings == 0 => held,
        Some(held) => format!("{traced}; {held}"),
        None => traced,
    }
}

fn filter(session: &SessionStatus) -> String {
    match (session.filter_processes, session.filter_pidns) {
        (0, 0) => "all processes".to_owned(),
        (count, 0) => counted(count, "process"),
        (0, inum) => format!("pid namespace {inum}"),
        (count, inum) => format!("{} in pid namespace {inum}", counted(count, "process")),
    }
}

fn write_probe(out: &mut impl Write, probe: &ProbeStatus) -> io::Result<()> {
    writeln!(
        out,
        "  probe {}: device {} inode {} offset {:#x}: {}",
        probe.id,
        device(probe.dev),
        probe.ino,
        probe.offset,
        sentence(&probe.counters, None)
    )
}

fn device(dev: u64) -> String {
    format!("{}:{}", major(dev), minor(dev))
}

fn status_line(info: &Info, sessions: Vec<SessionStatus>) -> StatusLine {
    StatusLine {
        r#type: "status",
        release: info.release.clone(),
        version: info.version,
        version_min: info.version_min,
        features: info.features.names(),
        probes: info.probes,
        sessions: sessions.into_iter().map(session_line).collect(),
    }
}

fn session_line(session: SessionStatus) -> SessionLine {
    let probe_line = |probe: ProbeStatus| ProbeLine {
        probe: probe.id,
        device: device(probe.dev),
        inode: probe.ino,
        file_offset: format!("{:#x}", probe.offset),
        counters: probe.counters.into(),
    };
    SessionLine {
        session: session.session,
        pids: session.pids,
        comm: session.comm,
        rings: session.rings,
        ring_bytes: session.ring_bytes,
        hold_ms: session.hold_ms,
        held: session.hold_ms.map(|_| session.held),
        filter_processes: Some(session.filter_processes).filter(|&count| count > 0),
        filter_pid_namespace: Some(session.filter_pidns).filter(|&inum| inum > 0),
        probes: session.probes.into_iter().map(probe_line).collect(),
    }
}
