// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug files from debuginfod servers, and from the cache of downloads, which is that of elfutils
//! (`debuginfod_find_debuginfo(3)`: environment, folders and names).
//!
//! Off unless the user asks, as it reveals to servers what runs here. Downloads are untrusted: the
//! user of a file compares its build-id and its layout with the program. TLS is rustls's with ring,
//! whose C and assembler are built with the program; its authorities are those that the machine
//! trusts.

pub mod servers;

use crate::names::build_id::hex;
use anyhow::Context;
use nix::fcntl::OFlag;
use nsprobe_symbolize::{FoundIn, OpenFile};
use nsprobe_text::escaped;
use servers::{urls, SECURE};
use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::Agent;

/// Largest file that is taken, in bytes, unless `DEBUGINFOD_MAXSIZE` says else.
const BYTES_MAX: u64 = 2 << 30;
/// Time for a server to begin its answer, unless `DEBUGINFOD_TIMEOUT` sets another.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for one file, unless `DEBUGINFOD_MAXTIME` sets another.
const TIME_MAX: Duration = Duration::from_secs(120);
/// Time to connect to a server.
const CONNECT: Duration = Duration::from_secs(5);
/// Most bytes of a build-id that a server is asked for.
const BUILD_ID_BYTES_MAX: usize = 64;
/// How long an empty file of the cache means that no server had it (elfutils' `cache_miss_s`).
const MISS: Duration = Duration::from_secs(600);
/// Redirections that are followed, within https.
const REDIRECTS_MAX: u32 = 3;

/// Servers, and the cache.
#[derive(Debug)]
pub(crate) struct Debuginfod {
    servers: Vec<Server>,
    cache: PathBuf,
    bytes_max: u64,
    is_quiet: bool,
    /// Build-ids of which there is nothing to be had.
    missing: Mutex<HashSet<Vec<u8>>>,
}

#[derive(Debug)]
struct Server {
    url: String,
    agent: Agent,
    /// It did not answer: it is not asked again.
    is_gone: AtomicBool,
}

impl Debuginfod {
    /// Reads the environment variables that elfutils uses.
    pub(crate) fn from_environment(is_quiet: bool) -> anyhow::Result<Debuginfod> {
        let seconds = |name, default| number(name).map_or(default, Duration::from_secs);
        let limits = ServerLimits {
            answer: seconds("DEBUGINFOD_TIMEOUT", PATIENCE),
            whole: seconds("DEBUGINFOD_MAXTIME", TIME_MAX),
        };
        let urls = urls().map_err(anyhow::Error::msg)?;
        Ok(Debuginfod {
            servers: urls.iter().map(|url| Server::new(url, limits)).collect(),
            cache: cache_folder()?,
            bytes_max: number("DEBUGINFOD_MAXSIZE").unwrap_or(BYTES_MAX),
            is_quiet,
            missing: Mutex::default(),
        })
    }

    /// The debug file of that build-id; none when no server has it. The error says which
    /// server could not be asked.
    pub(crate) fn find(&self, build_id: &[u8]) -> Result<Option<OpenFile>, String> {
        let usable = (2..=BUILD_ID_BYTES_MAX).contains(&build_id.len());
        if !usable || self.missing().contains(build_id) {
            return Ok(None);
        }
        let path = self.cache.join(hex(build_id)).join("debuginfo");
        let found = match cached(&path) {
            Cached::File(file) => Ok(Some(file)),
            Cached::Miss => Ok(None),
            Cached::Unknown => self.fetch(build_id, &path),
        };
        if !matches!(found, Ok(Some(_))) {
            self.missing().insert(build_id.to_owned());
        }
        let open = |file| OpenFile {
            file,
            path: Arc::new(path.clone()),
            found_in: FoundIn::Debuginfod,
        };
        found.map(|file| file.map(open))
    }

