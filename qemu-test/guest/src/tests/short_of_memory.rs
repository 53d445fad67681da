// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a request that asks for more memory than there is gets `ENOMEM`, and no process is
//! ended to make room for it: not the one that asks, and no other.

use crate::group::Group;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::session::{errno, probe_at, size, Session};
use crate::sys;
use crate::victim::Victim;
use nix::libc;
use nsprobe_common::abi::{self, Probe, Table, Unwind};
use nsprobe_common::unwind::Rule;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

const MB: u64 = 1 << 20;

/// Another process, which may not be ended.
struct Bystander(Child);

impl Bystander {
    fn new() -> Bystander {
        let sleep = Command::new("sleep").arg("1000").spawn();
        let sleep = Bystander(sleep.expect("sleep is there"));
        // What it takes as it starts is not asked for by the module: for want of that the
        // kernel may end it.
        let call = format!("/proc/{}/syscall", sleep.0.id());
        let sleeping = format!("{} ", libc::SYS_clock_nanosleep);
        let is_asleep = || fs::read_to_string(&call).is_ok_and(|call| call.starts_with(&sleeping));
        assert!(within(Duration::from_secs(20), is_asleep), "no sleep");
        sleep
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let ended = self.0.try_wait();
        let _ = self.0.kill().and_then(|()| self.0.wait());
        if !std::thread::panicking() {
            assert!(matches!(ended, Ok(None)), "{ended:?}");
        }
    }
}

fn sums(rows: u32) -> Table {
    Table {
        size: size::<Table>(),
        kind: abi::TABLE_SUMS,
        rows,
        key_words: 1,
        ..Table::default()
    }
}

/// Rows for a file, which are not sound: the kernel has them in its memory before it looks.
fn rows_of(file: &File, rows: &[u32]) -> Unwind {
    static RULES: [Rule; 1] = [Rule {
        base: 0,
        saved: 0,
        more: 0,
        offset: 0,
        saved_at: 0,
        extra: 0,
    }];
    static BLOCKS: [u32; 2] = [0; 2];
    Unwind {
        size: size::<Unwind>(),
        fd: file.as_raw_fd(),
        blocks: BLOCKS.as_ptr() as u64,
        block_count: 2,
        rows: rows.as_ptr() as u64,
        row_count: rows.len() as u32,
        rules: RULES.as_ptr() as u64,
        rule_count: 1,
        ..Unwind::default()
    }
}

test! { core, what_a_group_lacks_memory_for_is_refused, module }
/// The kernel has to account what requests take to their caller, and to end no process when
/// that is too much.
fn what_a_group_lacks_memory_for_is_refused() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let file = File::open(victim.file()).expect("it is there");
    let mut session = Session::open();
    let ready = Session::with_rings(4096);
    let root = Path::new("/sys/fs/cgroup");
    let members = OpenOptions::new()
        .write(true)
        .open(root.join("cgroup.procs"));
    let mut members = members.expect("it is there");
    let small = Group::new("nsprobe-small");
    let other = Bystander::new();
    small.take(other.0.id());
    fs::write(small.folder.join("memory.max"), "16M").expect("it is ours");
    // What they need of our own memory they have before.
    let many = vec![0u32; 16 << 20];
    let probe = Probe {
        fd: file.as_raw_fd(),
        ..probe_at(function.offset, 0)
    };
    let mut probes = vec![probe; 60_000];
    let (mut unwind, mut table) = (rows_of(&file, &many), sums(1 << 20));
    let mut refused = |what: &str, request: &mut dyn FnMut() -> std::io::Result<()>| {
        small.take(std::process::id());
        let result = request();
        // First of all: what was taken may still be counted, and little else fits.
        let left = members.write_all(std::process::id().to_string().as_bytes());
        left.expect("its root takes anything");
        let kills = fs::read_to_string(small.folder.join("memory.events"));
        let kills = kills.expect("it is ours");
        assert_eq!(errno(result, what), libc::ENOMEM, "{what}");
        assert!(kills.contains("oom_kill 0\n"), "{what}: {kills}");
    };
    refused("rings of 64 MB", &mut || session.setup(64 * MB, 0));
    refused("a table of 72 MB", &mut || ready.table(table).map(drop));
    refused("16 million rows", &mut || {
        sys::ioctl(&ready, abi::UNWIND, &mut unwind).map(drop)
    });
    refused("60,000 probes", &mut || {
        let attached = ready.attach_all(&mut probes);
        attached.map_err(|(error, _)| error)
    });
    // Where there is memory they are made.
    session.setup(4096, 0).expect("small rings");
    table.rows = 8;
    assert_eq!(ready.table(table).expect("a small one").id, 1);
    assert_eq!(ready.info().probes, 0);
    let id = ready.probe(victim.file(), &function, 0);
    victim.call(1);
    assert_eq!(ready.counters(id).hits, 1);
}

