// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of a call whose end is seen at the function's own exits.
//!
//! [`Compiled`](crate::Compiled) makes programs for the kernel's return probes, which
//! carry the entry's time and values to the return by themselves. Where the return
//! address may not be touched, probes on the function's `ret` instructions take their
//! place: the entry begins a span under the thread and its stack pointer, and the exit,
//! where the stack pointer is the same, ends it.

use crate::Code;
use nsprobe_common::program::{Context, Operation, Register, Step, SLOTS};
use std::fmt;

/// Words of a span's key.
pub const SPAN_KEY_WORDS: u32 = 2;

/// What runs at the entry and at the exits of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtExits {
    /// What begins the span, when the exits need one.
    pub begin: Option<Code>,
    /// What runs at each exit.
    pub exit: Option<Code>,
    /// Whether that looks at the function's result, or changes it.
    pub needs_result: bool,
}

/// What becomes of the call's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Nobody wants it, unless the program does.
    Nothing,
    /// It is the value for the table.
    Value,
    /// It is one more field, behind those that were asked for: see [`time_field`].
    Field,
}

/// The nanoseconds that a record of an exit has behind its `count` fields, when the
/// entry of the call was seen.
pub fn time_field(words: &[u64], count: usize) -> Option<u64> {
    let mask = words.first()?;
    let is_there = mask.checked_shr(u32::try_from(count).ok()?)? & 1 != 0;
    words.last().copied().filter(|_| is_there)
}

/// Why programs cannot run at exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAtExits {
    /// The entry keeps more than one value.
    TooManyKept,
    /// There are no slots left.
    TooLong,
}

impl fmt::Display for NotAtExits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotAtExits::TooManyKept => {
                "probes on exits know one value of the entry, and this needs several"
            }
            NotAtExits::TooLong => "the programs have no slot left for the call's key",
        })
    }
}

impl AtExits {
    /// Turns the programs of a return probe into those of exits.
    pub fn new(
        entry: Option<&Code>,
        ret: Option<&Code>,
        time: Time,
    ) -> Result<AtExits, NotAtExits> {
        let steps = |code: Option<&Code>| code.map_or(&[][..], |code| &code.steps).to_vec();
        let (entry_steps, ret_steps) = (steps(entry), steps(ret));
        let kept = entry_steps.iter().filter(|step| is(step, Operation::Keep));
        if kept.count() > 1 {
            return Err(NotAtExits::TooManyKept);
        }
        let decides = entry_steps.iter().any(|step| is(step, Operation::Require));
        let asks = |step: &Step| {
            is(step, Operation::Kept)
                || is(step, Operation::Context) && step.large == Context::Elapsed as u64
        };
        let needs_span = time != Time::Nothing || decides || ret_steps.iter().any(asks);
        let exit = Exit {
            spare: spare(&ret_steps)?,
            needs_span,
            decides,
            time,
        };
        let data = |code: Option<&Code>| code.map_or(Vec::new(), |code| code.data.clone());
        let exit_steps = exit.steps(&ret_steps);
        Ok(AtExits {
            begin: match needs_span {
                true => Some(Code {
                    steps: begin(&entry_steps, decides)?,
                    data: data(entry),
                }),
                false => None,
            },
            exit: (!exit_steps.is_empty()).then(|| Code {
                steps: exit_steps,
                data: data(ret),
            }),
            needs_result: ret_steps.iter().any(|step| {
                let number = u8::try_from(step.small).ok();
                let register = number.and_then(Register::from_u8);
                let is_register = is(step, Operation::Register) || is(step, Operation::SetRegister);
                is_register && matches!(register, Some(Register::Rax | Register::Rdx))
            }),
        })
    }
}

fn is(step: &Step, operation: Operation) -> bool {
    step.operation == operation as u8
}

/// Three slots that no step uses.
fn spare(steps: &[Step]) -> Result<[u8; 3], NotAtExits> {
    let used = steps
        .iter()
        .flat_map(|step| [step.to, step.a, step.b])
        .max()
        .map_or(0, |last| last.saturating_add(1));
    match usize::from(used).saturating_add(3) <= SLOTS {
        true => Ok([used, used.saturating_add(1), used.saturating_add(2)]),
        false => Err(NotAtExits::TooLong),
    }
}

