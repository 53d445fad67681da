// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions of Go's functions, and where the return address is at each: what a debugger
//! that knows nothing of Go has to be told. It is found in the code itself, as Go's compiler
//! has one way to make a frame: it never does so later than at the beginning, and the frame
//! pointer is kept from there on.

use super::{code, decode, offset, read, takes_breakpoint, Dice};
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};
use object::{Object, ObjectSection};
use std::collections::BTreeMap;
use std::path::Path;

/// Where the return address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Caller {
    /// On top of the stack.
    AtTop,
    /// Below the frame pointer of the caller, which was just pushed.
    BelowPushed,
    /// Above where the frame pointer points.
    ByFramePointer,
}

/// Offsets in a file of this number of instructions, or fewer. None of Go's runtime: much of it
/// runs on stacks of its own, from which frame pointers lead to others.
pub(crate) fn choose(file: &Path, count: usize, dice: &mut Dice) -> BTreeMap<u64, Caller> {
    let bytes = read(file);
    let elf = object::File::parse(&*bytes).expect("Debian's files are ELF");
    let section = elf.section_by_name(".gopclntab").expect("it is Go's");
    let table = Table(section.data().expect("in the file"));
    let mut chosen = BTreeMap::new();
    for _ in 0..4 * count {
        let (address, length, name) = table.function(dice.below(table.word(8)));
        let code = code(&elf, address, length).unwrap_or_default();
        let places = places(address, code).unwrap_or_default();
        let is_of_runtime = name.starts_with(b"runtime") || name.starts_with(b"internal/");
        let place = places
            .get(dice.below(places.len()))
            .filter(|_| !is_of_runtime);
        chosen.extend(place.and_then(|(at, caller)| Some((offset(&elf, *at)?, *caller))));
        if chosen.len() == count {
            break;
        }
    }
    chosen
}

/// The offset in a file of a function.
pub(crate) fn function(file: &Path, wanted: &str) -> u64 {
    let bytes = read(file);
    let elf = object::File::parse(&*bytes).expect("Debian's files are ELF");
    let section = elf.section_by_name(".gopclntab").expect("it is Go's");
    let table = Table(section.data().expect("in the file"));
    let name = format!("{wanted}\0");
    let mut functions = (0..table.word(8)).map(|number| table.function(number));
    let function = functions.find(|(_, _, one)| one.starts_with(name.as_bytes()));
    let found = function.and_then(|(address, _, _)| offset(&elf, address));
    found.unwrap_or_else(|| panic!("{wanted} is not in {}", file.display()))
}

/// Go's table of functions, as `internal/abi/symtab.go` and `runtime/symtab.go` of Go 1.20
/// and later say.
struct Table<'a>(&'a [u8]);

impl<'a> Table<'a> {
    fn word(&self, at: usize) -> usize {
        let bytes = self.0[at..].first_chunk().expect("in the table");
        u64::from_le_bytes(*bytes) as usize
    }

    fn half(&self, at: usize) -> usize {
        let bytes = self.0[at..].first_chunk().expect("in the table");
        u32::from_le_bytes(*bytes) as usize
    }

    /// A function's address, its length, and what its name begins with.
    fn function(&self, number: usize) -> (u64, u64, &'a [u8]) {
        let (text, names, functions) = (self.word(24), self.word(32), self.word(64));
        let entry = functions + 8 * number;
        let (begin, end) = (self.half(entry), self.half(entry + 8));
        let description = functions + self.half(entry + 4);
        let name = names + self.half(description + 4);
        ((text + begin) as u64, (end - begin) as u64, &self.0[name..])
    }
}

/// The instructions that a breakpoint may be put on, and where the caller is; none when the
/// function is not made as Go's compiler makes them.
fn places(address: u64, code: &[u8]) -> Option<Vec<(u64, Caller)>> {
    let mut places = Vec::new();
    let mut walk = Walk {
        caller: Some(Caller::AtTop),
        has_frame: false,
        needs_stack: None,
    };
    for instruction in decode(address, code) {
        let at = instruction.ip();
        if walk.needs_stack == Some(at) {
            break;
        }
        if let Some(caller) = walk.caller.filter(|_| takes_breakpoint(address, code, at)) {
            places.push((at, caller));
        }
        let knew = walk.needs_stack.is_some();
        walk.step(&instruction)?;
        if walk.needs_stack.is_some() && !knew {
            // Up to here a call begins once more when it has the stack, or had to let another
            // goroutine run.
            places.clear();
        }
    }
    Some(places)
}

/// Goes through a function from its first instruction to its last.
struct Walk {
    /// None where the frame pointer is lent to a frame that is none: Go's compiler makes one
    /// below the stack around calls of its code that clears and copies memory.
    caller: Option<Caller>,
    has_frame: bool,
    /// Where more stack is asked for, at the end, and whether another goroutine wants to
    /// run, which is so at another time in each run.
    needs_stack: Option<u64>,
}

impl Walk {
    /// What is so after an instruction; none when it is none of Go's compiler.
    fn step(&mut self, instruction: &Instruction) -> Option<()> {
        let sets_frame_pointer = instruction.op0_register() == Register::RBP;
        self.caller = match instruction.mnemonic() {
            Mnemonic::Push if sets_frame_pointer && !self.has_frame => Some(Caller::BelowPushed),
            Mnemonic::Mov if sets_frame_pointer => {
                self.has_frame = true;
                Some(Caller::ByFramePointer)
            }
            Mnemonic::Lea if sets_frame_pointer => None,
            Mnemonic::Pop if sets_frame_pointer && self.has_frame => Some(Caller::AtTop),
            // What follows was jumped to.
            Mnemonic::Ret if self.has_frame => Some(Caller::ByFramePointer),
            Mnemonic::Jbe if !self.has_frame && self.needs_stack.is_none() => {
                self.needs_stack = Some(instruction.near_branch_target());
                self.caller
            }
            _ if moves_stack(instruction) && self.caller != Some(Caller::ByFramePointer) => {
                return None;
            }
            _ => self.caller,
        };
        Some(())
    }
}

/// Whether the stack pointer is another after it.
fn moves_stack(instruction: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let mut used = info.used_registers().iter();
    let writes = |access| matches!(access, OpAccess::Write | OpAccess::ReadWrite);
    let moves = used.any(|used| used.register() == Register::RSP && writes(used.access()));
    moves
        && !matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall | FlowControl::Return
        )
}
