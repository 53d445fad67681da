// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of pseudo-random addresses of real programs, against binutils and LLVM; which code
//! is a function's, and by which names, is nm's word.
//!
//! `NSPROBE_FILES` adds files, with colons between them: `scripts/check-full.sh` gives two of
//! Debian's with their debug information.

use crate::support::symbols::Symbols;
use crate::support::witness::{Said, Witness};
use crate::support::{open, Folder};
use nsprobe_symbolize::demangle::demangle;
use nsprobe_symbolize::{Address, Binary, FrameSource, Lookup, SourceFrame, Unresolved};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Differences of each kind that are shown.
const SHOWN: usize = 40;
/// The machine's libc, where Debian has it.
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// Addresses of a small program, and of one of those that are 100,000 together.
const FEW: usize = 1700;
const MANY: usize = 34_000;

/// How many of a hundred thousand addresses may come to each verdict, with one witness: as
/// measured, and what another compiler or update of the file may add.
struct Bounds {
    same_min: usize,
    alias_max: usize,
    padding_max: usize,
    stub_max: usize,
    different_max: usize,
    lines_max: usize,
}

impl Bounds {
    fn broken(&self, asked: usize, counts: &Counts) -> Vec<String> {
        let scaled = |count: usize| count * 100_000 / asked;
        let of = |verdict| counts.verdicts.get(&verdict).copied().unwrap_or(0);
        let mut broken = Vec::new();
        if scaled(of(Verdict::Same)) < self.same_min {
            let (same, least) = (scaled(of(Verdict::Same)), self.same_min);
            broken.push(format!(
                "of 100,000 only {same} are Same: at least {least} are"
            ));
        }
        for (what, count, most) in [
            ("Alias", of(Verdict::Alias), self.alias_max),
            ("Padding", of(Verdict::Padding), self.padding_max),
            ("Stub", of(Verdict::Stub), self.stub_max),
            ("Different", of(Verdict::Different), self.different_max),
            ("other lines", counts.lines, self.lines_max),
        ] {
            if scaled(count) > most {
                let count = scaled(count);
                broken.push(format!(
                    "of 100,000, {count} are {what}: at most {most} are"
                ));
            }
        }
        broken
    }
}

/// Addresses of code, the same in each run.
fn addresses(binary: &Binary, count: usize) -> Vec<u64> {
    let ranges: Vec<(u64, u64)> = binary.code_ranges().collect();
    let bytes: u64 = ranges.iter().map(|(from, to)| to - from).sum();
    let mut state = 0x5eed_u64;
    // SplitMix64.
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let at = |mut into: u64| {
        for (from, to) in &ranges {
            match into.checked_sub(to - from) {
                Some(rest) => into = rest,
                None => return from + into,
            }
        }
        unreachable!("it is below the sum")
    };
    (0..count).map(|_| at(next() % bytes)).collect()
}

/// An address, with what we and a witness say of it.
struct Case<'a> {
    symbols: &'a Symbols,
    witness: Witness,
    ours: &'a Ours,
    theirs: &'a [Said],
}

/// How two answers are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// The same functions.
    Same,
    /// The same functions; of one the witness tells another name of the same code.
    Alias,
    /// Between functions by nm's sizes, where binutils tells the one in front, and LLVM one
    /// without a size and a line.
    Padding,
    /// A stub of the linkage table, of which nsprobe and nm tell the function.
    Stub,
    /// Nothing explains it.
    Different,
}

/// What we say of an address.
struct Ours {
    address: u64,
    is_plt: bool,
    frames: Vec<SourceFrame>,
}

impl Ours {
    fn of(binary: &Binary, address: u64) -> Ours {
        let offset = binary.offset_of(Address(address)).unwrap();
        let (frames, is_plt) = match binary.resolve(offset, Lookup::Instruction) {
            Ok(found) => (found.frames, found.source == FrameSource::Plt),
            Err(Unresolved::BetweenFunctions(_) | Unresolved::NoSymbols) => (Vec::new(), false),
            Err(why) => panic!("{address:#x}: {why}"),
        };
        Ours {
            address,
            is_plt,
            frames,
        }
    }
}

impl<'a> Case<'a> {
    fn verdict(&self) -> Verdict {
        let theirs = self.told();
        let is_unplaced = theirs.iter().all(|said| said.line.is_none());
        let is_loose = is_unplaced || self.witness == Witness::Binutils;
        // Others have the symbol in front, which has no size.
        if self.ours.is_plt && is_unplaced && self.is_stub() {
            return Verdict::Stub;
        }
        let is_unnamed = self.ours.frames.is_empty();
        if is_unnamed && self.symbols.is_padding(self.ours.address) && is_loose {
            return Verdict::Padding;
        }
        if theirs.len() != self.ours.frames.len() {
            return Verdict::Different;
        }
        let pairs = self.ours.frames.iter().zip(theirs).enumerate();
        pairs.fold(Verdict::Same, |worst, (depth, (ours, theirs))| {
            let theirs = theirs.function.as_deref().unwrap();
            worst.max(self.related(depth, &ours.function, theirs))
        })
    }

