// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes of perf's own, as `perf stat` and libbpf make them, with a BPF program that counts.

use crate::sys;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

// Numbers of include/uapi/linux/bpf.h and perf_event.h.
const MAP_CREATE: i32 = 0;
const MAP_LOOKUP_ELEM: i32 = 1;
const PROG_LOAD: i32 = 5;
const MAP_TYPE_ARRAY: u64 = 2;
const PROG_TYPE_KPROBE: u64 = 2;
const SET_BPF: u64 = 0x4004_2408;

/// An event of this process that counts nothing, until it is dropped. With it the kernel's
/// switch for perf's events of processes stays on as those of tests come and go: it is in the
/// scheduler's own text, which a guest of several CPUs shall not patch (`init` says why).
pub(crate) fn stays_switched_on() -> OwnedFd {
    const SOFTWARE: u64 = 1;
    const DUMMY: u64 = 9;
    const DISABLED: u64 = 1;
    let mut attributes = [0; 9];
    attributes[0] = SOFTWARE | (size_of_val(&attributes) as u64) << 32;
    attributes[1] = DUMMY;
    attributes[5] = DISABLED;
    sys::perf_event(&attributes, std::process::id()).expect("root may")
}

/// One of a process at a place; gone with the value.
pub(crate) struct PerfEvent {
    event: File,
    counter: OwnedFd,
    _program: OwnedFd,
}

impl PerfEvent {
    /// Counts from now on.
    pub(crate) fn new(file: &Path, offset: u64, pid: u32) -> PerfEvent {
        const KIND: &str = "/sys/bus/event_source/devices/uprobe/type";
        let kind = fs::read_to_string(KIND).expect("the kernel has uprobes");
        let kind: u64 = kind.trim().parse().expect("a number");
        let path = CString::new(file.as_os_str().as_encoded_bytes()).expect("no NUL");
        let mut attributes = [0; 9];
        attributes[0] = kind | (size_of_val(&attributes) as u64) << 32;
        attributes[7] = path.as_ptr() as u64;
        attributes[8] = offset;
        let event = sys::perf_event(&attributes, pid).expect("root may");
        let counter = counter();
        let program = counting(&counter);
        let number = program.as_raw_fd() as u64;
        sys::ioctl_wild(&event, SET_BPF, number).expect("it is one of uprobes");
        PerfEvent {
            event: event.into(),
            counter,
            _program: program,
        }
    }

    /// Hits that perf has counted, and that its BPF program has.
    pub(crate) fn hits(&self) -> [u64; 2] {
        let mut count = [0; 8];
        let length = (&self.event).read(&mut count).expect("it counts");
        assert_eq!(length, count.len());
        let (key, value) = (0u32, AtomicU64::new(0));
        let place = [
            self.counter.as_raw_fd() as u64,
            &raw const key as u64,
            value.as_ptr() as u64,
        ];
        sys::bpf(MAP_LOOKUP_ELEM, &place).expect("it has one value");
        [u64::from_ne_bytes(count), value.load(Ordering::Relaxed)]
    }
}

/// An array of one number.
fn counter() -> OwnedFd {
    let (key_bytes, value_bytes, values) = (4, 8, 1);
    let shape = [MAP_TYPE_ARRAY | key_bytes << 32, value_bytes | values << 32];
    sys::bpf_make(MAP_CREATE, &shape).expect("there is memory")
}

/// Adds one to the number at each call.
fn counting(counter: &OwnedFd) -> OwnedFd {
    let program = [
        // r1 = the address of the first value of the map with this descriptor
        0x2118 | (counter.as_raw_fd() as u64) << 32,
        0,
        // r2 = 1; *r1 += r2, atomically
        0x1_0000_02b7,
        0x21db,
        // return 1: perf counts it, too
        0x1_0000_00b7,
        0x95,
    ];
    let load = [
        PROG_TYPE_KPROBE | (program.len() as u64) << 32,
        program.as_ptr() as u64,
        c"GPL".as_ptr() as u64,
    ];
    sys::bpf_make(PROG_LOAD, &load).expect("a sound program")
}
