// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of generated code out of a capsule.

use super::convert::code_name;
use crate::hits::view::FrameView;
use crate::names::jit::Moment;
use crate::names::named::{bare_address, NamedFrame};
use libnsprobe::common::record::{Frame, Unmapped};
use nsprobe_capsule::model::GeneratedName;
use nsprobe_capsule::{Generated, GeneratedPlace};
use std::collections::HashMap;
use std::rc::Rc;

/// In place of an `Unmapped`: the address is a number of [`GeneratedNames::settled`].
const SETTLED: u8 = u8::MAX;
/// The reason shown at a frame without a recorded name.
const NOT_NAMED: &str = "not in a file: generated code; its name was not recorded";

/// The names, as output has them.
#[derive(Debug)]
pub(super) struct GeneratedNames<'a> {
    known: &'a Generated<GeneratedName>,
    /// By place, and by the time from which on they hold.
    names: HashMap<(GeneratedPlace, u64), Rc<NamedFrame>>,
    /// Frames that stand for all that are called alike.
    settled: Vec<FrameView>,
    numbers: HashMap<GeneratedName, u64>,
}

impl<'a> GeneratedNames<'a> {
    pub(super) fn new(known: &'a Generated<GeneratedName>) -> GeneratedNames<'a> {
        GeneratedNames {
            known,
            names: HashMap::new(),
            settled: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    /// Names a frame of a process at a moment; `None` if it is not generated code.
    pub(super) fn name(&mut self, frame: &Frame, moment: Moment) -> Option<Rc<NamedFrame>> {
        let (place, name) = self.find(frame, moment)?;
        let from_ns = name.map_or(0, |name| name.from_ns);
        let named = self.names.entry((place, from_ns));
        let named = named.or_insert_with(|| match name {
            Some(name) => Rc::new(code_name(name)),
            None => Rc::new(unnamed()),
        });
        Some(Rc::clone(named))
    }

    fn find(
        &self,
        frame: &Frame,
        moment: Moment,
    ) -> Option<(GeneratedPlace, Option<&'a GeneratedName>)> {
        let (address, exact) = bare_address(frame, Unmapped::Anonymous)?;
        let place = GeneratedPlace {
            pid: moment.pid,
            address,
            exact,
        };
        let known = self.known.at(place, moment.time_ns);
        Some((place, known.map(|(_, name)| name)))
    }

    /// A frame that is the same for all frames that are called the same: functions of
    /// generated code are wherever each process has put them.
    pub(super) fn settled(&mut self, frame: Frame, moment: Moment) -> Frame {
        let Frame::Address {
            address,
            why,
            method,
        } = frame
        else {
            return frame;
        };
        if why == SETTLED {
            // No module writes that: it would be taken for another frame.
            let why = 0;
            return Frame::Address {
                address,
                why,
                method,
            };
        }
        let Some((_, Some(name))) = self.find(&frame, moment) else {
            return frame;
        };
        // Without a name it is called by its address.
        let is_named = !name.functions.is_empty();
        let same = GeneratedName {
            pid: 0,
            address: if is_named { 0 } else { address },
            exact: false,
            from_ns: 0,
            ..name.clone()
        };
        let next = self.settled.len() as u64;
        let number = *self.numbers.entry(same).or_insert(next);
        if number == next {
            let named = Rc::new(code_name(name));
            self.settled.push(FrameView { frame, named });
        }
        Frame::Address {
            address: number,
            why: SETTLED,
            method,
        }
    }

    /// The frame that a settled one stands for, and its name; none when it is no such frame.
    pub(super) fn view(&self, frame: &Frame) -> Option<FrameView> {
        let Frame::Address {
            address: number,
            why: SETTLED,
            method,
        } = *frame
        else {
            return None;
        };
        let mut view = self.settled.get(usize::try_from(number).ok()?)?.clone();
        if let Frame::Address { method: own, .. } = &mut view.frame {
            *own = method;
        }
        Some(view)
    }
}

fn unnamed() -> NamedFrame {
    NamedFrame {
        unresolved: Some(NOT_NAMED.to_owned()),
        ..NamedFrame::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libnsprobe::common::record::{Method, Unmapped};
    use nsprobe_capsule::model::{RecordedFunction, Text};

    const ADDRESS: u64 = 0x7f00_0000_1000;

    fn known(names: impl IntoIterator<Item = GeneratedName>) -> Generated<GeneratedName> {
        let mut known = Generated::default();
        for name in names {
            known.add(name.place(), name.from_ns, name);
        }
        known
    }

    fn name(pid: u32, address: u64, from_ns: u64, function: &str) -> GeneratedName {
        GeneratedName {
            pid,
            address,
            from_ns,
            functions: vec![RecordedFunction {
                name: function.to_owned(),
                offset: Some(6),
                ..RecordedFunction::default()
            }],
            source: Some("perf-map".to_owned()),
            path: Some(Text(b"/tmp/perf-1.map".to_vec())),
            ..GeneratedName::default()
        }
    }

    fn frame(address: u64) -> Frame {
        Frame::Address {
            address,
            why: Unmapped::Anonymous as u8,
            method: Method::FramePointer as u8,
        }
    }

    fn told(named: &NamedFrame) -> &str {
        match named.functions.first() {
            Some(function) => &function.function,
            None => named.unresolved.as_deref().expect("a reason"),
        }
    }

    #[test]
    fn code_has_the_name_of_its_process_at_its_time() {
        let known = known([
            name(7, ADDRESS, 10, "first"),
            name(7, ADDRESS, 20, "second"),
            name(8, ADDRESS, 10, "others"),
        ]);
        let mut names = GeneratedNames::new(&known);
        for (pid, time_ns, wanted) in [
            (7, 9, NOT_NAMED),
            (7, 10, "first"),
            (7, 20, "second"),
            (8, 20, "others"),
            (9, 20, NOT_NAMED),
        ] {
            let moment = Moment { pid, time_ns };
            let named = names.name(&frame(ADDRESS), moment).expect("it is ours");
            assert_eq!(told(&named), wanted);
        }
        let moment = Moment { pid: 7, time_ns: 0 };
        let other = Frame::Object {
            id: 1,
            offset: 2,
            method: 3,
        };
        assert!(names.name(&other, moment).is_none());
        let no_mapping = Frame::Address {
            address: ADDRESS,
            why: Unmapped::NoMapping as u8,
            method: 0,
        };
        assert!(names.name(&no_mapping, moment).is_none());
    }

    #[test]
    fn what_is_called_alike_is_one_frame() {
        let why = GeneratedName {
            functions: Vec::new(),
            unresolved: Some("its process is gone".to_owned()),
            ..name(9, ADDRESS, 10, "")
        };
        let known = known([
            name(7, ADDRESS, 10, "same"),
            name(8, ADDRESS + 64, 10, "same"),
            name(8, ADDRESS, 10, "other"),
            why.clone(),
            GeneratedName {
                address: ADDRESS + 1,
                ..why
            },
        ]);
        let mut names = GeneratedNames::new(&known);
        let mut settled = |pid, address| {
            let moment = Moment { pid, time_ns: 15 };
            names.settled(frame(address), moment)
        };
        let same = settled(7, ADDRESS);
        assert_eq!(settled(8, ADDRESS + 64), same);
        let other = settled(8, ADDRESS);
        let gone = settled(9, ADDRESS);
        assert_ne!(settled(9, ADDRESS + 1), gone);
        // That frame is unknown: it stays as it is.
        assert_eq!(settled(7, 5), frame(5));
        let view = |frame| names.view(&frame).expect("it is settled");
        assert_eq!(view(same).frame, frame(ADDRESS));
        for (settled, wanted) in [
            (same, "same"),
            (other, "other"),
            (gone, "its process is gone"),
        ] {
            assert_eq!(told(&view(settled).named), wanted);
        }
        assert!(names.view(&frame(ADDRESS)).is_none());
        // A capsule from anywhere may have any frame.
        let forged = Frame::Address {
            address: u64::MAX,
            why: SETTLED,
            method: 0,
        };
        assert!(names.view(&forged).is_none());
        let forged = Frame::Address {
            address: 0,
            why: SETTLED,
            method: 0,
        };
        let moment = Moment {
            pid: 7,
            time_ns: 15,
        };
        let settled = names.settled(forged, moment);
        assert!(names.view(&settled).is_none());
    }
}
