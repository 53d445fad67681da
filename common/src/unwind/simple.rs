// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Rules in one word, for walks that keep those that they have met (`kmod/helpers/walk.c`).

use super::{Base, Rule, Saved};

/// A simple rule in one word; nearly all rules are simple.
///
/// Bits 0 to 31 are the frame's offset, bits 32 to 47 where `rbp` is saved; the constants name the
/// other bits.
#[derive(Clone, Copy)]
pub struct SimpleRule(u64);

impl SimpleRule {
    /// The frame is found from `rbp`, not `rsp`.
    const BY_RBP: u64 = 1 << 48;
    /// `rbp` was saved, at the place that the bits give.
    const SAVES: u64 = 1 << 49;
    /// `rbp` was saved right below the return address.
    const SAVES_BELOW: u64 = 1 << 50;
    /// There is no caller.
    const OUTERMOST: u64 = 1 << 51;

    /// The word of a rule, if it is simple.
    pub fn of(rule: &Rule) -> Option<Self> {
        let by_rbp = match Base::from_u8(rule.base)? {
            Base::Rsp => 0,
            Base::Rbp => Self::BY_RBP,
            // An offset of zero leads to no frame: only there does the walk test for this.
            Base::Outermost => return Some(SimpleRule(Self::OUTERMOST)),
            _ => return None,
        };
        let saved = match Saved::from_u8(rule.saved)? {
            Saved::Same => 0,
            Saved::AtFrame if rule.saved_at == -16 => Self::SAVES_BELOW,
            Saved::AtFrame => {
                let at = i16::try_from(rule.saved_at).ok()?;
                Self::SAVES | u64::from(at as u16) << 32
            }
            _ => return None,
        };
        Some(SimpleRule(u64::from(rule.offset as u32) | by_rbp | saved))
    }

    /// The word.
    pub fn word(self) -> u64 {
        self.0
    }

    /// Whether the word of a rule says that there is no caller.
    pub fn is_outermost(word: u64) -> bool {
        word == Self::OUTERMOST
    }

    /// Whether the frame is found from `rbp`.
    #[inline(always)]
    pub fn by_rbp(self) -> bool {
        self.0 & Self::BY_RBP != 0
    }

    /// Whether `rbp` was saved right below the return address.
    #[inline(always)]
    pub fn saves_below(self) -> bool {
        self.0 & Self::SAVES_BELOW != 0
    }

    /// The address where `rbp` is saved, for a frame at `frame`; zero if it is not saved.
    #[inline(always)]
    pub fn saved_slot(self, frame: u64) -> u64 {
        match (self.saves_below(), self.saved_at()) {
            (true, _) => frame.wrapping_sub(16),
            (false, Some(at)) => frame.wrapping_add(at),
            (false, None) => 0,
        }
    }

    /// Bytes from the frame to the saved `rbp`.
    #[inline(always)]
    pub fn saved_at(self) -> Option<u64> {
        let at = i64::from((self.0 >> 32) as i16) as u64;
        (self.0 & Self::SAVES != 0).then_some(at)
    }
}
