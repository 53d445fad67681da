// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections made by hand, whole and broken.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;

const SECTION: u64 = 0x10_000;

/// What a function's entry says.
#[derive(Clone, Debug)]
struct TestFunction {
    start: i32,
    bytes: u32,
    rows_at: u32,
    rows: u32,
    info: u8,
    repeated: u8,
}

const PLAIN: TestFunction = TestFunction {
    start: -0x8000,
    bytes: 0x40,
    rows_at: 0,
    rows: 3,
    info: 0,
    repeated: 0,
};

/// Frame at rsp + 8; from 1 on at rsp + 16 with rbp below; from 4 on at rbp + 16.
const ROWS: [u8; 11] = [0, 3, 8, 1, 5, 16, 0xf0, 4, 4, 16, 0xf0];

fn section(entries: &[TestFunction], rows: &[u8], rows_count: u32, flags: u8) -> Vec<u8> {
    let mut bytes = vec![0xe2, 0xde, 2, flags, 3, 0, 0xf8, 0];
    let functions_bytes = entries.len() as u32 * 20;
    let count = entries.len() as u32;
    for word in [count, rows_count, rows.len() as u32, 0, functions_bytes] {
        bytes.extend(word.to_le_bytes());
    }
    for entry in entries {
        bytes.extend(entry.start.to_le_bytes());
        for word in [entry.bytes, entry.rows_at, entry.rows] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([entry.info, entry.repeated, 0, 0]);
    }
    bytes.extend(rows);
    bytes
}

fn read_bytes(bytes: Vec<u8>) -> (Vec<Described>, u64) {
    super::read(&LoadedSection {
        data: Arc::from(bytes),
        address: nsprobe_symbolize::Address(SECTION),
    })
}

fn frame(base: Base, offset: i32, saved_at: Option<i32>) -> Rule {
    Rule {
        base: base as u8,
        offset,
        saved: saved_at.map_or(Saved::Same, |_| Saved::AtFrame) as u8,
        saved_at: saved_at.unwrap_or(0),
        more: 0,
        extra: 0,
    }
}

fn described(from: u64, to: u64, rule: Rule) -> Described {
    Described { from, to, rule }
}

#[test]
fn rows_hold_up_to_the_next_and_the_last_to_the_end() {
    let wanted = [
        described(0x8000, 0x8001, frame(Base::Rsp, 8, None)),
        described(0x8001, 0x8004, frame(Base::Rsp, 16, Some(-16))),
        described(0x8004, 0x8040, frame(Base::Rbp, 16, Some(-16))),
    ];
    let (got, unreadable) = read_bytes(section(&[PLAIN], &ROWS, 3, 0));
    assert_eq!((got.as_slice(), unreadable), (&wanted[..], 0));
    // Counted from the entry, which lies after the header.
    let entry = TestFunction {
        start: -0x8000 - 28,
        ..PLAIN
    };
    let (got, unreadable) = read_bytes(section(&[entry], &ROWS, 3, START_FROM_FIELD | SORTED));
    assert_eq!((got.as_slice(), unreadable), (&wanted[..], 0));
}

#[test]
fn offsets_and_starts_have_three_sizes() {
    let wide = [0, 1, 1 | 1 << 1 | 1 << 5, 0x34, 0x12];
    let entry = TestFunction {
        bytes: 0x200,
        rows: 1,
        info: 1,
        ..PLAIN
    };
    let (got, _) = read_bytes(section(&[entry], &wide, 1, 0));
    let rule = frame(Base::Rsp, 0x1234, None);
    assert_eq!(got, [described(0x8100, 0x8200, rule)]);
    let widest = [0, 1, 0, 0, 1 | 1 << 1 | 2 << 5, 0x78, 0x56, 0x34, 0x12];
    let entry = TestFunction {
        bytes: 0x200,
        rows: 1,
        info: 2,
        ..PLAIN
    };
    let (got, _) = read_bytes(section(&[entry], &widest, 1, 0));
    let rule = frame(Base::Rsp, 0x1234_5678, None);
    assert_eq!(got, [described(0x8100, 0x8200, rule)]);
}

