// SPDX-License-Identifier: MIT OR Apache-2.0
//! podman, as a command and as a service: starting the command costs a second of a guest's
//! time, asking the service does not.

use crate::oracle::within;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where the service listens.
const SOCKET: &str = "/run/nsprobe-podman.sock";
/// What the service says.
const LOG: &str = "/run/nsprobe-podman.log";

/// Podman's interface in the version that Debian 13's podman speaks.
const API: &str = "/v5.0.0/libpod";

/// Runs a command of podman's: what it prints, or what it complains of.
pub(crate) fn run(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("podman")
        .args(arguments)
        .output()
        .expect("podman is in the guest");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

/// Asks the service: its answer (null when it has none), or what it complains of.
///
/// `path` begins after the interface's version, such as `/containers/create`.
pub(crate) fn ask(method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
    let body = body.map_or_else(String::new, Value::to_string);
    let request = format!(
        "{method} {API}{path} HTTP/1.0\r\nHost: podman\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = Vec::new();
    let mut service = connected();
    service
        .write_all(request.as_bytes())
        .and_then(|()| service.read_to_end(&mut answer))
        .map_err(|error| format!("podman's service: {error}"))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    if !status.starts_with('2') {
        return Err(format!("podman's service: {head}: {body}"));
    }
    Ok(serde_json::from_str(body).unwrap_or_default())
}

/// A connection to the service, which the first one starts. It outlives the test.
fn connected() -> UnixStream {
    if let Ok(service) = UnixStream::connect(SOCKET) {
        return service;
    }
    let _ = fs::remove_file(SOCKET);
    let log = File::create(LOG).expect("/run is writable");
    let errors = log.try_clone().expect("there are descriptors");
    // In a session of its own, as a test's processes are ended with it.
    let status = Command::new("setsid")
        .args(["--fork", "podman", "system", "service", "--time", "0"])
        .arg(format!("unix://{SOCKET}"))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .status();
    assert!(status.expect("setsid is in the guest").success());
    let mut service = None;
    // Its first start has taken a minute on a machine with much else to do.
    within(Duration::from_secs(200), || {
        service = UnixStream::connect(SOCKET).ok();
        service.is_some()
    });
    service.unwrap_or_else(|| {
        let said = fs::read_to_string(LOG).unwrap_or_default();
        panic!("podman's service does not begin: {said}")
    })
}

/// Whether a process is the service.
pub(crate) fn is_service(pid: u32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.starts_with(b"podman\0system\0service\0")
}