    /// What the witness tells of functions.
    fn told(&self) -> Vec<&'a Said> {
        let named = |said: &&Said| said.function.is_some();
        self.theirs.iter().filter(named).collect()
    }

    /// How two names of the function at a depth are related.
    fn related(&self, depth: usize, ours: &str, raw: &str) -> Verdict {
        // `fclose@@GLIBC_2.2.5`: the version is no part of the name.
        let raw = raw.split('@').next().unwrap();
        let theirs = demangle(raw);
        let is_last = depth + 1 == self.ours.frames.len();
        // binutils tells the innermost function by the symbol of the code, even where
        // another one was inlined there.
        let by_symbol = is_last || (depth == 0 && self.witness == Witness::Binutils);
        if ours == theirs {
            Verdict::Same
        } else if by_symbol && self.aliases().any(|name| name == raw) {
            if is_last {
                Verdict::Alias
            } else {
                Verdict::Same
            }
        } else if is_last && self.is_in_full(ours, &theirs) {
            Verdict::Alias
        } else {
            Verdict::Different
        }
    }

    /// Whether ours is the symbol's name, and theirs what DWARF has of it: no namespace,
    /// no parameters.
    fn is_in_full(&self, ours: &str, theirs: &str) -> bool {
        let is_symbol = self.aliases().any(|name| demangle(name) == ours);
        let short = theirs.split(['<', '(']).next().unwrap();
        let at_end = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        is_symbol && ours.match_indices(short).any(|(at, _)| at_end(&ours[..at]))
    }

    /// Whether nm finds the same stub here.
    fn is_stub(&self) -> bool {
        let [ours] = &self.ours.frames[..] else {
            return false;
        };
        let theirs = self.symbols.stub(self.ours.address);
        theirs.is_some_and(|theirs| ours.function == format!("{}@plt", demangle(theirs)))
    }

    /// All names of the code that holds the address.
    fn aliases(&self) -> impl Iterator<Item = &'a str> {
        self.symbols.names(self.ours.address)
    }

    /// Whether the files' names and the lines are the same. binutils 2.40 tells the line
    /// of an included file as one of the file that includes it.
    fn has_same_lines(&self) -> bool {
        let name = |path: &Option<String>| match self.witness {
            Witness::Binutils => None,
            Witness::Llvm => Some(Path::new(path.as_deref()?).file_name()?.to_owned()),
        };
        let ours = self
            .ours
            .frames
            .iter()
            .map(|one| one.line.map(|line| (name(&one.file), line)));
        let theirs = self
            .told()
            .into_iter()
            .map(|one| one.line.map(|line| (name(&one.file), line)));
        ours.eq(theirs)
    }

    fn show(&self) -> String {
        let place = |file: &Option<String>, line: Option<u32>| {
            format!("{}:{}", file.as_deref().unwrap_or("?"), line.unwrap_or(0))
        };
        let mut text = format!("{:#x}:", self.ours.address);
        for one in &self.ours.frames {
            let place = place(&one.file, one.line);
            text += &format!("\n      ours {:.150} {place}", one.function);
        }
        for one in self.theirs {
            let place = place(&one.file, one.line);
            let name = one.function.as_deref().map(demangle);
            text += &format!("\n    theirs {:.150} {place}", name.unwrap_or_default());
        }
        text
    }
}

/// How many addresses came to each verdict, and at how many the lines differ.
#[derive(Debug, Default)]
struct Counts {
    verdicts: BTreeMap<Verdict, usize>,
    lines: usize,
}

/// Compares all names with those of each witness.
fn agree(path: &Path, count: usize, bounds: &[(Witness, &Bounds)]) {
    let binary = open(path).unwrap();
    let addresses = addresses(&binary, count);
    let Some(symbols) = Symbols::of(path) else {
        return;
    };
    assert!(
        symbols.count() > 50,
        "nm finds {} functions",
        symbols.count()
    );
    let ours = addresses.iter().map(|at| Ours::of(&binary, *at));
    let ours: Vec<Ours> = ours.collect();
    for (witness, bounds) in bounds {
        if let Some(said) = witness.ask(path, &addresses) {
            compare(path, &symbols, &ours, (*witness, &said), bounds);
        }
    }
}

/// When a bound is broken, all that nothing explains is listed.
fn compare(
    path: &Path,
    symbols: &Symbols,
    ours: &[Ours],
    (witness, said): (Witness, &[Vec<Said>]),
    bounds: &Bounds,
) {
    let (mut counts, mut inlined, mut unexplained) = (Counts::default(), 0, Vec::new());
    for (ours, theirs) in ours.iter().zip(said) {
        let case = Case {
            symbols,
            witness,
            ours,
            theirs,
        };
        inlined += usize::from(ours.frames.len() > 1);
        let verdict = case.verdict();
        *counts.verdicts.entry(verdict).or_default() += 1;
        let has_other_lines = verdict <= Verdict::Alias && !case.has_same_lines();
        counts.lines += usize::from(has_other_lines);
        if has_other_lines || verdict == Verdict::Different {
            unexplained.push(format!("  {verdict:?} {}", case.show()));
        }
    }
    let asked = ours.len();
    let told = format!(
        "{}, {witness:?}: {asked} addresses, {inlined} inlined, {counts:?}",
        path.display()
    );
    println!("{told}");
    let left = unexplained.len().saturating_sub(SHOWN);
    unexplained.truncate(SHOWN);
    let broken = bounds.broken(asked, &counts);
    assert!(
        broken.is_empty(),
        "{told}\n{}\n{}\n  and {left} more",
        broken.join("\n"),
        unexplained.join("\n")
    );
}

