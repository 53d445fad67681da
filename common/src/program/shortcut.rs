// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Programs that amount to one operation on a span, so that a hit need not run their steps: each
//! `malloc` and `free` of a program under `nsprobe leak` has one.

use super::{Context, Operation, Program, Register, SLOTS};

/// What a program amounts to if its guards reject nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortcut {
    /// Ends the span of the process and this register, and requires that there is one.
    Ends(Register),
    /// The key is the process and this register, the value what the entry kept under a number.
    Begins(Register, usize),
}

/// What is known of a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fact {
    Pid,
    Register(Register),
    Kept(usize),
    Ended,
}

/// What was done so far, after the requirements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    Nothing,
    Process,
    Key(Register),
    Ended(Register),
    All(Shortcut),
}

impl Program<'_> {
    /// The program's shortcut, if it has one. All that it requires first must be in its guards.
    pub fn shortcut(&self) -> Option<Shortcut> {
        let mut facts = [None; SLOTS];
        let (mut done, mut guarded) = (Done::Nothing, self.guards().len());
        for step in self.steps {
            let fact = |slot: u8| facts.get(usize::from(slot)).copied().flatten();
            done = match (Operation::from_u8(step.operation)?, done, fact(step.a)) {
                (Operation::Require, Done::Nothing, _) => {
                    guarded = guarded.checked_sub(1)?;
                    done
                }
                (Operation::Key, Done::Nothing, Some(Fact::Pid)) => Done::Process,
                // The stack pointer of a return is another one than the register's.
                (Operation::Key, Done::Process, Some(Fact::Register(register)))
                    if register != Register::Rsp =>
                {
                    Done::Key(register)
                }
                (Operation::EndSpan, Done::Key(register), _) if step.small == 0 => {
                    *facts.get_mut(usize::from(step.to))? = Some(Fact::Ended);
                    Done::Ended(register)
                }
                (Operation::Require, Done::Ended(register), Some(Fact::Ended)) => {
                    Done::All(Shortcut::Ends(register))
                }
                (Operation::Value, Done::Key(register), Some(Fact::Kept(index))) => {
                    Done::All(Shortcut::Begins(register, index))
                }
                (operation, ..) if is_pure(operation) => {
                    let known = match operation {
                        Operation::Register => {
                            let number = u8::try_from(step.small).ok()?;
                            Register::from_u8(number).map(Fact::Register)
                        }
                        Operation::Kept => usize::try_from(step.small).ok().map(Fact::Kept),
                        Operation::Context if step.large == Context::Pid as u64 => Some(Fact::Pid),
                        _ => None,
                    };
                    *facts.get_mut(usize::from(step.to))? = known;
                    done
                }
                _ => return None,
            };
        }
        match done {
            Done::All(shortcut) if guarded == 0 => Some(shortcut),
            _ => None,
        }
    }
}

/// Whether it does nothing but write its slot.
fn is_pure(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Constant
            | Operation::Register
            | Operation::Context
            | Operation::Kept
            | Operation::Equal
            | Operation::IsZero
            | Operation::ZeroExtend
            | Operation::SignExtend
            | Operation::Below
            | Operation::BelowOrEqual
            | Operation::Less
            | Operation::LessOrEqual
            | Operation::Modulo
    )
}
