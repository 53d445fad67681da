// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destination of a capsule: a new file, or standard output.

use crate::options::{RecordOptions, TargetSpec, TraceOptions};
use crate::recording::capsule::open_regular;
use anyhow::{bail, Context};
use nsprobe_capsule::{FileOutput, Output, Writer};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Room that is kept back for the last chunks, and for what each probe adds to them.
const END_BYTES: u64 = 64 << 10;
const PROBE_BYTES: u64 = 1 << 10;
/// Room that is kept back for the names of what was recorded when there is no more.
const NAMES_BYTES: u64 = 256 << 10;

/// Writes a capsule.
pub(crate) type CapsuleWriter = Writer<Box<dyn Output>>;

/// A capsule with nothing in it yet. It is removed when nothing comes of it.
pub struct Destination {
    writer: CapsuleWriter,
    /// Bytes that its end may take.
    end: u64,
    unused: Option<Unused>,
}

/// A file that is removed with the value.
struct Unused(PathBuf);

impl Destination {
    /// Refuses a destination that cannot be written to, as far as that can be checked at once.
    pub fn check(record: &RecordOptions, options: &TraceOptions) -> anyhow::Result<()> {
        let path = &record.output;
        if is_stdout(path) {
            if io::stdout().is_terminal() {
                bail!("a capsule is not for terminals: -o FILE, or a pipe behind -o -");
            }
            if matches!(options.who, TargetSpec::Command(_)) {
                bail!("the command's own output would get into the capsule: use -o FILE");
            }
            return Ok(());
        }
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => bail!("{} is a directory", path.display()),
            Ok(_) if !record.replace => bail!("{}", exists(path)),
            _ => Ok(()),
        }
    }

    /// Makes the file, with room for the end of a recording with `probes` probes.
    pub fn open(record: &RecordOptions, probes: usize) -> anyhow::Result<Destination> {
        let path = &record.output;
        if is_stdout(path) {
            let output: Box<dyn Output> = Box::new(io::stdout());
            return Ok(Destination {
                writer: Writer::new(output)?,
                end: 0,
                unused: None,
            });
        }
        let mut options = OpenOptions::new();
        // Recordings show what programs do: only their owner may read them.
        options.write(true).mode(0o600);
        match record.replace {
            true => options.create(true),
            false => options.create_new(true),
        };
        let file = open_regular(path, &mut options).map_err(|error| {
            let cause = error.downcast_ref::<io::Error>();
            match cause.is_some_and(|cause| cause.kind() == ErrorKind::AlreadyExists) {
                true => anyhow::anyhow!("{}", exists(path)),
                false => error,
            }
        })?;
        let unused = Unused(path.clone());
        let end = END_BYTES + PROBE_BYTES * probes as u64;
        let begin = || {
            file.set_len(0)?;
            let output: Box<dyn Output> = Box::new(FileOutput::new(file, 0, end + NAMES_BYTES)?);
            Writer::new(output)
        };
        let writer = begin().with_context(|| format!("cannot write to {}", path.display()))?;
        Ok(Destination {
            writer,
            end,
            unused: Some(unused),
        })
    }

    /// From here on the file stays, whatever happens; and the bytes that its end may take.
    pub(crate) fn keep(mut self) -> (CapsuleWriter, u64) {
        if let Some(unused) = self.unused.take() {
            unused.keep();
        }
        (self.writer, self.end)
    }
}

impl Unused {
    fn keep(mut self) {
        self.0 = PathBuf::new();
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if self.0 != Path::new("") {
            // It is ours, and nothing is in it.
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// What is said of a file that is not to be replaced.
pub(crate) fn exists(path: &Path) -> String {
    format!(
        "{} exists: choose another name, or replace it with --replace",
        path.display()
    )
}

/// Whether that means standard output.
fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}