fn step(operation: Operation, to: u8, a: u8, b: u8) -> Step {
    Step {
        operation: operation as u8,
        to,
        a,
        b,
        ..Step::default()
    }
}

fn constant(to: u8, value: u64) -> Step {
    Step {
        large: value,
        ..step(Operation::Constant, to, 0, 0)
    }
}

/// The key of the call: its thread, and where its return address is.
fn key(slot: u8) -> [Step; 4] {
    let thread = Step {
        large: Context::Tid as u64,
        ..step(Operation::Context, slot, 0, 0)
    };
    let stack = Step {
        small: Register::Rsp as i32,
        ..step(Operation::Register, slot, 0, 0)
    };
    let give = step(Operation::Key, 0, slot, 0);
    [thread, give, stack, give]
}

/// The entry's steps, which begin a span with what they keep.
///
/// A call that was left without an exit (by `longjmp`, an exception) leaves its span
/// behind. The next call at its place takes that over; when the entry may turn that
/// call away, the old span is ended first, or its exit would take it for its own.
fn begin(entry: &[Step], decides: bool) -> Result<Vec<Step>, NotAtExits> {
    let [slot, ..] = spare(entry)?;
    let mut steps = Vec::new();
    if decides {
        steps.extend(key(slot));
        steps.push(step(Operation::EndSpan, slot, 0, 0));
    }
    steps.extend(entry.iter().map(|kept| match is(kept, Operation::Keep) {
        true => step(Operation::Value, 0, kept.a, 0),
        false => *kept,
    }));
    steps.extend(key(slot));
    Ok(steps)
}

/// How an exit's steps come about.
struct Exit {
    spare: [u8; 3],
    needs_span: bool,
    decides: bool,
    time: Time,
}

impl Exit {
    fn steps(&self, ret: &[Step]) -> Vec<Step> {
        let [elapsed, ..] = self.spare;
        let mut steps = Vec::new();
        if self.needs_span {
            steps.extend(key(elapsed));
            steps.push(step(Operation::EndSpan, elapsed, 0, 0));
        }
        if self.decides {
            steps.extend(self.require_span());
        }
        for old in ret {
            self.translate(old, &mut steps);
        }
        match self.time {
            Time::Nothing => {}
            Time::Value => steps.push(step(Operation::Value, 0, elapsed, 0)),
            Time::Field => steps.push(step(Operation::Field, 0, elapsed, 0)),
        }
        steps
    }

    /// A call whose entry was turned away, or was not seen, has no span: it is not
    /// wanted, which is decided.
    fn require_span(&self) -> [Step; 5] {
        let [elapsed, one, zero] = self.spare;
        [
            constant(one, 1),
            // No time at all is a time as well.
            step(Operation::Add, one, elapsed, one),
            constant(zero, 0),
            step(Operation::Either, one, one, zero),
            step(Operation::Require, 0, one, 0),
        ]
    }

