// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run of tests consists of: lanes that run side by side, each of guests one after the
//! other.

use crate::catalogue::{self, Test};
use crate::guest::Guest;
use crate::{output, preflight, Selection, SANITIZE};
use anyhow::{bail, Context, Result};
use std::env;
use std::ffi::OsStr;

/// The kinds of guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One CPU and all programs and containers.
    Plain,
    /// The same with two CPUs.
    TwoCpus,
    /// Two CPUs and little memory, of which the kernel checks each use.
    Checked,
}

fn kind(test: &Test) -> Kind {
    match (test.has("module"), test.has("cpus=2")) {
        (true, _) => Kind::Checked,
        (false, true) => Kind::TwoCpus,
        (false, false) => Kind::Plain,
    }
}

/// One guest with its tests, in their order.
pub(crate) struct Boot {
    pub(crate) guest: Guest,
    pub(crate) tests: Vec<Test>,
}

#[derive(Default)]
pub(crate) struct Plan {
    /// Guests of a lane run one after the other, lanes side by side.
    pub(crate) lanes: Vec<Vec<Boot>>,
    /// The host's checks run beside the guests, and guests that go wrong on purpose after the
    /// last lane's.
    pub(crate) is_whole: bool,
    /// Tests that pass show what they printed.
    pub(crate) shows_all: bool,
}

/// Parts of the full run that the runner does; scripts/test-full.sh has all of them.
const STOCK_SHARDS: usize = 4;

impl Plan {
    /// What was selected; an error of usage is the inner one.
    pub(crate) fn new(guest: &Guest, selection: &Selection) -> Result<Result<Plan>> {
        let tests = catalogue::read(&guest.payload)?;
        if let Some(shard) = selection.shard {
            return shard_of(guest, &tests, shard).map(Ok);
        }
        if !selection.only.is_empty() {
            let chosen: Result<Vec<_>> = selection
                .only
                .iter()
                .map(|name| catalogue::find(&tests, name))
                .collect();
            return Ok(chosen.map(|chosen| only(guest, &chosen)));
        }
        Ok(Ok(core(guest, &tests, selection.core.as_deref())))
    }

    /// All tests that are to come to a verdict.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &Test> {
        self.lanes.iter().flatten().flat_map(|boot| &boot.tests)
    }
}

/// The core of one guest, or all of it: a third of what guest a could run is for a guest like it
/// after b, which is done sooner.
fn core(guest: &Guest, tests: &[Test], named: Option<&str>) -> Plan {
    let of = |name: &str, wanted: Kind, thirds: &[usize]| {
        let is_plain = wanted == Kind::Plain;
        let core = tests.iter().filter(|test| test.has("core"));
        let core = core.filter(|test| (kind(test) == Kind::Plain) == is_plain);
        let mine = core
            .enumerate()
            .filter(|(number, _)| thirds.contains(&(number % 3)));
        boot(
            guest,
            name,
            wanted,
            mine.map(|(_, test)| test.clone()).collect(),
        )
    };
    let a = of("a", Kind::Plain, &[0, 1]);
    let b = of("b", Kind::Checked, &[0, 1, 2]);
    let c = of("c", Kind::Plain, &[2]);
    Plan {
        lanes: match named {
            Some("a") => vec![vec![a, c]],
            Some(_) => vec![vec![b]],
            None => vec![vec![a], vec![b, c]],
        },
        is_whole: named.is_none(),
        shows_all: false,
    }
}

/// Tests by name, each in a guest of its kind.
fn only(guest: &Guest, chosen: &[Test]) -> Plan {
    let of = |(name, wanted): (&str, Kind)| {
        let tests: Vec<_> = chosen.iter().filter(|test| kind(test) == wanted).collect();
        let tests = tests.into_iter().cloned().collect();
        boot(guest, name, wanted, tests)
    };
    let kinds = [
        ("a", Kind::Plain),
        ("b", Kind::Checked),
        ("c", Kind::TwoCpus),
    ];
    let boots = kinds.into_iter().map(of);
    Plan {
        lanes: vec![boots.filter(|boot| !boot.tests.is_empty()).collect()],
        is_whole: false,
        shows_all: true,
    }
}