#[test]
fn linkage_tables_are_one_rule_and_other_repetitions_are_written_out() {
    let rows = [0, 3, 8, 11, 3, 16];
    let entry = TestFunction {
        rows: 2,
        info: 0x10,
        repeated: 16,
        ..PLAIN
    };
    let (got, unreadable) = read_bytes(section(std::slice::from_ref(&entry), &rows, 2, 0));
    let linkage = Rule {
        more: 11,
        ..frame(Base::Linkage, 8, None)
    };
    assert_eq!(got, [described(0x8000, 0x8040, linkage)]);
    assert_eq!(unreadable, 0);
    let other = TestFunction {
        repeated: 32,
        bytes: 0x30,
        ..entry.clone()
    };
    let (got, _) = read_bytes(section(&[other], &rows, 2, 0));
    let (first, second) = (frame(Base::Rsp, 8, None), frame(Base::Rsp, 16, None));
    let wanted = [
        described(0x8000, 0x800b, first),
        described(0x800b, 0x8020, second),
        described(0x8020, 0x802b, first),
        described(0x802b, 0x8030, second),
    ];
    assert_eq!(got, wanted);
    // The beginning is not where one is called to.
    for wrong in [[0, 3, 16], [1, 3, 8], [0, 2, 8]] {
        let entry = TestFunction {
            rows: 1,
            ..entry.clone()
        };
        let (got, unreadable) = read_bytes(section(&[entry], &wrong, 1, 0));
        assert_eq!((got.len(), unreadable), (0, 1), "{wrong:?}");
    }
    // Too many, none, and where the editions of the specification differ.
    for (repeated, bytes, start) in [(8, u32::MAX, 0), (0, 64, 0), (16, 64, 8)] {
        let entry = TestFunction {
            repeated,
            bytes,
            start: PLAIN.start + start,
            rows: 1,
            ..entry.clone()
        };
        let (got, unreadable) = read_bytes(section(&[entry], &rows[..3], 1, 0));
        assert_eq!((got.len(), unreadable), (0, 1), "{repeated} {bytes}");
    }
}

#[test]
fn functions_with_a_wrong_row_are_left_out_alone() {
    let behind = TestFunction {
        start: PLAIN.start + 0x40,
        ..PLAIN
    };
    let wrong: [&[u8]; 9] = [
        // The same place twice, and one past the end.
        &[0, 3, 8, 0, 3, 16, 4, 3, 8],
        &[0, 3, 8, 1, 3, 16, 0x40, 3, 8],
        // No offset, three of them, a size that there is not, a signed return address.
        &[0, 1, 8, 1, 3, 16, 4, 3, 8],
        &[0, 7, 8, 0, 0, 1, 3, 16, 4, 3, 8],
        &[0, 3 | 3 << 5, 8, 1, 3, 16, 4, 3, 8],
        &[0, 0x83, 8, 1, 3, 16, 4, 3, 8],
        // Cut short in an offset, before the info, before the row.
        &[0, 3, 8, 1, 3, 16, 4, 5, 8],
        &[0, 3, 8, 1, 5, 16, 8, 4, 3],
        &[0, 3, 8, 1, 5, 16, 8, 8, 8],
    ];
    for rows in wrong {
        let (got, unreadable) = read_bytes(section(&[PLAIN], rows, 3, 0));
        assert_eq!((got.len(), unreadable), (0, 1), "{rows:?}");
        let both = [rows, &ROWS].concat();
        let behind = TestFunction {
            rows_at: rows.len() as u32,
            ..behind.clone()
        };
        // Another function's rows are no end of one's own.
        let (got, unreadable) = read_bytes(section(&[PLAIN, behind], &both, 6, 0));
        let own = got.iter().filter(|one| one.from >= 0x8040).count();
        assert!(own == 3 && unreadable <= 1, "{rows:?}: {got:?}");
    }
    for (info, rows_at) in [(3, 0), (0x20, 0), (0x80, 0), (0, 99)] {
        let entry = TestFunction {
            info,
            rows_at,
            ..PLAIN
        };
        let (got, unreadable) = read_bytes(section(
            &[entry, behind.clone()],
            &[ROWS, ROWS].concat(),
            6,
            0,
        ));
        assert_eq!((got.len(), unreadable), (3, 1), "{info} {rows_at}");
    }
}

