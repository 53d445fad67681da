// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records as a ring holds them.

use nsprobe_common::record::{Frames, Record};
use nsprobe_common::text::write_line;

/// A buffer of records.
pub(crate) fn records(bytes: &[u8]) {
    let words = bytes.chunks_exact(8);
    let words: Vec<u64> = words
        .filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?)))
        .collect();
    each(&words, |record| {
        let mut line = String::new();
        let written = write_line(&mut line, record);
        assert!(written.is_ok());
        let text = line.strip_suffix('\n').unwrap_or(&line);
        assert!(!text.contains('\n'), "{line:?}");
        match record {
            Record::Hit(_, details) => drop(details.frames.count()),
            Record::LateStack(_, frames) => drop(frames.count()),
            _ => {}
        }
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
