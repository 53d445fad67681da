// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probe programs: what the check takes, runs to its end within what the check has counted.

use nsprobe_common::program::{check, Context, Machine, Output, Register, Step, OUTPUT_WORDS_MAX};
use zerocopy::FromBytes;

/// Steps, and the constant bytes that they use.
pub(crate) fn program(bytes: &[u8]) {
    let parts = crate::image::split(bytes, 2);
    let [steps, data] = parts[..] else {
        return;
    };
    let steps: Vec<Step> = steps
        .chunks_exact(size_of::<Step>())
        .filter_map(|step| Step::read_from_bytes(step).ok())
        .collect();
    if let Ok(program) = check(&steps, data) {
        let mut output = Words(Vec::new());
        program.run(&mut Task::default(), &mut output);
        assert!(output.0.len() <= OUTPUT_WORDS_MAX, "{}", output.0.len());
    }
}

struct Words(Vec<u64>);

impl Output for Words {
    fn extend(&mut self, words: &[u64]) {
        self.0.extend(words);
    }

    fn set_first(&mut self, word: u64) {
        if let Some(first) = self.0.first_mut() {
            *first = word;
        }
    }
}

/// A task whose registers and memory tell of themselves.
#[derive(Default)]
struct Task {
    kept: Vec<(usize, u64)>,
    key: usize,
}

impl Machine for Task {
    fn register(&self, register: Register) -> Option<u64> {
        (register as u8 != 3).then_some(0x1000 + register as u64)
    }

    fn context(&self, context: Context) -> Option<u64> {
        (context as u8 % 5 != 1).then_some(context as u64)
    }

    fn kept(&self, index: usize) -> Option<u64> {
        let kept = self.kept.iter().rev();
        let mut kept = kept.filter(|(at, _)| *at == index);
        kept.next().map(|(_, value)| *value)
    }

    fn keep(&mut self, index: usize, value: u64) {
        self.kept.push((index, value));
    }

    fn probe_address(&self) -> u64 {
        0x40_1000
    }

    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        for (index, byte) in (0..).zip(out) {
            *byte = address.wrapping_add(index) as u8;
        }
        !address.is_multiple_of(7)
    }

    fn set_register(&mut self, _: Register, _: u64) -> bool {
        true
    }

    fn write(&mut self, address: u64, _: &[u8]) -> bool {
        address.is_multiple_of(2)
    }

    fn return_now(&mut self, _: u64, _: u64) -> bool {
        false
    }

    fn key(&mut self, words: &[u64]) {
        self.key += words.len();
        assert!(self.key <= nsprobe_common::program::KEY_WORDS_MAX);
    }

    fn value(&mut self, _: u64) {}

    fn end_span(&mut self, _: bool) -> Option<u64> {
        self.key = 0;
        Some(5)
    }

    fn span_value(&self) -> Option<u64> {
        None
    }
}
