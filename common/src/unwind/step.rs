// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One step, from a frame to its caller.

use super::{Base, Rule, Saved};

/// Bytes of a word.
const WORD: u64 = 8;
/// Where `struct sigcontext_64` is in `struct ucontext` (`uc_mcontext`), and the registers
/// in it (`arch/x86/include/uapi/asm/sigcontext.h`).
const MCONTEXT: u64 = 40;
const SAVED_RBP: u64 = MCONTEXT + 80;
const SAVED_RSP: u64 = MCONTEXT + 120;
const SAVED_RIP: u64 = MCONTEXT + 128;

/// The registers of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction that runs next, or the return address.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// The frame pointer, or whatever is in its register.
    pub rbp: u64,
    /// Whether `rbp` is known.
    pub knows_rbp: bool,
    /// The kind of address in `rip`.
    pub at: At,
}

/// The kind of address in an instruction pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// The instruction that the thread runs next: all its registers are known.
    #[default]
    Innermost,
    /// The instruction that a signal has interrupted.
    Interrupted,
    /// The instruction after a call.
    Call,
}

impl Registers {
    /// An address in the instruction that the frame is at: a call that does not return
    /// may be the last of its function.
    #[inline(always)]
    pub fn inside(&self) -> u64 {
        self.rip.wrapping_sub(u64::from(self.at == At::Call))
    }
}

/// The memory of the thread that is unwound.
pub trait Memory {
    /// The word at an address.
    fn word(&self, address: u64) -> Option<u64>;

    /// The words at an address and after it.
    fn pair(&self, address: u64) -> Option<[u64; 2]> {
        let second = self.word(address.wrapping_add(WORD))?;
        Some([self.word(address)?, second])
    }

    /// The register of a DWARF number, in the innermost frame.
    fn register(&self, number: u8) -> Option<u64>;
}

/// Why a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This is the outermost frame.
    Outermost,
    /// The rule does not know the caller.
    Unknown,
    /// The rule needs a register that is not known here, or there is no rule for the case.
    Unsupported,
    /// Memory cannot be read.
    Fault,
    /// The caller's frame would not lie above this one.
    NotAbove,
}

impl Rule {
    /// Steps to the caller; returns where its return address was read.
    #[inline]
    pub fn step(&self, at: &mut Registers, memory: &impl Memory) -> Result<u64, Stop> {
        let base = Base::from_u8(self.base).ok_or(Stop::Unsupported)?;
        let frame = match base {
            Base::Rsp => at.rsp.wrapping_add(self.offset as u64),
            Base::Rbp => at.rbp()?.wrapping_add(self.offset as u64),
            Base::Signal => return self.interrupted(at, memory),
            other => self.odd(other, at, memory)?,
        };
        self.caller(frame, at, memory)
    }

    /// Steps to the caller of the frame at `frame`.
    #[inline(always)]
    fn caller(&self, frame: u64, at: &mut Registers, memory: &impl Memory) -> Result<u64, Stop> {
        if frame <= at.rsp || frame % WORD != 0 {
            return Err(Stop::NotAbove);
        }
        // Most often `rbp` lies right below the return address.
        let low = frame.wrapping_sub(2 * WORD);
        let saved_at = frame.wrapping_add(self.saved_at as u64);
        let (saved, rip) = match (Saved::from_u8(self.saved), saved_at == low) {
            (Some(Saved::AtFrame), true) => {
                let [rbp, rip] = memory.pair(low).ok_or(Stop::Fault)?;
                (Some(rbp), rip)
            }
            (saved, _) => {
                let rip = memory.word(frame.wrapping_sub(WORD)).ok_or(Stop::Fault)?;
                let rbp = match saved {
                    Some(Saved::Same) => at.rbp().ok(),
                    Some(Saved::AtFrame) => Some(memory.word(saved_at).ok_or(Stop::Fault)?),
                    Some(Saved::AtRbp) => {
                        let address = at.rbp()?.wrapping_add(self.saved_at as u64);
                        Some(memory.word(address).ok_or(Stop::Fault)?)
                    }
                    Some(Saved::Lost) | None => None,
                };
                (rbp, rip)
            }
        };
        *at = Registers {
            rip,
            rsp: frame,
            rbp: saved.unwrap_or(0),
            knows_rbp: saved.is_some(),
            at: At::Call,
        };
        Ok(frame.wrapping_sub(WORD))
    }

    /// The frame address of what is not on every page.
    #[cold]
    fn odd(&self, base: Base, at: &Registers, memory: &impl Memory) -> Result<u64, Stop> {
        let more = i64::from(self.more) as u64;
        let load = |from: u64| memory.word(from.wrapping_add(self.offset as u64));
        Ok(match base {
            Base::AtRsp => load(at.rsp).ok_or(Stop::Fault)?.wrapping_add(more),
            Base::AtRbp => load(at.rbp()?).ok_or(Stop::Fault)?.wrapping_add(more),
            Base::Register => {
                let number = u8::try_from(self.more).map_err(|_| Stop::Unsupported)?;
                let register = memory.register(number);
                let register = register.filter(|_| at.at == At::Innermost);
                let register = register.ok_or(Stop::Unsupported)?;
                register.wrapping_add(self.offset as u64)
            }
            Base::Linkage => {
                let pushed = match at.inside() & 15 >= more {
                    true => WORD,
                    false => 0,
                };
                at.rsp.wrapping_add(self.offset as u64).wrapping_add(pushed)
            }
            Base::Outermost => return Err(Stop::Outermost),
            Base::Unknown => return Err(Stop::Unknown),
            _ => return Err(Stop::Unsupported),
        })
    }

    /// Steps to the frame that a signal has interrupted, maybe on another stack.
    #[cold]
    fn interrupted(&self, at: &mut Registers, memory: &impl Memory) -> Result<u64, Stop> {
        let context = at.rsp.wrapping_add(self.offset as u64);
        let load = |offset: u64| memory.word(context.wrapping_add(offset)).ok_or(Stop::Fault);
        *at = Registers {
            rip: load(SAVED_RIP)?,
            rsp: load(SAVED_RSP)?,
            rbp: load(SAVED_RBP)?,
            knows_rbp: true,
            at: At::Interrupted,
        };
        Ok(context.wrapping_add(SAVED_RIP))
    }
}

impl Registers {
    #[inline(always)]
    fn rbp(&self) -> Result<u64, Stop> {
        match self.knows_rbp {
            true => Ok(self.rbp),
            false => Err(Stop::Unsupported),
        }
    }
}
