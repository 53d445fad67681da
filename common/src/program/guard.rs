// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The requirements of a program on registers alone, checked before a run.
//!
//! A condition such as `arg1 == 4096` rejects most hits, and then setting up a whole run is all
//! that a hit costs. The first requirements of that simple kind are read off the program once; a
//! hit that does not meet them would be rejected by the run as well, with the same outcome.

use super::{bit, Context, Operation, Program, Register, Step, SLOTS};

/// Most requirements that are read off.
const GUARDS_MAX: usize = 4;

/// A comparison of a register and a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Guard {
    register: Register,
    /// Bits of the register that do not count, at its upper end.
    unused: u32,
    signed: bool,
    comparison: Comparison,
    constant: u64,
    /// The outcome that is required.
    outcome: bool,
}

/// How the value of a register, left, compares to the constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Below,
    Above,
    Less,
    Greater,
    /// The random number of the hit, modulo the constant, is below the register.
    Drawn,
}

impl Guard {
    #[inline(always)]
    fn holds(&self, register: u64, draw: impl Fn() -> u64) -> bool {
        let shifted = register.wrapping_shl(self.unused);
        let value = match self.signed {
            true => (shifted as i64).wrapping_shr(self.unused) as u64,
            false => shifted.wrapping_shr(self.unused),
        };
        let constant = self.constant;
        let holds = match self.comparison {
            Comparison::Equal => value == constant,
            Comparison::Below => value < constant,
            Comparison::Above => value > constant,
            Comparison::Less => (value as i64) < constant as i64,
            Comparison::Greater => value as i64 > constant as i64,
            Comparison::Drawn => draw().checked_rem(constant).is_some_and(|of| of < value),
        };
        holds == self.outcome
    }
}

/// The requirements of registers with which a program begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    guards: [Option<Guard>; GUARDS_MAX],
}

impl Guards {
    /// Whether a run of the program would reject the hit, decidedly and without having
    /// done anything. `false` means nothing. `draw` gives the random number that the run would
    /// have; none where that is not known.
    #[inline(always)]
    pub fn reject(
        &self,
        value_of: impl Fn(Register) -> Option<u64>,
        draw: Option<impl Fn() -> u64>,
    ) -> bool {
        for guard in &self.guards {
            let Some(guard) = guard else {
                return false;
            };
            if guard.comparison == Comparison::Drawn && draw.is_none() {
                return false;
            }
            let draw = || draw.as_ref().map_or(0, |draw| draw());
            if value_of(guard.register).is_some_and(|value| !guard.holds(value, draw)) {
                return true;
            }
        }
        false
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.guards.iter().flatten().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What is known of a slot without running the program.
#[derive(Clone, Copy)]
enum Term {
    Constant(u64),
    Register {
        register: Register,
        unused: u32,
        signed: bool,
    },
    Test(Guard),
    /// The random number of the hit, and modulo a number.
    Random,
    Draw(u64),
}

impl Program<'_> {
    /// The requirements of registers with which the program begins.
    pub fn guards(&self) -> Guards {
        let mut terms = [None; SLOTS];
        let mut guards = Guards::default();
        let mut places = guards.guards.iter_mut();
        for step in self.steps {
            let Some(operation) = Operation::from_u8(step.operation) else {
                break;
            };
            let term = |slot: u8| terms.get(usize::from(slot)).copied().flatten();
            match operation {
                Operation::Require => {
                    let (Some(guard), Some(place)) = (term(step.a).and_then(test), places.next())
                    else {
                        break;
                    };
                    *place = Some(guard);
                }
                // Fields of a rejected hit go nowhere.
                Operation::Field
                | Operation::FieldString
                | Operation::FieldBytes
                | Operation::FieldSlice => {}
                // What these do stays done, or they require something themselves.
                Operation::Keep
                | Operation::Key
                | Operation::KeyString
                | Operation::KeySlice
                | Operation::Value
                | Operation::EndSpan
                | Operation::SetRegister
                | Operation::Store
                | Operation::Return => break,
                _ => {
                    let known = evaluate(operation, step, term(step.a), term(step.b));
                    if let (Ok(_), Some(place)) =
                        (bit(step.to), terms.get_mut(usize::from(step.to)))
                    {
                        *place = known;
                    }
                }
            }
        }
        guards
    }
}

/// A term that is required to be other than zero.
fn test(term: Term) -> Option<Guard> {
    match term {
        Term::Test(guard) => Some(guard),
        Term::Register { .. } => compare(Comparison::Equal, term, 0, false),
        Term::Constant(_) | Term::Random | Term::Draw(_) => None,
    }
}

/// The comparison of a register with a constant.
fn compare(comparison: Comparison, term: Term, constant: u64, outcome: bool) -> Option<Guard> {
    let Term::Register {
        register,
        unused,
        signed,
    } = term
    else {
        return None;
    };
    Some(Guard {
        register,
        unused,
        signed,
        comparison,
        constant,
        outcome,
    })
}

/// What the slot that a step writes is known to hold.
fn evaluate(operation: Operation, step: &Step, a: Option<Term>, b: Option<Term>) -> Option<Term> {
    match operation {
        Operation::Constant => Some(Term::Constant(step.large)),
        Operation::Context if step.large == Context::Random as u64 => Some(Term::Random),
        Operation::Modulo => match (a?, b?) {
            (Term::Random, Term::Constant(constant @ 1..)) => Some(Term::Draw(constant)),
            _ => None,
        },
        Operation::Register => Some(Term::Register {
            register: Register::from_u8(u8::try_from(step.small).ok()?)?,
            unused: 0,
            signed: false,
        }),
        Operation::ZeroExtend | Operation::SignExtend => match a? {
            Term::Register {
                register,
                unused: 0,
                ..
            } => Some(Term::Register {
                register,
                unused: 64u32.checked_sub(u32::try_from(step.large).ok()?)?,
                signed: operation == Operation::SignExtend,
            }),
            _ => None,
        },
        Operation::IsZero => match a? {
            Term::Test(guard) => Some(Term::Test(Guard {
                outcome: !guard.outcome,
                ..guard
            })),
            term => compare(Comparison::Equal, term, 0, true).map(Term::Test),
        },
        _ => relation(operation, a?, b?).map(Term::Test),
    }
}

fn relation(operation: Operation, a: Term, b: Term) -> Option<Guard> {
    use Comparison::*;
    // `x <= c` is "not above", `c < x` is "above".
    let (left, right, outcome) = match operation {
        Operation::Equal => (Equal, Equal, true),
        Operation::Below => (Below, Above, true),
        Operation::BelowOrEqual => (Above, Below, false),
        Operation::Less => (Less, Greater, true),
        Operation::LessOrEqual => (Greater, Less, false),
        _ => return None,
    };
    match (a, b) {
        (Term::Draw(constant), term @ Term::Register { .. }) if operation == Operation::Below => {
            compare(Drawn, term, constant, outcome)
        }
        (term, Term::Constant(constant)) => compare(left, term, constant, outcome),
        (Term::Constant(constant), term) => compare(right, term, constant, outcome),
        _ => None,
    }
}
