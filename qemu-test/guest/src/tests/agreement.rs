// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: stacks are those that a debugger shows, frame by frame, at thousands of
//! instructions of Debian's programs; where one is shorter it says why.
//!
//! Each program is run twice. The first time instructions all over its files are probed,
//! most of which it never comes to; the second time gdb stops it at those that it has come
//! to. What is compared are stacks of one moment: the n-th time at an instruction. So both
//! runs have to be the same: what makes some programs choose otherwise each time, such as the
//! clock, timers and random numbers, is taken from them.
//!
//! `NSPROBE_SEED` chooses other instructions, and other times at them. `make test`
//! compares a part of them.

mod programs;

use crate::command::{self, Output};
use crate::debugger::{self, Place, Script, Stop};
use crate::figures;
use crate::instructions::go::{self, Caller};
use crate::instructions::{choose, with_rows, Dice};
use crate::module::Module;
use crate::run::ROLE;
use crate::stack::Stack;
use crate::victim;
use object::Object;
use programs::{CPP_AND_RUST, GO, INTERPRETERS, SERVERS, TOOLS};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::env;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, OnceLock};
use std::thread;

/// A program of Debian's that ends by itself and does the same each time.
struct Program {
    words: &'static [&'static str],
    /// What it reads from its standard input.
    input: &'static str,
    /// Who runs it.
    user: &'static str,
    /// Files that it maps, and how many instructions of each are probed.
    files: &'static [(&'static str, usize)],
    is_go: bool,
    /// It goes by the clock or by random numbers, which are given to it (`victims/steady.c`).
    is_steadied: bool,
    /// How many stacks of each instruction are recorded, from the first on.
    times: usize,
    /// Makes what it works on, anew for each run.
    prepare: fn(),
    /// Stacks that are whole and equal, at least, at the instructions of the first seed.
    least: usize,
    /// Stacks at most that are of what readies the libraries.
    early: usize,
}

/// What a comparison has come to.
#[derive(Debug, Default)]
struct Tally {
    /// Stacks that are whole and equal.
    equal: usize,
    /// Those that begin as gdb's, by the reasons for which they go no further.
    cut: BTreeMap<String, usize>,
    /// Those that begin as gdb's, up to code that has no rows.
    without_rows: usize,
    /// The others, which were printed.
    wrong: usize,
    /// Places that the program did not come to under gdb.
    elsewhere: usize,
    /// Stacks of what readies the libraries, which gdb does not see.
    early: usize,
    /// Frames that are equal.
    frames: usize,
}

/// All tests together.
const STACKS_MIN: usize = 5000;
const _: () = assert!(
    least(TOOLS) + least(INTERPRETERS) + least(SERVERS) + least(CPP_AND_RUST) + least(GO)
        >= STACKS_MIN
);

const fn least(programs: &[Program]) -> usize {
    let (mut sum, mut at) = (0, 0);
    while at < programs.len() {
        sum += programs[at].least;
        at += 1;
    }
    sum
}

test! { core, a_debugger_sees_the_same_stacks_of_tools, seconds = 290 }
fn a_debugger_sees_the_same_stacks_of_tools() {
    compare(TOOLS);
}

test! { full, a_debugger_sees_the_same_stacks_of_interpreters, seconds = 290 }
fn a_debugger_sees_the_same_stacks_of_interpreters() {
    compare(INTERPRETERS);
}

test! { full, a_debugger_sees_the_same_stacks_of_servers, seconds = 290 }
fn a_debugger_sees_the_same_stacks_of_servers() {
    // Redis takes the secret of its hashes from there.
    let _same = Mounted::new("/dev/zero", "/dev/urandom");
    compare(SERVERS);
}

test! { full, a_debugger_sees_the_same_stacks_of_cpp_and_rust, seconds = 290 }
fn a_debugger_sees_the_same_stacks_of_cpp_and_rust() {
    compare(CPP_AND_RUST);
}

test! { full, a_debugger_sees_the_same_stacks_of_go, seconds = 290 }
/// gdb follows frame pointers here, which Go keeps: of its files' own tables, which nsprobe
/// reads, gdb knows nothing.
fn a_debugger_sees_the_same_stacks_of_go() {
    compare(GO);
}

