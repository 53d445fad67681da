// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of generated code of the hits that were recorded: each when it is not that of the
//! place already.

use crate::names::jit::{CodeName, Moment};
use crate::names::named::{bare_address, NamedFrame};
use crate::recording::capsule::convert;
use libnsprobe::common::record::{Frames, Unmapped};
use nsprobe_capsule::model::GeneratedName;
use nsprobe_capsule::{Generated, GeneratedPlace};
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

/// Most names that are kept, so that a program that generates code without end does not take
/// our memory: some 300 MB.
const NAMES_MAX: usize = 1 << 20;

/// Generated code that was written, and that is still to write.
#[derive(Debug)]
pub(super) struct GeneratedCode {
    told: Generated<Rc<NamedFrame>>,
    most: usize,
    /// The stacks with ids in which there is some.
    stacks: HashSet<u32>,
    queue: VecDeque<GeneratedName>,
}

impl Default for GeneratedCode {
    fn default() -> GeneratedCode {
        GeneratedCode {
            told: Generated::default(),
            most: NAMES_MAX,
            stacks: HashSet::new(),
            queue: VecDeque::new(),
        }
    }
}

impl GeneratedCode {
    /// Whether a stack with an id had generated code.
    pub(super) fn is_in(&self, stack: u32) -> bool {
        self.stacks.contains(&stack)
    }

    /// Frames that a process went through at a moment, in the stack with this id, or one
    /// without (0). `name` says what is at an address, and whether that is exact.
    pub(super) fn note(
        &mut self,
        stack: u32,
        frames: Frames<'_>,
        moment: Moment,
        mut name: impl FnMut(u64, bool) -> CodeName,
    ) {
        for (address, exact) in frames.filter_map(|frame| bare_address(&frame, Unmapped::Anonymous))
        {
            if stack != 0 {
                self.stacks.insert(stack);
            }
            let place = GeneratedPlace {
                pid: moment.pid,
                address,
                exact,
            };
            self.tell(place, moment.time_ns, &name(address, exact));
        }
    }

    fn tell(&mut self, place: GeneratedPlace, time_ns: u64, found: &CodeName) {
        let (since_ns, named) = (found.since_ns, &found.named);
        let from_ns = self.told.lacks_from(place, time_ns, since_ns, named);
        if let (Some(from_ns), true) = (from_ns, self.told.len() < self.most) {
            self.told.add(place, from_ns, Rc::clone(named));
            let name = convert::generated_name(place, from_ns, named);
            self.queue.push_back(name);
        }
    }

    /// Whether there is something to write.
    pub(super) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes some of the names to write, at most this number.
    pub(super) fn take(&mut self, most: usize) -> Vec<GeneratedName> {
        let count = most.min(self.queue.len());
        self.queue.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hits::lookup::words_of;
    use libnsprobe::common::record::{Frame, Method, Unmapped};
    use nsprobe_symbolize::SourceFrame;

    fn words(addresses: &[u64]) -> Vec<u64> {
        let frame = |&address| Frame::Address {
            address,
            why: Unmapped::Anonymous as u8,
            method: Method::Row as u8,
        };
        words_of(&addresses.iter().map(frame).collect::<Vec<_>>())
    }

    /// Each process calls its code by its number and the ten nanoseconds that it is from.
    fn by_time(moment: Moment) -> CodeName {
        let since_ns = moment.time_ns / 10 * 10;
        let function = SourceFrame {
            function: format!("{} of {since_ns}", moment.pid),
            function_offset: None,
            file: None,
            line: None,
            inlined: false,
        };
        let named = NamedFrame {
            functions: vec![function],
            ..NamedFrame::default()
        };
        CodeName {
            named: Rc::new(named),
            since_ns: Some(since_ns),
        }
    }

    fn told(code: &mut GeneratedCode, pid: u32, time_ns: u64) -> Vec<(u64, String)> {
        let moment = Moment { pid, time_ns };
        let words = words(&[0x1000, 0x1000]);
        code.note(3, Frames(&words), moment, |address, exact| {
            assert_eq!((address, exact), (0x1000, false));
            by_time(moment)
        });
        let mut told = Vec::new();
        while code.is_waiting() {
            told.extend(code.take(1).into_iter().map(|name| {
                assert_eq!((name.pid, name.address), (pid, 0x1000));
                (name.from_ns, name.functions[0].name.clone())
            }));
        }
        told
    }

    #[test]
    fn each_name_is_told_once() {
        let mut code = GeneratedCode::default();
        let one = |from_ns, name: &str| vec![(from_ns, name.to_owned())];
        assert_eq!(told(&mut code, 7, 15), one(10, "7 of 10"));
        assert_eq!(told(&mut code, 7, 19), []);
        assert_eq!(told(&mut code, 7, 21), one(20, "7 of 20"));
        assert_eq!(told(&mut code, 7, 11), []);
        assert_eq!(told(&mut code, 8, 21), one(20, "8 of 20"));
        code.most = 3;
        assert_eq!(told(&mut code, 9, 21), []);
    }

    #[test]
    fn stacks_with_generated_code_are_known() {
        let mut code = GeneratedCode::default();
        let moment = Moment { pid: 7, time_ns: 1 };
        told(&mut code, 7, 15);
        let in_file = Frame::Object {
            id: 1,
            offset: 2,
            method: 3,
        };
        let (in_file, generated) = (words_of(&[in_file]), words(&[0x1000]));
        code.note(4, Frames(&in_file), moment, |_, _| {
            panic!("it is in a file")
        });
        code.note(0, Frames(&generated), moment, |_, _| by_time(moment));
        let known = [0, 3, 4].map(|stack| code.is_in(stack));
        assert_eq!(known, [false, true, false]);
    }
}
