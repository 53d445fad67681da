// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unwind rows: compiled from sections, and given to the module as a table.

use crate::image::{self, split, Section};
use nsprobe_common::unwind::{Memory, Registers, Rule, Stop, Table};
use nsprobe_unwind::UnwindTable;
use zerocopy::FromBytes;

/// Most steps of a walk.
const STEPS: usize = 40;

/// `.eh_frame`, `.debug_frame`, `.sframe` and `.gopclntab`: what is compiled of them, the
/// module takes.
pub(crate) fn compile(bytes: &[u8]) {
    let parts = split(bytes, 4);
    let [eh_frame, debug_frame, sframe, go] = parts[..] else {
        return;
    };
    let binary = image::open(&[
        Section::loaded(".eh_frame", eh_frame),
        Section::plain(".debug_frame", debug_frame),
        Section::loaded(".sframe", sframe),
        Section::loaded(".gopclntab", go),
    ]);
    let Ok(compiled) = UnwindTable::of(&binary) else {
        return;
    };
    let UnwindTable {
        first,
        blocks,
        rows,
        rules,
        ..
    } = &compiled;
    let table = Table::check(*first, blocks, rows, rules);
    walk(table.expect("what is compiled is taken"));
}

/// The words of a table as a request has them.
pub(crate) fn table(bytes: &[u8]) {
    let parts = split(bytes, 4);
    let [first, blocks, rows, rules] = parts[..] else {
        return;
    };
    let first = first
        .first_chunk()
        .map_or(0, |first| u64::from_le_bytes(*first));
    let (blocks, rows) = (words(blocks), words(rows));
    let rules: Vec<Rule> = rules
        .chunks_exact(size_of::<Rule>())
        .filter_map(|rule| Rule::read_from_bytes(rule).ok())
        .collect();
    if let Ok(table) = Table::check(first, &blocks, &rows, &rules) {
        walk(table);
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks_exact(4);
    words
        .filter_map(|word| u32::read_from_bytes(word).ok())
        .collect()
}

/// Memory in which each word tells of its address, so that walks go on.
struct Told;

impl Memory for Told {
    fn word(&self, address: u64) -> Option<u64> {
        // A page that is not there, now and then.
        let mixed = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        (!mixed.is_multiple_of(61)).then_some(mixed % 0x2000)
    }

    fn register(&self, number: u8) -> Option<u64> {
        (number < 16).then_some(0x1000 + u64::from(number) * 8)
    }
}

/// Walks from some places on: stacks rise, or the walk says why it ends.
fn walk(table: Table<'_>) {
    for begin in (0..0x2000).step_by(0x155) {
        let mut at = Registers {
            rip: begin,
            rsp: 0x7fff_0000,
            rbp: 0x7fff_0100,
            knows_rbp: true,
            ..Registers::default()
        };
        for _ in 0..STEPS {
            let Some(rule) = table.find(at.inside()) else {
                break;
            };
            let before = at;
            match rule.step(&mut at, &Told) {
                Ok(_) if at.at == nsprobe_common::unwind::At::Interrupted => {}
                Ok(_) => assert!(at.rsp > before.rsp, "{rule:?} {before:?} {at:?}"),
                Err(Stop::Outermost | Stop::Unknown | Stop::Unsupported) => break,
                Err(Stop::Fault | Stop::NotAbove) => break,
            }
        }
    }
}
