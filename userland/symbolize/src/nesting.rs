// SPDX-License-Identifier: MIT OR Apache-2.0
//! How deep the entries of DWARF are nested: looked at without recursion, on all
//! processors, since it is most of what the first name of a file takes.

use crate::parts::{reason, SectionBytes};
use gimli::{DebugInfoUnitHeadersIter, Dwarf, Reader, Section, UnitHeader};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Bytes of entries that are worth a thread.
const BYTES_A_THREAD: usize = 2 << 20;
const THREADS_MAX: usize = 8;

/// Whether all is done in the thread that asks.
static IS_ALONE: AtomicBool = AtomicBool::new(false);

/// From now on, starts no thread: for a process that may not.
pub fn stay_in_one_thread() {
    IS_ALONE.store(true, Ordering::Relaxed);
}

/// Whether this process may start no thread. Then the nesting is looked at unit by unit, when
/// a unit is needed: a process that overlooks one may die of it.
pub(crate) fn is_alone() -> bool {
    IS_ALONE.load(Ordering::Relaxed)
}

/// Fails when the entries of a unit are nested deeper than `depth_max`, or are more than
/// `entries_max`.
pub(crate) fn check_unit(
    dwarf: &Dwarf<SectionBytes>,
    unit: &UnitHeader<SectionBytes>,
    depth_max: isize,
    entries_max: u64,
) -> Result<(), String> {
    Work::new(dwarf, depth_max, entries_max).unit(unit)
}

/// Threads that look at `bytes` bytes of entries.
fn threads(bytes: usize) -> usize {
    // Asked before all else: who is alone may not ask for the number of processors either.
    if is_alone() {
        return 1;
    }
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    (bytes / BYTES_A_THREAD).min(processors).min(THREADS_MAX)
}

/// What the threads share.
struct Work<'a> {
    dwarf: &'a Dwarf<SectionBytes>,
    units: Mutex<DebugInfoUnitHeadersIter<SectionBytes>>,
    depth_max: isize,
    entries_left: AtomicU64,
    /// One of them has failed: there is nothing more to do.
    is_over: AtomicBool,
}

/// Fails when entries are nested deeper than `depth_max`, or are more than `entries_max`.
pub(crate) fn check(
    dwarf: &Dwarf<SectionBytes>,
    depth_max: isize,
    entries_max: u64,
) -> Result<(), String> {
    let work = Work::new(dwarf, depth_max, entries_max);
    let threads = threads(dwarf.debug_info.reader().len());
    thread::scope(|scope| {
        let others = 1..threads;
        let others = others.map(|_| thread::Builder::new().spawn_scoped(scope, || work.run()));
        let others: Vec<_> = others.collect();
        let own = work.run();
        // One that cannot be started leaves its part to the others.
        let others = others.into_iter().flatten();
        let failed = || Err("the DWARF is damaged (its parser panicked)".to_owned());
        let results = others.map(|other| other.join().unwrap_or_else(|_| failed()));
        results.fold(own, |before, result| before.and(result))
    })
}

impl Work<'_> {
    fn new(dwarf: &Dwarf<SectionBytes>, depth_max: isize, entries_max: u64) -> Work<'_> {
        Work {
            dwarf,
            units: Mutex::new(dwarf.units()),
            depth_max,
            entries_left: AtomicU64::new(entries_max),
            is_over: AtomicBool::new(false),
        }
    }

    /// Checks units until there are no more.
    fn run(&self) -> Result<(), String> {
        while let Some(unit) = self.next()? {
            let checked = self.unit(&unit);
            if checked.is_err() {
                self.is_over.store(true, Ordering::Relaxed);
                return checked;
            }
        }
        Ok(())
    }

    fn next(&self) -> Result<Option<UnitHeader<SectionBytes>>, String> {
        if self.is_over.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        units.next().map_err(reason)
    }

    fn unit(&self, unit: &UnitHeader<SectionBytes>) -> Result<(), String> {
        let failed = reason;
        let abbreviations = self.dwarf.abbreviations(unit).map_err(failed)?;
        let mut entries = unit.entries_raw(&abbreviations, None).map_err(failed)?;
        let mut count = 0;
        while !entries.is_empty() {
            count += 1;
            if count % COUNT_AT_ONCE == 0 {
                self.count(COUNT_AT_ONCE)?;
            }
            if entries.next_depth() > self.depth_max {
                return Err("the DWARF is nested too deeply".to_owned());
            }
            if let Some(abbreviation) = entries.read_abbreviation().map_err(failed)? {
                let attributes = abbreviation.attributes();
                entries.skip_attributes(attributes).map_err(failed)?;
            }
        }
        self.count(count % COUNT_AT_ONCE)
    }

    fn count(&self, entries: u64) -> Result<(), String> {
        let left = self
            .entries_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(entries)
            });
        left.map(drop)
            .map_err(|_| "the DWARF is too big".to_owned())
    }
}

/// Entries that are counted at once.
const COUNT_AT_ONCE: u64 = 1 << 12;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::parts::Keeper;
    use gimli::SectionId;
    use std::sync::Arc;

    /// Abbreviation 1: an entry with children and without attributes.
    const ABBREVIATIONS: [u8; 6] = [1, 0x1d, 1, 0, 0, 0];

    /// DWARF 4 of units with entries nested so deep.
    pub(crate) fn units(depths: &[usize]) -> Dwarf<SectionBytes> {
        let mut info = Vec::new();
        for depth in depths {
            info.extend((*depth as u32 + 7).to_le_bytes());
            info.extend([4, 0, 0, 0, 0, 0, 8]);
            info.extend(vec![1; *depth]);
        }
        let keeper = Keeper::default();
        Dwarf::load(|id| {
            let data = match id {
                SectionId::DebugInfo => info.clone(),
                SectionId::DebugAbbrev => ABBREVIATIONS.to_vec(),
                _ => Vec::new(),
            };
            Ok::<_, String>(SectionBytes::in_memory(Arc::from(data), &keeper))
        })
        .unwrap()
    }

    #[test]
    fn one_deep_unit_of_many_is_found_by_whichever_thread() {
        let mut depths = vec![500; 10_000];
        check(&units(&depths), 512, u64::MAX).unwrap();
        for at in [0, 5_000, 9_999] {
            depths[at] = 600;
            let error = check(&units(&depths), 512, u64::MAX).unwrap_err();
            assert!(error.contains("too deeply"), "{error}");
            depths[at] = 500;
        }
    }

    #[test]
    fn entries_of_all_units_are_counted() {
        let depths = vec![500; 10_000];
        check(&units(&depths), 512, 500 * 10_000).unwrap();
        let error = check(&units(&depths), 512, 500 * 10_000 - 1).unwrap_err();
        assert!(error.contains("too big"), "{error}");
    }
}
