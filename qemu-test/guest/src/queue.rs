// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that several guests take from one folder of the host's. `order` has their names, a
//! line each; the guest that makes the link `taken/NAME`, which names the guest, runs that
//! test. What the guest says of its tests stands in `GUEST.ktap` as well, where a crash of
//! the guest loses nothing.

use crate::tests::{self, Test};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// What is left to do.
pub(crate) struct Queue {
    folder: PathBuf,
    /// This guest's name.
    guest: String,
    /// Those that are this guest's already.
    first: VecDeque<&'static Test>,
    order: VecDeque<&'static Test>,
}

fn named(name: &str) -> io::Result<&'static Test> {
    let mut all = tests::all().chain(tests::harness::hidden_tests());
    all.find(|test| test.name == name)
        .ok_or_else(|| io::Error::other(format!("no test is called {name}")))
}

impl Queue {
    /// The queue of a folder; `first` come before all others, and need not be taken.
    pub(crate) fn open(folder: PathBuf, guest: String, first: &[String]) -> io::Result<Queue> {
        let order = fs::read_to_string(folder.join("order"))?;
        Ok(Queue {
            first: first
                .iter()
                .map(|name| named(name))
                .collect::<Result<_, _>>()?,
            order: order.lines().map(named).collect::<Result<_, _>>()?,
            guest,
            folder,
        })
    }

    /// Where this guest's verdicts are kept.
    pub(crate) fn record(&self) -> io::Result<Record> {
        File::create(self.folder.join(format!("{}.ktap", self.guest))).map(Record)
    }
}

impl Iterator for Queue {
    type Item = &'static Test;

    fn next(&mut self) -> Option<&'static Test> {
        if let Some(test) = self.first.pop_front() {
            return Some(test);
        }
        loop {
            let test = self.order.pop_front()?;
            // In one step: no crash leaves one that is taken by none.
            match symlink(&self.guest, self.folder.join("taken").join(test.name)) {
                Ok(()) => return Some(test),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    println!("Bail out! {}: {error}", self.folder.display());
                    return None;
                }
            }
        }
    }
}

/// The file with what a guest has said of its tests.
pub(crate) struct Record(File);

impl Record {
    /// Adds a line, before it is printed.
    pub(crate) fn line(&mut self, line: &str) {
        if let Err(error) = self.0.write_all(format!("{line}\n").as_bytes()) {
            println!("Bail out! the record of the tests: {error}");
        }
    }
}
