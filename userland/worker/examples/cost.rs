// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it costs to have a file parsed by a child: names of so many places of a file, by
//! ourselves and by a child, in batches and one by one.
//!
//!   cost NSPROBE FILE [COUNT]

use nsprobe_symbolize::{Binary, FileOffset, Lookup};
use nsprobe_worker::{Options, Query, SandboxedBinary, Worker};
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Places that are asked about at once: a deep stack.
const STACK: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let program = PathBuf::from(words.next().ok_or("which nsprobe?")?);
    let path = words.next().ok_or("which file?")?;
    let count = words.next().map_or(Ok(100_000), |word| word.parse())?;
    let path = Path::new(&path);

    let me = std::process::id();
    let mut own = None;
    measure("ourselves: open", 1, &[me], || {
        own = File::open(path)
            .ok()
            .and_then(|file| Binary::open(file, path).ok());
    });
    let own = own.ok_or("it cannot be read")?;
    let functions = own.functions();
    let step = (functions.len() / count).max(1);
    let places = functions.iter().step_by(step).take(count);
    let queries: Vec<Query> = places
        .map(|function| Query {
            offset: FileOffset(function.file_offset.0 + function.size / 2),
            lookup: Lookup::Instruction,
        })
        .collect();
    let first = queries.first().copied().ok_or("it has no functions")?;
    for (who, queries) in [
        ("ourselves: the first name", &[first][..]),
        ("ourselves: names", &queries),
        ("ourselves: names again", &queries),
    ] {
        measure(who, queries.len(), &[me], || {
            for query in queries {
                let _ = own.resolve(query.offset, query.lookup);
            }
        });
    }
    drop(own);

    let mut worker = None;
    let options = Options {
        program,
        ..Options::default()
    };
    measure("a child: start", 1, &[me], || {
        worker = Worker::start(options).ok()
    });
    let worker = worker.ok_or("no child can be started")?;
    let pids = [me, worker.pid().unwrap_or_default()];
    let mut object = None;
    measure("a child: open", 1, &pids, || {
        let file = File::open(path).ok();
        object = file.and_then(|file| SandboxedBinary::open(&worker, file, path).ok());
    });
    let object = object.ok_or("it cannot be read")?;
    for (who, queries, at_once) in [
        ("a child: the first name", &[first][..], 1),
        ("a child: names, all at once", &queries, usize::MAX),
        ("a child: names again, all at once", &queries, usize::MAX),
        ("a child: names again, by 64", &queries, STACK),
        ("a child: names again, one by one", &queries, 1),
    ] {
        measure(who, queries.len(), &pids, || {
            for stack in queries.chunks(at_once) {
                let _ = object.resolve_all(stack);
            }
        });
    }
    let status = fs::read_to_string(format!("/proc/{}/status", pids[1]))?;
    let lines = status.lines();
    for line in lines.filter(|line| line.starts_with("VmHWM") || line.starts_with("VmPeak")) {
        println!("a child: {line}");
    }
    Ok(())
}

/// Time that the threads of processes have run, in nanoseconds: not disturbed by others.
fn used(pids: &[u32]) -> u64 {
    let tasks = pids
        .iter()
        .filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let ran = tasks.flatten().filter_map(|task| {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    ran.sum()
}

/// Does something with so many places, and tells what it took.
fn measure(who: &str, count: usize, pids: &[u32], work: impl FnOnce()) {
    let (begun, before) = (Instant::now(), used(pids));
    work();
    let (elapsed, ran) = (begun.elapsed(), used(pids) - before);
    let each = ran as f64 / 1e3 / count as f64;
    println!("{who}: {count} in {elapsed:?}; {each:.2} us of CPU each");
}
