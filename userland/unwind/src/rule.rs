// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row of a frame's description as a rule.

use gimli::{
    CfaRule, Encoding, EndianSlice, Format, LittleEndian, Operation, Register, RegisterRule,
    UnwindExpression, UnwindOffset, UnwindSection, UnwindTableRow, X86_64,
};
use nsprobe_common::unwind::{Base, Rule, Saved};

pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Longest expression that is looked at, in operations.
const OPERATIONS_MAX: usize = 12;
/// Where the stack pointer lies in a signal's `ucontext`, whose address is that of the
/// interrupted frame (`arch/x86/include/uapi/asm/sigcontext.h`).
const SIGNAL_STACK_POINTER: i64 = 160;

/// A rule of a base, or that there is none.
pub(crate) const fn bare(base: Base) -> Rule {
    Rule {
        base: base as u8,
        saved: Saved::Same as u8,
        more: 0,
        offset: 0,
        saved_at: 0,
        extra: 0,
    }
}

/// The rule of a row.
pub(crate) fn rule_of<'s, S>(section: &S, row: &UnwindTableRow<usize>, is_signal: bool) -> Rule
where
    S: UnwindSection<Bytes<'s>>,
    S::Offset: UnwindOffset<usize>,
{
    let reader = RuleReader { section };
    match reader.frame(row, is_signal) {
        Some(rule) => rule,
        None => bare(Base::Unsupported),
    }
}

struct RuleReader<'a, S> {
    section: &'a S,
}

/// An operation, as far as rules are made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleOperation {
    Register(Register, i64),
    Load,
    Add(u64),
    Constant(u64),
    And,
    NotLess,
    ShiftLeft,
    Sum,
}

impl<'s, S> RuleReader<'_, S>
where
    S: UnwindSection<Bytes<'s>>,
    S::Offset: UnwindOffset<usize>,
{
    fn frame(&self, row: &UnwindTableRow<usize>, is_signal: bool) -> Option<Rule> {
        match row.register(X86_64::RA) {
            Some(RegisterRule::Undefined) => return Some(bare(Base::Outermost)),
            Some(RegisterRule::Offset(-8)) => {}
            Some(RegisterRule::Expression(_)) if is_signal => return self.signal(row.cfa()),
            _ => return None,
        }
        let rule = self.base(row.cfa())?;
        self.with_saved(rule, row)
    }

    /// The rule of the frame's address.
    fn base(&self, cfa: &CfaRule<usize>) -> Option<Rule> {
        let (base, offset, more) = match cfa {
            CfaRule::RegisterAndOffset { register, offset } => {
                let (base, more) = match *register {
                    X86_64::RSP => (Base::Rsp, 0),
                    X86_64::RBP => (Base::Rbp, 0),
                    Register(number @ 0..16) => (Base::Register, i64::from(number)),
                    _ => return None,
                };
                (base, *offset, more)
            }
            CfaRule::Expression(expression) => match *self.parts(expression)? {
                [RuleOperation::Register(register, offset), RuleOperation::Load] => {
                    (loaded(register)?, offset, 0)
                }
                [RuleOperation::Register(register, offset), RuleOperation::Load, RuleOperation::Add(more)] => {
                    (loaded(register)?, offset, i64::try_from(more).ok()?)
                }
                // What linkers write for .plt.
                [RuleOperation::Register(X86_64::RSP, offset), RuleOperation::Register(X86_64::RA, 0), RuleOperation::Constant(15), RuleOperation::And, RuleOperation::Constant(least), RuleOperation::NotLess, RuleOperation::Constant(3), RuleOperation::ShiftLeft, RuleOperation::Sum] => {
                    (Base::Linkage, offset, i64::try_from(least).ok()?)
                }
                _ => return None,
            },
        };
        Some(Rule {
            offset: i32::try_from(offset).ok()?,
            more: i16::try_from(more).ok()?,
            ..bare(base)
        })
    }

    /// A signal's frame: its registers are where the kernel puts them.
    fn signal(&self, cfa: &CfaRule<usize>) -> Option<Rule> {
        let CfaRule::Expression(expression) = cfa else {
            return None;
        };
        let [RuleOperation::Register(X86_64::RSP, at), RuleOperation::Load] =
            *self.parts(expression)?
        else {
            return None;
        };
        Some(Rule {
            offset: i32::try_from(at.checked_sub(SIGNAL_STACK_POINTER)?).ok()?,
            ..bare(Base::Signal)
        })
    }

    fn with_saved(&self, rule: Rule, row: &UnwindTableRow<usize>) -> Option<Rule> {
        let (saved, at) = match row.register(X86_64::RBP) {
            None | Some(RegisterRule::SameValue) => (Saved::Same, 0),
            Some(RegisterRule::Offset(offset)) => (Saved::AtFrame, offset),
            Some(RegisterRule::Expression(expression)) => {
                match self.parts(&expression).as_deref() {
                    Some([RuleOperation::Register(X86_64::RBP, offset)]) => (Saved::AtRbp, *offset),
                    _ => (Saved::Lost, 0),
                }
            }
            Some(_) => (Saved::Lost, 0),
        };
        Some(match i32::try_from(at) {
            Ok(saved_at) => Rule {
                saved: saved as u8,
                saved_at,
                ..rule
            },
            Err(_) => Rule {
                saved: Saved::Lost as u8,
                ..rule
            },
        })
    }

    /// The operations of an expression; none when others are in it.
    fn parts(&self, expression: &UnwindExpression<usize>) -> Option<Vec<RuleOperation>> {
        let encoding = Encoding {
            address_size: 8,
            format: Format::Dwarf32,
            version: 4,
        };
        let mut operations = expression.get(self.section).ok()?.operations(encoding);
        let mut parts = Vec::new();
        while let Some(operation) = operations.next().ok()? {
            if parts.len() == OPERATIONS_MAX {
                return None;
            }
            parts.push(match operation {
                Operation::RegisterOffset {
                    register, offset, ..
                } => RuleOperation::Register(register, offset),
                Operation::Deref {
                    size: 8,
                    space: false,
                    ..
                } => RuleOperation::Load,
                Operation::PlusConstant { value } => RuleOperation::Add(value),
                Operation::UnsignedConstant { value } => RuleOperation::Constant(value),
                Operation::And => RuleOperation::And,
                Operation::Ge => RuleOperation::NotLess,
                Operation::Shl => RuleOperation::ShiftLeft,
                Operation::Plus => RuleOperation::Sum,
                _ => return None,
            });
        }
        Some(parts)
    }
}

/// The base that is loaded from where a register points.
fn loaded(register: Register) -> Option<Base> {
    match register {
        X86_64::RSP => Some(Base::AtRsp),
        X86_64::RBP => Some(Base::AtRbp),
        _ => None,
    }
}
