// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keys of waits, in words.

use libnsprobe::common::wait::WaitKind;
use nsprobe_spec::decode::FieldValue;
use std::collections::HashMap;
use syscalls::x86_64::Sysno;

/// What stands for no system call, and for no file.
const NONE: u64 = u64::MAX;

/// The name of what was waited for.
fn kind(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::Cpu => "cpu",
        WaitKind::Lock => "lock",
        WaitKind::Socket => "socket",
        WaitKind::Pipe => "pipe",
        WaitKind::File => "file",
        WaitKind::Poll => "poll",
        WaitKind::Sleep => "sleep",
        WaitKind::Child => "child",
        WaitKind::Page => "page",
        WaitKind::Stopped => "stopped",
        WaitKind::Other => "other",
    }
}

/// The meanings of the numbers of `kind`, `syscall` and `fd`.
pub(super) fn key_values() -> HashMap<String, HashMap<u64, FieldValue>> {
    let named = |(number, name): (u64, &str)| {
        let value = FieldValue::Named(name.to_owned(), number as i64);
        (number, value)
    };
    let kinds = (0..=u8::MAX).filter_map(WaitKind::from_u8);
    let kinds = kinds.map(|one| named((one as u64, kind(one))));
    let calls = Sysno::iter().map(|call| named((call.id() as u64, call.name())));
    let none = named((NONE, "-"));
    HashMap::from([
        ("kind".to_owned(), kinds.collect()),
        ("syscall".to_owned(), calls.chain([none.clone()]).collect()),
        ("fd".to_owned(), HashMap::from([none])),
    ])
}