    fn missing(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fetch(&self, build_id: &[u8], path: &Path) -> Result<Option<File>, String> {
        let mut failures = Vec::new();
        for server in self.servers.iter().filter(|server| !server.is_gone()) {
            if !self.is_quiet {
                let url = escaped(&server.url).to_string();
                eprintln!("nsprobe: asking {url} for build-id {}", hex(build_id));
            }
            match server.get(build_id, self.bytes_max, path) {
                Ok(Some(file)) => return Ok(Some(file)),
                Ok(None) => {}
                Err(why) => failures.push(format!("{}: {why}", server.url)),
            }
        }
        match failures.is_empty() {
            true => Ok(None),
            false => Err(failures.join("; ")),
        }
    }
}

/// Time limits of a server.
#[derive(Clone, Copy)]
struct ServerLimits {
    answer: Duration,
    whole: Duration,
}

impl Server {
    fn new(url: &str, limits: ServerLimits) -> Server {
        let is_secure = url.starts_with(SECURE);
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier);
        // A redirection never leaves https; over http, where an attacker in between could forge it,
        // none is followed.
        let agent = Agent::config_builder()
            .tls_config(tls.build())
            .https_only(is_secure)
            .max_redirects(if is_secure { REDIRECTS_MAX } else { 0 })
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(limits.answer))
            .timeout_global(Some(limits.whole))
            .http_status_as_error(false)
            .user_agent(concat!("nsprobe/", env!("CARGO_PKG_VERSION")))
            .build();
        Server {
            url: url.trim_end_matches('/').to_owned(),
            agent: agent.new_agent(),
            is_gone: AtomicBool::new(false),
        }
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Brings a file into the cache; none when the server does not have it.
    fn get(&self, build_id: &[u8], limit: u64, path: &Path) -> Result<Option<File>, String> {
        let url = format!("{}/buildid/{}/debuginfo", self.url, hex(build_id));
        let answer = self.agent.get(&url).call().map_err(|error| {
            self.is_gone.store(true, Ordering::Relaxed);
            error.to_string()
        })?;
        match answer.status().as_u16() {
            200 => {}
            404 => return Ok(None),
            status => return Err(format!("it answers with status {status}")),
        }
        let mut body = answer.into_body();
        if body.content_length().is_some_and(|bytes| bytes > limit) {
            return Err(format!("the file is larger than {limit} bytes"));
        }
        store(&mut body.as_reader(), limit, path).map(Some)
    }
}

/// Result of a cache look-up.
enum Cached {
    File(File),
    /// No server had it lately.
    Miss,
    Unknown,
}

fn cached(path: &Path) -> Cached {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let Ok((metadata, file)) = opened.and_then(|file| Ok((file.metadata()?, file))) else {
        return Cached::Unknown;
    };
    let age = metadata
        .modified()
        .ok()
        .and_then(|time| time.elapsed().ok());
    match (metadata.is_file(), metadata.len()) {
        (true, 0) if age.is_some_and(|age| age < MISS) => Cached::Miss,
        (true, bytes) if bytes > 0 => Cached::File(file),
        _ => Cached::Unknown,
    }
}

/// Files that were begun.
static PARTS: AtomicU64 = AtomicU64::new(0);

/// Writes what comes to a file beside `path`, which takes that name when it is whole.
fn store(body: &mut impl Read, limit: u64, path: &Path) -> Result<File, String> {
    let folder = path.parent().ok_or("the cache has no folder")?;
    let told = |error: io::Error| format!("{}: {error}", folder.display());
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(folder).map_err(told)?;
    // Several threads may want the same file.
    let count = PARTS.fetch_add(1, Ordering::Relaxed);
    let part = folder.join(format!("debuginfo.{}.{count}", std::process::id()));
    // Left by a killed run that had our pid.
    let _ = fs::remove_file(&part);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    let mut file = options.open(&part).map_err(told)?;
    let stored = copy(body, &mut file, limit).and_then(|()| fs::rename(&part, path));
    stored.map_err(|error| {
        let _ = fs::remove_file(&part);
        error.to_string()
    })?;
    Ok(file)
}

fn copy(from: &mut impl Read, to: &mut File, limit: u64) -> io::Result<()> {
    let bytes = io::copy(&mut from.take(limit.saturating_add(1)), to)?;
    to.flush()?;
    match bytes {
        0 => Err(io::Error::other("the file is empty")),
        bytes if bytes > limit => Err(io::Error::other(format!(
            "the file is larger than {limit} bytes"
        ))),
        _ => Ok(()),
    }
}

/// The number in a variable of the environment; zero, as for elfutils, is none.
fn number(name: &str) -> Option<u64> {
    let number = env::var(name).ok()?.parse().ok()?;
    (number > 0).then_some(number)
}

/// The directory in which elfutils caches files; its legacy directory is not used.
fn cache_folder() -> anyhow::Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    if let Some(folder) = set("DEBUGINFOD_CACHE_PATH") {
        return Ok(folder.into());
    }
    let folder = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")));
    let folder = folder.context(
        "--debuginfod needs a folder for what it fetches: set DEBUGINFOD_CACHE_PATH, \
         XDG_CACHE_HOME or HOME",
    )?;
    Ok(folder.join("debuginfod_client"))
}

#[cfg(test)]
mod tests;
