// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that a parser came to an end on, and how many did lately.

use crate::error::{unreadable, Death, WorkerError};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::time::{Duration, Instant};

/// Most files that are remembered; beyond, all are forgotten, and cost a child each anew.
const FILES_MAX: usize = 1 << 16;
/// Most deaths in [`LATELY`].
const DEATHS_MAX: usize = 32;
const LATELY: Duration = Duration::from_secs(60);

/// What distinguishes a file from others. Not the build-id, which can be forged: with that of libc,
/// a hostile file would take all containers' libc with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    device: u64,
    inode: u64,
    bytes: i64,
    changed: (i64, u64),
}

impl FileKey {
    pub(crate) fn of(file: &File) -> Result<FileKey, WorkerError> {
        let stat = rustix::fs::fstat(file).map_err(unreadable)?;
        Ok(FileKey {
            device: stat.st_dev,
            inode: stat.st_ino,
            bytes: stat.st_size,
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        })
    }
}

/// A child that gives no answer keeps us from all others: it counts as this number of deaths.
const DEATHS_OF_A_HANG: usize = 4;
/// The least time to wait, however many children timed out before.
const PATIENCE_LEAST: Duration = Duration::from_secs(2);

/// The files, each with those that were read with it, and the deaths.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    files: HashMap<Vec<FileKey>, Death>,
    deaths: VecDeque<(Instant, Death)>,
}

impl Quarantine {
    /// Fails for a file that a parser came to an end on, or for several read together.
    pub(crate) fn check(&self, files: &[FileKey]) -> Result<(), WorkerError> {
        match self.files.get(files) {
            Some(death) => Err(WorkerError::Fatal(*death)),
            None => Ok(()),
        }
    }

    /// Asks no more about the file, when it is read with the others.
    pub(crate) fn add(&mut self, files: Vec<FileKey>, death: Death) {
        if self.files.len() >= FILES_MAX {
            self.files.clear();
        }
        self.files.insert(files, death);
    }

    /// Notes that a child has come to an end before its time.
    pub(crate) fn note_death(&mut self, death: Death) {
        self.deaths.push_back((Instant::now(), death));
    }

    fn lately(&self) -> impl Iterator<Item = &Death> {
        let is_late = |(at, _): &&(Instant, Death)| at.elapsed() <= LATELY;
        self.deaths.iter().filter(is_late).map(|(_, death)| death)
    }

    /// `limit`, halved for each child that timed out lately, so that many such files do not stop a
    /// trace for long.
    pub(crate) fn patience(&self, limit: Duration) -> Duration {
        let hangs = self.lately().filter(|death| is_hang(death)).count();
        let left = limit / 2u32.saturating_pow(hangs.min(16) as u32);
        left.max(PATIENCE_LEAST.min(limit))
    }

    /// Fails when too many did lately to start another.
    pub(crate) fn check_deaths(&mut self) -> Result<(), WorkerError> {
        let is_past = |(at, _): &(Instant, Death)| at.elapsed() > LATELY;
        while self.deaths.front().is_some_and(is_past) {
            self.deaths.pop_front();
        }
        let weight = |death| match is_hang(death) {
            true => DEATHS_OF_A_HANG,
            false => 1,
        };
        match self.lately().map(weight).sum() {
            count if count >= DEATHS_MAX => Err(WorkerError::TooManyDeaths(count)),
            _ => Ok(()),
        }
    }
}

fn is_hang(death: &Death) -> bool {
    matches!(death, Death::Hung(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_before_it_is_gone() {
        let mut quarantine = Quarantine::default();
        let limit = Duration::from_secs(30);
        let mut waited = Duration::ZERO;
        while quarantine.check_deaths().is_ok() {
            waited += quarantine.patience(limit);
            quarantine.note_death(Death::Hung(limit));
        }
        assert!(waited < Duration::from_secs(70), "{waited:?}");
        let short = Duration::from_millis(10);
        assert_eq!(quarantine.patience(short), short);
    }

    #[test]
    fn patience_comes_back() {
        let mut quarantine = Quarantine::default();
        let limit = Duration::from_secs(30);
        quarantine.note_death(Death::Hung(limit));
        quarantine.note_death(Death::Hung(limit));
        assert_eq!(quarantine.patience(limit), limit / 4);
        let first = &mut quarantine.deaths[0].0;
        *first = first.checked_sub(2 * LATELY).expect("the machine is up");
        assert_eq!(quarantine.patience(limit), limit / 2);
    }
}
