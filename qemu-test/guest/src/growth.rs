// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether something that is done again and again costs kernel memory each time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long memory may take to be given back: what the kernel frees after a grace period.
const SETTLED: Duration = Duration::from_secs(15);

/// What is used, by where it came from: objects of slab caches, else pages.
type Use = BTreeMap<String, i64>;

/// Asserts that no round costs kernel memory: `round` is done some times to warm up, `rounds`
/// times, and twice as many times. A leak of one object or page a round makes its account grow
/// by `rounds`, then by twice that; what is allocated once, or kept for later, does not. Half
/// of that is red, in both.
pub(crate) fn assert_no_growth(rounds: u32, mut round: impl FnMut()) {
    let mut many = |count: u32| (0..count).for_each(|_| round());
    many(rounds.div_ceil(8));
    let limit = i64::from(rounds) / 2;
    let first = at_rest();
    many(rounds);
    // What is still there then need not be waited for: it has to grow once more.
    let (second, once) = settled(&first, limit, SETTLED / 3, |_| true);
    many(2 * rounds);
    let is_suspect = |account: &str| once.contains_key(account);
    let (_, twice) = settled(&second, 2 * limit, SETTLED, is_suspect);
    println!("{rounds} rounds: {once:?} more; the next: {twice:?} more");
    let leaks: Vec<String> = twice
        .iter()
        .map(|(account, twice)| format!("{account}: by {}, then by {twice}", once[account]))
        .collect();
    assert!(
        leaks.is_empty(),
        "kernel memory grows with the rounds: {leaks:#?}"
    );
}

/// What is used when no cache of the kernel's holds anything for later, and nothing is on its
/// way back.
fn at_rest() -> Use {
    for account in now().keys() {
        shrink(account);
    }
    let until = Instant::now() + SETTLED;
    let mut before = now();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let after = now();
        let is_falling = before.iter().any(|(account, count)| {
            let now = after.get(account).copied().unwrap_or(0);
            now + 8 < *count
        });
        if !is_falling || Instant::now() > until {
            return after;
        }
        before = after;
    }
}

/// What is used now, and what of it that `counts` has grown by `limit` or more, and stays so
/// for a time.
fn settled(before: &Use, limit: i64, time: Duration, counts: impl Fn(&str) -> bool) -> (Use, Use) {
    let until = Instant::now() + time;
    loop {
        let after = now();
        let mut grown = after.clone();
        for (account, count) in &mut grown {
            *count -= before.get(account).copied().unwrap_or(0);
        }
        grown.retain(|account, count| *count >= limit && counts(account));
        if grown.is_empty() || Instant::now() > until {
            return (after, grown);
        }
        for account in grown.keys() {
            shrink(account);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Has a slab cache give back the objects that it keeps for the next ones, which count as used.
fn shrink(account: &str) {
    if let Some(cache) = account.strip_prefix("slab ") {
        let file = Path::new("/sys/kernel/slab").join(cache).join("shrink");
        let _ = fs::write(file, "1");
    }
}

/// What is used now.
fn now() -> Use {
    // What can be had again from disks is given back, and counters of CPUs are added up.
    fs::write("/proc/sys/vm/drop_caches", "3").expect("tests run as root");
    let _ = fs::read("/proc/sys/vm/stat_refresh");
    let mut all = Use::new();
    let in_slabs = add_slabs(&mut all);
    add_vmalloc(&mut all);
    let memory = Memory::read();
    all.insert("percpu".into(), memory.pages("Percpu:"));
    all.insert("pages".into(), memory.others(in_slabs));
    all
}

/// Adds the objects of all slab caches; the pages that they take.
fn add_slabs(all: &mut Use) -> i64 {
    let text = fs::read_to_string("/proc/slabinfo").expect("tests run as root");
    let mut pages = 0;
    // Two lines of headings come first.
    for line in text.lines().skip(2) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<i64>().ok());
        // `NAME active objects size of-a-slab pages-of-a-slab : … : slabdata active slabs …`
        if let (Some(active), Some(each), Some(slabs)) = (number(1), number(5), number(14)) {
            pages += each * slabs;
            // Those of areas are given back much later than the areas, which are counted.
            if words[0] != "vmap_area" {
                *all.entry(format!("slab {}", words[0])).or_default() += active;
            }
        }
    }
    pages
}

/// Adds the areas of `vmalloc` and `vmap`, and their pages, by the function that asked for
/// them.
fn add_vmalloc(all: &mut Use) {
    let text = fs::read_to_string("/proc/vmallocinfo").expect("tests run as root");
    for line in text.lines() {
        let mut words = line.split_whitespace().skip(2);
        let (Some(caller), mut rest) = (words.next(), words) else {
            continue;
        };
        let pages = rest.find_map(|word| word.strip_prefix("pages=")?.parse::<i64>().ok());
        let function = caller.split('+').next().unwrap_or(caller);
        // Of those that were given back it says so instead.
        if function == "unpurged" {
            continue;
        }
        *all.entry(format!("areas {function}")).or_default() += 1;
        *all.entry(format!("vmalloc {function}")).or_default() += pages.unwrap_or(0);
    }
}

/// `/proc/meminfo`, and the pages that CPUs keep for later.
struct Memory {
    info: String,
    kept: i64,
}

impl Memory {
    fn read() -> Memory {
        let zones = fs::read_to_string("/proc/zoneinfo").expect("/proc is mounted");
        let kept = zones
            .lines()
            .filter_map(|line| line.trim().strip_prefix("count:"));
        Memory {
            info: fs::read_to_string("/proc/meminfo").expect("/proc is mounted"),
            kept: kept
                .filter_map(|count| count.trim().parse::<i64>().ok())
                .sum(),
        }
    }

    fn pages(&self, wanted: &str) -> i64 {
        let line = self.info.lines().find(|line| line.starts_with(wanted));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.and_then(|n| n.parse::<i64>().ok()).unwrap_or(0) / 4
    }

    /// Pages that none of the kernel's accounts has: those that somebody allocated as such,
    /// and the large ones of `kmalloc`.
    fn others(&self, in_slabs: i64) -> i64 {
        const ACCOUNTS: [&str; 10] = [
            "MemFree:",
            "Buffers:",
            "Cached:",
            "SwapCached:",
            "AnonPages:",
            "PageTables:",
            "SecPageTables:",
            "VmallocUsed:",
            "Percpu:",
            "Zswap:",
        ];
        let known: i64 = ACCOUNTS.iter().map(|account| self.pages(account)).sum();
        self.pages("MemTotal:") - known - in_slabs - self.kept
    }
}
