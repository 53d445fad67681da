// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: whatever a program does to the mappings of its code, the probes in it do it no harm
//! and count what the kernel's own count.

use super::short_of_memory::in_one_piece;
use crate::binary;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::session::{probe_at, Session, RING_BYTES};
use crate::setting::Setting;
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nix::mount::{mount, umount2, MntFlags, MsFlags};
use nsprobe_common::abi::{self, Probe};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies of its code that the victim has.
const COPIES: u64 = 4;

/// A victim that changes the mappings of its code, and where the function in it is.
struct Mover {
    victim: Victim,
    file: PathBuf,
    place: u64,
}

impl Mover {
    fn new() -> Mover {
        let file = victim::path("moves_text");
        let place = binary::function(&file, "moved").offset;
        let victim = Victim::start("moves_text", &[&place.to_string()]);
        Mover {
            victim,
            file,
            place,
        }
    }

    fn counted(&self) -> (Session, u32) {
        let session = Session::with_rings(RING_BYTES);
        let probe = Probe {
            sink: abi::SINK_COUNT,
            ..probe_at(self.place, 0)
        };
        let id = session.attach(&self.file, probe).expect("a probe");
        (session, id)
    }
}

test! { full, code_that_is_moved_and_changed_is_counted_as_the_kernel_counts, module }
/// A page that is read from the file again has no breakpoint any more: the kernel does not
/// notice, so no probe sees some of the calls. The victim looks at the result of each.
fn code_that_is_moved_and_changed_is_counted_as_the_kernel_counts() {
    const CHANGES: u64 = 800;
    let _module = Module::load();
    let mut mover = Mover::new();
    let (session, id) = mover.counted();
    let witness = Witness::new(&mover.file, mover.place);
    let called = mover.victim.order(&format!("{CHANGES} change"));
    let hits = session.counters(id).hits;
    println!("{called} calls, {hits} hits");
    assert_eq!(hits, witness.hits());
    assert!(called >= CHANGES && hits > called / 4 && hits <= called);
    // A probe that comes and goes while others stay, and one in what is as it is now.
    let (other, other_id) = mover.counted();
    let before = hits;
    mover.victim.order(&format!("{CHANGES} change"));
    let (hits, others) = (session.counters(id).hits, other.counters(other_id).hits);
    assert_eq!((hits, hits - before), (witness.hits(), others));
    drop((session, other, witness));
    // Nothing is left in any of them.
    mover.victim.order("100 call");
    mover.victim.order("400 change");
}

/// The kernel merges pages of the same content, until this is dropped.
pub(super) struct Merging {
    run: Setting,
    _settings: [Setting; 2],
}

impl Merging {
    pub(super) fn on() -> Merging {
        let set = |name: &str, value| Setting::new(&format!("/sys/kernel/mm/ksm/{name}"), value);
        Merging {
            _settings: [("sleep_millisecs", "1"), ("pages_to_scan", "1000")]
                .map(|(name, value)| set(name, value)),
            run: set("run", "1"),
        }
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        // First of all they are taken apart.
        self.run.put("2");
    }
}

test! { full, pages_with_breakpoints_are_merged_and_taken_apart, module }
/// All copies have the same breakpoint, so they become one page.
fn pages_with_breakpoints_are_merged_and_taken_apart() {
    let _module = Module::load();
    let mut mover = Mover::new();
    let (session, id) = mover.counted();
    let witness = Witness::new(&mover.file, mover.place);
    let merging = Merging::on();
    mover.victim.order("0 merge");
    let merged = format!("/proc/{}/ksm_merging_pages", mover.victim.pid());
    let is_merged = || {
        let pages = fs::read_to_string(&merged).expect("it lives");
        pages.trim().parse::<u64>().expect("a number") >= COPIES
    };
    assert!(within(SOON, is_merged), "none is merged");
    assert_eq!(mover.victim.order("50 call"), 50 * COPIES);
    let hits = session.counters(id).hits;
    assert_eq!((hits, witness.hits()), (50 * COPIES, 50 * COPIES));
    drop(witness);
    // Those of another kind in merged pages.
    let (other, other_id) = mover.counted();
    drop(session);
    mover.victim.order("50 call");
    assert_eq!(other.counters(other_id).hits, 50 * COPIES);
    drop(other);
    mover.victim.order("50 call");
    drop(merging);
}

/// A file of 2 MB in memory that the kernel has in one huge page; gone with the value.
struct HugeFile(PathBuf);

impl HugeFile {
    /// `push %rbp; lea 1(%rdi), %rax; pop %rbp; ret`, in the midst of it.
    const CODE: [u8; 7] = [0x55, 0x48, 0x8d, 0x47, 0x01, 0x5d, 0xc3];
    const OFFSET: u64 = (1 << 20) + 0x123;

    fn new() -> HugeFile {
        let folder = PathBuf::from(format!("/var/tmp/huge-{}", std::process::id()));
        fs::create_dir(&folder).expect("/var/tmp is writable");
        let made = HugeFile(folder);
        let none: Option<&str> = None;
        let flags = MsFlags::empty();
        let huge = Some("huge=always,size=8m");
        mount(none, &made.0, Some("tmpfs"), flags, huge).expect("root");
        let mut bytes = vec![0x90; 2 << 20];
        bytes[Self::OFFSET as usize..][..Self::CODE.len()].copy_from_slice(&Self::CODE);
        fs::write(made.file(), bytes).expect("there is memory");
        made
    }

    fn file(&self) -> PathBuf {
        self.0.join("code")
    }
}

impl Drop for HugeFile {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
        let _ = fs::remove_dir(&self.0);
    }
}

/// Whether a process has the file as one huge page.
fn is_huge(pid: u32, file: &Path) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("it lives");
    let file = file.to_str().expect("a plain name");
    let mut lines = maps.lines().skip_while(|line| !line.ends_with(file));
    let huge = lines.find(|line| line.starts_with("ShmemPmdMapped:"));
    huge.is_some_and(|line| line.split_whitespace().nth(1) == Some("2048"))
}

test! { full, code_in_a_huge_page_is_probed_and_is_one_again, module }
/// A breakpoint takes it apart, and only its own page is another one then.
fn code_in_a_huge_page_is_probed_and_is_one_again() {
    const CALLS: u64 = 50;
    let _module = Module::load();
    let huge = HugeFile::new();
    let (file, place) = (huge.file(), HugeFile::OFFSET);
    let program = victim::path("huge_text");
    let mut command = Command::new(&program);
    command.arg(&file).arg(place.to_string());
    let mut victim = Victim::start_command(&mut command, &file);
    let probe = Probe {
        sink: abi::SINK_COUNT,
        ..probe_at(place, 0)
    };
    let mut calls = 0;
    for round in 0..3 {
        let collapsed = in_one_piece(|| {
            calls = victim.order("1 collapse");
            is_huge(victim.pid(), &file)
        });
        assert!(collapsed, "round {round}");
        let session = Session::with_rings(RING_BYTES);
        let id = session.attach(&file, probe).expect("a probe");
        let witness = Witness::new(&file, place);
        assert!(!is_huge(victim.pid(), &file), "it has no breakpoint");
        assert_eq!(victim.changed_places(0, 2 << 20), [place]);
        let before = calls;
        victim.order(&format!("{CALLS} call"));
        calls = victim.order(&format!("{CALLS} collapse"));
        let hits = session.counters(id).hits;
        assert_eq!((hits, witness.hits()), (calls - before, calls - before));
        drop((session, witness));
        assert_eq!(victim.changed_places(0, 2 << 20), [0; 0]);
    }
    victim.end();
}
