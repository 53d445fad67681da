// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a place is where an instruction begins.

use crate::breakpoint::{self, Boundary};
use crate::place::{holding, Searched};
use crate::spot::Spot;
use anyhow::bail;
use std::ops::Range;

impl Searched<'_> {
    /// Refuses a place within an instruction: a breakpoint there would change what the
    /// instruction does. A debug file proves nothing: it may come from a container.
    pub(crate) fn check_boundary(&self, spot: &Spot) -> anyhow::Result<()> {
        if self.binary.is_function_entry(spot.offset) {
            return self.check_symbol(spot);
        }
        let Some(piece) = self.own_piece(spot.address.0) else {
            bail!(
                "{}: no symbol of the file and no .eh_frame shows where the code around it begins, \
                 so it may be in the middle of an instruction, where a breakpoint breaks the \
                 program (--force probes it anyway)",
                spot.function
            );
        };
        match self.boundary(spot, &piece) {
            Boundary::Instruction => Ok(()),
            Boundary::Inside(start) => bail!(
                "{} is in the middle of an instruction, which begins at +{start:#x}: a breakpoint \
                 there would change it",
                spot.function
            ),
            Boundary::Unknown => bail!(
                "{}: the code before it cannot be decoded, so it may be in the middle of an \
                 instruction, where a breakpoint breaks the program (--force probes it \
                 anyway)",
                spot.function
            ),
        }
    }

    /// Refuses a symbol within an instruction of what begins before it, by another symbol or by the
    /// description of its frame.
    fn check_symbol(&self, spot: &Spot) -> anyhow::Result<()> {
        let address = spot.address.0;
        let before = address
            .checked_sub(1)
            .and_then(|before| holding(self.binary, before));
        let before = before.map(|function| function.address.0..function.end());
        let frame = self.frames().and_then(|frames| frames.covering(address));
        for piece in before.into_iter().chain(frame) {
            let is_around = piece.start < address && address < piece.end;
            if is_around && matches!(self.boundary(spot, &piece), Boundary::Inside(_)) {
                bail!(
                    "{}: its symbol points into an instruction of the code around it, which begins \
                     at {:#x}: a breakpoint there would change it (--force probes it anyway)",
                    spot.function,
                    piece.start
                );
            }
        }
        Ok(())
    }

    /// What is at a spot, counted from the beginning of a piece.
    fn boundary(&self, spot: &Spot, piece: &Range<u64>) -> Boundary {
        if piece.start == spot.address.0 {
            return Boundary::Instruction;
        }
        let whole = breakpoint::FunctionCode {
            address: piece.start,
            bytes: &self.code(piece),
            elsewhere: &[],
        };
        let into = spot.address.0.saturating_sub(piece.start) as usize;
        breakpoint::boundary(&whole, into)
    }
}
