// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of a profile: the share of each, by caller.

use crate::model::{Profile, Sample, SourcePoint};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A function, and what of a profile it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionShare {
    /// What it is called.
    pub name: String,
    /// The path of its file; empty for code without a file.
    pub path: String,
    /// The values of samples that were in it.
    pub own: u64,
    /// The values of those, and of samples that were in what it calls. A sample counts once,
    /// however often the function is in its stack.
    pub total: u64,
    /// The values of its samples by caller, the greatest first; empty names are those of samples of
    /// which the caller is not known, or that have none.
    pub callers: Vec<(String, u64)>,
}

/// The functions of samples with the same keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionShares {
    /// The keys, by name and value.
    pub keys: Vec<(String, String)>,
    /// The values of all these samples.
    pub total: u64,
    /// How many samples they are.
    pub count: u64,
    /// The functions, by what they take themselves, the most first.
    pub functions: Vec<FunctionShare>,
}

/// What is known of a function so far.
#[derive(Default)]
struct Taken {
    own: u64,
    total: u64,
    callers: HashMap<usize, u64>,
}

/// Stands for the caller of the outermost function.
const NOBODY: usize = usize::MAX;

impl Profile {
    /// The functions of samples, those of each combination of keys by themselves, the one with
    /// the most first. Values are those of this measure.
    pub fn functions(&self, measure: usize) -> Vec<FunctionShares> {
        let mut names = FunctionNumbers::default();
        let mut groups: BTreeMap<&[(String, String)], HashMap<usize, Taken>> = BTreeMap::new();
        for sample in &self.samples {
            let group = groups.entry(&sample.keys).or_default();
            let stack = names.stack(self, sample);
            take(group, &stack, value(sample, measure));
        }
        let (totals, counts) = (self.totals(measure), self.totals(0));
        let group = |(keys, taken): (&[(String, String)], _)| FunctionShares {
            keys: keys.to_vec(),
            total: totals.get(keys).copied().unwrap_or(0),
            count: counts.get(keys).copied().unwrap_or(0),
            functions: names.functions(taken),
        };
        let mut all: Vec<FunctionShares> = groups.into_iter().map(group).collect();
        all.sort_by_key(|group| std::cmp::Reverse(group.total));
        all
    }

    fn totals(&self, measure: usize) -> HashMap<&[(String, String)], u64> {
        let mut totals: HashMap<&[(String, String)], u64> = HashMap::new();
        for sample in &self.samples {
            *totals.entry(&sample.keys).or_default() += value(sample, measure);
        }
        totals
    }
}

/// What a sample has of a measure.
fn value(sample: &Sample, measure: usize) -> u64 {
    let value = sample.values.get(measure).copied().unwrap_or(0);
    u64::try_from(value).unwrap_or(0)
}

/// Counts a stack of functions, the outermost first.
fn take(group: &mut HashMap<usize, Taken>, stack: &[usize], count: u64) {
    let mut seen = HashSet::new();
    let callers = std::iter::once(&NOBODY).chain(stack);
    for (caller, function) in callers.zip(stack) {
        if seen.insert(function) {
            let taken = group.entry(*function).or_default();
            taken.total += count;
            *taken.callers.entry(*caller).or_default() += count;
        }
    }
    if let Some(innermost) = stack.last() {
        group.entry(*innermost).or_default().own += count;
    }
}

/// Functions by number.
#[derive(Default)]
struct FunctionNumbers {
    numbers: HashMap<(String, String), usize>,
    all: Vec<(String, String)>,
}

impl FunctionNumbers {
    /// The functions of a sample, the outermost first.
    fn stack(&mut self, profile: &Profile, sample: &Sample) -> Vec<usize> {
        let mut stack = Vec::new();
        for at in sample.stack.iter().rev() {
            let Some(location) = profile.locations.get(*at) else {
                continue;
            };
            let mapping = location.mapping.and_then(|at| profile.mappings.get(at));
            let path = mapping.map_or("", |mapping| &mapping.path);
            let lines = location.lines.iter().rev();
            stack.extend(lines.map(|line| self.number(line, path)));
        }
        stack
    }

    fn number(&mut self, line: &SourcePoint, path: &str) -> usize {
        let key = (line.name.clone(), path.to_owned());
        *self.numbers.entry(key).or_insert_with_key(|key| {
            self.all.push(key.clone());
            self.all.len() - 1
        })
    }

    fn functions(&self, taken: HashMap<usize, Taken>) -> Vec<FunctionShare> {
        let name = |number: usize| self.all.get(number).cloned().unwrap_or_default();
        let function = |(number, taken): (usize, Taken)| {
            let callers = taken.callers.into_iter();
            let mut callers: Vec<(String, u64)> = callers
                .map(|(caller, count)| (name(caller).0, count))
                .collect();
            callers.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
            let (name, path) = name(number);
            FunctionShare {
                name,
                path,
                own: taken.own,
                total: taken.total,
                callers,
            }
        };
        let mut functions: Vec<FunctionShare> = taken.into_iter().map(function).collect();
        functions.sort_by(|one, other| {
            let numbers = (other.own, other.total).cmp(&(one.own, one.total));
            numbers.then_with(|| (&one.name, &one.path).cmp(&(&other.name, &other.path)))
        });
        functions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CodeFile, CodePlace};

    fn profile(stacks: &[(&[usize], i64)]) -> Profile {
        let location = |name: &str| CodePlace {
            mapping: Some(0),
            lines: vec![SourcePoint {
                name: name.to_owned(),
                ..SourcePoint::default()
            }],
            ..CodePlace::default()
        };
        let sample = |(stack, count): &(&[usize], i64)| Sample {
            stack: stack.to_vec(),
            values: vec![*count, count * 10],
            ..Sample::default()
        };
        Profile {
            mappings: vec![CodeFile {
                path: "/bin/x".to_owned(),
                build_id: String::new(),
            }],
            locations: ["leaf", "rec", "main"].map(location).to_vec(),
            samples: stacks.iter().map(sample).collect(),
            ..Profile::default()
        }
    }

    #[test]
    fn a_function_takes_its_own_and_what_it_calls() {
        // Innermost first: main calls rec, which calls itself and leaf.
        let profile = profile(&[(&[0, 1, 1, 2], 3), (&[1, 2], 2), (&[0, 2], 1)]);
        let groups = profile.functions(0);
        let [group] = groups.as_slice() else {
            panic!("{groups:?}");
        };
        assert_eq!(group.total, 6);
        let told = |function: &FunctionShare| (function.name.clone(), function.own, function.total);
        let all: Vec<_> = group.functions.iter().map(told).collect();
        let wanted = [("leaf", 4, 4), ("rec", 2, 5), ("main", 0, 6)];
        assert_eq!(
            all,
            wanted.map(|(name, own, total)| (name.to_owned(), own, total))
        );
        let callers = |name: &str| {
            let mut all = group.functions.iter();
            all.find(|function| function.name == name)
                .unwrap()
                .callers
                .clone()
        };
        let caller = |name: &str, count| (name.to_owned(), count);
        assert_eq!(callers("leaf"), [caller("rec", 3), caller("main", 1)]);
        assert_eq!(callers("rec"), [caller("main", 5)]);
        assert_eq!(callers("main"), [caller("", 6)]);
    }
}