/// A file in the place of another, until it is dropped.
struct Mounted(&'static str);

impl Mounted {
    fn new(from: &'static str, at: &'static str) -> Mounted {
        let mounted = Command::new("mount").args(["--bind", from, at]).status();
        assert!(mounted.expect("mount is there").success(), "{at}");
        Mounted(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// What the programs work on; removed with the value.
struct Folder;

const FOLDER: &str = "/var/tmp/agreement";

impl Folder {
    fn new() -> Folder {
        // One that was killed leaves it.
        let _ = fs::remove_dir_all(FOLDER);
        fs::create_dir(FOLDER).expect("/var/tmp is writable");
        Folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(FOLDER);
    }
}

/// Compares the stacks of all of them, side by side.
fn compare(programs: &'static [Program]) {
    println!("NSPROBE_SEED={}", seed());
    let _module = Module::load();
    let _folder = Folder::new();
    let threads: Vec<_> = programs
        .iter()
        .map(|program| (program, thread::spawn(|| program.compare())))
        .collect();
    let mut sum = Tally::default();
    for (program, thread) in threads {
        let tally = thread.join().expect("what is wrong is counted");
        println!("{}: {tally:?}", program.words[0]);
        // Other instructions are come to less often, or more.
        let least = match (seed(), share()) {
            (1, 1) => program.least,
            (_, share) => program.least / share * 3 / 5,
        };
        let cut: usize = tally.cut.values().sum();
        assert!(tally.equal >= least, "not {least} equal: {tally:?}");
        assert!(cut <= tally.stacks().div_ceil(50), "{tally:?}");
        assert!(
            tally.without_rows <= tally.stacks().div_ceil(10),
            "{tally:?}"
        );
        assert!(tally.early <= program.early, "{tally:?}");
        assert_eq!(tally.elsewhere, 0, "{tally:?}");
        sum.add(tally);
    }
    assert_eq!(sum.wrong, 0, "{sum:?}");
}

/// The role that puts a program in its place, with a standard output as under gdb: what it
/// prints would go where the stacks go, and Python does other things where it cannot seek. It
/// maps no library, where a probe would be hit.
pub(super) const SILENT: &str = "silent";

pub(super) fn silent(words: &[&str]) -> ExitCode {
    let [program, arguments @ ..] = words else {
        return ExitCode::from(2);
    };
    let error = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .exec();
    eprintln!("{program}: {error}");
    ExitCode::FAILURE
}

/// What chooses the instructions, and the times at them.
fn seed() -> u64 {
    env::var("NSPROBE_SEED").map_or(1, |seed| seed.parse().expect("NSPROBE_SEED is a number"))
}

/// Instructions probed in one run of a program. The module copies 256 stacks that wait for a
/// file's rows, and more than that are hit at once where more instructions are probed.
const PLACES_AT_ONCE: usize = 1500;

/// One in this number of the instructions is compared.
fn share() -> usize {
    figures::parts(24)
}

impl Program {
    fn compare(&self) -> Tally {
        let chosen = self.choose();
        let (mut hits, mut early) = (BTreeMap::new(), 0);
        let places: Vec<_> = chosen.keys().collect();
        for places in places.chunks(PLACES_AT_ONCE) {
            let (more, more_early) = self.trace(places);
            hits.extend(more);
            early += more_early;
        }
        let stops = self.stops(&chosen, hits);
        let wanted = self.debug(stops.keys());
        let mut tally = Tally {
            early,
            ..Tally::default()
        };
        for (stop, stack) in &stops {
            match wanted.get(&stop.place) {
                Some(wanted) => tally.judge(stop, stack, wanted),
                None => tally.elsewhere += 1,
            }
        }
        tally
    }

    /// Instructions to be probed; to most of them the program does not come.
    fn choose(&self) -> BTreeMap<Place, Option<Caller>> {
        let mut dice = Dice(seed());
        let mut chosen = BTreeMap::new();
        for (file, count) in self.files {
            let count = count / share();
            // By the name that the kernel knows it by.
            let path = fs::canonicalize(file).unwrap_or_else(|error| panic!("{file}: {error}"));
            let name = path.to_str().expect("a plain name").to_owned();
            let mut add = |offset, caller| chosen.insert((name.clone(), offset), caller);
            if self.is_go {
                for (offset, caller) in go::choose(&path, count, &mut dice) {
                    add(offset, Some(caller));
                }
            } else {
                for offset in choose(&path, count, &mut dice) {
                    add(offset, None);
                }
            }
        }
        chosen
    }

    /// The first stacks at each of the instructions that the program comes to, and how many
    /// there were before gdb sees any.
    fn trace(&self, places: &[&Place]) -> (BTreeMap<Place, Vec<Stack>>, usize) {
        (self.prepare)();
        let specs = places
            .iter()
            .map(|(path, offset)| format!("{path}:{offset:#x}"));
        // Addresses as under gdb. Of each probe the first hits are recorded, whatever comes
        // then.
        let mut trace = Command::new("setarch");
        trace.args(["-R", command::FILE, "trace", "--json", "--stack"]);
        let rate = format!("1:{}", self.times);
        // Some of the instructions are ten-byte nops, and no program here moves its code.
        trace.args(["--rate", &rate, "--runaway", "500", "--fast-nops"]);
        let script = self
            .is_go
            .then(|| Script::new(self.words[0], std::iter::empty()));
        if let Some(script) = &script {
            // What it goes by is on its stack before it runs: gdb changes that, and only
            // waits then.
            trace.arg("--children").args(specs).args(["--", "gdb"]);
            trace.args(script.words(self.debugged()));
        } else {
            trace.args(specs).arg("--");
            let this = env::current_exe().expect("/proc is mounted");
            trace.arg(this).args([ROLE, SILENT]);
            trace.args(self.as_user()).args(self.words);
        }
        self.in_its_place(&mut trace);
        if let Some(library) = self.debugged().preloaded {
            trace.env("LD_PRELOAD", library);
        }
        hits(&command::output(&mut trace))
    }

    /// Where and when gdb is to stop, and which stack it should see.
    fn stops(
        &self,
        chosen: &BTreeMap<Place, Option<Caller>>,
        hits: BTreeMap<Place, Vec<Stack>>,
    ) -> BTreeMap<Stop, Stack> {
        let mut dice = Dice(seed() + 1);
        let stops = hits.into_iter().map(|(place, mut stacks)| {
            let time = dice.below(stacks.len().min(self.times));
            let stop = Stop {
                caller: chosen[&place],
                place,
                time: time + 1,
            };
            (stop, stacks.swap_remove(time))
        });
        stops.collect()
    }

    /// The stacks that gdb sees.
    fn debug<'a>(&self, stops: impl Iterator<Item = &'a Stop>) -> HashMap<Place, Vec<Place>> {
        (self.prepare)();
        let words = [&self.as_user()[..], &["gdb"]].concat();
        let mut gdb = Command::new(words[0]);
        gdb.args(&words[1..]);
        self.in_its_place(&mut gdb);
        debugger::stacks(gdb, self.debugged(), stops)
    }

    /// As gdb runs it.
    fn debugged(&self) -> debugger::Program<'_> {
        static STEADY: OnceLock<String> = OnceLock::new();
        let steady = || STEADY.get_or_init(|| victim::path("steady").display().to_string());
        debugger::Program {
            words: self.words,
            preloaded: self.is_steadied.then(|| steady().as_str()),
            is_go: self.is_go,
        }
    }

    /// What starts a command as the user who runs the program.
    fn as_user(&self) -> Vec<&'static str> {
        match self.user {
            "root" => Vec::new(),
            user => vec![
                "setpriv",
                "--reuid",
                user,
                "--regid",
                user,
                "--clear-groups",
            ],
        }
    }

    /// Gives a command what is to be the same each time.
    fn in_its_place(&self, command: &mut Command) {
        let name = self.words[0].rsplit('/').next().unwrap_or_default();
        let input = format!("{FOLDER}/{name}.in");
        fs::write(&input, self.input).expect("it is ours");
        let input = File::open(input).expect("it was written");
        // The hashes of interpreters are the same in each run, too, and Go's runtime leaves
        // the program alone. gdb's shell would add the directory, and Python's first dictionary
        // would have one more name.
        let here = env::current_dir().expect("it is there");
        command.env_clear().env("PWD", here).stdin(input).envs([
            ("PATH", "/usr/bin:/usr/sbin"),
            ("PERL_HASH_SEED", "0"),
            ("PYTHONHASHSEED", "0"),
            ("GOMAXPROCS", "1"),
            ("GOGC", "off"),
            ("GODEBUG", "asyncpreemptoff=1"),
        ]);
    }
}

/// Whether it is of what readies the libraries: the dynamic linker's first code has called
/// it before it says that they are ready. gdb does not know them then.
fn is_early(stack: &Stack) -> bool {
    static ENTRY: OnceLock<u64> = OnceLock::new();
    let last = stack.frames.last().expect("at least where it was");
    last.path.contains("/ld-linux") && {
        let entry = ENTRY.get_or_init(|| {
            let bytes = fs::read(&last.path).expect("it is there");
            object::File::parse(&*bytes).expect("ELF").entry()
        });
        (*entry..*entry + 16).contains(&last.offset)
    }
}

/// The stacks of each place in their order, and the number of those that are early. None may
/// be missing, or the n-th would be another.
fn hits(output: &Output) -> (BTreeMap<Place, Vec<Stack>>, usize) {
    let mut hits: BTreeMap<Place, Vec<Stack>> = BTreeMap::new();
    let (mut count, mut early, mut early_ns, mut later_ns) = (0, 0, 0, u64::MAX);
    // A program may end with an empty line.
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let line: Value = serde_json::from_str(line).expect("an object");
        if line["type"] == "hit" {
            count += 1;
            let stack = Stack::of(&line);
            let time_ns = line["time_ns"].as_u64().expect("a time");
            if is_early(&stack) {
                early += 1;
                early_ns = time_ns.max(early_ns);
                continue;
            }
            later_ns = time_ns.min(later_ns);
            let first = stack.frames.first().expect("at least where it was");
            let place = (first.path.clone(), first.offset);
            hits.entry(place).or_default().push(stack);
        } else if line["type"] == "summary" {
            assert_eq!(
                (&line["balanced"], &line["lost_full"]),
                (&true.into(), &0.into())
            );
            assert_eq!(line["printed"], count, "{}", output.stderr);
            // Libraries are ready before any code of theirs runs for the program: a later
            // stack that ends there has gone astray.
            assert!(
                early_ns < later_ns,
                "a stack at {early_ns} ends as if it were early"
            );
            return (hits, early);
        }
    }
    panic!("it did not end: {}", output.stderr)
}

