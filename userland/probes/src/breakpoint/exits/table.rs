// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of addresses that compilers jump by.
//!
//! Of the instructions in front of such a jump, those are looked at that nothing else goes
//! to. They have to say it all: where the table is, and how many entries it has.

use super::piece::CodePiece;
use iced_x86::{
    Code, ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register, RflagsBits,
};

/// How many instructions in front of the jump are looked at.
const BEFORE_MAX: usize = 16;
/// Most entries of a table.
const ENTRIES_MAX: u64 = 4096;

/// A table, as the instructions say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) address: u64,
    /// How many entries it has.
    pub(super) entries: usize,
    /// Whether its entries are addresses; else they are the distances of 32 bits from the
    /// table.
    pub(super) is_absolute: bool,
}

impl Table {
    pub(super) fn bytes(&self) -> usize {
        self.entries * self.entry_bytes()
    }

    fn entry_bytes(&self) -> usize {
        match self.is_absolute {
            true => 8,
            false => 4,
        }
    }

    /// Where the jump goes, each place once.
    pub(super) fn targets(&self, data: &[u8]) -> Vec<u64> {
        let target = |entry: &[u8]| match *entry {
            [a, b, c, d] => {
                let distance = i32::from_le_bytes([a, b, c, d]);
                self.address.wrapping_add_signed(distance.into())
            }
            _ => entry
                .iter()
                .rfold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        let mut targets: Vec<u64> = data.chunks(self.entry_bytes()).map(target).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }
}

/// Whether an instruction does its work and the next one comes, or a branch is taken.
fn is_straight(instruction: &Instruction) -> bool {
    let flow = instruction.flow_control();
    flow == FlowControl::Next || instruction.is_jcc_short_or_near()
}

/// The instructions in front of a jump, the nearest first.
pub(super) struct Before(Vec<Instruction>);

impl Before {
    /// Those that nothing goes to but the one before; `is_target` says of an address whether
    /// something branches to it.
    pub(super) fn of(
        piece: &CodePiece<'_>,
        jump: &Instruction,
        is_target: impl Fn(u64) -> bool,
    ) -> Before {
        let mut before = Vec::new();
        let mut address = jump.ip();
        while before.len() < BEFORE_MAX && !is_target(address) {
            let Some(instruction) = piece.before(address).filter(is_straight) else {
                break;
            };
            address = instruction.ip();
            before.push(instruction);
        }
        Before(before)
    }

    pub(super) fn nearest_first(&self) -> impl Iterator<Item = &Instruction> {
        self.0.iter()
    }

    /// Whether the jump goes by distances from a table to itself, wherever that is and however
    /// long: compilers make those of switches alone.
    pub(super) fn is_switch(&self, jump: &Instruction) -> bool {
        let add = self.writer(0, jump.op0_register());
        let add = add.filter(|(_, add)| jump.op0_kind() == OpKind::Register && is_sum(add));
        add.is_some_and(|(number, add)| {
            let (one, other) = (add.op0_register(), add.op1_register());
            self.is_distance(number + 1, one, other) || self.is_distance(number + 1, other, one)
        })
    }

    /// Whether a register holds an entry of the table whose address is in another one.
    fn is_distance(&self, from: usize, entry: Register, table: Register) -> bool {
        let load = self.writer(from, entry);
        load.is_some_and(|(number, load)| {
            let mut between = self.0.iter().take(number).skip(from);
            is_entry(load)
                && load.memory_base() == table
                && load.memory_index_scale() == 4
                && !between.any(|instruction| writes(instruction, table))
        })
    }

    /// The table that the jump goes by, if that is clear.
    pub(super) fn table(&self, jump: &Instruction) -> Option<Table> {
        if jump.op0_kind() == OpKind::Memory {
            return self.absolute(jump, 0);
        }
        let register = jump.op0_register();
        let (number, writer) = self.writer(0, register)?;
        match writer.code() {
            Code::Mov_r64_rm64 if writer.op1_kind() == OpKind::Memory => {
                self.absolute(writer, number + 1)
            }
            _ if is_sum(writer) => self.relative(writer, number + 1),
            _ => None,
        }
    }

    /// The table that an instruction takes an address from.
    fn absolute(&self, load: &Instruction, from: usize) -> Option<Table> {
        let address = self.address_of_table(load, from)?;
        self.indexed(load, from, address, true)
    }

    fn address_of_table(&self, load: &Instruction, from: usize) -> Option<u64> {
        let base = match load.memory_base() {
            Register::None => 0,
            base => self.constant(from, base)?,
        };
        Some(base.wrapping_add(load.memory_displacement64()))
    }

    /// Where the addresses are, however many, one of which the jump goes to.
    pub(super) fn addresses(&self, jump: &Instruction) -> Option<u64> {
        let (load, from) = match jump.op0_kind() {
            OpKind::Memory => (jump, 0),
            _ => {
                let (number, load) = self.writer(0, jump.op0_register())?;
                (load, number + 1)
            }
        };
        let is_load = load.is_jmp_near_indirect() || load.code() == Code::Mov_r64_rm64;
        let is_indexed = load.memory_index() != Register::None && load.memory_index_scale() == 8;
        self.address_of_table(load, from)
            .filter(|_| is_load && is_indexed)
    }

    /// The table whose address an instruction adds to an entry.
    fn relative(&self, add: &Instruction, from: usize) -> Option<Table> {
        let (one, other) = (add.op0_register(), add.op1_register());
        let found = self.distance(from, one, other);
        found.or_else(|| self.distance(from, other, one))
    }