    fn translate(&self, old: &Step, steps: &mut Vec<Step>) {
        let [elapsed, eight, _] = self.spare;
        if is(old, Operation::Kept) {
            steps.push(step(Operation::SpanValue, old.to, 0, 0));
        } else if is(old, Operation::Context) && old.large == Context::Elapsed as u64 {
            steps.push(step(Operation::Or, old.to, elapsed, elapsed));
        } else if is(old, Operation::Register) && old.small == Register::Rsp as i32 {
            // Behind the `ret`, where a return probe is hit, the return address is gone.
            steps.extend([
                *old,
                constant(eight, 8),
                step(Operation::Add, old.to, old.to, eight),
            ]);
        } else {
            steps.push(*old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nsprobe_common::program::check;

    fn code(steps: &[Step]) -> Code {
        Code {
            steps: steps.to_vec(),
            data: Vec::new(),
        }
    }

    fn register(to: u8, register: Register) -> Step {
        Step {
            small: register as i32,
            ..step(Operation::Register, to, 0, 0)
        }
    }

    fn elapsed(to: u8) -> Step {
        Step {
            large: Context::Elapsed as u64,
            ..step(Operation::Context, to, 0, 0)
        }
    }

    fn operations(code: &Option<Code>) -> Vec<Operation> {
        let code = code.as_ref().expect("a program");
        check(&code.steps, &code.data).expect("it is sound");
        let operation = |step: &Step| Operation::from_u8(step.operation).expect("known");
        code.steps.iter().map(operation).collect()
    }

    #[test]
    fn a_result_alone_needs_no_entry() {
        let ret = code(&[register(0, Register::Rax), step(Operation::Field, 0, 0, 0)]);
        let at = AtExits::new(None, Some(&ret), Time::Nothing).expect("it can be");
        assert_eq!((at.begin, at.exit), (None, Some(ret)));
        assert!(at.needs_result);
    }

    #[test]
    fn a_time_ends_a_span() {
        use Operation::{Context, EndSpan, Field, Key, Or, Register, Value};
        let key = [Context, Key, Register, Key];
        let ret = code(&[elapsed(0), step(Field, 0, 0, 0)]);
        let at = AtExits::new(None, Some(&ret), Time::Nothing).expect("it can be");
        assert_eq!(operations(&at.begin), key);
        let wanted = [&key[..], &[EndSpan, Or, Field]].concat();
        assert_eq!(operations(&at.exit), wanted);
        assert!(!at.needs_result);
        let at = AtExits::new(None, None, Time::Value).expect("it can be");
        assert_eq!(operations(&at.exit), [&key[..], &[EndSpan, Value]].concat());
    }

    #[test]
    fn what_the_entry_keeps_and_decides_reaches_the_exit() {
        use Operation::{Field, Keep, Kept, Require};
        let entry = code(&[
            register(0, Register::Rdi),
            step(Require, 0, 0, 0),
            step(Keep, 0, 0, 0),
        ]);
        let ret = code(&[step(Kept, 0, 0, 0), step(Field, 0, 0, 0)]);
        let at = AtExits::new(Some(&entry), Some(&ret), Time::Nothing).expect("it can be");
        let begin = operations(&at.begin);
        assert!(begin.contains(&Operation::Value) && !begin.contains(&Keep));
        // What an earlier call left behind is gone before this one may be turned away.
        let first = |wanted| begin.iter().position(|operation| *operation == wanted);
        assert!(first(Operation::EndSpan) < first(Require), "{begin:?}");
        let exit = operations(&at.exit);
        assert!(exit.contains(&Operation::SpanValue) && exit.contains(&Require));
        assert!(!exit.contains(&Kept));
        let two = code(&[
            register(0, Register::Rdi),
            step(Keep, 0, 0, 0),
            Step {
                small: 1,
                ..step(Keep, 0, 0, 0)
            },
        ]);
        let refused = AtExits::new(Some(&two), Some(&ret), Time::Nothing);
        assert_eq!(refused, Err(NotAtExits::TooManyKept));
    }

    #[test]
    fn a_record_has_the_time_behind_its_fields() {
        let ret = code(&[register(0, Register::Rax), step(Operation::Field, 0, 0, 0)]);
        let at = AtExits::new(None, Some(&ret), Time::Field).expect("it can be");
        let last = operations(&at.exit).pop();
        assert_eq!(last, Some(Operation::Field));
        assert_eq!(time_field(&[0b11, 7, 1234], 1), Some(1234));
        assert_eq!(time_field(&[0b01, 7, 0], 1), None);
        assert_eq!(time_field(&[], 1), None);
        assert_eq!(time_field(&[u64::MAX], 64), None);
    }

    #[test]
    fn without_slots_it_is_refused() {
        let last = SLOTS as u8 - 1;
        let ret = code(&[elapsed(last), step(Operation::Field, 0, last, 0)]);
        let refused = AtExits::new(None, Some(&ret), Time::Nothing);
        assert_eq!(refused, Err(NotAtExits::TooLong));
    }
}
