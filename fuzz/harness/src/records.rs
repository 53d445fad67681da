// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records as a ring holds them.

use nsprobe_common::record::{Frames, Record};

/// A buffer of records.
pub(crate) fn records(bytes: &[u8]) {
    let words = bytes.chunks_exact(8);
    let words: Vec<u64> = words
        .filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?)))
        .collect();
    each(&words, |record| match record {
        Record::Hit(hit, details) => {
            assert!(details.frames.count() <= hit.words.into());
            assert_eq!(details.fields.len(), usize::from(hit.field_words));
        }
        Record::LateStack(late, frames) => assert!(frames.count() <= late.words.into()),
        Record::StackCopy(copy, mappings, words) => {
            assert_eq!(mappings.len(), copy.mappings as usize);
            assert_eq!(words.len(), copy.words as usize);
        }
        Record::Task(task, details) => {
            assert_eq!(details.levels.len(), usize::from(task.levels));
            assert_eq!(details.args.len(), task.args_bytes as usize);
        }
        _ => {}
    });
    // Each frame is a word or two.
    assert!(Frames(&words).count() <= words.len());
}

/// Looks at records until there are none, or they make no sense.
fn each(words: &[u64], mut look: impl FnMut(&Record<'_>)) {
    use zerocopy::IntoBytes;
    let mut rest = words.as_bytes();
    while let Ok(Some((record, length))) = Record::parse(rest) {
        assert!(length > 0, "it goes on");
        if let Some(record) = &record {
            look(record);
        }
        rest = rest.get(length..).expect("a record is in the buffer");
    }
}