    /// The distance, when it is known which of the two is the entry.
    fn distance(&self, from: usize, entry: Register, table: Register) -> Option<Table> {
        let address = self.constant(from, table)?;
        let (number, load) = self.writer(from, entry)?;
        let base = self.constant(number + 1, load.memory_base())?;
        let table = self.indexed(load, number + 1, address, false)?;
        (is_entry(load) && base == address).then_some(table)
    }

    fn indexed(
        &self,
        load: &Instruction,
        from: usize,
        address: u64,
        is_absolute: bool,
    ) -> Option<Table> {
        let index = load.memory_index();
        let table = Table {
            address,
            entries: self.count(from, index)? as usize,
            is_absolute,
        };
        let is_plain = index.is_gpr64() && !has_own_segment(load);
        let is_scaled = load.memory_index_scale() as usize == table.entry_bytes();
        (is_plain && is_scaled).then_some(table)
    }

    /// The last instruction that writes to a register.
    fn writer(&self, from: usize, register: Register) -> Option<(usize, &Instruction)> {
        let mut before = self.0.iter().enumerate().skip(from);
        before.find(|(_, instruction)| writes(instruction, register))
    }

    /// The address in a register, when it was put there by `lea`.
    fn constant(&self, from: usize, register: Register) -> Option<u64> {
        let (_, writer) = self.writer(from, register)?;
        let is_address = writer.code() == Code::Lea_r64_m && writer.is_ip_rel_memory_operand();
        is_address.then(|| writer.ip_rel_memory_address())
    }

    /// How many values a register can have, from zero on.
    fn count(&self, from: usize, register: Register) -> Option<u64> {
        let mut register = register.full_register();
        // Of a branch that is not taken when the register is small enough, after the
        // comparison: what it adds to the number that is compared with.
        let mut guard = None;
        let mut narrow = None;
        for instruction in self.0.iter().skip(from) {
            if instruction.is_jcc_short_or_near() {
                guard = guarded(instruction).or(guard);
                continue;
            }
            if let (Some(more), Some(number)) = (guard, compared(instruction, register)) {
                return bounded(number.checked_add(more)?);
            }
            if changes_flags(instruction) {
                guard = None;
            }
            if !writes(instruction, register) {
                continue;
            }
            let (source, limit) = moved(instruction)?;
            narrow = limit.or(narrow);
            match source {
                Some(source) => register = source.full_register(),
                None => break,
            }
        }
        bounded(narrow?)
    }
}

/// Whether an address counts from where a segment says that has a base of its own.
pub(super) fn has_own_segment(instruction: &Instruction) -> bool {
    matches!(instruction.memory_segment(), Register::FS | Register::GS)
}

/// Whether an instruction adds two registers.
fn is_sum(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Add_r64_rm64 | Code::Add_rm64_r64)
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register
}

/// Whether an instruction loads the distance to somewhere.
fn is_entry(load: &Instruction) -> bool {
    load.code() == Code::Movsxd_r64_rm32
        && load.op1_kind() == OpKind::Memory
        && load.memory_index() != Register::None
        && load.memory_displacement64() == 0
}

fn bounded(count: u64) -> Option<u64> {
    (1..=ENTRIES_MAX).contains(&count).then_some(count)
}

/// What a branch says of those for which it is not taken: they are at most the number that
/// was compared with, or less.
fn guarded(branch: &Instruction) -> Option<u64> {
    match branch.condition_code() {
        ConditionCode::a => Some(1),
        ConditionCode::ae => Some(0),
        _ => None,
    }
}

/// The number that an instruction compares a register with.
fn compared(instruction: &Instruction, register: Register) -> Option<u64> {
    let is_cmp = instruction.mnemonic() == Mnemonic::Cmp && is_low(instruction, register);
    let is_number = instruction.op_count() == 2 && is_immediate(instruction.op1_kind());
    (is_cmp && is_number).then(|| instruction.immediate(1))
}

/// Whether the first operand is a register, or its lowest bytes.
fn is_low(instruction: &Instruction, register: Register) -> bool {
    let operand = instruction.op0_register();
    let is_high = [Register::AH, Register::BH, Register::CH, Register::DH].contains(&operand);
    instruction.op0_kind() == OpKind::Register && operand.full_register() == register && !is_high
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
}

/// What a register holds after an instruction that writes to it: another register's value,
/// or a bound on its values.
fn moved(instruction: &Instruction) -> Option<(Option<Register>, Option<u64>)> {
    let is_register = instruction.op1_kind() == OpKind::Register;
    let source = is_register.then(|| instruction.op1_register());
    match instruction.code() {
        Code::Mov_r64_rm64 | Code::Mov_rm64_r64 | Code::Mov_r32_rm32 | Code::Mov_rm32_r32 => {
            Some((Some(source?), None))
        }
        Code::Movzx_r32_rm8 | Code::Movzx_r64_rm8 => match source {
            Some(Register::AH | Register::BH | Register::CH | Register::DH) => {
                Some((None, Some(256)))
            }
            source => Some((source, Some(256))),
        },
        Code::Movzx_r32_rm16 | Code::Movzx_r64_rm16 => Some((Some(source?), None)),
        Code::And_rm32_imm8 | Code::And_rm32_imm32 | Code::And_EAX_imm32 | Code::And_rm64_imm8 => {
            Some((None, Some(instruction.immediate(1).checked_add(1)?)))
        }
        _ => None,
    }
}

fn changes_flags(instruction: &Instruction) -> bool {
    instruction.rflags_modified() & (RflagsBits::CF | RflagsBits::ZF) != 0
}

pub(super) fn writes(instruction: &Instruction, register: Register) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let mut used = info.used_registers().iter();
    used.any(|used| {
        let reads = matches!(
            used.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
        );
        !reads && used.register().full_register() == register.full_register()
    })
}
