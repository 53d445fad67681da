// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiled tables on disk: a file's rows are compiled once for a machine.
//!
//! Files of containers are hostile, and a build-id is a claim. So an entry is named by the
//! [`Digest`] of all that its rows were computed from: to change the rows of
//! another's file would have to find the same digest. Nobody else can write into the
//! folder, or it is not used; what is in an entry is checked all the same.
//!
//! The folder is opened once, and everything goes by its descriptor: in whatever mount
//! namespace a thread is later, it is no other folder.

mod entry;

pub(crate) use entry::{decode, encode};

use crate::{Digest, Input, UnwindError, UnwindTable};
use rustix::fs::{
    self, AtFlags, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW,
};
use rustix::io::Errno;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const VARIABLE: &str = "NSPROBE_CACHE";
/// Where root's is else: the folder, and the one in it.
const FOLDERS: [&str; 2] = ["/var/cache/nsprobe", "/var/cache/nsprobe/rows"];
/// Most bytes of an entry.
const ENTRY_BYTES_MAX: u64 = 64 << 20;
/// How long a file that is not yet an entry may be written.
const WRITING: Duration = Duration::from_secs(600);
/// How the files are called after their digest.
const SUFFIX: &str = ".rows";
/// Suffix of an entry while it is written, after a number.
const NEW_SUFFIX: &str = ".new";
/// Mode bits that let others write: only we may write into what we use.
const OTHERS_WRITE: u32 = 0o022;

/// A folder of tables.
#[derive(Debug)]
pub struct Cache {
    folder: OwnedFd,
    /// Bytes that may be added before it is looked at again; not known before the first
    /// entry.
    room: Mutex<Option<u64>>,
}

