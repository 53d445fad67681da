// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code that neither a symbol nor a description of frames covers, such as the hidden functions of
//! a stripped C library. Every call is assumed to return.

use super::piece::{goes_on, is_padding, target};
use super::Code;
use crate::breakpoint::decode;
use iced_x86::FlowControl;
use std::collections::BTreeMap;

/// Most bytes that are decoded for a piece.
const BYTES_MAX: usize = 16 << 10;

/// The code that is reached from an address, as far as nothing but padding lies in between.
pub(super) fn piece(code: &dyn Code, address: u64) -> Option<Vec<u8>> {
    let mut bytes = code.undescribed(address, BYTES_MAX);
    let lengths = lengths(address, &bytes)?;
    let padding = |at: usize| {
        let between = decode(bytes.get(at..)?, address + at as u64)?;
        is_padding(&between).then_some(between.len())
    };
    let (mut at, mut end) = (0, 0);
    loop {
        if let Some(length) = lengths.get(&at) {
            at += length;
            end = at;
        } else if let Some(length) = padding(at) {
            at += length;
        } else {
            break;
        }
    }
    bytes.truncate(end);
    Some(bytes)
}

/// The lengths of the instructions that are reached from the first one, by where they begin; `None`
/// where one of them cannot be decoded, and where the first is padding.
fn lengths(address: u64, bytes: &[u8]) -> Option<BTreeMap<usize, usize>> {
    let mut lengths = BTreeMap::new();
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        if lengths.contains_key(&at) || at >= bytes.len() {
            continue;
        }
        let instruction = decode(bytes.get(at..)?, address.checked_add(at as u64)?)?;
        if at == 0 && is_padding(&instruction) {
            return None;
        }
        lengths.insert(at, instruction.len());
        if goes_on(&instruction) {
            open.push(at + instruction.len());
        }
        let is_call = instruction.flow_control() == FlowControl::Call;
        let target = target(&instruction).filter(|_| !is_call);
        let into = target.and_then(|target| target.checked_sub(address));
        open.extend(into.and_then(|into| usize::try_from(into).ok()));
    }
    Some(lengths)
}
