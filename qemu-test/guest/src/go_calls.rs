// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which calls the code of a Go program has: no caller in its stacks may be another's.
//!
//! The code says it: a return address follows a call, the call leads to the next frame's function,
//! directly, by jumps or by a pointer, and what `systemstack` runs is named where it is called.

use crate::binary::{self, Function};
use object::{Object, ObjectSegment};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// `jmp` after `jmp` from what is called to what runs.
const JUMPS: usize = 3;
/// What begins a stack: a goroutine, a thread, the scheduler, the program.
const ROOTS: [&str; 6] = [
    "runtime.goexit",
    "runtime.mstart",
    "runtime.mcall",
    "runtime.rt0_go",
    "_rt0_amd64",
    "_rt0_amd64_linux",
];
/// What signal handlers return to, and make run in the code that they interrupt.
const AFTER_SIGNALS: [&str; 4] = [
    "runtime.sigreturn__sigaction",
    "runtime.asyncPreempt",
    "runtime.sigpanic",
    "runtime.sigpanic0",
];
const RESTORER: &str = AFTER_SIGNALS[0];
const HANDLER: &str = "runtime.sigtramp";

/// A frame of a stack: an offset in the file, which is a return address unless the instruction
/// there was interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoFrame {
    pub(crate) offset: u64,
    pub(crate) is_exact: bool,
}

/// The functions of a program, and its code.
pub(crate) struct GoCalls {
    bytes: Vec<u8>,
    /// By offset.
    functions: Vec<Function>,
    /// Address, offset and length of each part that is loaded.
    segments: Vec<(u64, u64, u64)>,
}

/// A name as Go's own tables have it.
fn plain(function: &Function) -> &str {
    let name = function.name.as_str();
    name.strip_suffix(".abi0").unwrap_or(name)
}

impl GoCalls {
    /// Reads a program that has its symbols.
    pub(crate) fn of(file: &Path) -> GoCalls {
        let bytes = fs::read(file).expect("it is there");
        let elf = object::File::parse(&*bytes).expect("an ELF file");
        let segments = elf.segments().map(|segment| {
            let (offset, length) = segment.file_range();
            (segment.address(), offset, length)
        });
        let segments = segments.collect();
        let mut functions = binary::functions(file);
        functions.sort_by_key(|function| function.offset);
        GoCalls {
            bytes,
            functions,
            segments,
        }
    }

    /// What is wrong with a stack, the innermost frame first, with none for those in other files;
    /// `is_whole` if it has its root.
    pub(crate) fn wrong(&self, frames: &[Option<GoFrame>], is_whole: bool) -> Option<String> {
        for (number, pair) in frames.windows(2).enumerate() {
            let [Some(callee), Some(caller)] = pair else {
                continue;
            };
            let callee = self.of_frame(callee);
            let next = frames.get(number + 2).copied().flatten();
            if !self.has_called(callee, caller, next.as_ref()) {
                let caller = self.of_frame(caller);
                return Some(format!("{} does not call {}", caller.name, callee.name));
            }
        }
        let root = self.of_frame(frames.last()?.as_ref()?);
        // The scheduler leaves a goroutine that was to grow its stack, too.
        let is_scheduler = || {
            let frames = frames.iter().flatten();
            let mut names = frames.map(|frame| plain(self.of_frame(frame)));
            names.any(|name| matches!(name, "runtime.goschedImpl" | "runtime.preemptPark"))
        };
        let is_root = match plain(root) {
            "runtime.morestack" => is_scheduler(),
            name => ROOTS.contains(&name),
        };
        (is_whole && !is_root).then(|| format!("{} is no root", root.name))
    }

    fn holding(&self, offset: u64) -> &Function {
        let behind = self.functions.partition_point(|one| one.offset <= offset);
        &self.functions[behind.checked_sub(1).expect("it is code")]
    }

    fn of_frame(&self, frame: &GoFrame) -> &Function {
        let here = self.holding(frame.offset);
        let begins = frame.offset == here.offset || plain(here) == ROOTS[0];
        match frame.is_exact || begins && plain(here) == RESTORER {
            true => here,
            false => self.holding(frame.offset - 1),
        }
    }

