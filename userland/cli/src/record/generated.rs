// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of generated code of the hits that were recorded: each when it is not that of the
//! place already.

use crate::capsule::convert;
use crate::jit::Moment;
use crate::lookup::NameGenerated;
use crate::names::generated_address;
use libnsprobe::common::record::Frames;
use nsprobe_capsule::model::GeneratedName;
use nsprobe_capsule::{Generated, GeneratedPlace};
use std::collections::{HashMap, VecDeque};

/// Most names that are told, so that a program that generates code without end does not take
/// our memory: some 300 MB.
const NAMES_MAX: usize = 1 << 20;

/// What was told of generated code, and what is to be.
#[derive(Debug)]
pub(super) struct Code {
    told: Generated,
    most: usize,
    /// Whether there is generated code in the stacks that have ids.
    stacks: HashMap<u32, bool>,
    queue: VecDeque<GeneratedName>,
}

impl Default for Code {
    fn default() -> Code {
        Code {
            told: Generated::default(),
            most: NAMES_MAX,
            stacks: HashMap::new(),
            queue: VecDeque::new(),
        }
    }
}

impl Code {
    /// Whether the stack with this id (none is 0) may have frames of generated code.
    pub(super) fn may_be_in(&self, stack: u32) -> bool {
        self.stacks.get(&stack).copied().unwrap_or(true)
    }

    /// Frames that a process went through at a moment, in the stack with this id or one
    /// without.
    pub(super) fn note(
        &mut self,
        lookup: &mut impl NameGenerated,
        stack: u32,
        frames: Frames<'_>,
        moment: Moment,
    ) {
        let mut is_there = false;
        for (address, exact) in frames.filter_map(|frame| generated_address(&frame)) {
            is_there = true;
            let place = GeneratedPlace {
                pid: moment.pid,
                address,
                exact,
            };
            self.name(lookup, place, moment);
        }
        if stack != 0 {
            self.stacks.insert(stack, is_there);
        }
    }

    fn name(&mut self, lookup: &mut impl NameGenerated, place: GeneratedPlace, moment: Moment) {
        let found = lookup.generated(place.address, place.exact, moment);
        let is_same = |known: &GeneratedName| convert::is_named_so(known, &found.named);
        let (time_ns, since_ns) = (moment.time_ns, found.since_ns);
        let from_ns = self.told.lacks_from(place, time_ns, since_ns, is_same);
        if let (Some(from_ns), true) = (from_ns, self.told.len() < self.most) {
            let name = convert::generated_name(place, from_ns, &found.named);
            self.told.add(name.clone());
            self.queue.push_back(name);
        }
    }

    /// Whether there is something to be told.
    pub(super) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Some of what is to be told, at most so much.
    pub(super) fn take(&mut self, most: usize) -> Vec<GeneratedName> {
        let count = most.min(self.queue.len());
        self.queue.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::CodeName;
    use crate::lookup::words_of;
    use crate::names::Named;
    use libnsprobe::common::record::{Frame, Method, Unmapped};
    use nsprobe_symbolize::SourceFrame;
    use std::rc::Rc;

    /// Each process calls its code by its number and the ten nanoseconds that it is from.
    struct ByTime;

    impl NameGenerated for ByTime {
        fn generated(&mut self, _: u64, _: bool, moment: Moment) -> CodeName {
            let since_ns = moment.time_ns / 10 * 10;
            let function = SourceFrame {
                function: format!("{} of {since_ns}", moment.pid),
                function_offset: None,
                file: None,
                line: None,
                inlined: false,
            };
            let named = Named {
                functions: vec![function],
                ..Named::default()
            };
            CodeName {
                named: Rc::new(named),
                since_ns: Some(since_ns),
            }
        }
    }

    fn words(addresses: &[u64]) -> Vec<u64> {
        let frame = |&address| Frame::Address {
            address,
            why: Unmapped::Anonymous as u8,
            method: Method::Row as u8,
        };
        words_of(&addresses.iter().map(frame).collect::<Vec<_>>())
    }

    fn told(code: &mut Code, pid: u32, time_ns: u64) -> Vec<(u64, String)> {
        let moment = Moment { pid, time_ns };
        code.note(&mut ByTime, 3, Frames(&words(&[0x1000, 0x1000])), moment);
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
        let mut code = Code::default();
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
    fn stacks_without_generated_code_are_known() {
        let mut code = Code::default();
        let moment = Moment { pid: 7, time_ns: 1 };
        assert!(code.may_be_in(0) && code.may_be_in(3));
        told(&mut code, 7, 15);
        let in_file = Frame::Object {
            id: 1,
            offset: 2,
            method: 3,
        };
        let in_file = words_of(&[in_file]);
        code.note(&mut ByTime, 4, Frames(&in_file), moment);
        code.note(&mut ByTime, 0, Frames(&in_file), moment);
        let known = [0, 3, 4].map(|stack| code.may_be_in(stack));
        assert_eq!(known, [true, true, false]);
    }
}
