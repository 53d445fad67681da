// SPDX-License-Identifier: GPL-2.0-only
//! The registers of a traced task.

use super::helpers;
use crate::common::program::Register;
use core::{
    marker::PhantomData,
    mem::offset_of,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    sync::rcu,
    types::Opaque, //
};

/// The code segment of 64-bit code (`__USER_CS` of `arch/x86/include/asm/segment.h`).
const USER_CS: u16 = 0x33;

/// Where the registers are, by their number; not every number is a register's.
const OFFSETS: [u8; Register::Flags as usize + 1] = {
    let mut all = [0; Register::Flags as usize + 1];
    all[Register::Rax as usize] = offset_of!(bindings::pt_regs, ax) as u8;
    all[Register::Rdx as usize] = offset_of!(bindings::pt_regs, dx) as u8;
    all[Register::Rcx as usize] = offset_of!(bindings::pt_regs, cx) as u8;
    all[Register::Rbx as usize] = offset_of!(bindings::pt_regs, bx) as u8;
    all[Register::Rsi as usize] = offset_of!(bindings::pt_regs, si) as u8;
    all[Register::Rdi as usize] = offset_of!(bindings::pt_regs, di) as u8;
    all[Register::Rbp as usize] = offset_of!(bindings::pt_regs, bp) as u8;
    all[Register::Rsp as usize] = offset_of!(bindings::pt_regs, sp) as u8;
    all[Register::R8 as usize] = offset_of!(bindings::pt_regs, r8) as u8;
    all[Register::R9 as usize] = offset_of!(bindings::pt_regs, r9) as u8;
    all[Register::R10 as usize] = offset_of!(bindings::pt_regs, r10) as u8;
    all[Register::R11 as usize] = offset_of!(bindings::pt_regs, r11) as u8;
    all[Register::R12 as usize] = offset_of!(bindings::pt_regs, r12) as u8;
    all[Register::R13 as usize] = offset_of!(bindings::pt_regs, r13) as u8;
    all[Register::R14 as usize] = offset_of!(bindings::pt_regs, r14) as u8;
    all[Register::R15 as usize] = offset_of!(bindings::pt_regs, r15) as u8;
    all[Register::Rip as usize] = offset_of!(bindings::pt_regs, ip) as u8;
    all[Register::Flags as usize] = offset_of!(bindings::pt_regs, flags) as u8;
    all
};
const _: () = {
    let mut number = 0;
    while number < OFFSETS.len() {
        let has_offset = OFFSETS[number] != 0 || number == Register::R15 as usize;
        assert!(Register::from_u8(number as u8).is_some() == has_offset);
        number += 1;
    }
};

/// The registers of a task, to be read.
#[repr(transparent)]
pub(crate) struct RegisterFile(Opaque<bindings::pt_regs>);

// SAFETY: Plain numbers, which belong to no task.
unsafe impl Send for RegisterFile {}

impl RegisterFile {
    /// As they are now.
    pub(crate) fn copy(&self) -> RegisterFile {
        // SAFETY: The registers are valid as long as `self`.
        RegisterFile(Opaque::new(unsafe { *self.0.get() }))
    }

    /// Passes a copy to `look`, as the registers of the current task at a hit; `look` must not sleep.
    pub(crate) fn as_of_hit<R>(&self, look: impl FnOnce(&Regs<'_>) -> R) -> R {
        let _guard = rcu::read_lock();
        let copy = self.copy();
        // SAFETY: Nothing else uses the copy, which was the current task's.
        look(unsafe { Regs::from_ptr(NonNull::from(&copy).cast()) })
    }

    /// What the kernel's entry notes: the number of the system call, or less than zero.
    pub(super) fn entry_word(&self) -> i64 {
        // SAFETY: As for `ip`.
        unsafe { (*self.0.get()).orig_ax as i64 }
    }

    /// Instruction pointer.
    pub(crate) fn ip(&self) -> u64 {
        // SAFETY: The registers are valid as long as `self`.
        unsafe { (*self.0.get()).ip as u64 }
    }

    /// Stack pointer.
    pub(crate) fn sp(&self) -> u64 {
        // SAFETY: As for `ip`.
        unsafe { (*self.0.get()).sp as u64 }
    }

    /// The value of a register; `None` for one that a task of this kind has not.
    #[inline(always)]
    pub(crate) fn get(&self, register: Register) -> Option<u64> {
        let offset = *OFFSETS.get(register as usize)?;
        // SAFETY: `register` has a number, at whose index is the offset of one of these words.
        Some(unsafe { *self.0.get().byte_add(offset.into()).cast::<u64>() })
    }

    /// Frame pointer register.
    pub(crate) fn bp(&self) -> u64 {
        // SAFETY: As for `ip`.
        unsafe { (*self.0.get()).bp as u64 }
    }

    /// A digest of `with` and of the registers that a function gives back as it got them
    /// (System V psABI for x86-64, figure 3.4).
    #[inline(always)]
    pub(crate) fn preserved(&self, with: u64) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        // SAFETY: As for `ip`.
        let regs = unsafe { &*self.0.get() };
        let all = [regs.bx, regs.bp, regs.r12, regs.r13, regs.r14, regs.r15];
        all.iter().fold(with, |digest, register| {
            (digest.rotate_left(23) ^ *register as u64).wrapping_mul(ODD)
        })
    }

