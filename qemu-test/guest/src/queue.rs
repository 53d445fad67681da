// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that several guests take from one folder of the host's. `order` has their names, a
//! line each; the guest that makes the folder `taken/NAME` runs that test.

use crate::tests::{self, Test};
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::PathBuf;

/// What is left to do.
pub(crate) struct Queue {
    folder: PathBuf,
    /// Those that are this guest's already.
    first: VecDeque<&'static Test>,
    order: VecDeque<&'static Test>,
}

fn named(name: &str) -> io::Result<&'static Test> {
    let mut all = tests::all();
    all.find(|test| test.name == name)
        .ok_or_else(|| io::Error::other(format!("no test is called {name}")))
}

impl Queue {
    /// The queue of a folder; `first` come before all others, and need not be taken.
    pub(crate) fn open(folder: PathBuf, first: Vec<String>) -> io::Result<Queue> {
        let order = fs::read_to_string(folder.join("order"))?;
        Ok(Queue {
            first: first
                .iter()
                .map(|name| named(name))
                .collect::<Result<_, _>>()?,
            order: order.lines().map(named).collect::<Result<_, _>>()?,
            folder,
        })
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
            match fs::create_dir(self.folder.join("taken").join(test.name)) {
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
