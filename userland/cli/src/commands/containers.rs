// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe containers`: the containers of this machine, whatever runs them. It needs no
//! module, as it reads nothing but what the runtimes and the kernel keep in files.

use crate::args::ContainersPlan;
use crate::output::json;
use nix::time::{clock_gettime, ClockId};
use nsprobe_containers::{Container, Containers, Runtime};
use nsprobe_text::escaped;
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest image that the table shows, in characters; the end is kept, as it identifies the image
/// best.
const IMAGE_WIDTH: usize = 40;
/// Longest of all other columns.
const WIDTH: usize = 48;
/// Note for a caller without the rights to see everything.
const NO_RIGHTS: &str = "the containers of other users are not seen: that needs CAP_SYS_PTRACE \
                         and CAP_DAC_READ_SEARCH, as root has them";
/// Ticks per second in `/proc` (`USER_HZ`, on all machines that we run on).
const TICKS: u64 = 100;
/// The units of ages: name, and seconds.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];

#[derive(Serialize)]
struct ContainerLine<'a> {
    r#type: &'static str,
    name: &'a str,
    aliases: &'a [String],
    runtime: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<PodLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_ticks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid_namespace: Option<u32>,
    pid_namespace_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owns_pid_namespace: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mount_namespace: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_s: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<&'a str>,
    processes: &'a [u32],
    problems: &'a [String],
}

#[derive(Serialize)]
struct PodLine<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<&'a str>,
}

#[derive(Serialize)]
struct EndLine {
    r#type: &'static str,
    containers: usize,
    problems: Vec<String>,
}

pub(crate) fn run(plan: &ContainersPlan) -> anyhow::Result<ExitCode> {
    let containers = Containers::take()?;
    let is_shown =
        |one: &&Container| plan.all || (one.is_running() && one.runtime != Runtime::Bare);
    let mut shown: Vec<&Container> = containers.iter().filter(is_shown).collect();
    shown.sort_by_key(|one| (!one.is_running(), &one.name, one.init.map(|init| init.pid)));
    let mut problems: Vec<String> = containers
        .problems()
        .iter()
        .map(ToString::to_string)
        .collect();
    let has_rights = sees_others();
    if !has_rights {
        problems.insert(0, NO_RIGHTS.to_owned());
    }
    let code = match has_rights || !shown.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    };
    let mut out = BufWriter::new(io::stdout().lock());
    if plan.json {
        for container in &shown {
            json::line(&mut out, &container_line(container))?;
        }
        let end = EndLine {
            r#type: "summary",
            containers: shown.len(),
            problems,
        };
        json::line(&mut out, &end)?;
        out.flush()?;
        return Ok(code);
    }
    if has_rights || !shown.is_empty() {
        write_table(&mut out, &table(&shown))?;
        out.flush()?;
    }
    tell_problems(&shown, &problems);
    Ok(code)
}

/// Whether we may inspect other users' processes; containers are found through them.
fn sees_others() -> bool {
    let first = std::fs::read_link("/proc/1/ns/pid");
    !first.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn tell_problems(shown: &[&Container], problems: &[String]) {
    for container in shown.iter().filter(|one| one.is_running()) {
        // Those of the state are said once, below.
        let own = container
            .problems
            .iter()
            .filter(|why| !problems.iter().any(|p| why.contains(p)));
        for why in own {
            eprintln!("nsprobe: {}: {}", escaped(&container.name), escaped(why));
        }
    }
    for problem in problems {
        eprintln!("nsprobe: {}", escaped(problem));
    }
}

/// The column's names, and the rows; without columns of which every row is empty.
fn table(shown: &[&Container]) -> Vec<Vec<String>> {
    let names = [
        "NAME",
        "RUNTIME",
        "ID",
        "POD",
        "PID",
        "PIDNS",
        "PROCESSES",
        "STATE",
        "AGE",
        "INSIDE",
        "IMAGE",
    ];
    let rows: Vec<Vec<String>> = shown.iter().map(|container| row(container)).collect();
    let is_used = |column: usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(column));
        // An empty list shows the columns that matter: the first three.
        (rows.is_empty() && column < 3) || cells.any(|cell| !cell.is_empty())
    };
    let keep = |row: Vec<String>| -> Vec<String> {
        let cells = row.into_iter().enumerate();
        cells
            .filter(|(at, _)| is_used(*at))
            .map(|(_, cell)| cell)
            .collect()
    };
    let header = keep(names.map(str::to_owned).to_vec());
    [header]
        .into_iter()
        .chain(rows.iter().cloned().map(keep))
        .collect()
}

