// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names that came back, as many as there is room for: what was of no use for longest goes
//! first.
//!
//! There are two halves. What is asked for comes into the younger one; when that is full, the
//! elder one is forgotten, and the younger one takes its place. That happens between stacks
//! alone: the names of a stack are all there at once.

use crate::names::named::{FramePlace, NamedFrame};
use std::collections::HashMap;
use std::mem::{size_of, take};
use std::rc::Rc;

#[derive(Debug)]
pub(super) struct Cache {
    bytes_max: u64,
    young: Half,
    old: Half,
}

#[derive(Debug, Default)]
struct Half {
    names: HashMap<FramePlace, Rc<NamedFrame>>,
    bytes: u64,
}

impl Half {
    fn insert(&mut self, place: FramePlace, named: Rc<NamedFrame>) {
        self.bytes += bytes_of(&named);
        if let Some(before) = self.names.insert(place, named) {
            self.bytes -= bytes_of(&before);
        }
    }
}

impl Cache {
    /// With room for `bytes_max` bytes.
    pub(super) fn new(bytes_max: u64) -> Cache {
        Cache {
            bytes_max,
            young: Half::default(),
            old: Half::default(),
        }
    }

    /// Whether the name of a place is cached.
    pub(super) fn has(&self, place: &FramePlace) -> bool {
        self.young.names.contains_key(place) || self.old.names.contains_key(place)
    }

    /// The name of a place.
    pub(super) fn get(&mut self, place: &FramePlace) -> Option<Rc<NamedFrame>> {
        if let Some(named) = self.young.names.get(place) {
            return Some(Rc::clone(named));
        }
        let named = self.old.names.remove(place)?;
        self.old.bytes -= bytes_of(&named);
        self.young.insert(*place, Rc::clone(&named));
        Some(named)
    }

    pub(super) fn insert(&mut self, place: FramePlace, named: Rc<NamedFrame>) {
        self.young.insert(place, named);
    }

    /// Forgets what was of no use for long, when there is too much.
    pub(super) fn make_room(&mut self) {
        if self.young.bytes > self.bytes_max / 2 {
            self.old = take(&mut self.young);
        }
    }
}

/// Approximate size of a name in bytes.
fn bytes_of(named: &NamedFrame) -> u64 {
    // With what a map and a counter take for it.
    let mut bytes = 2 * size_of::<NamedFrame>() + size_of::<FramePlace>();
    bytes += named.build_id.capacity();
    bytes += named.unresolved.as_ref().map_or(0, String::capacity);
    bytes += named.path.as_ref().map_or(0, |path| path.capacity());
    for function in &named.functions {
        bytes += size_of_val(function) + function.function.capacity();
        bytes += function.file.as_ref().map_or(0, String::capacity);
    }
    bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Rc<NamedFrame> {
        Rc::new(NamedFrame {
            build_id: name.to_owned(),
            ..NamedFrame::default()
        })
    }

    #[test]
    fn what_is_used_stays_and_memory_is_bounded() {
        let one = bytes_of(&named("0000"));
        let mut cache = Cache::new(one * 20);
        cache.insert((1, 0, 0), named("used"));
        for offset in 1..1000 {
            cache.make_room();
            cache.insert((1, offset, 0), named("0000"));
            assert!(cache.get(&(1, 0, 0)).is_some(), "{offset}");
            assert!(cache.has(&(1, offset, 0)));
            let bytes = cache.young.bytes + cache.old.bytes;
            assert!(bytes <= one * 22, "{bytes}");
        }
        assert!(!cache.has(&(1, 1, 0)));
    }

    #[test]
    fn bytes_are_those_of_what_is_there() {
        let mut cache = Cache::new(0);
        for name in ["a", "bbbbbbbb"] {
            cache.insert((1, 2, 3), named(name));
        }
        assert_eq!(cache.young.bytes, bytes_of(&named("bbbbbbbb")));
        cache.make_room();
        assert_eq!(cache.old.bytes, bytes_of(&named("bbbbbbbb")));
        cache.get(&(1, 2, 3)).unwrap();
        assert_eq!((cache.old.bytes, cache.old.names.len()), (0, 0));
        // No name of a stack is evicted before the next stack begins.
        for offset in 0..100 {
            cache.insert((1, offset, 0), named("x"));
        }
        assert!((0..100).all(|offset| cache.has(&(1, offset, 0))));
    }
}