    /// Whether the task runs 64-bit code.
    #[inline(always)]
    pub(crate) fn is_64bit(&self) -> bool {
        // SAFETY: As for `ip`; Xen alone has another segment for it.
        unsafe {
            (*self.0.get()).__bindgen_anon_1.cs == USER_CS
                || helpers::nsprobe_user_64bit(self.0.get())
        }
    }
}

/// The registers of the current task at a hit, as long as its handler runs.
///
/// # Invariants
///
/// Nothing else uses them during `'a`.
#[repr(transparent)]
pub(crate) struct Regs<'a>(RegisterFile, PhantomData<&'a ()>);

impl Deref for Regs<'_> {
    type Target = RegisterFile;

    #[inline(always)]
    fn deref(&self) -> &RegisterFile {
        &self.0
    }
}

impl Regs<'_> {
    /// # Safety
    ///
    /// `regs` must be those of the current task, used by nobody else during the
    /// lifetime that is chosen.
    pub(super) unsafe fn from_ptr<'a>(regs: NonNull<bindings::pt_regs>) -> &'a Regs<'a> {
        // SAFETY: `Regs` is a transparent wrapper, and the caller promises the rest.
        // INVARIANT: By the same promise.
        unsafe { regs.cast().as_ref() }
    }

    /// Sets a general register, or the arithmetic flags. False for a register that a
    /// task of this kind has not, and for the stack and instruction pointers: the
    /// kernel has noted where the stack is for pending returns, and where to continue.
    pub(crate) fn set(&self, register: Register, value: u64) -> bool {
        let raw = self.0 .0.get();
        let value = value as usize;
        if !self.is_64bit() && is_64bit_only(register) {
            return false;
        }
        // SAFETY: By the invariant the registers are valid and nothing else uses them; no
        // reference to them is alive here.
        let place = unsafe {
            match register {
                Register::Rax => &mut (*raw).ax,
                Register::Rdx => &mut (*raw).dx,
                Register::Rcx => &mut (*raw).cx,
                Register::Rbx => &mut (*raw).bx,
                Register::Rsi => &mut (*raw).si,
                Register::Rdi => &mut (*raw).di,
                Register::Rbp => &mut (*raw).bp,
                Register::R8 => &mut (*raw).r8,
                Register::R9 => &mut (*raw).r9,
                Register::R10 => &mut (*raw).r10,
                Register::R11 => &mut (*raw).r11,
                Register::R12 => &mut (*raw).r12,
                Register::R13 => &mut (*raw).r13,
                Register::R14 => &mut (*raw).r14,
                Register::R15 => &mut (*raw).r15,
                Register::Flags => {
                    let flags = &mut (*raw).flags;
                    *flags = *flags & !ARITHMETIC_FLAGS | value & ARITHMETIC_FLAGS;
                    return true;
                }
                Register::Rsp | Register::Rip => return false,
            }
        };
        *place = value;
        true
    }

    /// Does what the near return under the breakpoint would do, which takes `popped` bytes off the
    /// stack, `address` above them: then the kernel need not step it. Not where that is not all,
    /// nor where a fault would have to be reported.
    pub(super) fn return_at_once(&self, popped: u64, address: u64) {
        const USER_END: u64 = (1 << 47) - 4096;
        // At the same address the kernel would not see that it is done.
        if address == 0 || address >= USER_END || address == self.ip() {
            return;
        }
        let raw = self.0 .0.get();
        // SAFETY: The registers are those of the current task.
        if unsafe { !helpers::nsprobe_returns_plainly(raw) } {
            return;
        }
        // SAFETY: As in `set`.
        unsafe { (*raw).sp = (*raw).sp.wrapping_add(popped as usize) };
        self.go_to(address);
    }

    /// Goes on at `address` instead of after the breakpoint. The kernel then leaves the
    /// instruction there out (`handle_swbp` of `kernel/events/uprobes.c`).
    pub(crate) fn go_to(&self, address: u64) {
        // SAFETY: As in `set`.
        unsafe { (*self.0 .0.get()).ip = address as usize };
    }
}

/// CF, PF, AF, ZF, SF and OF: what arithmetic sets.
const ARITHMETIC_FLAGS: usize = 0x8d5;

fn is_64bit_only(register: Register) -> bool {
    matches!(
        register,
        Register::R8
            | Register::R9
            | Register::R10
            | Register::R11
            | Register::R12
            | Register::R13
            | Register::R14
            | Register::R15
    )
}
