// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where in a function a breakpoint is cheapest and means the same, and where a
//! function is left.
//!
//! What a hit costs depends on the instruction under the breakpoint
//! (`arch/x86/kernel/uprobes.c`): a ten-byte nop becomes a call, pushes, nops and
//! relative branches are emulated, and everything else is run out of line with a
//! second trap, which costs several times as much. Functions of distributions begin
//! with `endbr64`, which is one of the last. So a probe of a function goes to the
//! first cheap instruction that is passed exactly once for each entry, and before
//! which nothing has changed that the probe looks at.
//!
//! The kernel does not adapt its call when a program moves the code by `mremap`: the program dies.
//! So a ten-byte nop is probed only where the user insists, and passed over elsewhere.

mod exits;
mod flow;
mod go;

pub use exits::{
    exits, Behind, Condition, Exits, FileCode, Left, Target, Unclear, When, JUMPS_MAX,
};
pub use go::{behind_stack_check, keeps_goroutine};

use flow::Flow;
use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, Register, RflagsBits,
};
use std::collections::BTreeMap;

/// Most instructions in front of the place.
const SKIPPED_MAX: usize = 16;
/// Longest function that is looked through, in bytes.
const FUNCTION_BYTES_MAX: usize = 1 << 20;
/// Bytes of the longest instruction.
const INSTRUCTION_BYTES_MAX: usize = 15;

/// What a hit costs beyond its handler, the cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// The ten-byte nop that the kernel turns into a call.
    Call,
    /// One trap: the kernel does what the instruction does.
    Emulated,
    /// Two traps: the instruction is run out of line.
    Stepped,
}

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCode<'a> {
    /// Its address, by whatever count.
    pub address: u64,
    /// All of its code.
    pub bytes: &'a [u8],
    /// Parts that the compiler moved elsewhere: address and code.
    pub elsewhere: &'a [(u64, &'a [u8])],
}

/// What a probe looks at besides the registers that carry arguments, the stack and
/// its pointers, and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The register %rax.
    pub rax: bool,
    /// The registers %r10 and %r11.
    pub r10_r11: bool,
    /// The flags.
    pub flags: bool,
    /// The instruction pointer.
    pub rip: bool,
}

/// A place for a breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Bytes from the function's beginning.
    pub offset: usize,
    /// What a hit costs there.
    pub cost: Cost,
}

/// What is at an offset of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// An instruction begins there.
    Instruction,
    /// It is inside of the instruction that begins at this offset.
    Inside(usize),
    /// The code in front of it cannot be decoded.
    Unknown,
}

/// What a breakpoint on the first instruction of `bytes` costs; `None` when there is
/// none that the kernel takes. The address need be right only within its page.
pub fn cost(bytes: &[u8], address: u64) -> Option<Cost> {
    let bytes = bytes.get(..INSTRUCTION_BYTES_MAX.min(bytes.len()))?;
    let instruction = decode(bytes, address)?;
    cost_of(&instruction, bytes)
}

/// Bytes of a function in front of its first instruction that is no ten-byte nop which is passed
/// once for each entry.
pub fn behind_nop(function: &FunctionCode<'_>) -> usize {
    let length = match cost(function.bytes, function.address) {
        Some(Cost::Call) => 10,
        _ => return 0,
    };
    match Flow::of(function).is_some_and(|flow| flow.is_straight_to(length)) {
        true => length,
        false => 0,
    }
}

/// Where the breakpoint of a probe of a function's entry goes; on a ten-byte nop with `fast_nops`
/// alone, or where no other place will do.
pub fn place(function: &FunctionCode<'_>, needs: Needs, fast_nops: bool) -> Option<Placement> {
    let first = Placement {
        offset: 0,
        cost: cost(function.bytes, function.address)?,
    };
    let is_large = function.bytes.len() > FUNCTION_BYTES_MAX;
    if is_cheap(first.cost, fast_nops) || needs.rip || is_large {
        return Some(first);
    }
    let behind = || {
        let offset = Some(behind_nop(function)).filter(|offset| *offset != 0)?;
        let cost = cost(function.bytes.get(offset..)?, function.address)?;
        Some(Placement { offset, cost })
    };
    let found = cheaper(function, needs, fast_nops);
    let passed_once = |placement: &Placement| {
        Flow::of(function).is_some_and(|flow| flow.is_straight_to(placement.offset))
    };
    Some(found.filter(passed_once).or_else(behind).unwrap_or(first))
}

