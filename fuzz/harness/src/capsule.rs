// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capsules: any file, and sound chunks with any body.

use nsprobe_capsule::{
    CapsuleError, CapsuleReader, Chunk, ChunkHeader, Contents, Damage, Preamble, CHUNK_BYTES_MAX,
};
use zerocopy::IntoBytes;

/// The id that all chunks repeat.
const ID: u64 = 7;

/// A file as it is, or, when the first byte is even, the bodies of chunks: a byte of the kind,
/// two of the length, the body.
pub(crate) fn capsule(bytes: &[u8]) {
    let Some((how, rest)) = bytes.split_first() else {
        return;
    };
    match how % 2 {
        0 => read(&of_bodies(rest)),
        _ => read(rest),
    }
}

fn of_bodies(mut bytes: &[u8]) -> Vec<u8> {
    let mut file = Preamble::new(ID).as_bytes().to_vec();
    let mut number = 0;
    while let Some((&[kind, low, high], rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (body, rest) = rest.split_at(length);
        let kind = u16::from(kind);
        let header = ChunkHeader::new(ID, kind, 0, number, 1, body);
        file.extend(header.as_bytes());
        file.extend(body);
        // Bodies are followed by others at a multiple of eight.
        file.resize(file.len().next_multiple_of(8), 0);
        number += 1;
        bytes = rest;
    }
    file
}

fn read(file: &[u8]) {
    let Ok(mut reader) = CapsuleReader::new(file) else {
        return;
    };
    let contents = Contents::read(&mut reader);
    // Every byte belongs to what was read or what was not: it comes to an end.
    reader.rewind();
    let mut behind = 0;
    while let Ok(Some(found)) = reader.next_chunk() {
        let at = match &found {
            Ok(Chunk { at, body, .. }) => {
                assert!(body.len() <= CHUNK_BYTES_MAX);
                *at
            }
            Err(Damage { at, .. }) => *at,
        };
        assert!(at >= behind, "it goes back");
        behind = at;
    }
    let mut hits = 0;
    let walked = reader.each_record(|record| {
        hits += u64::from(matches!(record, nsprobe_common::record::Record::Hit(..)));
        Ok::<_, CapsuleError>(())
    });
    if let (Ok(contents), Ok(())) = (contents, walked) {
        assert_eq!(contents.hits, hits);
    }
}
