// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machines that systemd-machined knows: `/run/systemd/machines/NAME`, an environment
//! file (systemd, `src/machine/machine.c`, `machine_save`).

use super::host::Host;
use super::known::{Findings, KnownContainer};
use super::state_file::StateFolder;
use super::Runtime;
use crate::Result;

/// What machined says.
pub(super) fn find(host: &Host, findings: &mut Findings) {
    let Some(folder) = findings.note(host.folder("/run/systemd/machines")) else {
        return;
    };
    let names = findings.note(folder.names().map(Some)).unwrap_or_default();
    // The others are links from units to machines.
    for name in names.into_iter().filter(|name| !name.contains(':')) {
        let known = findings.note(machine(&folder, name));
        findings.known.extend(known);
    }
}

/// None when it is a virtual machine.
fn machine(folder: &StateFolder, name: String) -> Result<Option<KnownContainer>> {
    let Some(text) = folder.text(&name)? else {
        return Ok(None);
    };
    if value(&text, "CLASS") != Some("container") {
        return Ok(None);
    }
    let runtime = match value(&text, "SERVICE") {
        Some("systemd-nspawn") => Runtime::Nspawn,
        _ => Runtime::Machine,
    };
    let mut known = KnownContainer::new(runtime, name, None);
    known.claim.pid = value(&text, "LEADER").and_then(|pid| pid.parse().ok());
    known.image = value(&text, "ROOT").map(str::to_owned);
    let microseconds = value(&text, "REALTIME").and_then(|time| time.parse::<i64>().ok());
    known.created = microseconds.map(|time| time / 1_000_000);
    Ok(Some(known))
}

/// The value of a variable; those that are quoted are so because of what is of no use here.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = |line: &'a str| line.strip_prefix(key)?.strip_prefix('=');
    let value = text.lines().find_map(line)?;
    Some(value.trim_matches('"'))
}
