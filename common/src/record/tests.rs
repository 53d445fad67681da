// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a reader makes of bytes: whole records, and none of what is none.

use super::*;
use proptest::prelude::*;
use zerocopy::IntoBytes;
extern crate std;
use std::vec::Vec;

fn hit(words: u16) -> Hit {
    Hit {
        header: Header {
            word: (size_of::<Hit>() + 8 * words as usize) as u32,
            kind: KIND_HIT,
            reserved: 0,
        },
        words,
        ..Hit::default()
    }
}

/// The bytes of `parts` in 8-byte aligned memory.
fn aligned(parts: &[&[u8]]) -> Vec<u64> {
    let bytes: Vec<u8> = parts.concat();
    bytes
        .chunks(8)
        .map(|c| {
            let mut w = [0; 8];
            w[..c.len()].copy_from_slice(c);
            u64::from_ne_bytes(w)
        })
        .collect()
}

#[test]
fn a_hit_with_frames_comes_back() {
    let frames = [
        Frame::Object {
            id: 7,
            offset: 0x1234,
            method: Method::Registers as u8,
        },
        Frame::Address {
            address: u64::MAX,
            why: Unmapped::Anonymous as u8,
            method: 2,
        },
        Frame::Object {
            id: 0xfffff,
            offset: (1 << OFFSET_BITS) - 1,
            method: 15,
        },
    ];
    let mut words = Vec::new();
    for frame in frames {
        let (encoded, count) = frame.encode();
        words.extend_from_slice(&encoded[..count]);
    }
    let head = hit(words.len() as u16);
    let buffer = aligned(&[head.as_bytes(), words.as_bytes()]);
    let (record, length) = Record::parse(buffer.as_bytes()).unwrap().unwrap();
    assert_eq!(length, buffer.len() * 8);
    let Some(Record::Hit(_, got)) = record else {
        panic!("not a hit")
    };
    assert_eq!(got.frames.collect::<Vec<_>>(), frames);
}

#[test]
fn busy_stops_and_discard_skips() {
    let mut head = hit(0);
    head.header.word |= BUSY;
    assert!(Record::parse(aligned(&[head.as_bytes()]).as_bytes())
        .unwrap()
        .is_none());
    head.header.word = head.header.word & !BUSY | DISCARD;
    let buffer = aligned(&[head.as_bytes()]);
    let (record, length) = Record::parse(buffer.as_bytes()).unwrap().unwrap();
    assert!(record.is_none());
    assert_eq!(length, size_of::<Hit>());
}

#[test]
fn a_hit_that_claims_more_words_than_it_has_is_corrupt() {
    let mut head = hit(0);
    head.words = 1;
    assert!(Record::parse(aligned(&[head.as_bytes()]).as_bytes()).is_err());
}

proptest! {
    #[test]
    fn any_bytes_parse_within_bounds(words in proptest::collection::vec(any::<u64>(), 0..40)) {
        let bytes = words.as_bytes();
        let mut at = 0;
        while let Ok(Some((_, length))) = Record::parse(&bytes[at..]) {
            prop_assert!(length >= 8 && at + length <= bytes.len());
            at += length;
        }
    }

    #[test]
    fn every_frame_comes_back(id in 1u32..1 << 20, offset in 0..1u64 << OFFSET_BITS, method in 0u8..16) {
        let frame = Frame::Object { id, offset, method };
        let (words, count) = frame.encode();
        prop_assert_eq!(Frame::decode(&words[..count]).unwrap().0, frame);
    }
}
