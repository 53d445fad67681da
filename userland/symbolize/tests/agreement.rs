// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of pseudo-random addresses of real programs, against binutils and LLVM.
//!
//! `NSPROBE_FILES` adds files, with colons between them: `make check` gives two of Debian's
//! with their debug information. `NSPROBE_ADDRESSES` says how many addresses of each file are
//! asked for.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use nsprobe_symbolize::demangle::demangle;
use nsprobe_symbolize::{Address, Binary, Lookup, Place, Source, SourceFrame, Unresolved};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::witness::{Said, Witness};
use support::{open, Folder};

/// Of a thousand addresses, how many must be named alike.
const LEAST: usize = 999;
/// Differences of each kind that are shown.
const SHOWN: usize = 5;
/// The machine's libc, where Debian has it.
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// Addresses of a small program, and of one of those that are 100,000 together.
const FEW: usize = 1700;
const MANY: usize = 34_000;

fn wanted(count: usize) -> usize {
    let number = std::env::var("NSPROBE_ADDRESSES").ok();
    number.map_or(count, |number| number.parse().unwrap())
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
    binary: &'a Binary,
    witness: Witness,
    address: u64,
    is_plt: bool,
    ours: Vec<SourceFrame>,
    theirs: &'a [Said],
}

/// How two answers are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// The same functions.
    Same,
    /// The same functions; of one the witness tells another name of the same code.
    Alias,
    /// Between functions, where binutils tells the one in front, and LLVM one without a
    /// size and a line.
    Padding,
    /// A stub of the linkage table, of which only nsprobe tells the function.
    Stub,
    /// Nothing explains it.
    Different,
}