fn is_cheap(cost: Cost, fast_nops: bool) -> bool {
    match cost {
        Cost::Call => fast_nops,
        Cost::Emulated => true,
        Cost::Stepped => false,
    }
}

/// The first cheap instruction after harmless ones.
fn cheaper(function: &FunctionCode<'_>, needs: Needs, fast_nops: bool) -> Option<Placement> {
    let mut info = InstructionInfoFactory::new();
    let mut offset = 0;
    for _ in 0..SKIPPED_MAX {
        let rest = function.bytes.get(offset..)?;
        let instruction = decode(rest, function.address.wrapping_add(offset as u64))?;
        let cost = cost_of(&instruction, rest)?;
        if is_cheap(cost, fast_nops) {
            return Some(Placement { offset, cost });
        }
        if !is_harmless(&instruction, needs, &mut info) {
            return None;
        }
        offset += instruction.len();
    }
    None
}

/// Whether an instruction at an offset of a function is one.
pub fn boundary(function: &FunctionCode<'_>, offset: usize) -> Boundary {
    let Some(before) = function.bytes.get(..offset) else {
        return Boundary::Unknown;
    };
    let mut at = 0;
    while at < before.len() {
        let rest = function.bytes.get(at..).unwrap_or(&[]);
        let Some(instruction) = decode(rest, function.address.wrapping_add(at as u64)) else {
            return Boundary::Unknown;
        };
        let next = at + instruction.len();
        if next > offset {
            return Boundary::Inside(at);
        }
        at = next;
    }
    match decode(function.bytes.get(offset..).unwrap_or(&[]), 0) {
        Some(_) => Boundary::Instruction,
        None => Boundary::Unknown,
    }
}

/// Of addresses where code of one source line begins, those at which the line is come to: not
/// where it goes on by a branch from the line itself, nor, where code `is_mixed` with that of
/// other lines, after another of them in straight code.
pub fn beginnings(
    function: &FunctionCode<'_>,
    at: &[u64],
    is_of_line: impl Fn(u64) -> bool,
    is_mixed: bool,
) -> Vec<u64> {
    let mut known: Vec<u64> = at.to_vec();
    let whole = (function.address, function.bytes);
    let pieces = || std::iter::once(&whole).chain(function.elsewhere);
    let mut branches: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (from, to) in pieces().flat_map(|(at, code)| self::branches(*at, code)) {
        branches.entry(to).or_default().push(from);
    }
    let mut straight = Vec::new();
    for (address, bytes) in pieces().filter(|(_, bytes)| bytes.len() <= FUNCTION_BYTES_MAX) {
        // The last of them, from which straight code continues to here.
        let mut last = None;
        // Whether the instruction before comes to this one, and is of another line.
        let mut comes_from_other = true;
        let mut offset = 0;
        while let Some(instruction) = bytes
            .get(offset..)
            .and_then(|rest| decode(rest, address.wrapping_add(offset as u64)))
        {
            let here = instruction.ip();
            let to_here = branches.get(&here);
            if to_here.is_some() {
                last = None;
            }
            if known.contains(&here) {
                let from_line =
                    to_here.is_some_and(|branches| branches.iter().all(|from| is_of_line(*from)));
                if last.is_some() && is_mixed || from_line && !comes_from_other {
                    straight.push(here);
                }
                last = last.or(Some(here));
            }
            let flow = instruction.flow_control();
            if !matches!(
                flow,
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall
            ) {
                last = None;
            }
            let ends = matches!(
                flow,
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
                    | FlowControl::Exception
            );
            comes_from_other = !ends && !is_of_line(here);
            offset += instruction.len();
        }
    }
    known.retain(|address| !straight.contains(address));
    known
}

/// The branches of code that say where they go: from, and to.
fn branches(address: u64, bytes: &[u8]) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut offset = 0;
    while let Some(instruction) = bytes
        .get(offset..)
        .filter(|_| offset <= FUNCTION_BYTES_MAX)
        .and_then(|rest| decode(rest, address.wrapping_add(offset as u64)))
    {
        if !instruction.is_call_near() {
            found.extend(flow::target(&instruction).map(|to| (instruction.ip(), to)));
        }
        offset += instruction.len();
    }
    found
}

