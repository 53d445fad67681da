// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug information that no parser gets through: units without anything, for each of which
//! all abbreviations are read (gimli #436). Tests of other packages include this file, too.

/// A unit that has nothing but the header of DWARF 4, and the end of its entries.
pub(crate) const UNIT: [u8; 12] = [8, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 0];

/// So many abbreviations: of units without children and attributes.
pub(crate) fn abbreviations(count: u32) -> Vec<u8> {
    let mut all = Vec::new();
    for number in 1..=count {
        let digits = [
            number & 0x7f | 0x80,
            number >> 7 & 0x7f | 0x80,
            number >> 14,
        ];
        all.extend(digits.map(|digit| digit as u8));
        all.extend([0x11, 0, 0, 0]);
    }
    all.push(0);
    all
}
