// SPDX-License-Identifier: GPL-2.0-only
//! A set of pid namespaces, asked at each hit whether a process lives in one of them or below.

use super::{
    memory,
    task::{Namespace, Pid}, //
};
use crate::common::pointer_set::PointerSet;
use core::{
    ops::Range,
    sync::atomic::AtomicPtr, //
};
use kernel::{
    bindings,
    prelude::*, //
};

/// # Invariants
///
/// `places` has the addresses of the namespaces in `all`, which holds them, and no others.
pub(crate) struct NamespaceSet {
    all: KVec<Namespace>,
    places: KVVec<AtomicPtr<bindings::pid_namespace>>,
    /// The levels of the namespaces in `all`.
    levels: Range<usize>,
}

impl NamespaceSet {
    /// The set of these namespaces. Task context, sleeps.
    pub(crate) fn new(all: KVec<Namespace>) -> Result<Self> {
        // More than there are, so that searches are short.
        let count = all.len().wrapping_mul(4).next_power_of_two();
        let places = memory::made(count, |_| Ok(AtomicPtr::new(core::ptr::null_mut())))?;
        let set = PointerSet::new(&places);
        for namespace in &all {
            let address = namespace.as_ptr();
            if !set.contains(address) && !set.insert(address) {
                return Err(ENOMEM);
            }
        }
        let levels = || all.iter().map(Namespace::level);
        let behind = levels().max().map_or(0, |last| last.wrapping_add(1));
        let levels = levels().min().unwrap_or(0)..behind;
        // INVARIANT: The loop has put in all addresses.
        Ok(NamespaceSet {
            all,
            places,
            levels,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.all.iter()
    }

    /// Whether `pid` lives in one of the namespaces or below it. Any context; a search for each of
    /// their levels, at most `MAX_PID_NS_LEVEL`.
    pub(crate) fn has(&self, pid: &Pid) -> bool {
        self.levels.clone().any(|level| self.has_at(level, pid))
    }

    /// The level of all namespaces, if it is one.
    pub(crate) fn level(&self) -> Option<usize> {
        let Range { start, end } = self.levels;
        (start.wrapping_add(1) == end).then_some(start)
    }

    /// Whether `pid` lives in one of the namespaces of this level or below it. Any context.
    #[inline(always)]
    pub(crate) fn has_at(&self, level: usize, pid: &Pid) -> bool {
        let namespace = pid.at(level).map(|(_, namespace)| namespace);
        namespace.is_some_and(|namespace| PointerSet::new(&self.places).contains(namespace))
    }
}
