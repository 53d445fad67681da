// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names that the recorded hits need, each once.

use crate::hits::label::ProbeLabel;
use crate::hits::lookup::{kernel_addresses, Lookup, NameFrames};
use crate::recording::capsule::convert;
use crate::recording::generated_code::GeneratedCode;
use libnsprobe::common::record::{Frame, Frames, Hit, Method};
use nsprobe_capsule::model::{FrameName, RecordedNames, SymbolName};
use nsprobe_spec::decode::{self, FieldValue};
use std::collections::{HashSet, VecDeque};

/// Names that are looked up before the rings are looked at again.
const NAMES_AT_ONCE: usize = 250;

/// What was seen, and which of it has no name yet.
#[derive(Debug, Default)]
pub(super) struct NeededNames {
    seen: HashSet<(u32, u64, bool)>,
    stacks: HashSet<u32>,
    kernel: HashSet<u64>,
    symbols: HashSet<(u32, u64)>,
    queue: VecDeque<Frame>,
    /// Frames that were asked for.
    asked: Vec<Frame>,
    /// Generated code, which is each process's own.
    pub(super) code: GeneratedCode,
    names: RecordedNames,
}

impl NeededNames {
    /// Marks a stack with an id as seen; returns whether it is new.
    pub(super) fn is_new_stack(&mut self, id: u32) -> bool {
        self.stacks.insert(id)
    }

    /// Requests names for frames.
    pub(super) fn frames(&mut self, frames: Frames<'_>) {
        for frame in frames {
            if let Frame::Object { id, offset, method } = frame {
                if self.seen.insert((id, offset, Method::is_exact(method))) {
                    self.queue.push_back(frame);
                }
            }
        }
    }

    /// So are functions of the kernel.
    pub(super) fn kernel(&mut self, lookup: &impl Lookup, hit: &Hit, addresses: &[u64]) {
        for (address, exact) in kernel_addresses(hit, addresses) {
            let behind = address.wrapping_add(exact.into());
            if self.kernel.insert(behind) {
                let symbol = lookup.kernel(address, exact);
                let name = symbol.map(|symbol| convert::kernel_name(behind, symbol));
                self.names.kernel.extend(name);
            }
        }
    }

    /// And functions whose addresses are in fields.
    pub(super) fn fields(&mut self, label: &ProbeLabel, words: &[u64]) {
        let Some(names) = &label.symbols else {
            return;
        };
        for value in decode::fields(&label.fields, words) {
            let in_file = match value {
                FieldValue::Symbol { in_file, .. } => in_file,
                FieldValue::Interface { type_in_file, .. } => type_in_file,
                _ => continue,
            };
            if self.symbols.insert((label.id.0, in_file)) {
                let name = names.name_at(in_file);
                let symbol = |name| SymbolName {
                    probe: label.id.0,
                    address: in_file,
                    name,
                };
                self.names.symbols.extend(name.map(symbol));
            }
        }
    }

    /// Whether frames wait for their names.
    pub(super) fn is_waiting(&self) -> bool {
        !self.queue.is_empty() || !self.asked.is_empty() || self.code.is_waiting()
    }

    /// Whether only answers are outstanding.
    pub(super) fn has_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Asks for some names; those that are there now, and how many they are.
    pub(super) fn take(&mut self, lookup: &mut impl NameFrames) -> (RecordedNames, usize) {
        if self.asked.is_empty() {
            let count = NAMES_AT_ONCE.min(self.queue.len());
            self.asked.extend(self.queue.drain(..count));
        }
        if !self.asked.is_empty() && lookup.prepare(&self.asked) {
            let named = std::mem::take(&mut self.asked).into_iter();
            let named = named.filter_map(|frame| frame_name(lookup, frame));
            self.names.frames.extend(named);
        }
        let names = RecordedNames {
            generated: self.code.take(NAMES_AT_ONCE),
            ..std::mem::take(&mut self.names)
        };
        let of_user_space = names.frames.len() + names.generated.len() + names.symbols.len();
        let count = of_user_space + names.kernel.len();
        (names, count)
    }
}

fn frame_name(lookup: &mut impl NameFrames, frame: Frame) -> Option<FrameName> {
    let Frame::Object { id, offset, method } = frame else {
        return None;
    };
    let named = lookup.name(frame);
    let exact = Method::is_exact(method);
    Some(convert::frame_name(id, offset, exact, &named))
}
