// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of functions that set the stack pointer, by their code.
//!
//! Those of Go's runtime are short, in assembly language, and run from their beginning to their end:
//! what is behind a `ret` or `jmp` is reached from code in front of it.

use crate::rule::bare;
use iced_x86::{Code as Opcode, Decoder, DecoderOptions, Instruction, OpKind, Register};
use nsprobe_common::unwind::{Base, Rule, Saved};

/// The instructions of a function.
#[derive(Clone, Debug)]
pub(super) struct Code(Vec<Instruction>);

/// A rule, and the addresses that it holds for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) rule: Rule,
}

/// Where the frame of the function is, in front of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// The return address is this number of bytes above the stack pointer; `rbp` is saved so far from
    /// the frame's address.
    Above(i32, Option<i32>),
    /// The function's `rbp` leads to it.
    ByRbp,
    /// On another stack.
    Away,
    /// Not known.
    Unknown,
}

/// What a step needs besides the frame.
struct Walk {
    /// Whether the function has a frame with `rbp`.
    has_frame: bool,
    /// Whether it goes on on another stack somewhere.
    switches: bool,
    /// The rule on another stack; by `rbp` where there is none.
    away: Option<Rule>,
    forks: bool,
}

impl Code {
    /// Decodes the code of a function up to what is no instruction.
    pub(super) fn of(data: &[u8], address: u64) -> Code {
        let decoder = Decoder::with_ip(64, data, address, DecoderOptions::NONE);
        let is_valid = |instruction: &Instruction| !instruction.is_invalid();
        Code(decoder.into_iter().take_while(is_valid).collect())
    }

    pub(super) fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// The rows of the function: `away` is the rule where it runs on another stack. One that
    /// `forks` returns from its first system call in two threads.
    pub(super) fn rows(&self, away: Option<Rule>, forks: bool) -> Vec<Row> {
        let mut walk = Walk {
            has_frame: false,
            switches: self.0.iter().any(sets_stack),
            away,
            forks,
        };
        let mut frame = Frame::Above(0, None);
        let mut rows = Vec::new();
        for (number, instruction) in self.0.iter().enumerate() {
            rows.push(Row {
                from: instruction.ip(),
                to: instruction.next_ip(),
                rule: walk.rule(frame),
            });
            let behind = self.0.get(number + 1..).unwrap_or_default();
            frame = walk.after(frame, instruction, behind);
        }
        rows
    }
}

impl Walk {
    fn rule(&self, frame: Frame) -> Rule {
        let saved = |base, offset, at: Option<i32>| Rule {
            offset,
            saved: at.map_or(Saved::Same, |_| Saved::AtFrame) as u8,
            saved_at: at.unwrap_or(0),
            ..bare(base)
        };
        match frame {
            Frame::Above(depth, at) => saved(Base::Rsp, depth.saturating_add(8), at),
            Frame::ByRbp => saved(Base::OtherStack, 16, Some(-16)),
            Frame::Away => self.away.unwrap_or(bare(Base::Unsupported)),
            Frame::Unknown => bare(Base::Unsupported),
        }
    }

    fn after(&mut self, frame: Frame, instruction: &Instruction, behind: &[Instruction]) -> Frame {
        if is_end(instruction) {
            return match frame {
                Frame::Unknown => Frame::Unknown,
                _ if self.has_frame => Frame::ByRbp,
                _ => Frame::Above(0, None),
            };
        }
        if self.forks && instruction.code() == Opcode::Syscall {
            return Frame::Unknown;
        }
        match frame {
            Frame::Above(depth, saved) => self.above(depth, saved, instruction, behind),
            Frame::ByRbp if restores_rbp(instruction) && !behind_pops_rbp(behind) => {
                leaving(behind)
            }
            Frame::ByRbp if self.away.is_some() && sets_stack(instruction) => Frame::Away,
            Frame::ByRbp if writes_rbp(instruction) && !loads_rbp(instruction) => Frame::Unknown,
            Frame::Away if sets_stack(instruction) && is_move(instruction) => {
                match self.has_frame {
                    true => Frame::ByRbp,
                    false => leaving(behind),
                }
            }
            other => other,
        }
    }

    fn above(
        &mut self,
        depth: i32,
        saved: Option<i32>,
        instruction: &Instruction,
        behind: &[Instruction],
    ) -> Frame {
        let is_saved_below = saved == Some(-16);
        let made = match frame_register(instruction) {
            // In older ones `rbp` is set before or after it is saved, at the frame's top.
            Some(offset) => offset == depth - 8 && is_saved_below,
            None => false,
        };
        if made && self.switches {
            self.has_frame = true;
            return Frame::ByRbp;
        }
        if sets_stack(instruction) {
            return Frame::Away;
        }
        let leads = frame_register(instruction).is_some() && saved.is_some();
        if writes_rbp(instruction) && !restores_rbp(instruction) && !leads {
            return Frame::Unknown;
        }
        let Some(deeper) = deeper(instruction).and_then(|bytes| depth.checked_add(bytes)) else {
            return Frame::Unknown;
        };
        let saved = match saves_rbp(instruction) {
            // What is saved later is the function's own.
            Some(_) if saved.is_some() => saved,
            Some(offset) => offset.checked_sub(deeper).and_then(|at| at.checked_sub(8)),
            None if restores_rbp(instruction) && !behind_pops_rbp(behind) => None,
            None => saved,
        };
        match deeper {
            0.. => Frame::Above(deeper, saved),
            _ => Frame::Unknown,
        }
    }
}