/// Memory that the kernel keeps back: nothing is moved for it, nor touched.
struct KeptBack(String);

const KEPT_BACK: &str = "/proc/sys/vm/min_free_kbytes";

impl KeptBack {
    /// Leaves about `left` bytes of what is available.
    fn all_but(left: u64) -> KeptBack {
        let kept = KeptBack(fs::read_to_string(KEPT_BACK).expect("/proc"));
        let least = kept.0.trim().parse::<i64>().expect("a number");
        let mut kilobytes = least;
        // What is available is above the highest of the kernel's marks, which it moves by more
        // than that; and as they move, the kernel gives up caches, of which a part counted.
        let is_left = || {
            let over = available() as i64 - left as i64;
            if over.unsigned_abs() < left / 4 {
                return true;
            }
            kilobytes = least.max(kilobytes + over * 2 / 3 / 1024);
            fs::write(KEPT_BACK, kilobytes.to_string()).expect("a number");
            false
        };
        assert!(within(Duration::from_secs(20), is_left), "{left}");
        kept
    }
}

impl Drop for KeptBack {
    fn drop(&mut self) {
        let _ = fs::write(KEPT_BACK, &self.0);
    }
}

/// The number after a word at the beginning of a line.
pub(super) fn number(file: &str, word: &str) -> u64 {
    let text = fs::read_to_string(file).expect("/proc");
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect(word)
}

/// Waits for what needs 2 MB of memory in one piece. Only where there is none, the kernel is
/// asked to move all its memory together: that may take it minutes.
pub(super) fn in_one_piece(mut is_done: impl FnMut() -> bool) -> bool {
    const WITHOUT_MOVING: Duration = Duration::from_secs(2);
    if within(WITHOUT_MOVING, &mut is_done) {
        return true;
    }
    println!("memory is in pieces: moved together");
    fs::write("/proc/sys/vm/drop_caches", "3").expect("root");
    fs::write("/proc/sys/vm/compact_memory", "1").expect("root");
    within(SOON, is_done)
}

fn available() -> u64 {
    number("/proc/meminfo", "MemAvailable:") << 10
}

test! { full, what_the_machine_lacks_memory_for_is_refused, module }
fn what_the_machine_lacks_memory_for_is_refused() {
    let _module = Module::load();
    let mut session = Session::open();
    let row = session.table(sums(8)).expect("a small one").row_bytes + 8;
    let other = Bystander::new();
    let kept_back = KeptBack::all_but(64 * MB);
    let killed = number("/proc/vmstat", "oom_kill ");
    let there = available();
    println!("{} MB are available", there / MB);
    assert!((32 * MB..240 * MB).contains(&there), "{there}");
    // More than that, and less than a machine can have.
    let rows = (there + 16 * MB) / u64::from(row);
    let table = session.table(sums(rows as u32));
    let rings = session.setup(256 * MB, 0);
    let left = available();
    let kills = number("/proc/vmstat", "oom_kill ") - killed;
    drop(kept_back);
    assert_eq!(errno(table, "a table"), libc::ENOMEM);
    assert_eq!(errno(rings, "rings"), libc::ENOMEM);
    assert_eq!(kills, 0, "processes were ended");
    println!("{} MB are available afterwards", left / MB);
    assert!(left + 16 * MB > there, "{left} of {there} bytes");
    drop(other);
    session.setup(4096, 0).expect("small rings");
    session.table(sums(rows as u32)).expect("there is memory");
}
