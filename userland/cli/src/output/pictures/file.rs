// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that has its name when all of it is written, and not before.

use crate::output::lines::Output;
use anyhow::{bail, Context};
use nix::errno::Errno;
use nix::fcntl::{renameat2, RenameFlags, AT_FDCWD};
use nsprobe_profile::{Format, Profile};
use nsprobe_text::{counted, escaped};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// Where text or JSON goes, and the profile file, if the path's name ends as one.
pub(crate) fn outputs(path: Option<&Path>) -> anyhow::Result<(Output, Option<PictureFile>)> {
    match path.and_then(|path| Some((path, Format::of(path).ok()?))) {
        Some((path, format)) => {
            let picture = PictureFile::create(format, path, true)?;
            Ok((Output::to_stdout(), Some(picture)))
        }
        None => Ok((Output::to_file(path)?, None)),
    }
}

/// Destination of a profile.
pub(crate) struct PictureFile {
    format: Format,
    path: PathBuf,
    replace: bool,
    file: File,
    partial: Partial,
}

/// A file beside it, which is removed with the value.
struct Partial(PathBuf);

impl PictureFile {
    /// Makes the file under another name, so that what cannot be written is known at once.
    pub(crate) fn create(
        format: Format,
        path: &Path,
        replace: bool,
    ) -> anyhow::Result<PictureFile> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => bail!("{} is a directory", path.display()),
            Ok(_) if !replace => bail!("{}", exists(path)),
            _ => {}
        }
        let mut hidden = OsString::from(".");
        hidden.push(path.file_name().unwrap_or_default());
        hidden.push(format!(".{}", std::process::id()));
        let partial = path.with_file_name(hidden);
        let file = File::create_new(&partial);
        Ok(PictureFile {
            format,
            path: path.to_owned(),
            replace,
            file: file.with_context(|| cannot_write(path))?,
            partial: Partial(partial),
        })
    }

    /// Writes a profile. An error leaves nothing of it.
    pub(crate) fn write(self, profile: &Profile, quiet: bool) -> anyhow::Result<()> {
        let mut out = BufWriter::new(&self.file);
        nsprobe_profile::write(self.format, profile, &mut out)
            .with_context(|| cannot_write(&self.path))?;
        self.rename()?;
        if !quiet {
            let stacks = counted(profile.samples.len() as u64, "stack");
            let path = self.path.display().to_string();
            eprintln!("nsprobe: {stacks} in {}", escaped(&path));
        }
        Ok(())
    }

    fn rename(&self) -> anyhow::Result<()> {
        let (from, to) = (&self.partial.0, &self.path);
        let flags = RenameFlags::RENAME_NOREPLACE;
        let renamed = match self.replace {
            true => fs::rename(from, to),
            false => match renameat2(AT_FDCWD, from, AT_FDCWD, to, flags) {
                Err(Errno::EEXIST) => bail!("{}", exists(to)),
                // Not every file system supports it, and no file was there when we began.
                Err(Errno::EINVAL | Errno::ENOSYS) => fs::rename(from, to),
                renamed => renamed.map_err(io::Error::from),
            },
        };
        renamed.with_context(|| cannot_write(to))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // It has its name then, or cannot be removed: its name says what it is.
        let _ = fs::remove_file(&self.0);
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Error text if a file of this name exists already.
pub(crate) fn exists(path: &Path) -> String {
    format!(
        "{} exists: choose another name, or replace it with --replace",
        path.display()
    )
}