    fn has_called(&self, callee: &Function, caller: &GoFrame, next: Option<&GoFrame>) -> bool {
        let offset = caller.offset;
        let function = self.of_frame(caller);
        if caller.is_exact {
            return AFTER_SIGNALS.contains(&plain(callee));
        }
        if plain(function) == RESTORER {
            return plain(callee) == HANDLER;
        }
        if plain(function) == ROOTS[0] && offset == function.offset + 1 {
            return next.is_none();
        }
        if let Some(called) = self.direct(offset) {
            return self.leads_to(self.holding(called), callee, JUMPS);
        }
        if !self.is_indirect(offset) {
            return false;
        }
        let runs = || next.is_none_or(|next| self.names(self.of_frame(next), callee));
        plain(function) != "runtime.systemstack" || runs()
    }

    /// What a direct call in front of an offset calls.
    fn direct(&self, behind: u64) -> Option<u64> {
        let at = behind as usize;
        let [0xe8, distance @ ..] = self.bytes[at - 5..at].first_chunk::<5>()? else {
            return None;
        };
        let called = behind.wrapping_add(i32::from_le_bytes(*distance) as u64);
        let is_function = self.functions.iter().any(|one| one.offset == called);
        let is_inside = matches!(
            plain(self.holding(called)),
            "runtime.duffzero" | "runtime.duffcopy"
        );
        (is_function || is_inside).then_some(called)
    }

    fn is_indirect(&self, behind: u64) -> bool {
        let at = behind as usize;
        (2..8).any(|bytes| {
            self.bytes[at - bytes] == 0xff && register_field(self.bytes[at - bytes + 1]) == 2
        })
    }

    fn code(&self, function: &Function) -> &[u8] {
        &self.bytes[function.offset as usize..][..function.bytes as usize]
    }

    /// Whether a function is another, or jumps to it.
    fn leads_to(&self, from: &Function, to: &Function, jumps: usize) -> bool {
        if plain(from) == plain(to) {
            return true;
        }
        let code = self.code(from);
        let mut pairs = code.windows(2);
        if jumps == 0 || pairs.any(|pair| pair[0] == 0xff && register_field(pair[1]) == 4) {
            return jumps != 0;
        }
        let jumped = code.windows(5).enumerate().filter_map(|(at, bytes)| {
            let [0xe9, distance @ ..] = bytes.first_chunk::<5>()? else {
                return None;
            };
            let behind = from.offset + at as u64 + 5;
            Some(behind.wrapping_add(i32::from_le_bytes(*distance) as u64))
        });
        let begins = |at: &u64| self.functions.iter().any(|one| one.offset == *at);
        let targets: BTreeSet<u64> = jumped.filter(begins).collect();
        let mut targets = targets.iter().map(|at| self.holding(*at));
        targets.any(|target| target.offset != from.offset && self.leads_to(target, to, jumps - 1))
    }

    /// Whether the code of a function takes the address of another one, or of a word that holds it.
    fn names(&self, function: &Function, other: &Function) -> bool {
        let wanted = self.address(other.offset);
        let code = self.code(function).windows(7).enumerate();
        let mut taken = code.filter_map(|(at, bytes)| {
            // lea 0x…(%rip),%r…
            let is_lea = bytes[0] & 0xf8 == 0x48 && bytes[1] == 0x8d && bytes[2] & 0xc7 == 5;
            let distance = i32::from_le_bytes(*bytes[3..].first_chunk()?);
            let behind = self.address(function.offset + at as u64 + 7);
            is_lea.then_some(behind.wrapping_add(distance as u64))
        });
        taken.any(|address| address == wanted || self.word(address) == Some(wanted))
    }

    fn address(&self, offset: u64) -> u64 {
        let holds = |(_, from, length): &&(u64, u64, u64)| (*from..from + length).contains(&offset);
        let (address, from, _) = self.segments.iter().find(holds).expect("it is loaded");
        address + (offset - from)
    }

    fn word(&self, at: u64) -> Option<u64> {
        let holds =
            |(address, _, length): &&(u64, u64, u64)| (*address..address + length).contains(&at);
        let (address, from, _) = self.segments.iter().find(holds)?;
        let bytes = self.bytes.get((from + (at - address)) as usize..)?;
        Some(u64::from_le_bytes(*bytes.first_chunk()?))
    }
}

/// The field of an instruction's second byte that distinguishes instructions of one group.
fn register_field(byte: u8) -> u8 {
    byte >> 3 & 7
}