/// Why a folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// It cannot be made or opened.
    #[error("{} cannot be used: {source}", path.display())]
    Unavailable {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could put files into it.
    #[error("{} is not used: it {why}", path.display())]
    Refused {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// A file in the folder.
struct KeptTable {
    name: String,
    bytes: u64,
    used: SystemTime,
}

impl Cache {
    /// Most bytes of all entries.
    pub const BYTES_MAX: u64 = 256 << 20;

    /// Opens the usual folder, or makes it: `$NSPROBE_CACHE`, else `/var/cache/nsprobe/rows`
    /// for root, else none.
    pub fn usual() -> Result<Option<Cache>, CacheError> {
        let Some(path) = Cache::usual_folder() else {
            return Ok(None);
        };
        let [outer, inner] = FOLDERS;
        if path == Path::new(inner) {
            // If only we can write there, what it holds cannot be renamed.
            folder(Path::new(outer))?;
        }
        Cache::open(&path).map(Some)
    }

    /// Where `usual` opens it, be it there or not.
    pub fn usual_folder() -> Option<PathBuf> {
        let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        let of_root = || {
            rustix::process::geteuid()
                .is_root()
                .then(|| FOLDERS[1].into())
        };
        named.map(PathBuf::from).or_else(of_root)
    }

    /// Opens a folder, or makes it; the one that it is in must be there.
    pub fn open(path: &Path) -> Result<Cache, CacheError> {
        // A slash at the end would follow a link in spite of O_NOFOLLOW.
        let path: PathBuf = path.components().collect();
        Ok(Cache {
            folder: folder(&path)?,
            room: Mutex::default(),
        })
    }

    /// The table of an input: as it was kept, or compiled, and then kept; and whether it
    /// was kept. Trouble with the folder is no error: then it is compiled.
    pub fn table(&self, input: &Input) -> Result<(UnwindTable, bool), UnwindError> {
        self.table_by(input, || input.compile())
    }

    /// As `table`, but compiled by the given function.
    pub fn table_by<E>(
        &self,
        input: &Input,
        compile: impl FnOnce() -> Result<UnwindTable, E>,
    ) -> Result<(UnwindTable, bool), E> {
        if !input.is_worth_keeping() {
            return Ok((compile()?, false));
        }
        let digest = input.digest();
        if let Some(table) = self.find(digest) {
            return Ok((table, true));
        }
        let table = compile()?;
        // If it cannot be written, the next run compiles again.
        let _ = self.keep(digest, &table);
        Ok((table, false))
    }

    /// The table that is kept under a digest; none also when the entry is not sound.
    pub fn find(&self, digest: Digest) -> Option<UnwindTable> {
        // Not blocking: it could be a FIFO.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = format!("{digest}{SUFFIX}");
        let file = fs::openat(&self.folder, name, flags, Mode::empty()).ok()?;
        let stat = fs::fstat(&file).ok()?;
        let bytes = u64::try_from(stat.st_size).ok()?;
        if !is_file(&stat) || why_not(&stat).is_some() || bytes > ENTRY_BYTES_MAX {
            return None;
        }
        let file = File::from(file);
        let table = entry::decode(digest, &file, bytes)?;
        // Best effort: an entry without it goes a little sooner.
        let _ = fs::futimens(&file, &NOW);
        Some(table)
    }

    /// Keeps a table under a digest, in place of what is there.
    pub fn keep(&self, digest: Digest, table: &UnwindTable) -> io::Result<()> {
        let bytes = entry::encode(digest, table);
        if bytes.len() as u64 > ENTRY_BYTES_MAX {
            return Ok(());
        }
        self.make_room(bytes.len() as u64)?;
        let number = RandomState::new().hash_one(digest.0);
        let new = format!("{digest}.{number:016x}{NEW_SUFFIX}");
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.folder, &new, flags, Mode::RUSR | Mode::WUSR)?;
        let written = File::from(file).write_all(&bytes).and_then(|()| {
            let name = format!("{digest}{SUFFIX}");
            Ok(fs::renameat(&self.folder, &new, &self.folder, name)?)
        });
        if written.is_err() {
            // What stays is removed by a later run that makes room.
            let _ = fs::unlinkat(&self.folder, &new, AtFlags::empty());
        }
        written
    }

    /// Removes what was not used for longest, until there is room for `bytes` bytes.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let left = match room.and_then(|room| room.checked_sub(bytes)) {
            Some(left) => left,
            None => self.sweep(Cache::BYTES_MAX.saturating_sub(bytes))?,
        };
        *room = Some(left);
        Ok(())
    }

    /// Removes what is too much for `limit` bytes; returns how many of them are left.
    fn sweep(&self, limit: u64) -> io::Result<u64> {
        let mut kept = self.list()?;
        kept.sort_by_key(|kept| kept.used);
        let bytes = kept.iter().map(|kept| kept.bytes);
        let mut sum = bytes.fold(0, u64::saturating_add);
        for kept in kept {
            let age = kept.used.elapsed().unwrap_or_default();
            let is_stale = kept.name.ends_with(NEW_SUFFIX) && age > WRITING;
            if is_stale || sum > limit {
                match fs::unlinkat(&self.folder, &kept.name, AtFlags::empty()) {
                    // Another may have been quicker.
                    Ok(()) | Err(Errno::NOENT) => sum = sum.saturating_sub(kept.bytes),
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(limit.saturating_sub(sum))
    }

    /// The files that we have made; of others in the folder nothing is known.
    fn list(&self) -> io::Result<Vec<KeptTable>> {
        let mut kept = Vec::new();
        for found in Dir::read_from(&self.folder)? {
            let found = found?;
            let name = found.file_name().to_str().ok().filter(|name| is_ours(name));
            let Some(name) = name else {
                continue;
            };
            // A file removed meanwhile takes no room.
            let stat = fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
            let Some(stat) = stat.ok().filter(is_file) else {
                continue;
            };
            let seconds = u64::try_from(stat.st_mtime).unwrap_or_default();
            kept.push(KeptTable {
                name: name.to_owned(),
                bytes: u64::try_from(stat.st_size).unwrap_or_default(),
                used: UNIX_EPOCH + Duration::from_secs(seconds.min(u32::MAX.into())),
            });
        }
        Ok(kept)
    }
}

const NOW: Timestamps = Timestamps {
    last_access: TIME_NOW,
    last_modification: TIME_NOW,
};
const TIME_NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: UTIME_NOW,
};

/// Whether we call files so: a digest, and a suffix of ours.
fn is_ours(name: &str) -> bool {
    let (digest, behind) = name.split_once('.').unwrap_or_default();
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_new = behind.len() == 16 + NEW_SUFFIX.len() && behind.ends_with(NEW_SUFFIX);
    is_digest && (is_new || SUFFIX.strip_prefix('.') == Some(behind))
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Opens a folder that is ours alone, or makes it.
fn folder(path: &Path) -> Result<OwnedFd, CacheError> {
    let unavailable = |errno: Errno| CacheError::Unavailable {
        path: path.to_owned(),
        source: errno.into(),
    };
    let refused = |why| CacheError::Refused {
        path: path.to_owned(),
        why,
    };
    match fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(unavailable(errno)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match fs::open(path, flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(refused("is no directory, or a link")),
        Err(errno) => return Err(unavailable(errno)),
    };
    let stat = fs::fstat(&folder).map_err(unavailable)?;
    match why_not(&stat) {
        Some(why) => Err(refused(why)),
        None => Ok(folder),
    }
}

/// Why others may have written to a file or folder.
fn why_not(stat: &Stat) -> Option<&'static str> {
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Some("belongs to somebody else");
    }
    (stat.st_mode & OTHERS_WRITE != 0).then_some("can be written to by others")
}

#[cfg(test)]
mod tests;