/// A shard of the full run: 1 to 4 what runs on the stock kernel; the module's tests where
/// memory is checked (5), also preemptible everywhere (6), with lockdep (7) and KASAN (8).
fn shard_of(guest: &Guest, tests: &[Test], shard: usize) -> Result<Plan> {
    let mut guest = guest.clone();
    let (wanted, chosen): (_, Vec<&Test>) = if shard <= STOCK_SHARDS {
        whole(&mut guest);
        let stock = tests.iter().filter(|test| kind(test) != Kind::Checked);
        let mine = stock.skip(shard - 1).step_by(STOCK_SHARDS);
        (None, mine.collect())
    } else {
        match shard {
            5 => whole(&mut guest),
            6 => guest.append("preempt=full"),
            7 => guest = with_kernel(guest, "lockdep")?,
            8 => guest = with_kernel(guest, "kasan")?,
            _ => bail!("shard {shard} is not one of guests: make test-full SHARD={shard}/12"),
        }
        let has = |test: &&Test| match shard {
            5 | 6 => !test.has("faults"),
            _ => !test.has("stock"),
        };
        let module = tests.iter().filter(|test| test.has("module"));
        (Some(Kind::Checked), module.filter(has).collect())
    };
    let lane = |number: usize| {
        let mine = chosen.iter().skip(number).step_by(2);
        let mine: Vec<_> = mine.map(|test| (*test).clone()).collect();
        let kinds = [Kind::Plain, Kind::TwoCpus, Kind::Checked];
        let boots = kinds.into_iter().map(|kind_of| {
            let tests = mine
                .iter()
                .filter(|test| wanted.unwrap_or(kind(test)) == kind_of);
            let name = format!("{}{}", ["a", "b"][number], kind_of as usize + 1);
            boot(&guest, &name, kind_of, tests.cloned().collect())
        });
        boots.filter(|boot| !boot.tests.is_empty()).collect()
    };
    Ok(Plan {
        lanes: vec![lane(0), lane(1)],
        is_whole: false,
        shows_all: false,
    })
}

/// Has tests reach their whole figures, for which they have more time (`figures.rs`).
fn whole(guest: &mut Guest) {
    guest.append("NSPROBE_WHOLE=1");
    guest.silence = guest.silence.saturating_mul(8);
}

/// The guest with a kernel of scripts/debug-kernel.sh, and the module built for it.
fn with_kernel(guest: Guest, variant: &str) -> Result<Guest> {
    let script = guest.project.join("scripts/debug-kernel.sh");
    let words: [&OsStr; 2] = [variant.as_ref(), "cached".as_ref()];
    let made = output(&script, &words)?;
    let (image, payload) = made
        .split_once('\n')
        .with_context(|| format!("there is no {variant} kernel: make debug-kernel makes it"))?;
    Ok(Guest {
        payload: preflight::keep(payload.as_ref(), &guest.folder.join(variant))?,
        image: image.into(),
        ..guest
    })
}

fn boot(guest: &Guest, name: &str, kind: Kind, tests: Vec<Test>) -> Boot {
    let mut guest = Guest {
        folder: guest.folder.join(name),
        ..guest.clone()
    };
    let (cpus, memory) = match kind {
        Kind::Plain => (1, None),
        Kind::TwoCpus => (2, None),
        Kind::Checked => (2, Some("512M")),
    };
    if env::var_os("SMP").is_none() {
        guest.cpus = Some(cpus);
    }
    if env::var_os("MEMORY").is_none() {
        guest.memory = memory.map(str::to_owned);
    }
    if kind == Kind::Checked {
        guest.append(SANITIZE);
    }
    Boot { guest, tests }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn tests() -> Vec<Test> {
        let text = "a 60 core\nb 60 core module cpus=2\nc 60\nd 60 cpus=2\ne 60 module\n\
                    f 60 module faults\ng 60 core module stock\nh 60 core\ni 60 core\n";
        catalogue::parse(text).expect("it is a list")
    }

    /// Of each boot its CPUs and its tests.
    fn boots(plan: &Plan) -> Vec<(u32, String)> {
        let of = |boot: &Boot| {
            let names: Vec<_> = boot.tests.iter().map(|test| test.name.as_str()).collect();
            (boot.guest.cpus.unwrap_or(0), names.join(""))
        };
        plan.lanes.iter().flatten().map(of).collect()
    }

    fn of(list: &[(u32, &str)]) -> Vec<(u32, String)> {
        list.iter()
            .map(|(cpus, names)| (*cpus, (*names).to_owned()))
            .collect()
    }

    #[test]
    fn each_test_runs_in_a_guest_of_its_kind() {
        let guest = Guest::in_folder(Path::new("/nowhere"));
        assert_eq!(
            boots(&core(&guest, &tests(), None)),
            of(&[(1, "ah"), (2, "bg"), (1, "i")])
        );
        assert_eq!(boots(&core(&guest, &tests(), Some("b"))), of(&[(2, "bg")]));
        let two = [tests()[1].clone(), tests()[3].clone()];
        let plan = only(&guest, &two);
        assert_eq!(boots(&plan), of(&[(2, "b"), (2, "d")]));
        assert!(plan.lanes[0][0].guest.append.contains("slab_debug"));
        assert!(!plan.lanes[0][1].guest.append.contains("slab_debug"));
    }

    #[test]
    fn the_shards_have_all_tests_once() {
        let guest = Guest::in_folder(Path::new("/nowhere"));
        let mut names: Vec<String> = Vec::new();
        for shard in 1..=5 {
            let plan = shard_of(&guest, &tests(), shard).expect("there is one");
            names.extend(plan.tests().map(|test| test.name.clone()));
        }
        names.sort();
        // f has to have a kernel that fails on purpose.
        assert_eq!(names.join(""), "abcdeghi");
        shard_of(&guest, &tests(), 9)
            .err()
            .expect("a script does it");
    }
}
