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

/// Keys of waits: what ended one; what it was for, which lock that was, and what held it.
pub(crate) const WAKER: &str = "waker";
pub(crate) const KIND: &str = "kind";
pub(crate) const LOCK: &str = "lock";
pub(crate) const HOLDER: &str = "holder";

/// The other side of a wait: what ended it, or what held the lock and has released it. A thread has
/// a stack; without a name it is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Counterpart {
    pub(crate) name: String,
    pub(crate) is_holder: bool,
    /// The words of its stack, the innermost frame first.
    pub(crate) stack: Vec<u64>,
    pub(crate) stack_end: u8,
}

impl Counterpart {
    /// What stands between its stack and that of the wait.
    pub(super) fn title(&self) -> String {
        match self.is_holder {
            true => format!("held by {}", self.name),
            false => format!("woken by {}", self.name),
        }
    }
}

/// Whether a key is that of the other side of a wait.
pub(super) fn is_counterpart(key: &str) -> bool {
    matches!(key, WAKER | HOLDER)
}

impl TablePrinter {
    /// Sets what the numbers of the other side of waits mean.
    pub(crate) fn name_counterparts(&mut self, all: &[Counterpart]) {
        self.counterparts = all.to_vec();
        for key in [WAKER, HOLDER] {
            let names: Vec<&str> = all
                .iter()
                .map(|one| match one.name.as_str() {
                    "" => "-",
                    _ if key == HOLDER && !one.is_holder => "-",
                    name => name,
                })
                .collect();
            self.name_numbered(key, &names);
        }
    }

    /// Sets what the numbers of a key mean, from zero on.
    pub(crate) fn name_numbered(&mut self, key: &str, names: &[impl AsRef<str>]) {
        let names = (0..).zip(names).map(|(number, name)| {
            let value = FieldValue::Named(name.as_ref().to_owned(), number as i64);
            (number, value)
        });
        self.values.insert(key.to_owned(), names.collect());
    }

    /// The other side of the waits of a row.
    pub(super) fn counterpart(&self, row: &TableRow) -> Option<&Counterpart> {
        self.keys.last().filter(|key| is_counterpart(&key.name))?;
        let number = row.key.last()?;
        self.counterparts.get(usize::try_from(*number).ok()?)
    }

    /// The frames of a row for pictures, the innermost first: the other side of the waits is on top,
    /// upside down.
    pub(super) fn with_counterpart(
        &self,
        names: &mut impl NameFrames,
        row: &TableRow,
    ) -> Vec<FrameView> {
        let own = names.views(&row.stack);
        let Some(other) = self.counterpart(row).filter(|one| !one.name.is_empty()) else {
            return own;
        };
        let mut all = names.views(&other.stack);
        all.reverse();
        all.push(FrameView {
            frame: Frame::Address {
                address: 0,
                why: 0,
                method: 0,
            },
            named: Rc::new(NamedFrame {
                functions: vec![SourceFrame {
                    function: other.title(),
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
        (KIND.to_owned(), kinds.collect()),
        ("syscall".to_owned(), calls.chain([none.clone()]).collect()),
        ("fd".to_owned(), HashMap::from([none])),
    ])
}
