// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel that refuses what a locked down one refuses, for a while: the real lockdown lasts
//! until the next boot. A BPF program answers in its place, at the same hook.

use crate::sys;
use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

/// The kernel's own types.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The hook, as the kernel's types call it.
const HOOK: &CStr = c"bpf_lsm_locked_down";

// Numbers of include/uapi/linux/bpf.h.
const PROG_LOAD: i32 = 5;
const RAW_TRACEPOINT_OPEN: i32 = 17;
const PROG_TYPE_LSM: u64 = 29;
const ATTACH_LSM_MAC: u64 = 27;
/// `r0 = -EPERM; exit`.
const REFUSE: [u64; 2] = [0xffff_ffff_0000_00b7, 0x95];

/// Locked down as long as the value lives.
pub(crate) struct Lockdown {
    _link: OwnedFd,
}

impl Lockdown {
    /// From now on it is.
    pub(crate) fn begin() -> Lockdown {
        let mut load = [0u64; 15];
        load[0] = PROG_TYPE_LSM | (REFUSE.len() as u64) << 32;
        load[1] = REFUSE.as_ptr() as u64;
        load[2] = c"GPL".as_ptr() as u64;
        load[8] = ATTACH_LSM_MAC << 32;
        load[13] = u64::from(type_of_function(HOOK)) << 32;
        let program = sys::bpf_make(PROG_LOAD, &load).expect("the kernel has the hook");
        let open = [0, program.as_raw_fd() as u64];
        let link = sys::bpf_make(RAW_TRACEPOINT_OPEN, &open).expect("BPF is one of its LSMs");
        Lockdown { _link: link }
    }
}

/// The number of a function's type among the kernel's own (BTF,
/// `include/uapi/linux/btf.h`).
fn type_of_function(name: &CStr) -> u32 {
    const FUNCTION: u32 = 12;
    let bytes = fs::read(TYPES).expect("it can be");
    let word = |at: usize| {
        let word = bytes[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(word)
    };
    // The header: magic and version, its length, where the types are and how many bytes, where
    // the strings are.
    let header = word(4) as usize;
    let (types, type_bytes) = (header + word(8) as usize, word(12) as usize);
    let strings = header + word(16) as usize;
    let (mut at, mut number) = (types, 1);
    while at < types + type_bytes {
        let (kind, count) = (word(at + 4) >> 24 & 0x1f, word(at + 4) as usize & 0xffff);
        let called = &bytes[strings + word(at) as usize..];
        if kind == FUNCTION && called.starts_with(name.to_bytes_with_nul()) {
            return number;
        }
        at += 12 + bytes_behind(kind, count);
        number += 1;
    }
    panic!("the kernel has no {name:?}");
}

/// Bytes that follow a type of that kind, by the number of its members.
fn bytes_behind(kind: u32, count: usize) -> usize {
    match kind {
        // Integer, variable, tag.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Struct, union, section, enumeration of 64 bits.
        4 | 5 | 15 | 19 => 12 * count,
        // Enumeration, parameters.
        6 | 13 => 8 * count,
        _ => 0,
    }
}