#[test]
fn of_functions_that_overlap_the_first_counts() {
    let inside = TestFunction {
        start: PLAIN.start + 0x20,
        ..PLAIN
    };
    // In any order.
    let (got, unreadable) = read_bytes(section(&[inside, PLAIN], &[ROWS, ROWS].concat(), 6, 0));
    assert_eq!((got.len(), unreadable), (3, 1));
    assert!(got.iter().all(|one| one.to <= 0x8040));
}

#[test]
fn functions_have_no_more_rows_than_the_section() {
    let entries: Vec<TestFunction> = (0..1000)
        .map(|index| TestFunction {
            start: PLAIN.start + index * 0x40,
            ..PLAIN
        })
        .collect();
    let (got, unreadable) = read_bytes(section(&entries, &ROWS, 3, 0));
    assert_eq!((got.len(), unreadable), (3, 999));
}

#[test]
fn addresses_do_not_wrap() {
    let bytes = section(&[PLAIN], &ROWS, 3, START_FROM_FIELD);
    for address in [0, 1, u64::MAX, u64::MAX - 28, 1 << 63] {
        let section = LoadedSection {
            data: Arc::from(bytes.clone()),
            address: nsprobe_symbolize::Address(address),
        };
        let (got, _) = super::read(&section);
        assert!(got.iter().all(|one| one.from < one.to), "{address:#x}");
    }
}

#[test]
fn wrong_headers_are_told() {
    let right = section(&[PLAIN], &ROWS, 3, 0);
    assert_eq!(read_bytes(right.clone()).1, 0);
    for (at, value) in [
        (0, 0xde),
        (2, 1),
        (2, 3),
        (3, 8),
        (4, 2),
        (5, 0xf0),
        (6, 0xf0),
        (7, 200),
        (8, 9),
        (11, 255),
        (12, 4),
        (16, 12),
        (20, 250),
        (24, 250),
        (27, 255),
    ] {
        let mut bytes = right.clone();
        bytes[at] = value;
        assert_eq!(read_bytes(bytes), (Vec::new(), 1), "{value} at {at}");
    }
    for length in 1..right.len() {
        let (got, unreadable) = read_bytes(right[..length].to_vec());
        assert_eq!((got.len(), unreadable), (0, 1), "{length}");
    }
    assert_eq!(read_bytes(Vec::new()), (Vec::new(), 0));
}

fn any_entry() -> impl Strategy<Value = TestFunction> {
    let number = prop_oneof![0..0x200u32, any::<u32>()];
    let small = prop_oneof![0..8u32, any::<u32>()];
    let start = prop_oneof![-0x9000..-0x7000i32, any::<i32>()];
    let info = prop_oneof![0..0x20u8, any::<u8>()];
    (start, number, small.clone(), small, info, any::<u8>()).prop_map(
        |(start, bytes, rows_at, rows, info, repeated)| TestFunction {
            start,
            bytes,
            rows_at,
            rows,
            info,
            repeated,
        },
    )
}

/// Sorted, without overlaps, and each with a rule that the module takes.
fn is_sound(got: &[Described]) -> bool {
    let sorted = got.windows(2).all(|pair| pair[0].to <= pair[1].from);
    sorted && got.iter().all(|one| one.from < one.to)
}

proptest! {
    #[test]
    fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(is_sound(&read_bytes(bytes).0));
    }

    #[test]
    fn any_functions_and_rows_are_sound_or_left_out(
        entries in proptest::collection::vec(any_entry(), 0..8),
        rows in proptest::collection::vec(prop_oneof![0..16u8, any::<u8>()], 0..64),
        count in 0..24u32,
        flags in 0..8u8,
    ) {
        let bytes = section(&entries, &rows, count, flags);
        let (got, unreadable) = read_bytes(bytes);
        prop_assert!(is_sound(&got), "{:?}", got);
        prop_assert!(unreadable <= entries.len().max(1) as u64);
    }
}
