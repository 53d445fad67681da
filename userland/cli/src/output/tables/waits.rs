// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keys of waits, in words, and what ended them.

use super::TablePrinter;
use libnsprobe::common::record::Frame;
use libnsprobe::common::wait::WaitKind;
use libnsprobe::TableRow;
use nsprobe_spec::decode::FieldValue;
use nsprobe_symbolize::SourceFrame;
use nsprobe_trace::hits::lookup::NameFrames;
use nsprobe_trace::hits::view::FrameView;
use nsprobe_trace::names::named::NamedFrame;
use std::collections::HashMap;
use std::rc::Rc;
use syscalls::x86_64::Sysno;

/// The key that is what ended a wait.
pub(crate) const WAKER: &str = "waker";

/// What ended waits: a thread with its stack, something that has none, or, without a name, nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Waker {
    pub(crate) name: String,
    /// The words of its stack, the innermost frame first.
    pub(crate) stack: Vec<u64>,
    pub(crate) stack_end: u8,
}

impl TablePrinter {
    /// Sets what the numbers of the key [`WAKER`] mean.
    pub(crate) fn name_wakers(&mut self, wakers: &[Waker]) {
        self.wakers = wakers.to_vec();
        let names = (0..).zip(wakers).map(|(number, waker)| {
            let name = match waker.name.as_str() {
                "" => "-",
                name => name,
            };
            (number, FieldValue::Named(name.to_owned(), number as i64))
        });
        self.values.insert(WAKER.to_owned(), names.collect());
    }

    /// What ended the waits of a row.
    pub(super) fn waker_of(&self, row: &TableRow) -> Option<&Waker> {
        let last = self.keys.last()?;
        let number = row.key.last().filter(|_| last.name == WAKER)?;
        self.wakers.get(usize::try_from(*number).ok()?)
    }

    /// The frames of a row for pictures, the innermost first: what ended the waits is on top,
    /// upside down.
    pub(super) fn with_waker(&self, names: &mut impl NameFrames, row: &TableRow) -> Vec<FrameView> {
        let own = names.views(&row.stack);
        let Some(waker) = self.waker_of(row).filter(|waker| !waker.name.is_empty()) else {
            return own;
        };
        let mut all = names.views(&waker.stack);
        all.reverse();
        all.push(FrameView {
            frame: Frame::Address {
                address: 0,
                why: 0,
                method: 0,
            },
            named: Rc::new(NamedFrame {
                functions: vec![SourceFrame {
                    function: format!("woken by {}", waker.name),
                    function_offset: None,
                    file: None,
                    line: None,
                    inlined: false,
                }],
                ..NamedFrame::default()
            }),
        });
        all.extend(own);
        all
    }
}

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