impl Tally {
    fn stacks(&self) -> usize {
        self.equal + self.wrong + self.without_rows + self.cut.values().sum::<usize>()
    }

    fn add(&mut self, other: Tally) {
        self.equal += other.equal;
        self.without_rows += other.without_rows;
        self.wrong += other.wrong;
        self.elsewhere += other.elsewhere;
        self.early += other.early;
        self.frames += other.frames;
        for (reason, count) in other.cut {
            *self.cut.entry(reason).or_default() += count;
        }
    }

    /// Counts a stack, by that which gdb has seen.
    fn judge(&mut self, stop: &Stop, stack: &Stack, wanted: &[Place]) {
        if is_whole(stack, wanted) {
            self.equal += 1;
            self.frames += stack.frames.len();
        } else if agrees(stack, wanted) && ends_without_rows(stack) {
            self.without_rows += 1;
            self.frames += stack.frames.len();
        } else if agrees(stack, wanted) {
            *self.cut.entry(stack.end.clone()).or_default() += 1;
            self.frames += stack.frames.len();
        } else {
            self.wrong += 1;
            let (time, caller, end) = (stop.time, stop.caller, &stack.end);
            let (frames, wanted) = (lines(&places(stack)), lines(wanted));
            println!("time {time}, {caller:?}, nsprobe:{frames}\n  {end}\ngdb:{wanted}");
        }
    }
}