impl<'a> Case<'a> {
    fn new(binary: &'a Binary, witness: Witness, address: u64, theirs: &'a [Said]) -> Case<'a> {
        let offset = binary.offset_of(Address(address)).unwrap();
        let (ours, is_plt) = match binary.resolve(offset, Lookup::Instruction) {
            Ok(found) => (found.frames, found.source == Source::Plt),
            Err(Unresolved::BetweenFunctions(_) | Unresolved::NoSymbols) => (Vec::new(), false),
            Err(why) => panic!("{address:#x}: {why}"),
        };
        Case {
            binary,
            witness,
            address,
            is_plt,
            ours,
            theirs,
        }
    }

    fn verdict(&self) -> Verdict {
        let theirs = self.told();
        let is_unplaced = theirs.iter().all(|said| said.line.is_none());
        let is_loose = is_unplaced || self.witness == Witness::Binutils;
        // LLVM has the symbol in front, which has no size.
        if self.is_plt && is_unplaced {
            return Verdict::Stub;
        }
        if self.ours.is_empty() && self.is_padding() && is_loose {
            return Verdict::Padding;
        }
        if theirs.len() != self.ours.len() {
            return Verdict::Different;
        }
        let pairs = self.ours.iter().zip(theirs).enumerate();
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
        let is_last = depth + 1 == self.ours.len();
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

    /// Whether no sized symbol of the file reaches so far.
    fn is_padding(&self) -> bool {
        let reaches = |at: u64, size: u64| (at..at.saturating_add(size)).contains(&self.address);
        let functions = self.binary.functions();
        !functions.iter().any(|one| reaches(one.address.0, one.size))
    }

    /// All names of the code that holds the address.
    fn aliases(&self) -> impl Iterator<Item = &'a str> {
        let offset = self.binary.offset_of(Address(self.address)).unwrap();
        let start = match self.binary.code_at(offset) {
            Place::Function(function) => Some(function.address),
            _ => None,
        };
        let functions = self.binary.functions().iter();
        let same = functions.filter(move |one| Some(one.address) == start);
        same.map(|one| one.name.as_str())
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
        let mut text = format!("{:#x}:", self.address);
        for one in &self.ours {
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

/// Compares all names; those that differ are listed and explained.
fn agree(path: &Path, witness: Witness, count: usize) {
    let binary = open(path).unwrap();
    let addresses = addresses(&binary, wanted(count));
    let Some(said) = witness.ask(path, &addresses) else {
        return;
    };
    let mut verdicts: BTreeMap<Verdict, Vec<Case<'_>>> = BTreeMap::new();
    let (mut inlined, mut lines) = (0, Vec::new());
    for (at, said) in addresses.iter().zip(&said) {
        let case = Case::new(&binary, witness, *at, said);
        inlined += usize::from(case.ours.len() > 1);
        let verdict = case.verdict();
        if verdict <= Verdict::Alias && !case.has_same_lines() {
            lines.push(case.show());
        }
        verdicts.entry(verdict).or_default().push(case);
    }
    let asked = addresses.len();
    println!(
        "{}, {witness:?}: {asked} addresses, {inlined} inlined",
        path.display()
    );
    for (verdict, cases) in &verdicts {
        println!("  {verdict:?}: {}", cases.len());
        let shown = cases.iter().filter(|_| *verdict != Verdict::Same);
        shown
            .take(SHOWN)
            .for_each(|case| println!("    {}", case.show()));
    }
    println!("  other lines: {}", lines.len());
    lines
        .iter()
        .take(SHOWN)
        .for_each(|line| println!("    {line}"));
    let different = verdicts.get(&Verdict::Different).map_or(0, Vec::len);
    let alike = |different: usize| (asked - different) * 1000 >= asked * LEAST;
    assert!(alike(different), "{different} names of {}", path.display());
    assert!(
        alike(lines.len()),
        "{} lines of {}",
        lines.len(),
        path.display()
    );
}

fn agree_with_both(path: &Path, count: usize) {
    agree(path, Witness::Binutils, count);
    agree(path, Witness::Llvm, count);
}

#[test]
fn names_of_a_c_plus_plus_program_are_those_of_others() {
    let folder = Folder::new("agree-c++");
    let flags = ["-std=c++17", "-g", "-O2"];
    if let Some(path) = folder.built("templates", "c++", &flags, "templates.cc") {
        agree_with_both(&path, FEW);
    }
}

#[test]
fn names_of_a_rust_program_are_those_of_others() {
    let folder = Folder::new("agree-rust");
    let flags = ["-g", "-O", "--edition=2021"];
    if let Some(path) = folder.built("collections", "rustc", &flags, "collections.rs") {
        agree_with_both(&path, FEW);
    }
}

/// With its debug information, where that is installed: Debian's libc6-dbg.
#[test]
fn names_of_the_machines_libc_are_those_of_others() {
    let libc = Path::new(LIBC);
    if !libc.exists() {
        println!("skipped, there is no {LIBC}");
        return;
    }
    let folder = Folder::new("agree-libc");
    let whole = folder.0.join("libc.so");
    let plain = open(libc).unwrap();
    let debug = plain
        .debug_file_names(libc)
        .into_iter()
        .find(|path| path.exists());
    let joined = debug.is_some_and(|debug| {
        let arguments = [libc, &debug, Path::new("-o"), &whole];
        succeeds("eu-unstrip", &arguments)
    });
    // Others would find the debug information, of which we are not told here.
    let links = [
        "--remove-section=.gnu_debuglink",
        "--remove-section=.note.gnu.build-id",
    ];
    let alone = || {
        succeeds(
            "objcopy",
            &[Path::new(links[0]), Path::new(links[1]), libc, &whole],
        )
    };
    if joined {
        agree_with_both(&whole, FEW);
    } else if alone() {
        println!("libc without its debug information, and so without binutils");
        agree(&whole, Witness::Llvm, FEW);
    }
}

fn succeeds(program: &str, arguments: &[&Path]) -> bool {
    let done = Command::new(program).args(arguments).status();
    done.is_ok_and(|status| status.success())
}

#[test]
fn names_of_given_files_are_those_of_others() {
    let files = std::env::var("NSPROBE_FILES").unwrap_or_default();
    let files = files.split(':').filter(|file| !file.is_empty());
    files
        .map(PathBuf::from)
        .for_each(|file| agree_with_both(&file, MANY));
}

/// A Rust program with all of its debug information: this one.
#[test]
fn names_of_this_very_program_are_those_of_others() {
    let path = std::env::current_exe().unwrap();
    agree_with_both(&path, MANY);
}