/// The bounds with binutils, and with LLVM.
struct Both(Bounds, Bounds);

fn agree_with_both(path: &Path, count: usize, Both(binutils, llvm): &Both) {
    let both = [(Witness::Binutils, binutils), (Witness::Llvm, llvm)];
    agree(path, count, &both);
}

/// Same at least; then at most: alias, padding, stub, different, lines.
const fn bounds(same_min: usize, max: [usize; 5]) -> Bounds {
    let [alias_max, padding_max, stub_max, different_max, lines_max] = max;
    Bounds {
        same_min,
        alias_max,
        padding_max,
        stub_max,
        different_max,
        lines_max,
    }
}

const CXX: Both = Both(
    bounds(93_000, [2_800, 3_300, 1_500, 15, 15]),
    bounds(86_000, [10_000, 3_300, 1_500, 15, 15]),
);
const RUST: Both = Both(
    bounds(98_000, [100, 1_800, 50, 15, 15]),
    bounds(97_500, [700, 1_800, 50, 15, 15]),
);
/// Half of libc's functions have several names; DWARF tells another than symbols do.
const LIBC_WHOLE: Both = Both(
    bounds(97_000, [120, 2_700, 120, 15, 15]),
    bounds(67_000, [31_000, 2_700, 120, 15, 15]),
);
/// Most of its functions are in no dynamic symbol.
const LIBC_ALONE: Bounds = bounds(26_000, [2_700, 73_000, 120, 15, 15]);
const SERVER: Both = Both(
    bounds(96_000, [50, 3_300, 600, 15, 15]),
    bounds(83_000, [14_000, 3_300, 600, 15, 15]),
);
/// For what a developer names.
const UNKNOWN: Both = Both(
    bounds(90_000, [5_000, 5_000, 2_000, 50, 50]),
    bounds(60_000, [35_000, 5_000, 2_000, 50, 50]),
);

#[test]
#[ignore = "full run: many addresses"]
fn names_of_a_c_plus_plus_program_are_those_of_others() {
    let folder = Folder::new("agree-c++");
    let flags = ["-std=c++17", "-g", "-O2"];
    if let Some(path) = folder.built("templates", "c++", &flags, "templates.cc") {
        agree_with_both(&path, FEW, &CXX);
    }
}

#[test]
#[ignore = "full run: many addresses"]
fn names_of_a_rust_program_are_those_of_others() {
    let folder = Folder::new("agree-rust");
    let flags = ["-g", "-O", "--edition=2021"];
    if let Some(path) = folder.built("collections", "rustc", &flags, "collections.rs") {
        agree_with_both(&path, MANY, &RUST);
    }
}

/// With its debug information, where that is installed: Debian's libc6-dbg.
#[test]
#[ignore = "full run: joins files of many megabytes"]
fn names_of_the_machines_libc_are_those_of_others() {
    let libc = Path::new(LIBC);
    if !nsprobe_testing::file(libc) {
        return;
    }
    let folder = Folder::new("agree-libc");
    let whole = folder.0.join("libc.so");
    let plain = open(libc).unwrap();
    let names = plain.debug_file_names(libc);
    if let Some(debug) = names.into_iter().find(|path| path.exists()) {
        let mut join = Command::new("eu-unstrip");
        if nsprobe_testing::success(join.args([libc, &debug]).arg("-o").arg(&whole)) {
            agree_with_both(&whole, FEW, &LIBC_WHOLE);
        }
        return;
    }
    // Others would find the debug information, of which we are not told here.
    let mut alone = Command::new("objcopy");
    alone.arg("--remove-section=.gnu_debuglink");
    alone.arg("--remove-section=.note.gnu.build-id");
    if nsprobe_testing::success(alone.arg(libc).arg(&whole)) {
        println!("libc without its debug information, and so without binutils");
        agree(&whole, FEW, &[(Witness::Llvm, &LIBC_ALONE)]);
    }
}

#[test]
#[ignore = "full run: many addresses"]
fn names_of_given_files_are_those_of_others() {
    let files = std::env::var("NSPROBE_FILES").unwrap_or_default();
    let files: Vec<&str> = files.split(':').filter(|file| !file.is_empty()).collect();
    if files.is_empty() {
        nsprobe_testing::lacking("NSPROBE_FILES names no file");
    }
    for file in files.into_iter().map(Path::new) {
        let name = file.file_name().unwrap().to_str().unwrap();
        let bounds = match name {
            "libc" => &LIBC_WHOLE,
            "dibbler-server" => &SERVER,
            _ => &UNKNOWN,
        };
        agree_with_both(file, MANY, bounds);
    }
}