fn row(container: &Container) -> Vec<String> {
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let init = container.init;
    let runtime = match container.user {
        Some(user) => format!("{} (user {user})", container.runtime),
        None => container.runtime.to_string(),
    };
    let processes = Some(container.processes.len() as u64).filter(|_| container.is_running());
    let pod = container.pod.as_ref().map_or_else(String::new, |pod| {
        let name = pod.to_string();
        shortened(&name, if is_id(&name) { 12 } else { WIDTH })
    });
    let image = container.image.as_deref().unwrap_or_default();
    let text = |text: &str| shortened(&escaped(text).to_string(), WIDTH);
    vec![
        text(&container.name),
        text(&runtime),
        text(container.short_id().unwrap_or_default()),
        text(&pod),
        number(init.map(|init| init.pid.into())),
        number(init.map(|init| init.pid_namespace.inum.into())),
        number(processes),
        container.state.name().to_owned(),
        age(container).unwrap_or_default(),
        text(container.inside.as_deref().unwrap_or_default()),
        ending(&escaped(image).to_string()),
    ]
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The beginning, when it is too long.
fn shortened(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text
            .chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .collect(),
        false => text.to_owned(),
    }
}

/// The end, when it is too long.
fn ending(text: &str) -> String {
    let count = text.chars().count();
    match count > IMAGE_WIDTH {
        true => ['…']
            .into_iter()
            .chain(text.chars().skip(count + 1 - IMAGE_WIDTH))
            .collect(),
        false => text.to_owned(),
    }
}

/// Time since the container started or, if it does not run, since it was created.
fn age(container: &Container) -> Option<String> {
    let seconds = match container.init {
        Some(init) => {
            let now = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?.tv_sec() as u64;
            now.checked_sub(init.start_time / TICKS)?
        }
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
            now.checked_sub(u64::try_from(container.created?).ok()?)?
        }
    };
    let mut units = UNITS.iter();
    let unit = units.find(|(_, length)| seconds >= *length);
    let (name, length) = unit.unwrap_or(&("s", 1));
    Some(format!("{}{name}", seconds / length))
}

fn write_table(out: &mut impl Write, rows: &[Vec<String>]) -> io::Result<()> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn container_line(container: &Container) -> ContainerLine<'_> {
    let init = container.init;
    let pod = container.pod.as_ref().map(|pod| PodLine {
        name: &pod.name,
        namespace: pod.namespace.as_deref(),
        container: pod.container.as_deref(),
    });
    ContainerLine {
        r#type: "container",
        name: &container.name,
        aliases: &container.aliases,
        runtime: container.runtime.name(),
        state: container.state.name(),
        id: container.id.as_deref(),
        pod,
        user: container.user,
        pid: init.map(|init| init.pid),
        start_ticks: init.map(|init| init.start_time),
        pid_namespace: init.map(|init| init.pid_namespace.inum),
        pid_namespace_id: init.map(|init| init.pid_namespace.id),
        owns_pid_namespace: init.map(|init| init.owns_namespace),
        mount_namespace: init.map(|init| init.mount_namespace),
        cgroup: container.cgroup.as_ref().map(|cgroup| cgroup.path.as_str()),
        cgroup_id: container.cgroup.as_ref().and_then(|cgroup| cgroup.id),
        image: container.image.as_deref(),
        created_s: container.created,
        inside: container.inside.as_deref(),
        processes: &container.processes,
        problems: &container.problems,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_needed() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["NAME", "PID", "IMAGE"]),
            row(["web", "12345", ""]),
            row(["é", "1", "x"]),
        ];
        let mut out = Vec::new();
        write_table(&mut out, &rows).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "NAME  PID    IMAGE\nweb   12345\né     1      x\n");
    }

    #[test]
    fn long_names_are_cut_where_they_tell_least() {
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("abcd", 4), "abcd");
        let image = format!("registry.example.org/{}/web:1.2", "x".repeat(50));
        let shown = ending(&image);
        assert_eq!(shown.chars().count(), IMAGE_WIDTH);
        assert!(shown.ends_with("/web:1.2"), "{shown}");
    }
}
