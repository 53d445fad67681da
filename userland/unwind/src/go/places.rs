// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where Go's runtime keeps what a thread runs: its own code says so, in every version.

use super::code::Code;
use iced_x86::{Code as Opcode, Instruction, OpKind, Register};
use nsprobe_common::unwind::GoPlaces;

/// What is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Constant(i64),
    G,
    M,
    Goroutine,
}

/// What `systemstack` reads to go back to the goroutine's stack.
#[derive(Default)]
struct Reader {
    values: Vec<(Register, Value)>,
    g: Option<i32>,
    m: Option<u8>,
    curg: Option<i16>,
    sp: Option<u8>,
}

/// The places by the code of `systemstack` and `morestack`.
pub(super) fn places(system_stack: &Code, more_stack: &Code) -> Option<GoPlaces> {
    let all = system_stack.instructions();
    // The function that is to run is called by its address.
    let call = all.iter().position(Instruction::is_call_near_indirect)?;
    let mut reader = Reader::default();
    let mut behind = all.get(call + 1..)?.iter();
    while reader.sp.is_none() {
        reader.read(behind.next()?)?;
    }
    let mut popped = 8;
    loop {
        let instruction = behind.next()?;
        match instruction.code() {
            Opcode::Retnq => break,
            Opcode::Pop_r64 if popped == 8 => popped = 16,
            Opcode::Mov_r64_rm64 | Opcode::Mov_rm64_imm32 => {}
            _ => return None,
        }
    }
    let sp = reader.sp?;
    Some(GoPlaces {
        g: reader.g?,
        m: reader.m?,
        curg: reader.curg?,
        sp,
        bp: bp(more_stack, sp)?,
        popped,
    })
}

impl Reader {
    fn value(&self, register: Register) -> Option<Value> {
        let mut values = self.values.iter();
        let (_, value) = values.find(|(known, _)| *known == register.full_register())?;
        Some(*value)
    }

    /// Notes what an instruction does; `None` for one that is not expected here.
    fn read(&mut self, instruction: &Instruction) -> Option<()> {
        let to = instruction.op0_register().full_register();
        let value = match instruction.code() {
            // It sets the thread's `g`.
            Opcode::Mov_rm64_r64 if instruction.op0_kind() == OpKind::Memory => return Some(()),
            Opcode::Nopw | Opcode::Nopd => return Some(()),
            Opcode::Mov_rm64_imm32 | Opcode::Mov_r64_imm64 | Opcode::Mov_r32_imm32 => {
                Value::Constant(instruction.immediate(1) as i64)
            }
            Opcode::Mov_r64_rm64 if instruction.op1_kind() == OpKind::Memory => {
                self.load(instruction, to)?
            }
            _ => return None,
        };
        self.values.retain(|(known, _)| *known != to);
        self.values.push((to, value));
        Some(())
    }

    fn load(&mut self, instruction: &Instruction, to: Register) -> Option<Value> {
        let at = instruction.memory_displacement64() as i64;
        let base = instruction.memory_base();
        if instruction.memory_index() != Register::None {
            return None;
        }
        if instruction.segment_prefix() == Register::FS {
            let from = match (base, self.value(base)) {
                (Register::None, _) => 0,
                (_, Some(Value::Constant(from))) => from,
                _ => return None,
            };
            self.g = Some(i32::try_from(from.checked_add(at)?).ok()?);
            return Some(Value::G);
        }
        match (self.value(base)?, to) {
            (Value::G, _) => {
                self.m = Some(u8::try_from(at).ok()?);
                Some(Value::M)
            }
            (Value::M, _) => {
                self.curg = Some(i16::try_from(at).ok()?);
                Some(Value::Goroutine)
            }
            (Value::Goroutine, Register::RSP) => {
                self.sp = Some(u8::try_from(at).ok()?);
                Some(Value::Goroutine)
            }
            _ => None,
        }
    }
}

/// Where `morestack` saves `rbp`; none if it does not save the instruction pointer after the stack
/// pointer.
fn bp(more_stack: &Code, sp: u8) -> Option<u8> {
    let stores = || {
        let all = more_stack.instructions().iter();
        all.filter(|one| one.code() == Opcode::Mov_rm64_r64 && one.op0_kind() == OpKind::Memory)
    };
    let is_at = |at: u8| move |one: &Instruction| one.memory_displacement64() == u64::from(at);
    if !stores().any(|one| is_at(sp)(one))
        || !stores().any(|one| is_at(sp.checked_add(8).unwrap_or(0))(one))
    {
        return None;
    }
    let saved = stores().find(|one| one.op1_register() == Register::RBP)?;
    u8::try_from(saved.memory_displacement64()).ok()
}