/// How far past the function's beginning a plain `ret` of it is: the last one.
pub fn ret(function: &FunctionCode<'_>) -> Option<usize> {
    let mut found = None;
    let mut at = 0;
    while let Some(rest) = function.bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let instruction = decode(rest, function.address.wrapping_add(at as u64))?;
        if rest.starts_with(&[0xc3]) {
            found = Some(at);
        }
        at += instruction.len();
    }
    found
}

fn decode(bytes: &[u8], address: u64) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// `66 2e 0f 1f 84 00 00 00 00 00` (`is_optimizable_nop10`).
const NOP10: [u8; 10] = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

const PAGE_BYTES: u64 = 4096;

fn cost_of(instruction: &Instruction, bytes: &[u8]) -> Option<Cost> {
    // It is written at once, which must not reach into the next page.
    let is_in_page = instruction.ip() % PAGE_BYTES <= PAGE_BYTES - NOP10.len() as u64;
    if bytes.starts_with(&NOP10) && is_in_page {
        return Some(Cost::Call);
    }
    if has_bad_prefix(instruction) || is_system_call(instruction) {
        return None;
    }
    let own = bytes.get(..instruction.len()).unwrap_or(&[]);
    Some(match own {
        // `push_setup_xol_ops`: a register, without a prefix or with REX.B alone.
        [0x50..=0x57] | [0x41, 0x50..=0x57] => Cost::Emulated,
        // `insn_is_nop` and `branch_setup_xol_ops`; not with an operand-size prefix.
        [0x66, ..] if is_relative_branch(instruction) => Cost::Stepped,
        _ if is_relative_branch(instruction) || is_nop(instruction) => Cost::Emulated,
        _ => Cost::Stepped,
    })
}

/// What the kernel takes, and steps over wrongly: the module refuses it
/// (`nsprobe_common::instruction`).
fn is_system_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Syscall | Mnemonic::Sysenter
    )
}

/// What `is_prefix_bad` refuses.
fn has_bad_prefix(instruction: &Instruction) -> bool {
    let segments = [Register::ES, Register::CS, Register::DS, Register::SS];
    instruction.has_lock_prefix() || segments.contains(&instruction.segment_prefix())
}

fn is_relative_branch(instruction: &Instruction) -> bool {
    instruction.is_jcc_short_or_near()
        || instruction.is_jmp_short_or_near()
        || instruction.is_call_near()
}

/// `endbr64` is a nop to old processors, but not to the kernel's `insn_is_nop`.
fn is_nop(instruction: &Instruction) -> bool {
    matches!(
        instruction.code(),
        Opcode::Nopd | Opcode::Nopw | Opcode::Nop_rm16 | Opcode::Nop_rm32 | Opcode::Nop_rm64
    )
}

/// Whether nothing of what a probe looks at is different after the instruction, and
/// a thread that runs it comes to the next.
fn is_harmless(
    instruction: &Instruction,
    needs: Needs,
    factory: &mut InstructionInfoFactory,
) -> bool {
    if instruction.code() == Opcode::Endbr64 {
        return true;
    }
    if instruction.flow_control() != FlowControl::Next || instruction.is_privileged() {
        return false;
    }
    let flags = instruction.rflags_modified();
    // The direction flag and the like are never scratch.
    let arithmetic = RflagsBits::OF
        | RflagsBits::SF
        | RflagsBits::ZF
        | RflagsBits::AF
        | RflagsBits::CF
        | RflagsBits::PF;
    if flags & !arithmetic != 0 || flags != 0 && needs.flags {
        return false;
    }
    let info = factory.info(instruction);
    // An access to memory may end the process, or change what the probe reads; the
    // address that `lea` computes is none.
    if !info
        .used_memory()
        .iter()
        .all(|used| used.access() == OpAccess::NoMemAccess)
    {
        return false;
    }
    info.used_registers().iter().all(|used| {
        let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
        !writes || is_scratch(used.register(), needs)
    })
}

/// Whether the register holds nothing of its caller's at the beginning of a function
/// (System V psABI for x86-64, figure 3.4), nothing that is fetched.
fn is_scratch(register: Register, needs: Needs) -> bool {
    match register.full_register() {
        Register::RAX => !needs.rax,
        Register::R10 | Register::R11 => !needs.r10_r11,
        full => full.is_vector_register(),
    }
}

#[cfg(test)]
mod tests;