/// Whether a stack is whole, and gdb's.
fn is_whole(stack: &Stack, wanted: &[Place]) -> bool {
    stack.end == "outermost" && places(stack) == up_to_first_code(wanted)
}

/// Whether it is gdb's, as far as it goes, and says why it goes no further.
fn agrees(stack: &Stack, wanted: &[Place]) -> bool {
    let begins = up_to_first_code(wanted).starts_with(&places(stack));
    is_whole(stack, wanted) || (REASONS.contains(&stack.end.as_str()) && begins)
}

/// Whether a stack goes up to code that its file has no rows for, as it says.
fn ends_without_rows(stack: &Stack) -> bool {
    static ROWS: Mutex<BTreeMap<String, Vec<Range<u64>>>> = Mutex::new(BTreeMap::new());
    let [callees @ .., last] = stack.frames.as_slice() else {
        return false;
    };
    // Where a call returns to may be after its function.
    let place = last.offset - u64::from(!callees.is_empty());
    let mut rows = ROWS.lock().expect("nothing panics with it");
    let file = rows.entry(last.path.clone());
    let file = file.or_insert_with(|| with_rows(last.path.as_ref()));
    stack.end == "no-row" && !file.iter().any(|range| range.contains(&place))
}

/// Why a stack goes no further, when there may be more (`docs/json.md`).
const REASONS: [&str; 7] = [
    "fault",
    "bad-frame-pointer",
    "not-code",
    "unsupported",
    "bad-row",
    "no-row",
    "copy-end",
];

/// After the dynamic linker's first code, of which nothing tells that it has no caller,
/// gdb goes on into the program's arguments.
fn up_to_first_code(stack: &[Place]) -> &[Place] {
    let astray = stack.iter().position(|(path, _)| path == "?");
    let (known, _) = stack.split_at(astray.unwrap_or(stack.len()));
    match known.last() {
        Some((path, _)) if path.contains("/ld-linux") => known,
        _ => stack,
    }
}

/// The frames, as gdb's are told.
fn places(stack: &Stack) -> Vec<Place> {
    let frames = stack.frames.iter();
    let places = frames.map(|frame| (frame.path.clone(), frame.offset));
    places.collect()
}

/// A stack for people.
fn lines(stack: &[Place]) -> String {
    let lines = stack
        .iter()
        .map(|(path, offset)| format!("\n  {offset:#x} {path}"));
    lines.collect()
}
