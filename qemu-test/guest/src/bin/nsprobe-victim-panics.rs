// SPDX-License-Identifier: MIT OR Apache-2.0
//! A traced program: panics pass through its function `passed`.
//!
//! `panics throw TIMES` prints "called N" in the end, with the calls of `passed` that
//! began, and "returned N", with those that returned.

use std::hint::black_box;
use std::panic::{catch_unwind, set_hook};

#[inline(never)]
fn leaf(panics: bool) -> u64 {
    assert!(!panics, "on purpose");
    black_box(1)
}

#[inline(never)]
fn passed(panics: bool) -> u64 {
    // What is left to do after the call keeps it from being a jump.
    let text = black_box(String::from("dropped by whoever leaves"));
    leaf(black_box(panics)) + text.len() as u64
}

fn main() {
    set_hook(Box::new(|_| {}));
    let times = std::env::args().nth(2).and_then(|times| times.parse().ok());
    let (mut called, mut returned) = (0u64, 0u64);
    for _ in 0..times.unwrap_or(0u64) {
        for panics in [true, false] {
            called += 1;
            returned += u64::from(catch_unwind(|| passed(black_box(panics))).is_ok());
        }
    }
    println!("called {called}\nreturned {returned}");
}
