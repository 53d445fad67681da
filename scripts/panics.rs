// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `panics.sh --self-test` judges: each function but the clean ones can panic, each in
//! its own way.
#![no_std]
#![allow(clippy::all, missing_docs, reason = "they are to be bad")]

use core::cell::RefCell;

#[no_mangle]
pub fn index(a: &[u64], i: usize) -> u64 {
    a[i]
}
#[no_mangle]
pub fn index_of_array(a: &[u64; 9], i: usize) -> u64 {
    a[i] ^ 1
}
#[no_mangle]
pub fn index_to_write(a: &mut [u16], i: usize) {
    a[i] = 3;
}
#[no_mangle]
pub fn slice_range(a: &[u8], i: usize, j: usize) -> &[u8] {
    &a[i..j]
}
#[no_mangle]
pub fn slice_inclusive(a: &[u8], i: usize, j: usize) -> &[u8] {
    &a[i..=j]
}
#[no_mangle]
pub fn slice_from(a: &[u8], i: usize) -> &[u8] {
    &a[i..]
}
#[no_mangle]
pub fn slice_to(a: &mut [u8], i: usize) -> &mut [u8] {
    &mut a[..i]
}
#[no_mangle]
pub fn slice_of_text(a: &str, i: usize) -> &str {
    &a[..i]
}
#[no_mangle]
pub fn split(a: &[u8], i: usize) -> (&[u8], &[u8]) {
    a.split_at(i)
}
#[no_mangle]
pub fn copied(a: &mut [u8], b: &[u8]) {
    a.copy_from_slice(b)
}
#[no_mangle]
pub fn copied_within(a: &mut [u8], i: usize) {
    a.copy_within(i.., 0)
}
#[no_mangle]
pub fn swapped(a: &mut [u8], i: usize, j: usize) {
    a.swap(i, j)
}
#[no_mangle]
pub fn rotated(a: &mut [u8], i: usize) {
    a.rotate_left(i)
}
#[no_mangle]
pub fn in_chunks(a: &[u8], i: usize) -> usize {
    a.chunks(i).count()
}
#[no_mangle]
pub fn in_windows(a: &[u8], i: usize) -> usize {
    a.windows(i).count()
}
#[no_mangle]
pub fn option_unwrap(a: Option<u64>) -> u64 {
    a.unwrap()
}
#[no_mangle]
pub fn option_expect(a: Option<u32>) -> u32 {
    a.expect("a number")
}
#[no_mangle]
pub fn result_unwrap(a: Result<u64, u8>) -> u64 {
    a.unwrap()
}
#[no_mangle]
pub fn result_expect(a: Result<u32, u16>) -> u32 {
    a.expect("a number")
}
#[no_mangle]
pub fn result_unwrap_err(a: Result<u32, u16>) -> u16 {
    a.unwrap_err()
}
#[no_mangle]
pub fn converted(a: u64) -> u8 {
    u8::try_from(a).unwrap()
}
#[no_mangle]
pub fn parsed(a: &[u8]) -> &str {
    core::str::from_utf8(a).unwrap()
}
#[no_mangle]
pub fn borrowed(a: &RefCell<u64>) -> u64 {
    *a.borrow()
}
#[no_mangle]
pub fn borrowed_to_write(a: &RefCell<u64>) {
    *a.borrow_mut() = 2
}
#[no_mangle]
pub fn add(a: u64, b: u64) -> u64 {
    a + b
}
#[no_mangle]
pub fn subtract(a: u32, b: u32) -> u32 {
    a - b
}
#[no_mangle]
pub fn multiply(a: i64, b: i64) -> i64 {
    a * b
}
#[no_mangle]
pub fn divide(a: u64, b: u64) -> u64 {
    a / b
}
#[no_mangle]
pub fn divide_signed(a: i32, b: i32) -> i32 {
    a / b
}
#[no_mangle]
pub fn remainder(a: u16, b: u16) -> u16 {
    a % b
}
#[no_mangle]
pub fn negate(a: i64) -> i64 {
    -a
}
#[no_mangle]
pub fn shift_left(a: u64, b: u32) -> u64 {
    a << b
}
#[no_mangle]
pub fn shift_right(a: u32, b: u32) -> u32 {
    a >> b
}
#[no_mangle]
pub fn power(a: u64, b: u32) -> u64 {
    a.pow(b)
}
#[no_mangle]
pub fn absolute(a: i64) -> i64 {
    a.abs()
}
#[no_mangle]
pub fn logarithm(a: u64) -> u32 {
    a.ilog2()
}
#[no_mangle]
pub fn sum(a: &[u8]) -> u8 {
    a.iter().sum()
}
#[no_mangle]
pub fn asserted(a: u64) {
    assert!(a > 4)
}
#[no_mangle]
pub fn asserted_equal(a: u64, b: u64) {
    assert_eq!(a, b)
}
#[no_mangle]
pub fn unreachable(a: u64) -> u64 {
    match a {
        1 => 3,
        _ => unreachable!(),
    }
}
#[no_mangle]
pub fn with_a_text(a: u64) {
    if a == 77 {
        panic!("{a}")
    }
}
#[no_mangle]
pub fn never_inlined_caller(a: &[u64], i: usize) -> u64 {
    never_inlined(a, i) ^ 5
}
#[no_mangle]
#[inline(never)]
pub fn never_inlined(a: &[u64], i: usize) -> u64 {
    a[i] ^ 7
}

#[no_mangle]
pub fn by_address() -> fn(&[u64], usize) -> u64 {
    never_inlined
}

#[no_mangle]
pub fn clean_get(a: &[u64], i: usize) -> u64 {
    a.get(i).copied().unwrap_or(0)
}
#[no_mangle]
pub fn clean_arithmetic(a: u64, b: u64) -> u64 {
    a.wrapping_add(b).checked_mul(b).unwrap_or_default() / 3
}
#[no_mangle]
pub fn clean_copy(a: &mut [u8], b: &[u8]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = *b)
}
#[no_mangle]
pub fn clean_slice(a: &[u8], i: usize) -> &[u8] {
    a.get(..i).unwrap_or_default()
}