/// The frame where `rbp` is the caller's again, and only the end of the function follows.
fn leaving(behind: &[Instruction]) -> Frame {
    let mut depth = 0i32;
    for instruction in behind {
        if is_end(instruction) {
            return Frame::Above(depth, None);
        }
        let popped = deeper(instruction).filter(|_| !sets_stack(instruction));
        match popped.and_then(|bytes| depth.checked_sub(bytes)) {
            Some(more) => depth = more,
            None => return Frame::Unknown,
        }
    }
    Frame::Unknown
}

fn is_end(instruction: &Instruction) -> bool {
    matches!(
        instruction.code(),
        Opcode::Retnq | Opcode::Int3 | Opcode::Ud2
    ) || instruction.is_jmp_short_or_near()
        || instruction.is_jmp_near_indirect()
}

fn behind_pops_rbp(behind: &[Instruction]) -> bool {
    let mut block = behind.iter().take_while(|instruction| !is_end(instruction));
    block.any(|instruction| instruction.code() == Opcode::Pop_r64 && writes_rbp(instruction))
}

/// How much deeper the stack is after an instruction; `None` where that is not known.
fn deeper(instruction: &Instruction) -> Option<i32> {
    if instruction.op_count() == 2 && instruction.op0_register() == Register::RSP {
        let constant = || instruction.immediate(1) as i32;
        return match instruction.code() {
            Opcode::Sub_rm64_imm8 | Opcode::Sub_rm64_imm32 => Some(constant()),
            Opcode::Add_rm64_imm8 | Opcode::Add_rm64_imm32 => constant().checked_neg(),
            Opcode::Lea_r64_m if is_based(instruction, Register::RSP) => {
                (instruction.memory_displacement64() as i32).checked_neg()
            }
            Opcode::Cmp_rm64_imm8 | Opcode::Cmp_rm64_r64 | Opcode::Cmp_r64_rm64 => Some(0),
            _ => None,
        };
    }
    match instruction.is_call_near() || instruction.is_call_near_indirect() {
        true => Some(0),
        false => instruction.stack_pointer_increment().checked_neg(),
    }
}

/// Whether an instruction sets the stack pointer to what is not counted from it.
fn sets_stack(instruction: &Instruction) -> bool {
    instruction.op_count() == 2
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::RSP
        && deeper(instruction).is_none()
}

fn is_move(instruction: &Instruction) -> bool {
    matches!(
        instruction.code(),
        Opcode::Mov_r64_rm64 | Opcode::Mov_rm64_r64
    )
}

fn is_based(instruction: &Instruction, register: Register) -> bool {
    instruction.memory_base() == register && instruction.memory_index() == Register::None
}

fn is_rbp(instruction: &Instruction, operand: u32) -> bool {
    instruction.op_count() > operand
        && instruction.op_kind(operand) == OpKind::Register
        && instruction.op_register(operand).full_register() == Register::RBP
}

/// Whether an instruction's first operand is `rbp`, and not only read.
fn writes_rbp(instruction: &Instruction) -> bool {
    let only_reads = matches!(
        instruction.code(),
        Opcode::Push_r64 | Opcode::Cmp_r64_rm64 | Opcode::Cmp_rm64_r64
    );
    is_rbp(instruction, 0) && !only_reads
}

/// Whether an instruction loads `rbp` from memory: what its function has saved before.
fn loads_rbp(instruction: &Instruction) -> bool {
    is_move(instruction) && is_rbp(instruction, 0) && instruction.op1_kind() == OpKind::Memory
}

/// Whether an instruction takes `rbp` from the stack.
fn restores_rbp(instruction: &Instruction) -> bool {
    let pops = instruction.code() == Opcode::Pop_r64 && is_rbp(instruction, 0);
    pops || loads_rbp(instruction) && is_based(instruction, Register::RSP)
}

/// Where an instruction saves `rbp`, from the stack pointer after it.
fn saves_rbp(instruction: &Instruction) -> Option<i32> {
    if instruction.code() == Opcode::Push_r64 && is_rbp(instruction, 0) {
        return Some(0);
    }
    let stores = instruction.code() == Opcode::Mov_rm64_r64
        && is_rbp(instruction, 1)
        && instruction.op0_kind() == OpKind::Memory
        && is_based(instruction, Register::RSP);
    stores.then_some(instruction.memory_displacement64() as i32)
}

/// What `rbp` is set to, from the stack pointer.
fn frame_register(instruction: &Instruction) -> Option<i32> {
    if !is_rbp(instruction, 0) {
        return None;
    }
    if is_move(instruction) && instruction.op1_kind() == OpKind::Register {
        return (instruction.op1_register() == Register::RSP).then_some(0);
    }
    let is_address = instruction.code() == Opcode::Lea_r64_m;
    (is_address && is_based(instruction, Register::RSP))
        .then_some(instruction.memory_displacement64() as i32)
}
