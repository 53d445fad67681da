// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One step, from a frame to its caller.

use super::{Base, GoPlaces, Rule, Saved};

/// Bytes of a word.
const WORD: u64 = 8;
/// Where `struct sigcontext_64` is in `struct ucontext` (`uc_mcontext`), and the registers
/// in it (`arch/x86/include/uapi/asm/sigcontext.h`).
const MCONTEXT: u64 = 40;
const SAVED_RBP: u64 = MCONTEXT + 80;
const SAVED_RSP: u64 = MCONTEXT + 120;
const SAVED_RIP: u64 = MCONTEXT + 128;
/// Most switches of stacks in one walk: each call between Go and C is one.
const SWITCHES_MAX: u8 = 16;

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
    /// How often the walk has gone on on another stack.
    pub switches: u8,
    /// Whether the thread has left the goroutine that it ran.
    pub has_left: bool,
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

    /// The thread pointer (`fs`), where the thread itself is at hand.
    fn thread_pointer(&self) -> Option<u64> {
        None
    }
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
            Base::OtherStack
            | Base::Goroutine
            | Base::GrowsStack
            | Base::Injected
            | Base::Scheduler => return self.of_go(base, at, memory),
            other => self.odd(other, at, memory)?,
        };
        self.caller(frame, at, memory)
    }

    /// Steps to the caller of the frame at `frame`.
    #[inline(always)]
    fn caller(&self, frame: u64, at: &mut Registers, memory: &impl Memory) -> Result<u64, Stop> {
        if frame <= at.rsp {
            return Err(Stop::NotAbove);
        }
        self.caller_on_any(frame, at, memory)
    }

    /// Steps to the caller of the frame at `frame`, on whichever stack it lies.
    #[inline(always)]
    fn caller_on_any(
        &self,
        frame: u64,
        at: &mut Registers,
        memory: &impl Memory,
    ) -> Result<u64, Stop> {
        if frame % WORD != 0 {
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
            ..*at
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
            ..*at
        };
        Ok(context.wrapping_add(SAVED_RIP))
    }

    /// Steps from a function of Go's runtime that switches stacks, or whose caller did not call it.
    #[cold]
    #[inline(never)]
    fn of_go(&self, base: Base, at: &mut Registers, memory: &impl Memory) -> Result<u64, Stop> {
        let above = at.rsp.wrapping_add(self.offset as u64);
        let slot = match base {
            Base::Injected => {
                let slot = self.caller(above, at, memory)?;
                at.at = At::Interrupted;
                return Ok(slot);
            }
            Base::Scheduler => {
                at.has_left = true;
                return self.caller(above, at, memory);
            }
            Base::OtherStack => {
                let frame = at.rbp()?.wrapping_add(self.offset as u64);
                self.caller_on_any(frame, at, memory)?
            }
            Base::Goroutine => {
                let [sp, _, _] = self.goroutine(at, memory)?;
                let popped = GoPlaces::of(self).popped;
                self.caller_on_any(sp.wrapping_add(u64::from(popped)), at, memory)?
            }
            Base::GrowsStack => {
                let [rsp, rip, rbp] = self.goroutine(at, memory)?;
                *at = Registers {
                    rip,
                    rsp,
                    rbp,
                    knows_rbp: true,
                    at: At::Call,
                    ..*at
                };
                rsp.wrapping_sub(WORD)
            }
            _ => return Err(Stop::Unsupported),
        };
        at.switches = at.switches.wrapping_add(1);
        match at.switches > SWITCHES_MAX {
            true => Err(Stop::Unsupported),
            false => Ok(slot),
        }
    }

    /// The stack pointer, instruction pointer and `rbp` of the goroutine that the thread's own stack
    /// runs for. Only a stack that begins at this frame does.
    fn goroutine(&self, at: &Registers, memory: &impl Memory) -> Result<[u64; 3], Stop> {
        let places = GoPlaces::of(self);
        let load = |from: u64, offset: u64| {
            let address = from.wrapping_add(offset);
            memory.word(address).ok_or(Stop::Fault)
        };
        let pointer = memory.thread_pointer().ok_or(Stop::Unsupported)?;
        let g = load(pointer, i64::from(places.g) as u64)?;
        let m = load(g, places.m.into())?;
        let own = load(load(m, 0)?, places.sp.into())?;
        if own != at.rsp {
            return Err(Stop::Unsupported);
        }
        let goroutine = load(m, i64::from(places.curg) as u64)?;
        if goroutine == 0 || at.has_left {
            return Err(Stop::Outermost);
        }
        let [low, high] = memory.pair(goroutine).ok_or(Stop::Fault)?;
        let saved = goroutine.wrapping_add(places.sp.into());
        let [sp, pc] = memory.pair(saved).ok_or(Stop::Fault)?;
        if !(low..high).contains(&sp) || sp % WORD != 0 {
            return Err(Stop::Unsupported);
        }
        Ok([sp, pc, load(goroutine, places.bp.into())?])
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
